"""torch.optim.Adam and AdamW with their defaults on CPU tensors, and what they are run on."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Case:
    is_adam: bool = False
    lr: float = 1e-3
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    maximize: bool = False
    foreach: bool = False


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
                               weight_decay=case.weight_decay, maximize=case.maximize,
                               foreach=case.foreach)
        self.state = self.optimizer.state[self.parameter]
        self.state["step"] = torch.tensor(float(steps_before), dtype=torch.float32)
        self.state["exp_avg"] = exp_avg.clone()
        self.state["exp_avg_sq"] = exp_avg_sq.clone()

    def step(self, gradient):
        self.parameter.grad = gradient.float()
        self.optimizer.step()
