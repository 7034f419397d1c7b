"""Names of parameters: they identify the state on disk, for ever."""

import logging

import torch

from momentd.torch.tensors import is_distributed

_log = logging.getLogger("momentd.torch")

# What torch.compile, activation checkpointing and FSDP put into the names of what they wrap.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
_PARALLEL = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)


def _canonical(name):
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _named(module):
    """Names and parameters of the bare module, however it is wrapped."""
    while isinstance(module, _PARALLEL):
        module = module.module
    for name, parameter in module.named_parameters(remove_duplicate=True):
        yield _canonical(name), parameter


def _names_in(module):
    """Name by id of the parameter."""
    return {id(parameter): name for name, parameter in _named(module)}


def _check_not_left_behind(module, parameter, name):
    """fully_shard() gives a module new parameters; an optimizer that was built before it would
    train the old ones, which nobody reads."""
    now = dict(_named(module)).get(name)
    if now is not None and is_distributed(now) and not is_distributed(parameter):
        raise RuntimeError(
            f"parameter {name} of the groups is not the one that `module` has now: fully_shard() "
            "replaced it. Build the optimizer after fully_shard(), or put the module's parameters "
            "into the groups before the first step, as accelerate does"
        )


def _check_unique(groups, places):
    owners = {}
    for group, names in zip(groups, places):
        for parameter, name in zip(group["params"], names):
            if owners.setdefault((group.get("member"), name), parameter) is not parameter:
                raise ValueError(
                    f"two parameters are named {name!r}: names identify the state, so give them in "
                    "full, as model.named_parameters() does"
                )


class Names:
    """Gives each parameter its name: the module's, the group's (torch's named parameters), or its
    position in the groups.

    A name belongs to a place in the groups: a parameter that took another one's place later
    (FSDP2's way with optimizers) has the name that the module gives it now, else the name of the
    place.
    """

    def __init__(self, module):
        self._module = module
        self._places = []  # a list of names a group
        self.positional = False

    def note(self, groups):
        """Names the groups that were added. Raises ValueError for a parameter that the module does
        not have, and for a name that two parameters have."""
        in_module = None if self._module is None else _names_in(self._module)
        for group in groups[len(self._places) :]:
            self._places.append(self._name_group(group, in_module))
        _check_unique(groups, self._places)

    def forget_beyond(self, groups):
        """Groups that were added are taken back."""
        del self._places[len(groups) :]

    def of(self, groups):
        """The names of all parameters, a list a group."""
        in_module = {} if self._module is None else _names_in(self._module)
        names = []
        for index, (group, places) in enumerate(zip(groups, self._places)):
            if len(group["params"]) != len(places):
                raise RuntimeError(
                    f"group {index} has {len(group['params'])} parameters and had {len(places)} "
                    "when it was added: add parameters by add_param_group()"
                )
            found = [in_module.get(id(parameter)) for parameter in group["params"]]
            for parameter, name, place in zip(group["params"], found, places):
                if name is None and self._module is not None:
                    _check_not_left_behind(self._module, parameter, place)
            names.append([name or place for name, place in zip(found, places)])
        return names

    def tell(self, store):
        """Says that names are positions: what is lost by it would show much later."""
        if self.positional:
            _log.warning(
                "%s: the parameters have no names, their positions stand for them (000000, 000001, "
                "...): the state fits this order of parameters alone, and no other sharding. Give "
                "module=, or groups of model.named_parameters().",
                store,
            )

    def _name_group(self, group, in_module):
        if in_module is not None:
            return [
                self._name_in_module(in_module, parameter, index)
                for index, parameter in enumerate(group["params"])
            ]
        if group.get("param_names"):
            return list(group["param_names"])
        self.positional = True
        first = sum(len(places) for places in self._places)
        return [f"{position:06d}" for position in range(first, first + len(group["params"]))]

    @staticmethod
    def _name_in_module(in_module, parameter, index):
        if id(parameter) not in in_module:
            raise ValueError(
                f"parameter {index} of a group, of shape {tuple(parameter.shape)}, is not one of "
                "`module`: pass the module that the parameters came from"
            )
        return in_module[id(parameter)]
