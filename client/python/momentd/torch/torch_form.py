"""torch's form of an optimizer's state: groups and values by number of the parameter."""

from copy import deepcopy

from momentd.torch.hyperparameters import IMPLEMENTATION
from momentd.torch.values import MOMENTS, check_values, keys_of


def pack_groups(groups):
    """The groups with numbers in place of parameters, as torch.optim.Optimizer.state_dict() has
    them, and the numbers by id of the parameter."""
    numbers, packed, first = {}, [], 0
    for group in groups:
        for number, parameter in enumerate(group["params"], first):
            numbers.setdefault(id(parameter), number)
        first += len(group["params"])
        entries = {key: value for key, value in group.items() if key != "params"}
        entries["params"] = [numbers[id(parameter)] for parameter in group["params"]]
        packed.append(entries)
    return packed, numbers


def merge_groups(groups, saved):
    """The groups after a load: hyperparameters are those of `saved`, as in torch; parameters, names,
    members and the choice of implementation stay. Raises ValueError if they do not fit."""
    if len(groups) != len(saved):
        raise ValueError("loaded state dict has a different number of parameter groups")
    if any(len(ours["params"]) != len(theirs["params"]) for ours, theirs in zip(groups, saved)):
        raise ValueError(
            "loaded state dict contains a parameter group that doesn't match the size of "
            "optimizer's group"
        )
    return [_merge_group(ours, deepcopy(theirs)) for ours, theirs in zip(groups, saved)]


def _merge_group(ours, merged):
    if merged.get("amsgrad"):
        raise ValueError(
            "the loaded state is that of an optimizer with amsgrad=True: its third moment is not "
            "kept by momentd"
        )
    merged.pop("member", None)
    for key in ("params", "member", *IMPLEMENTATION):
        if key in ours:
            merged[key] = ours[key]
    merged.setdefault("amsgrad", False)
    merged.setdefault("maximize", False)
    merged.setdefault("decoupled_weight_decay", False)
    if "param_names" in ours:
        merged.setdefault("param_names", ours["param_names"])
    return merged


def unpack_state(state, saved_groups, groups, names):
    """The saved values by id of the parameter. Raises ValueError for what does not fit, before
    anything is changed.

    names: of the parameters, a list a group.
    """
    numbers = [number for group in saved_groups for number in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    flat_names = [name for group in names for name in group]
    owners = dict(zip(numbers, zip(parameters, flat_names)))
    values = {}
    for number, entries in state.items():
        if number not in owners:
            raise ValueError(f"loaded state dict has state of {number!r}, which is in no group")
        parameter, name = owners[number]
        if entries:
            _check_entries(entries, parameter, name)
            values[id(parameter)] = entries
    return values


def _check_entries(entries, parameter, name):
    if "max_exp_avg_sq" in entries:
        raise ValueError(f"{name} has the third moment of amsgrad, which momentd does not keep")
    for key in ("step", *MOMENTS):
        if key not in entries:
            raise ValueError(f"loaded state dict has no {key} of {name}")
    for key, value in entries.items():
        if key not in keys_of(parameter):
            reason = ": an fp32 parameter is its own main" if key == "main" else ""
            raise ValueError(f"loaded state dict has {key!r} of {name}, which Adam has not{reason}")
        check_values(value, parameter, name, key)
