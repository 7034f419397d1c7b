"""DistributedDataParallel with optimizer state in momentd: ZeroRedundancyOptimizer deals the
parameters out, and each rank has a store with those that it updates.

    momentd --state-dir /nvme/momentd --socket-dir /run/momentd &
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # docs/operating/resuming.md says why
    torchrun --nproc-per-node 2 --max-restarts 10 train_zero.py --socket /run/momentd/momentd.sock

Kill any of it and it goes on at the last step that all ranks had finished, with the same bits.
"""

import argparse

import momentd.torch
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def batch(generator):
    inputs = torch.rand(32, 8, generator=generator)
    return inputs, inputs.sin().sum(dim=1, keepdim=True)


def train(socket, steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 1))
    # The search keeps the buckets, and with them the order of sums, as they were before a restart.
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(),
        optimizer_class=momentd.torch.AdamW,
        lr=3e-3,
        job="example-zero",
        module=model,
        resume="auto",
        socket=socket,
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    rank = torch.distributed.get_rank()
    generator = torch.Generator().manual_seed(1 + rank)
    step = momentd.resume(model, optimizer, scheduler=scheduler, data=generator) or 0
    if rank == 0 and step:
        print(f"resumed after step {step}", flush=True)
    while step < steps:
        inputs, targets = batch(generator)
        loss = (parallel(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    optimizer.optim.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", help="of the daemon; $MOMENTD_SOCKET by default")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    train(arguments.socket, arguments.steps)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
