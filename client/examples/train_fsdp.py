"""FSDP2 with optimizer state in momentd: each rank has a store with its rows of every parameter.

    momentd --state-dir /nvme/momentd --socket-dir /run/momentd &
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # docs/operating/resuming.md says why
    torchrun --nproc-per-node 2 --max-restarts 10 train_fsdp.py --socket /run/momentd/momentd.sock

Kill any of it and it goes on at the last step that all ranks had finished, with the same bits.
"""

import argparse

import momentd.torch
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


def batch(generator):
    inputs = torch.rand(32, 8, generator=generator)
    return inputs, inputs.sin().sum(dim=1, keepdim=True)


def train(socket, steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = momentd.torch.AdamW(
        model.parameters(),
        lr=3e-3,
        job="example-fsdp",
        module=model,
        resume="auto",
        socket=socket,
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    rank = torch.distributed.get_rank()
    generator = torch.Generator().manual_seed(1 + rank)
    sequence = momentd.resume(model, optimizer, scheduler=scheduler, data=generator)
    if rank == 0 and sequence is not None:
        print(f"resumed after step {sequence}", flush=True)
    while optimizer.sequence < steps:
        inputs, targets = batch(generator)
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if rank == 0 and optimizer.sequence % 50 == 0:
            print(f"step {optimizer.sequence} loss {loss.item():.6f}", flush=True)
    optimizer.close()


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
