"""Compares the daemon's kernels with torch.optim.Adam and AdamW, bit for bit.

test_torch_profile.py runs the functions in its own process; run as a program, this file prints how
many bits differ under the environment it was given (other CPU capabilities of torch and MKL).
"""

import dataclasses
import json
import sys

import torch

import kernel_library


@dataclasses.dataclass(frozen=True)
class Case:
    is_adam: bool = False
    lr: float = 1e-3
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    maximize: bool = False


CASES = {
    "adamw": Case(),
    "adamw-llm": Case(lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1),
    "adamw-no-decay": Case(lr=2.5e-4, weight_decay=0.0),
    "adamw-maximize": Case(maximize=True, lr=0.01),
    "adamw-large-eps": Case(eps=1e-3, betas=(0.95, 0.98)),
    "adamw-no-eps": Case(eps=0.0, betas=(0.85, 0.9995)),
    # 1 - beta1 of one half and above: torch interpolates from the other end.
    "adamw-low-beta1": Case(betas=(0.5, 0.99)),
    "adamw-lower-beta1": Case(betas=(0.3, 0.9)),
    "adamw-no-momentum": Case(betas=(0.0, 0.999)),
    "adam": Case(is_adam=True, weight_decay=0.0),
    "adam-l2": Case(is_adam=True, weight_decay=0.013, lr=7e-4),
    "adam-l2-maximize": Case(is_adam=True, weight_decay=0.1, maximize=True, betas=(0.2, 0.7)),
}

SIZES = (1, 7, 17, 37, 1001, 33003)


def bits(tensor):
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def differing(a, b):
    """Elements whose bits differ; any NaN equals any NaN."""
    return int(((bits(a) != bits(b)) & ~(a.isnan() & b.isnan())).sum())


def spread(count, generator, low=-7, high=2):
    """Normal deviates over `high - low` decades."""
    exponents = torch.rand(count, generator=generator) * (high - low) + low
    return torch.randn(count, generator=generator) * torch.pow(10.0, exponents)


class Torch:
    """torch's own optimizer over an fp32 clone, with its moments and t within reach."""

    def __init__(self, case, main, exp_avg, exp_avg_sq, steps_before):
        self.parameter = torch.nn.Parameter(main.clone())
        maker = torch.optim.Adam if case.is_adam else torch.optim.AdamW
        self.optimizer = maker([self.parameter], lr=case.lr, betas=case.betas, eps=case.eps,
                               weight_decay=case.weight_decay, maximize=case.maximize)
        self.state = self.optimizer.state[self.parameter]
        self.state["step"] = torch.tensor(float(steps_before), dtype=torch.float32)
        self.state["exp_avg"] = exp_avg.clone()
        self.state["exp_avg_sq"] = exp_avg_sq.clone()

    def step(self, gradient):
        self.parameter.grad = gradient.float()
        self.optimizer.step()


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
    result = {"capability": torch.backends.cpu.get_cpu_capability(), "profile": profile}
    for name, case in CASES.items():
        result[name] = sum(
            compare(case, count=count, steps_before=steps_before, steps=2,
                    instruction_set="scalar", ieee_square_root=profile == "torch-cpu-ieee",
                    seed=steps_before, floor=1e-30)
            for count in (37, 4099) for steps_before in (0, 99))
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
