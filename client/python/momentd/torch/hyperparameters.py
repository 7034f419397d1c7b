"""Hyperparameters of parameter groups: torch's words for what they may be, the wire's form."""

import torch

from momentd import _library as c
from momentd.store import Group

_REFUSED = {
    "amsgrad": "it needs a third moment, which momentd does not keep",
    "capturable": "a CUDA graph cannot hold a call of the daemon",
    "differentiable": "autograd cannot see through the daemon",
}
FUSED_ON_CPU = "results are held to torch's default on CPU tensors; fused rounds otherwise"
# How torch computes a step, not what: these stay the optimizer's own when a state is loaded.
IMPLEMENTATION = ("foreach", "capturable", "differentiable", "fused")


def _check(name, value, good):
    if not good:
        raise ValueError(f"Invalid {name}: {value}")


def _finite(value):
    return 0.0 <= float(value) < float("inf")


def _check_tensor(name, value, foreach):
    """torch takes tensors of one element, and none of them with foreach."""
    if not isinstance(value, torch.Tensor):
        return
    if foreach:
        raise ValueError(
            f"{name} as a Tensor is not supported for capturable=False and foreach=True"
        )
    if value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element")


def check_defaults(defaults):
    """Raises ValueError for what torch refuses, for infinities, and for what momentd has not."""
    check_choices(defaults)
    foreach, betas = defaults["foreach"], defaults["betas"]
    _check_tensor("lr", defaults["lr"], foreach)
    _check("learning rate", defaults["lr"], _finite(defaults["lr"]))
    _check("epsilon value", defaults["eps"], _finite(defaults["eps"]))
    for index, beta in enumerate(betas):
        _check_tensor(f"betas[{index}]", beta, foreach)
        _check(f"beta parameter at index {index}", beta, 0.0 <= float(beta) < 1.0)
    _check("weight_decay value", defaults["weight_decay"], _finite(defaults["weight_decay"]))


def check_choices(group):
    """Raises ValueError if a group, or the defaults of all, choose what momentd does not do."""
    for name, reason in _REFUSED.items():
        if group.get(name):
            raise ValueError(f"{name}={group[name]!r}: {reason}")
    if group.get("fused") and any(p.device.type == "cpu" for p in group.get("params", ())):
        raise ValueError(f"fused={group['fused']!r}: {FUSED_ON_CPU}")


def wire_group(group, tensors):
    """A group of torch as a step sends it, every time: a change counts from the very next step.
    A tensor is the number that it holds now."""
    check_choices(group)
    beta1, beta2 = group["betas"]
    return Group(
        tensors,
        lr=float(group["lr"]),
        betas=(float(beta1), float(beta2)),
        eps=float(group["eps"]),
        weight_decay=float(group["weight_decay"]),
        mode=c.ADAMW if group["decoupled_weight_decay"] else c.ADAM,
        maximize=bool(group["maximize"]),
    )
