"""The segments of a store, as the entries that torch keeps for a parameter."""

import torch

from momentd.torch.tensors import TYPES

_NARROW = "it is too narrow for plain values: updates would vanish or blow up"
_CHOICES = {
    "exp_avg": (torch.float32, torch.bfloat16, torch.float16),
    "exp_avg_sq": (torch.float32, torch.bfloat16),
}


def moment_type(segment, dtype):
    """The wire's type of a moment on disk. Raises ValueError for one that loses the update."""
    choices = _CHOICES[segment]
    if dtype not in choices:
        names = ", ".join(str(choice) for choice in choices)
        narrow = isinstance(dtype, torch.dtype) and dtype.is_floating_point and dtype.itemsize < 4
        reason = f" ({_NARROW})" if narrow else ""
        raise ValueError(f"{segment}_dtype={dtype}{reason}; it must be one of {names}")
    return TYPES[dtype]
