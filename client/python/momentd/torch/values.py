"""The values of torch's state of a parameter, and what of the store they are.

| key | is |
|---|---|
| step | t, as torch keeps it: a tensor without dimensions |
| exp_avg, exp_avg_sq | the moments, in the type they have on disk |
| main | the fp32 main of a 16-bit parameter (an fp32 parameter is its own main) |
"""

import mmap

import torch

from momentd.torch.tensors import TYPES, like, local

_DTYPES = {code: dtype for dtype, code in TYPES.items()}
_MOMENT_DTYPES = {
    "exp_avg": (torch.float32, torch.bfloat16, torch.float16),
    "exp_avg_sq": (torch.float32, torch.bfloat16),
}
MOMENTS = tuple(_MOMENT_DTYPES)


def dtype_of(code):
    """The dtype of a type of the wire."""
    return _DTYPES[code]


def check_moment(segment, dtype):
    """The dtype, if moments may have it on disk; ValueError otherwise."""
    choices = _MOMENT_DTYPES[segment]
    if dtype not in choices:
        narrow = isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize < 4
        reason = " is too narrow for it, updates would vanish or blow up" if narrow else ""
        names = ", ".join(str(choice) for choice in choices)
        raise ValueError(f"{segment}_dtype={dtype}{reason}; it must be one of {names}")
    return dtype


def keys_of(parameter):
    keys = ("step", *MOMENTS)
    return keys if parameter.dtype == torch.float32 else (*keys, "main")


def step_tensor(t):
    """t as torch.optim.Adam has it."""
    wide = torch.get_default_dtype() == torch.float64
    return torch.tensor(float(t), dtype=torch.float64 if wide else torch.float32)


def step_number(value, name):
    """t, of what stands for it in a state: a tensor of one element, or a number."""
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise ValueError(f"step of {name} has shape {tuple(value.shape)}; it must be one number")
    t = float(value)
    if not (t >= 0 and t.is_integer()):
        raise ValueError(f"step of {name} is {t}; it must be a whole number, not negative")
    return int(t)


def check_values(value, parameter, name, key):
    """Raises ValueError unless a segment can be written from this value."""
    if key == "step":
        step_number(value, name)
        return
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise ValueError(f"{key} of {name} is {kind}; it must be a floating-point tensor")
    if local(value).shape != local(parameter).shape:
        raise ValueError(
            f"{key} of {name} has shape {tuple(value.shape)}; the parameter has "
            f"{tuple(parameter.shape)}"
        )


def readable(value):
    """The value as memory that the daemon can read: itself, unless it has to be copied for that."""
    here = local(value.detach())
    return (here if here.dtype in TYPES else here.float()).cpu().contiguous()


class Zeros:
    """Zeros that take no memory until they are written: pages that the kernel makes when touched."""

    def __init__(self, sizes_bytes):
        """Room for tensors of these sizes."""
        size = max(sum(_aligned(size) for size in sizes_bytes), 1)
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._left = memoryview(pages)

    def take(self, shape, dtype):
        count = shape.numel()
        if count == 0:
            return torch.zeros(shape, dtype=dtype)
        values = torch.frombuffer(self._left, dtype=dtype, count=count)
        self._left = self._left[_aligned(count * dtype.itemsize) :]
        return values.view(shape)


def _aligned(size_bytes):
    return -(-size_bytes // 64) * 64


def fresh(parameters, moment_dtypes):
    """The state of parameters that no step has seen, a dict each.

    moment_dtypes: of exp_avg and exp_avg_sq.
    """
    dtypes = tuple(moment_dtypes)
    shapes = [local(parameter).shape for parameter in parameters]
    zeros = Zeros(shape.numel() * dtype.itemsize for shape in shapes for dtype in dtypes)
    states = []
    for parameter, shape in zip(parameters, shapes):
        state = {"step": step_tensor(0)}
        for key, dtype in zip(MOMENTS, dtypes):
            state[key] = like(parameter, zeros.take(shape, dtype))
        states.append(state)
    return states


def fresh_with_main(parameters, moment_dtypes):
    """The same, and the mains of 16-bit parameters: what the parameters are now."""
    states = fresh(parameters, moment_dtypes)
    for parameter, state in zip(parameters, states):
        if "main" in keys_of(parameter):
            state["main"] = parameter.detach().float()
    return states
