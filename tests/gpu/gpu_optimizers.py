"""torch's own optimizers on the GPU, and what they are compared over."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from torch_optimizers import CASES, Case  # noqa: E402, F401

FLOATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# How torch is asked for the arithmetic of each profile.
IMPLEMENTATIONS = {"torch-cuda": {"fused": True}, "torch-cuda-foreach": {"foreach": True}}


def is_ambiguous(case):
    """Whether torch's fused kernel has no one sequence for it: Adam with weight decay.

    nvcc fused the product and the sum of `grad + param * weight_decay` for three elements of four
    and not for the fourth, and for none with maximize (torch 2.11 and 2.12 on compute capabilities
    8.0 and 9.0; on 12.0 for all). docs/internals/numerics.md.
    """
    return case.is_adam and case.weight_decay != 0


def spread(count, generator, low=-7, high=2):
    """Normal deviates over `high - low` decades, on the GPU."""
    exponents = torch.rand(count, generator=generator, device="cuda") * (high - low) + low
    return torch.randn(count, generator=generator, device="cuda") * torch.pow(10.0, exponents)


def generator(seed):
    return torch.Generator(device="cuda").manual_seed(seed)


def bits(tensor):
    return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def differing(a, b):
    """Elements whose bits differ; any NaN equals any NaN."""
    return int(((bits(a) != bits(b)) & ~(a.isnan() & b.isnan())).sum())


class State:
    """Mains and moments before a step, random; moments are zero before the first."""

    def __init__(self, count, random, steps_before, exp_avg=torch.float32,
                 exp_avg_sq=torch.float32):
        self.main = spread(count, random)
        self.exp_avg = spread(count, random) if steps_before else torch.zeros_like(self.main)
        self.exp_avg_sq = spread(count, random).square() if steps_before else (
            torch.zeros_like(self.main))
        self.exp_avg = self.exp_avg.to(exp_avg)
        self.exp_avg_sq = self.exp_avg_sq.to(exp_avg_sq)

    def tensors(self):
        return self.main, self.exp_avg, self.exp_avg_sq

    def clone(self):
        other = State.__new__(State)
        other.main, other.exp_avg, other.exp_avg_sq = (t.clone() for t in self.tensors())
        return other


class Torch:
    """torch's optimizer over clones of a state in fp32, cut into tensors of `sizes`."""

    def __init__(self, case, state, steps_before, implementation, sizes=None):
        sizes = sizes or [state.main.numel()]
        self.flat = state.clone()
        self.parameters = [torch.nn.Parameter(part) for part in self.flat.main.split(sizes)]
        maker = torch.optim.Adam if case.is_adam else torch.optim.AdamW
        self.optimizer = maker(self.parameters, lr=case.lr, betas=case.betas, eps=case.eps,
                               weight_decay=case.weight_decay, maximize=case.maximize,
                               **implementation)
        device = "cuda" if implementation.get("fused") else "cpu"
        for parameter, m, v in zip(self.parameters, self.flat.exp_avg.split(sizes),
                                   self.flat.exp_avg_sq.split(sizes)):
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(steps_before), dtype=torch.float32, device=device),
                "exp_avg": m, "exp_avg_sq": v}
        self.sizes = sizes

    def step(self, gradient):
        for parameter, part in zip(self.parameters, gradient.float().split(self.sizes)):
            parameter.grad = part
        self.optimizer.step()
