"""The random generators that a trainer shares with every library: Python's, NumPy's, torch's."""

import random
import struct
import sys

import torch

_WORDS = struct.Struct("<625I")


def capture(devices):
    """The states of the process's generators, and of the default one of each device."""
    version, words, gauss = random.getstate()
    state = {
        "python": (version, _WORDS.pack(*words), gauss),
        "torch": torch.get_rng_state(),
        "devices": [(device.type, _module(device).get_rng_state(device)) for device in devices],
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state(legacy=False)
    return state


def restore(state, devices):
    """Sets the generators to what capture() found. Devices are matched by their order: a restarted
    job may number them otherwise."""
    version, words, gauss = state["python"]
    random.setstate((version, _WORDS.unpack(words), gauss))
    torch.set_rng_state(state["torch"])
    saved = state["devices"]
    if [kind for kind, _ in saved] != [device.type for device in devices]:
        raise RuntimeError(
            f"the interrupted run had generators on {[kind for kind, _ in saved]}, this one on "
            f"{[str(device) for device in devices]}: put the model where it was before resuming"
        )
    for device, (_, value) in zip(devices, saved):
        _module(device).set_rng_state(value, device)
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])


def devices_of(tensors):
    """The accelerators that these tensors are on, in their order, each once."""
    found = {}
    for tensor in tensors:
        if tensor.device.type not in ("cpu", "meta"):
            found.setdefault(tensor.device)
    return list(found)


def _module(device):
    return torch.get_device_module(device)
