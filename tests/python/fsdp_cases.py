"""Models cut over ranks in the ways of torch, for test_fsdp.py and its kin; run in each rank."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import momentd.torch


class Net(torch.nn.Module):
    """Sizes that four ranks do not divide, and parameters smaller than the ranks are many."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(7, 12)
        self.norm = torch.nn.LayerNorm(12)
        self.second = torch.nn.Linear(12, 10)
        self.last = torch.nn.Linear(10, 1)

    def forward(self, inputs):
        hidden = torch.nn.functional.gelu(self.norm(self.first(inputs)))
        return self.last(torch.tanh(self.second(hidden)))


def plain_fsdp(net):
    fully_shard(net.second)
    fully_shard(net)


def hybrid(net):
    """HSDP: two copies of the model, each cut over two ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    fully_shard(net.second, mesh=mesh)
    fully_shard(net, mesh=mesh)


def _parallelize(net, mesh):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )
    from torch.distributed.tensor import Replicate, Shard

    plan = {
        "first": ColwiseParallel(output_layouts=Shard(0)),
        "norm": SequenceParallel(sequence_dim=0),
        "second": ColwiseParallel(input_layouts=Shard(0)),
        "last": RowwiseParallel(output_layouts=Replicate()),
    }
    parallelize_module(net, mesh, plan)


def tensor_parallel(net):
    """The gradients of `norm` are partial sums over the ranks."""
    _parallelize(net, init_device_mesh("cpu", (torch.distributed.get_world_size(),)))


def fsdp_over_tensor_parallel(net):
    """Rows that tensor parallelism has cut, cut again by FSDP: _StridedShard."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tensor"))
    _parallelize(net, mesh["tensor"])
    fully_shard(net, mesh=mesh["fsdp"])


WAYS = {
    "fsdp": (plain_fsdp, (2, 3, 4)),
    "hybrid": (hybrid, (4,)),
    "tensor_parallel": (tensor_parallel, (2,)),
    "fsdp_over_tensor_parallel": (fsdp_over_tensor_parallel, (4,)),
}


def make(way, dtype=torch.float32, seed=3):
    torch.manual_seed(seed)
    net = Net().to(dtype)
    WAYS[way][0](net)
    return net


def adamw(net, job, socket, **arguments):
    return momentd.torch.AdamW(
        net.parameters(), lr=1e-2, weight_decay=0.1, job=job, socket=socket, module=net, **arguments
    )


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients(net, step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(4, 7, generator=generator).to(next(net.parameters()).dtype)
    net(inputs).square().mean().backward()
