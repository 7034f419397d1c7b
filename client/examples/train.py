"""A PyTorch trainer whose optimizer state lives in momentd.

    python train.py --state-dir /nvme/momentd          # with a private daemon
    python train.py --socket /run/momentd/momentd.sock  # with the node's

Kill it and run it again: it goes on at its last finished step, with the same bits.
"""

import argparse

import momentd
import momentd.torch
import torch
from torch import nn


def batch(generator):
    inputs = torch.rand(64, 8, generator=generator)
    return inputs, inputs.sin().sum(dim=1, keepdim=True)


def train(socket, steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 1))
    generator = torch.Generator().manual_seed(1)
    optimizer = momentd.torch.AdamW(
        model.parameters(),
        lr=3e-3,
        job="example-sine",
        module=model,
        resume="auto",
        socket=socket,
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    # Keeps the scheduler, the generator and torch's own with each step, and brings them back.
    sequence = momentd.resume(model, optimizer, scheduler=scheduler, data=generator)
    if sequence is not None:
        print(f"resumed after step {sequence}")
    while optimizer.sequence < steps:
        inputs, targets = batch(generator)
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if optimizer.sequence % 50 == 0:
            print(f"step {optimizer.sequence} loss {loss.item():.6f}", flush=True)
    optimizer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", help="of a running daemon; $MOMENTD_SOCKET by default")
    where.add_argument("--state-dir", help="run a private daemon on this directory")
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    if arguments.state_dir is None:
        train(arguments.socket, arguments.steps)
        return
    with momentd.spawn(arguments.state_dir) as daemon:
        train(daemon.socket, arguments.steps)


if __name__ == "__main__":
    main()
