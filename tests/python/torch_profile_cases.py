"""Compares the daemon's kernels with torch.optim.Adam and AdamW, bit for bit.

test_torch_profile.py runs the functions in its own process; run as a program, this file prints how
many bits differ under the environment it was given (other CPU capabilities of torch and MKL).
"""

import json
import sys

import torch

import kernel_library
from momentd.torch.profile import torch_profile
from torch_optimizers import CASES, Torch, spread

SIZES = (1, 7, 17, 37, 1001, 33003)


def bits(tensor):
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def differing(a, b):
    """Elements whose bits differ; any NaN equals any NaN."""
    return int(((bits(a) != bits(b)) & ~(a.isnan() & b.isnan())).sum())


def compare(case, *, count, steps_before, steps, instruction_set, ieee_square_root,
            parameter_type=torch.float32, gradient_type=torch.float32, seed=0, spoil=None,
            floor=0.0):
    """Bits that differ in main, exp_avg, exp_avg_sq and the parameter over `steps` steps."""
    generator = torch.Generator().manual_seed(seed)
    main = spread(count, generator)
    exp_avg = spread(count, generator) if steps_before else torch.zeros(count)
    exp_avg_sq = spread(count, generator).square() + floor if steps_before else torch.zeros(count)
    theirs = Torch(case, main, exp_avg, exp_avg_sq, steps_before)
    parameter = torch.empty(count, dtype=parameter_type)
    total = 0
    for step in range(steps):
        gradient = spread(count, generator, high=0).to(gradient_type)
        if spoil is not None:
            spoil(gradient, step)
        theirs.step(gradient)
        kernel_library.adam(
            instruction_set, main, exp_avg, exp_avg_sq, gradient, parameter,
            t=steps_before + step + 1, lr=case.lr, betas=case.betas, eps=case.eps,
            weight_decay=case.weight_decay, is_adam=case.is_adam, maximize=case.maximize,
            ieee_square_root=ieee_square_root)
        expected = theirs.parameter.detach()
        total += differing(main, expected)
        total += differing(exp_avg, theirs.state["exp_avg"])
        total += differing(exp_avg_sq, theirs.state["exp_avg_sq"])
        total += differing(parameter, expected.to(parameter_type))
    return total


def radicands():
    """Non-negative fp32 numbers: every exponent, 2^14 mantissas each, and the special ones."""
    exponents = torch.arange(0, 255, dtype=torch.int32).repeat_interleave(1 << 14) << 23
    generator = torch.Generator().manual_seed(7)
    mantissas = torch.randint(0, 1 << 23, exponents.shape, generator=generator, dtype=torch.int32)
    mantissas[:: 1 << 14] = 0
    special = torch.tensor([0.0, -0.0, float("inf"), float("nan"), -1.0])
    return torch.cat([special, (exponents | mantissas).view(torch.float32)])


def ieee_root(values):
    """Correctly rounded: the root in double has enough digits for a single rounding to be right."""
    return values.double().sqrt().float()


def root_of_torch():
    """Which profile the installed torch follows here, by its square root; None if neither."""
    # From 2^-104 on: below, MKL's AVX2 code is neither.
    values = radicands()
    values = values[~(values < 2.0**-104) | (values == 0)]
    roots = values.sqrt()
    if differing(roots, kernel_library.square_root(values)) == 0:
        return "torch-cpu"
    return "torch-cpu-ieee" if differing(roots, ieee_root(values)) == 0 else None


def main():
    profile = root_of_torch()
    result = {"capability": torch.backends.cpu.get_cpu_capability(), "profile": profile,
              "client": torch_profile()}
    for name, case in CASES.items():
        result[name] = sum(
            compare(case, count=count, steps_before=steps_before, steps=2,
                    instruction_set="scalar", ieee_square_root=profile == "torch-cpu-ieee",
                    seed=steps_before, floor=1e-30)
            for count in (37, 4099) for steps_before in (0, 99))
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
