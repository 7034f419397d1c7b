"""The parameters of an optimizer as the tensors of a store: types, memory, changes."""

import torch

from momentd import _library as c
from momentd.store import Tensor

TYPES = {torch.float32: c.FLOAT32, torch.bfloat16: c.BFLOAT16, torch.float16: c.FLOAT16}


def check_kind(parameter, name):
    """Raises ValueError if no parameter of this dtype and layout can be streamed."""
    if parameter.dtype not in TYPES:
        raise ValueError(
            f"parameter {name} is {parameter.dtype}; momentd has float32, bfloat16 and float16"
        )
    if parameter.layout != torch.strided:
        raise ValueError(f"parameter {name} has layout {parameter.layout}; it must be strided")


def check_memory(parameter, name):
    """Raises ValueError if the parameter's memory cannot be streamed to. Not asked before the store
    is opened: until then a parameter may give its place to another one."""
    if hasattr(parameter, "to_local"):
        raise ValueError(
            f"parameter {name} is a DTensor; this version takes ordinary tensors: build the "
            "optimizer over the local ones"
        )
    if parameter.device.type != "cpu":
        raise ValueError(
            f"parameter {name} is on {parameter.device}; this version serves CPU tensors"
        )


def local(tensor):
    """The part of a parameter, or of its gradient, that this process has in memory."""
    return tensor


class Slot:
    """One tensor of the store: the parameter, the memory that the daemon writes, and the version of
    the parameter as of our last look."""

    __slots__ = ("parameter", "name", "member", "shape", "dtype", "shadow", "address", "version")

    def __init__(self, parameter, name, member):
        check_kind(parameter, name)
        check_memory(parameter, name)
        self.parameter = parameter
        self.name = name
        self.member = member
        self.shape = local(parameter).shape
        self.dtype = parameter.dtype
        self.shadow = None
        self.address = None
        self.version = None

    def tensor(self, member_index):
        return Tensor(self.name, tuple(self.shape), TYPES[self.dtype], member_index)

    def locate(self):
        """Finds the parameter's memory; True if it is not where it was. A parameter that is not
        contiguous gets a contiguous shadow, copied back after each step."""
        here = local(self.parameter)
        if here.shape != self.shape or here.dtype != self.dtype:
            raise RuntimeError(
                f"parameter {self.name} was {tuple(self.shape)} of {self.dtype} when the store was "
                f"opened and is {tuple(here.shape)} of {here.dtype}"
            )
        if here.is_contiguous():
            self.shadow = None
        elif self.shadow is None:
            self.shadow = torch.empty(here.shape, dtype=here.dtype)
        memory = here if self.shadow is None else self.shadow
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
            self.shadow.copy_(local(self.parameter).detach())


def after_writing(slots):
    """The daemon wrote these parameters: autograd learns of it as of any in-place change."""
    for slot in slots:
        if slot.shadow is None:
            torch.autograd.graph.increment_version(slot.parameter)
        else:
            local(slot.parameter).detach().copy_(slot.shadow)
        slot.note()
