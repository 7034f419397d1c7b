"""The parameters of an optimizer as the tensors of a store: names, types, memory, changes."""

import torch

from momentd import _library as c
from momentd.store import Tensor

TYPES = {torch.float32: c.FLOAT32, torch.bfloat16: c.BFLOAT16, torch.float16: c.FLOAT16}
_FP8 = {
    getattr(torch, name): code
    for name, code in (("float8_e4m3fn", c.FLOAT8_E4M3), ("float8_e5m2", c.FLOAT8_E5M2))
    if hasattr(torch, name)
}


def moment_type(dtype, what):
    """A dtype of exp_avg or exp_avg_sq as the wire's; the daemon refuses fp8 and fp16 exp_avg_sq."""
    known = {**TYPES, **_FP8}
    if dtype not in known:
        raise ValueError(f"{what}={dtype}: it must be torch.float32, bfloat16 or float16")
    return known[dtype]


def check(parameter, name):
    """Raises ValueError if the parameter cannot be streamed."""
    if parameter.dtype not in TYPES:
        raise ValueError(
            f"parameter {name} is {parameter.dtype}; momentd has float32, bfloat16 and float16"
        )
    if parameter.layout != torch.strided:
        raise ValueError(f"parameter {name} has layout {parameter.layout}; it must be strided")
    if hasattr(parameter, "to_local"):
        raise ValueError(
            f"parameter {name} is a DTensor; this version takes ordinary tensors: build the "
            "optimizer over the local ones"
        )
    if parameter.device.type != "cpu":
        raise ValueError(
            f"parameter {name} is on {parameter.device}; this version serves CPU tensors"
        )


class Names:
    """Gives each parameter its name: the module's, the group's (torch's named parameters), or its
    position in the groups."""

    def __init__(self, module):
        self.positional = False
        self._of_module = None
        if module is not None:
            named = module.named_parameters(remove_duplicate=True)
            self._of_module = {id(parameter): name for name, parameter in named}

    def name(self, parameter, group, index, position):
        if self._of_module is not None:
            if id(parameter) not in self._of_module:
                raise ValueError(
                    f"parameter {index} of a group, of shape {tuple(parameter.shape)}, is not one "
                    "of `module`: pass the module that the parameters came from"
                )
            return self._of_module[id(parameter)]
        if group.get("param_names"):
            return group["param_names"][index]
        self.positional = True
        return f"{position:06d}"


class Slot:
    """One tensor of the store: the parameter, the memory that the daemon writes, and the version of
    the parameter as of our last look."""

    __slots__ = ("parameter", "name", "member", "shape", "dtype", "shadow", "address", "version")

    def __init__(self, parameter, name, member):
        self.parameter = parameter
        self.name = name
        self.member = member
        self.shape = parameter.shape
        self.dtype = parameter.dtype
        self.shadow = None
        self.address = None
        self.version = None

    def tensor(self, member_index):
        return Tensor(self.name, tuple(self.shape), TYPES[self.dtype], member_index)

    def locate(self):
        """Finds the parameter's memory; True if it is not where it was. A parameter that is not
        contiguous gets a contiguous shadow, copied back after each step."""
        parameter = self.parameter
        if parameter.shape != self.shape or parameter.dtype != self.dtype:
            raise RuntimeError(
                f"parameter {self.name} was {tuple(self.shape)} of {self.dtype} when the optimizer "
                f"was made and is {tuple(parameter.shape)} of {parameter.dtype}"
            )
        if parameter.is_contiguous():
            self.shadow = None
        elif self.shadow is None:
            self.shadow = torch.empty(parameter.shape, dtype=parameter.dtype)
        memory = parameter if self.shadow is None else self.shadow
        address = memory.data_ptr() or None
        moved = address != self.address
        self.address = address
        if moved:
            self.version = None
        return moved

    def changed(self):
        """Somebody else wrote the parameter since note()."""
        return self.parameter._version != self.version

    def note(self):
        self.version = self.parameter._version

    def before_reading(self):
        """The daemon is about to read the parameter."""
        if self.shadow is not None:
            self.shadow.copy_(self.parameter.detach())


def after_writing(slots):
    """The daemon wrote these parameters: autograd learns of it as of any in-place change."""
    for slot in slots:
        if slot.shadow is None:
            torch.autograd.graph.increment_version(slot.parameter)
        else:
            slot.parameter.detach().copy_(slot.shadow)
        slot.note()
