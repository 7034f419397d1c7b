"""What torch's ZeroRedundancyOptimizer does to an optimizer that it deals parameters out to."""

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


def is_zero(optimizer):
    if not torch.distributed.is_available():
        return False
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return isinstance(optimizer, ZeroRedundancyOptimizer)


def send_parameters(optimizer):
    """Every rank's own parameters to all others, as after a step."""
    optimizer._sync_params()
