"""Writes adam.txt: single steps of torch.optim.AdamW and Adam on a CPU with AVX-512 and MKL.

    python make_adam.py > adam.txt

Run again with MKL_ENABLE_INSTRUCTIONS=AVX2 in the environment and appended, for the cases of
torch-cpu-ieee. A line of a case: the word case, profile, adam or adamw, maximize (0 or 1), lr,
beta1, beta2, eps, weight_decay (hexadecimal floating point), t. A line of an element: bits of p, m,
v and g before, and of p, m and v after the step.
"""

import os
import pathlib
import struct
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from torch_optimizers import CASES, Torch, spread  # noqa: E402

ELEMENTS = 23  # a vector of either width, and a tail


def hex_bits(value):
    return f"{struct.unpack('<I', struct.pack('<f', value))[0]:08x}"


def main():
    profile = ("torch-cpu-ieee" if os.environ.get("MKL_ENABLE_INSTRUCTIONS") == "AVX2"
               else "torch-cpu")
    generator = torch.Generator().manual_seed(5)
    for case in CASES.values():
        for t in (1, 2, 1000, 100_000):
            before = [spread(ELEMENTS, generator) for _ in range(4)]
            before[2] = before[2].square() + 1e-30
            if t == 1:
                before[1].zero_()
                before[2].zero_()
            theirs = Torch(case, before[0], before[1], before[2], t - 1)
            theirs.step(before[3])
            after = [theirs.parameter.detach(), theirs.state["exp_avg"], theirs.state["exp_avg_sq"]]
            numbers = [case.lr, *case.betas, case.eps, case.weight_decay]
            print("case", profile, "adam" if case.is_adam else "adamw", int(case.maximize),
                  *(float(number).hex() for number in numbers), t)
            for element in zip(*(tensor.tolist() for tensor in before + after)):
                print(*(hex_bits(value) for value in element))


if __name__ == "__main__":
    main()
