"""Where the parameters of an optimizer are: on the CPU, or on one GPU."""

import torch

from momentd.torch.profile import torch_profile

SERVED = ("cpu", "cuda")
_FUSED_ALIKE = (2, 11)  # from this version of torch on the fused kernels have one sequence


def check_device(tensor, what):
    """Raises ValueError if the daemon cannot reach memory of this kind."""
    if tensor.device.type not in SERVED:
        raise ValueError(
            f"{what} is on {tensor.device}; momentd serves tensors on the CPU and on CUDA GPUs"
        )


def device_of(parameters):
    """The one device of these (named) parameters; the CPU without any. Raises ValueError for several."""
    found = {}
    for name, parameter in parameters:
        found.setdefault(parameter.device, name)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise ValueError(
            f"parameter {first} is on {one} and {second} on {other}: give the parameters of each "
            "device an optimizer of their own (with a role of its own)"
        )
    return next(iter(found), torch.device("cpu"))


def name_of(device):
    """The daemon's name for it: a GPU has one however processes count their GPUs."""
    if device.type == "cpu":
        return "host"
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def profile_for(device, groups):
    """The arithmetic of torch's own optimizer with the same arguments on this device. Raises ValueError
    for arguments whose arithmetic momentd does not have there."""
    if device.type == "cpu":
        return torch_profile()
    fused = {bool(group.get("fused")) for group in groups}
    if fused == {True}:
        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
        return "torch-cuda" if version >= _FUSED_ALIKE else "torch-cuda-210"
    if True in fused:
        raise ValueError("fused must be the same for all parameter groups of an optimizer on a GPU")
    if any(group.get("foreach") is False for group in groups):
        raise ValueError(
            "foreach=False: results on a GPU are held to torch's default there, which is foreach=True "
            "and rounds otherwise; leave it out, or choose fused=True"
        )
    return "torch-cuda-foreach"


def check_arithmetic(groups):
    """Raises ValueError as profile_for(), where the parameters are on one device by now."""
    devices = {parameter.device for group in groups for parameter in group["params"]}
    if len(devices) == 1 and next(iter(devices)).type in SERVED:
        profile_for(next(iter(devices)), groups)


def synchronize(device):
    """What the trainer has queued on the current stream is done: the daemon's streams know nothing of
    the trainer's."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
