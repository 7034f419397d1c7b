"""Writes adam_cuda.txt: single steps that torch and Transformer Engine computed on a GPU.

    python make_adam_cuda.py > adam_cuda.txt

torch-cuda and torch-cuda-foreach by the installed torch (2.11 or later), torch-cuda-210 and te by
the kernels that tests/gpu/real_kernels.py says how to get; a profile whose kernels are not there is
an error. A line of a case is as in adam.txt, of te with the bits of the GPU's reciprocals of both
bias corrections at its end. A line of an element: bits of p, m, v and g before, and of p, m and v
after the step; of te also an argument and the result of the GPU's square root, and of its
reciprocal. Lines "power base exponent result" are of the GPU's powf.
"""

import ctypes
import dataclasses
import pathlib
import struct
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import kernel_library  # noqa: E402
import real_kernels  # noqa: E402
from gpu_optimizers import CASES, IMPLEMENTATIONS, State, Torch, generator, spread  # noqa: E402
from gpu_optimizers import is_ambiguous  # noqa: E402

ELEMENTS = 23
STEPS = (1, 2, 1000, 100_000)


def hex_bits(value):
    return f"{struct.unpack('<I', struct.pack('<f', value))[0]:08x}"


def as_float(value):
    return ctypes.c_float(value).value


def te_parts(case, t, after):
    """The bits of the reciprocals of c1 and c2, and per element sqrt and reciprocal with arguments.

    Every number is normal, so that torch's operations are those of the flushing kernel.
    """
    c1, c2 = (as_float(1 - as_float(beta) ** t) for beta in case.betas)
    of_case = [kernel_library.approximate(value, root=False) for value in (c1, c2)]
    quotients = after[2] * torch.tensor(of_case[1], device="cuda")
    lines = []
    for quotient in quotients.tolist():
        root = kernel_library.approximate(quotient, root=True)
        denominator = (torch.tensor(root) + torch.tensor(as_float(case.eps))).item()
        lines.append([quotient, root, denominator,
                      kernel_library.approximate(denominator, root=False)])
    return of_case, lines


def step(profile, case, state, gradient, t):
    """The mains and moments after the real step."""
    if profile in IMPLEMENTATIONS:
        theirs = Torch(case, state, t - 1, IMPLEMENTATIONS[profile])
        theirs.step(gradient)
        return theirs.flat.tensors()
    after = state.clone()
    if profile == "te":
        parameter = torch.empty_like(after.main)
        real_kernels.TransformerEngine().step(*after.tensors(), gradient, parameter, case=case, t=t)
    else:
        real_kernels.Torch210().step(*after.tensors(), gradient, case=case, t=t)
    return after.tensors()


def write_case(profile, case, t, random):
    state = State(ELEMENTS, random, t - 1)
    state.exp_avg_sq += 1e-24 if t > 1 else 0
    gradient = spread(ELEMENTS, random, low=-5)
    before = [tensor.clone() for tensor in (*state.tensors(), gradient)]
    # Transformer Engine has no maximize: there ours negates the gradient first.
    negate = profile == "te" and case.maximize
    after = step(profile, dataclasses.replace(case, maximize=False) if negate else case, state,
                 -gradient if negate else gradient, t)
    of_case, of_elements = te_parts(case, t, after) if profile == "te" else ([], [[]] * ELEMENTS)
    numbers = [case.lr, *case.betas, case.eps, case.weight_decay]
    print("case", profile, "adam" if case.is_adam else "adamw", int(case.maximize),
          *(float(number).hex() for number in numbers), t, *map(hex_bits, of_case))
    columns = zip(*(tensor.tolist() for tensor in (*before, *after)))
    for element, parts in zip(columns, of_elements):
        print(*(hex_bits(value) for value in (*element, *parts)))


def write_powers(random):
    """torch.pow of fp32 tensors, which is the powf of the fused optimizers."""
    bases = torch.rand(200, generator=random, device="cuda")
    bases[::2] = 1 - torch.pow(10.0, -6 * bases[::2])
    exponents = torch.floor(torch.pow(2.0, 20 * torch.rand(200, generator=random, device="cuda")))
    powers = torch.pow(bases, exponents)
    for line in zip(bases.tolist(), exponents.tolist(), powers.tolist()):
        print("power", *map(hex_bits, line))


def main():
    random = generator(5)
    write_powers(random)
    for profile in kernel_library.PROFILES:
        for case in CASES.values():
            if profile == "torch-cuda" and is_ambiguous(case):
                continue
            for t in STEPS:
                write_case(profile, case, t, random)


if __name__ == "__main__":
    main()
