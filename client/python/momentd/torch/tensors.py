"""The parameters of an optimizer as the tensors of a store: types, memory, changes."""

import torch

from momentd import _library as c
from momentd.store import Tensor
from momentd.torch.devices import check_device
from momentd.torch.shards import shard_of

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
    check_device(parameter, f"parameter {name}")


def is_distributed(tensor):
    """A DTensor: each rank has a part of it."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "to_local")


def local(tensor):
    """The part of a parameter, or of its gradient, that this process has in memory."""
    if not is_distributed(tensor):
        return tensor
    with torch.no_grad():
        here = tensor.to_local()
    return here.wait() if hasattr(here, "wait") else here  # of a collective that still runs


def gradient_of(parameter):
    """This rank's part of the gradient, cut as the parameter is. A gradient with other placements
    (partial sums of tensor parallelism) is redistributed first: a collective, as in torch."""
    gradient = parameter.grad
    if is_distributed(parameter) and tuple(gradient.placements) != tuple(parameter.placements):
        gradient = gradient.redistribute(placements=parameter.placements)
    return local(gradient)


def versions(tensor):
    """Of the tensor, and of its local part: torch counts the changes of each by itself."""
    return tensor._version, local(tensor)._version


def like(parameter, tensor):
    """The inverse of local(): a tensor of the same shape as local(parameter), as a value that stands
    to the whole model as the parameter does."""
    if not is_distributed(parameter):
        return tensor
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        tensor,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


class Slot:
    """One tensor of the store: the parameter, the memory that the daemon writes, and the version of
    the parameter as of our last look."""

    __slots__ = (
        "parameter", "name", "member", "shape", "shard", "dtype", "shadow", "address", "version"
    )

    def __init__(self, parameter, name, member):
        check_kind(parameter, name)
        check_memory(parameter, name)
        self.parameter = parameter
        self.name = name
        self.member = member
        self.shape = local(parameter).shape
        self.shard = shard_of(parameter, name) if is_distributed(parameter) else None
        self.dtype = parameter.dtype
        self.shadow = None
        self.address = None
        self.version = None

    def tensor(self, member_index):
        return Tensor(self.name, tuple(self.shape), TYPES[self.dtype], member_index, self.shard)

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
            self.shadow = torch.empty(here.shape, dtype=here.dtype, device=here.device)
        memory = here if self.shadow is None else self.shadow
        address = memory.data_ptr() or None
        if address is None and memory.numel() > 0:
            raise RuntimeError(f"parameter {self.name} has no memory: its storage was freed")
        moved = address != self.address
        self.address = address
        if moved:
            self.version = None
        return moved

    def changed(self):
        """Somebody else wrote the parameter since note()."""
        return versions(self.parameter) != self.version

    def note(self):
        self.version = versions(self.parameter)

    def forget(self):
        """Main and parameter may differ: counts as a change."""
        self.version = None

    def before_reading(self):
        """The daemon is about to read the parameter."""
        if self.shadow is not None:
            self.shadow.copy_(local(self.parameter).detach())


def after_writing(slots):
    """The daemon wrote these parameters: autograd learns of it as of any in-place change."""
    for slot in slots:
        if slot.shadow is None:
            torch.autograd.graph.increment_version(slot.parameter)
            if slot.shard is not None:
                torch.autograd.graph.increment_version(local(slot.parameter))
        else:
            local(slot.parameter).detach().copy_(slot.shadow)
        slot.note()
