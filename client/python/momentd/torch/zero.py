"""What torch's ZeroRedundancyOptimizer does to an optimizer that it deals parameters out to."""

import sys

import torch


def made_by_zero(group):
    """The group came through ZeroRedundancyOptimizer: it has the arguments of our constructor,
    which are defaults of its groups there."""
    return "job" in group


def drop_arguments(groups, arguments):
    """Makes None of our constructor's arguments in the groups: the module, and whatever else was
    given, would be part of every state_dict(). ZeroRedundancyOptimizer copies the values of its own
    groups here before each step, and those from here afterwards."""
    for group in groups:
        if group.get("job") is not None:
            for name in arguments.intersection(group):
                group[name] = None


def check_names(group):
    """ValueError for names that do not belong to the parameters beside them."""
    if made_by_zero(group) and group.get("param_names"):
        raise ValueError(
            "ZeroRedundancyOptimizer deals the parameters of a group out and keeps the whole list "
            "of param_names: give module= instead"
        )


def refuse_invented_step(groups):
    """RuntimeError in the step by which torch.distributed.checkpoint means to give a new optimizer
    its state: learning rates and gradients are zero, and the moments of a trained one would decay.
    It asks the optimizer's `state` whether there is some; that of ZeroRedundancyOptimizer itself
    never has any."""
    if not all(made_by_zero(group) and float(group["lr"]) == 0 for group in groups):
        return
    frame = sys._getframe(1)
    while frame is not None:
        place = frame.f_globals.get("__name__"), frame.f_code.co_name
        if place == ("torch.distributed.checkpoint.state_dict", "_init_optim_state"):
            raise RuntimeError(
                "torch.distributed.checkpoint cannot save or load a ZeroRedundancyOptimizer: it "
                "finds no state in it and steps it with zero gradients, which would change the "
                "state that it has. Nothing was changed but the learning rates, which torch has set "
                "to 0 for that. Use consolidate_state_dict() and load_state_dict() of the optimizer"
            )
        frame = frame.f_back


def is_zero(optimizer):
    if not torch.distributed.is_available():
        return False
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return isinstance(optimizer, ZeroRedundancyOptimizer)


def send_parameters(optimizer):
    """Every rank's own parameters to all others, as after a step."""
    optimizer._sync_params()
