"""What the tests of shared GPU memory have in common: a daemon, training beside torch, other memory."""

import os
import pathlib
import sys

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if "MOMENTD_BINARY" not in os.environ:
    pytest.skip("MOMENTD_BINARY does not name the daemon", allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import momentd  # noqa: E402
import momentd.torch  # noqa: E402

SHAPES = [(2000, 1500), (1500,), (1,), (513, 77), (1_000_003,), (12, 12, 12)]
DAEMON = ["--host-memory", "1GiB"]
# How parameters of the allocator that this process uses reach the daemon.
EXPECTED = os.environ.get("MOMENT_GPU_EXPECT", "cuda_ipc")


def parameters(shapes=SHAPES, dtype=torch.float32, seed=1):
    random = torch.Generator(device="cuda").manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=random, device="cuda").to(dtype))
        for shape in shapes
    ]


def differing(ours, theirs):
    """Elements whose bits differ."""
    bits = torch.int32 if ours.element_size() == 4 else torch.int16
    return int((ours.detach().contiguous().view(bits)
                != theirs.detach().to(ours.dtype).contiguous().view(bits)).sum())


class Beside:
    """The same training by momentd and by torch, whose mains are fp32."""

    def __init__(self, daemon, job, ours, *, adam=False, implementation=None, **options):
        self.ours = ours
        self.theirs = [torch.nn.Parameter(p.detach().float().clone()) for p in ours]
        implementation = implementation or {"foreach": True}
        name = "Adam" if adam else "AdamW"
        self.optimizer = getattr(momentd.torch, name)(
            ours, job=job, socket=daemon.socket, commit_every=0, **implementation, **options)
        self.reference = getattr(torch.optim, name)(self.theirs, **implementation, **options)
        self.random = torch.Generator(device="cuda").manual_seed(2)

    def set_gradients(self):
        for mine, other in zip(self.ours, self.theirs):
            gradient = torch.randn(mine.shape, generator=self.random, device="cuda") * 0.1
            mine.grad = gradient.to(mine.dtype)
            other.grad = mine.grad.float()

    def step(self):
        self.set_gradients()
        self.optimizer.step()
        self.reference.step()
        for mine, other in zip(self.ours, self.theirs):
            mine.grad = other.grad = None

    def differing(self):
        return sum(differing(mine, other) for mine, other in zip(self.ours, self.theirs))

    def transport(self):
        return self.optimizer.info().transport


class Wrapped:
    """Memory of the driver's as torch sees memory of others."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}

    def tensor(self):
        return torch.as_tensor(self, device="cuda")


def _checked(result):
    code, *values = result
    assert int(code) == 0, code
    return values[0] if values else None


def unexportable(count):
    """`count` floats of cuMemCreate without handle types, as torch_memory_saver makes them."""
    from cuda.bindings import driver

    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    size = -(-count * 4 // (2 << 20)) * (2 << 20)
    handle = _checked(driver.cuMemCreate(size, properties, 0))
    address = _checked(driver.cuMemAddressReserve(size, 0, 0, 0))
    _checked(driver.cuMemMap(address, size, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location = properties.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    _checked(driver.cuMemSetAccess(address, size, [access], 1))
    return Wrapped(int(address), count).tensor()


def managed(count):
    from cuda.bindings import driver

    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    return Wrapped(int(_checked(driver.cuMemAllocManaged(count * 4, flags))), count).tensor()
