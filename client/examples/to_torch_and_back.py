"""A run that changes its optimizer twice: torch's AdamW, momentd's, torch's again, each time
through a file of torch.save, beside a run that nothing disturbs.

    python to_torch_and_back.py --state-dir /nvme/momentd

Prints the losses of both and exits with 1 unless losses, parameters and moments are equal bit for
bit.
"""

import argparse
import pathlib
import sys
import tempfile

import momentd
import momentd.torch
import torch
from torch import nn

ARGUMENTS = {"lr": 1e-2, "weight_decay": 0.1}
STAGES = ("torch", "momentd", "torch")
STEPS = 4  # of each


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))


def make_optimizer(kind, model, socket):
    if kind == "torch":
        return torch.optim.AdamW(model.parameters(), **ARGUMENTS)
    return momentd.torch.AdamW(
        model.parameters(),
        **ARGUMENTS,
        job="example-back",
        module=model,
        resume="never",
        socket=socket,
    )


def train(model, optimizer, steps):
    """Returns the loss of each step."""
    losses = []
    for step in steps:
        inputs = torch.rand(32, 8, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs) - inputs.sin().sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def disturbed(socket, folder):
    """Losses, model and optimizer of the run that changes."""
    model, losses = make_model(), []
    for stage, kind in enumerate(STAGES):
        optimizer = make_optimizer(kind, model, socket)
        if stage > 0:
            optimizer.load_state_dict(torch.load(folder / f"{stage}.pt", mmap=True))
        losses += train(model, optimizer, range(stage * STEPS, (stage + 1) * STEPS))
        torch.save(optimizer.state_dict(), folder / f"{stage + 1}.pt")
        if kind == "momentd":
            optimizer.close()
    return losses, model, optimizer


def equal(model, optimizer, other_model, other_optimizer):
    pairs = list(zip(model.parameters(), other_model.parameters()))
    states = [(optimizer.state[one], other_optimizer.state[other]) for one, other in pairs]
    pairs += [(one[key], other[key]) for one, other in states for key in other]
    return all(torch.equal(one, other) for one, other in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--state-dir", required=True)
    arguments = parser.parse_args()
    model = make_model()
    optimizer = make_optimizer("torch", model, None)
    undisturbed = train(model, optimizer, range(len(STAGES) * STEPS))
    with tempfile.TemporaryDirectory() as folder, momentd.spawn(arguments.state_dir) as daemon:
        losses, *others = disturbed(daemon.socket, pathlib.Path(folder))
    print("step  optimizer          loss   undisturbed")
    for step, (loss, other) in enumerate(zip(losses, undisturbed)):
        print(f"{step + 1:4}  {STAGES[step // STEPS]:9} {loss:13.9f} {other:13.9f}")
    same = losses == undisturbed and equal(model, optimizer, *others)
    print("losses, parameters and moments:", "equal bit for bit" if same else "DIFFERENT")
    sys.exit(not same)


if __name__ == "__main__":
    main()
