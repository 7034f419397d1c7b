"""A training run of several ranks that can be killed at any step and started again: data-parallel,
with dropout, batch norm, an LR schedule and a gradient scaler. Run by test_ranks_killed.py."""

import hashlib
import os
import random
import signal
import threading
import time

import torch

import momentd.torch

STEPS = 24
PHASES = ("before", "inside", "answered", "finished")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 96)
        self.norm = torch.nn.BatchNorm1d(96)
        self.dropout = torch.nn.Dropout(0.3)
        self.second = torch.nn.Linear(96, 40)
        self.third = torch.nn.Linear(40, 1)
        self.mask = None

    def forward(self, inputs):
        hidden = self.dropout(torch.nn.functional.gelu(self.norm(self.first(inputs))))
        self.mask = hidden.detach() == 0
        return self.third(torch.tanh(self.second(hidden)))


class Rows:
    """Batches of a rank, shuffled anew in each epoch; knows its position."""

    def __init__(self, rank, length=40, batch=8):
        self._generator = torch.Generator().manual_seed(100 + rank)
        self._inputs = torch.randn(length, 12, generator=self._generator)
        self._batch = batch
        self._order = []

    def next(self):
        if not self._order:
            self._order = torch.randperm(len(self._inputs), generator=self._generator).tolist()
        taken, self._order = self._order[: self._batch], self._order[self._batch :]
        inputs = self._inputs[taken]
        return inputs, inputs.sin().sum(dim=1, keepdim=True)

    def state_dict(self):
        return {"order": self._order, "generator": self._generator.get_state()}

    def load_state_dict(self, state):
        self._order = state["order"]
        self._generator.set_state(state["generator"])


class Death:
    """kill -9 of this process, at a step and in a phase of it."""

    def __init__(self, step, phase, seed):
        self.step, self.phase = step, phase
        self._chance = random.Random(seed)

    def reach(self, step, phase):
        if (step, phase) != (self.step, self.phase):
            return
        if phase != "inside":
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=self._soon, daemon=True).start()

    def _soon(self):
        time.sleep(self._chance.uniform(0, 0.004))
        os.kill(os.getpid(), signal.SIGKILL)


class NoDeath:
    def reach(self, step, phase):
        pass


def digest(tensors):
    result = hashlib.sha256()
    for tensor in tensors:
        result.update(tensor.detach().contiguous().numpy().tobytes())
    return result.hexdigest()[:16]


def build_zero(net, arguments):
    """DistributedDataParallel and ZeroRedundancyOptimizer: each rank's store has its part."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    # Without the search DDP lays its gradient buckets out anew after the first iteration of a
    # process, and gloo adds four ranks' values in an order that depends on the place in the bucket.
    model = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(
        net.parameters(), optimizer_class=momentd.torch.AdamW, module=net, **arguments
    )
    return model, optimizer


def build_fsdp(net, arguments):
    """FSDP2: each rank's store has its rows of every parameter."""
    from torch.distributed.fsdp import fully_shard

    fully_shard(net.first)
    fully_shard(net)
    return net, momentd.torch.AdamW(net.parameters(), module=net, **arguments)


BUILDERS = {"zero": build_zero, "fsdp": build_fsdp}


class Trainer:
    def __init__(self, rank, how, arguments):
        torch.manual_seed(5)
        self.net = Net()
        self.model, self.optimizer = BUILDERS[how](
            self.net,
            {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1, "resume": "auto", **arguments},
        )
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=2e-2, total_steps=STEPS + 1
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        self.rows = Rows(rank)
        torch.manual_seed(1000 + rank)

    def resume(self):
        return momentd.resume(
            self.net,
            self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            loader=self.rows,
            keep="norm.*",
        )

    def iterate(self, step, death):
        """One iteration; what must be the same in every run."""
        inputs, targets = self.rows.next()
        self.optimizer.zero_grad()
        loss = (self.model(inputs) - targets).square().mean()
        self.scaler.scale(loss).backward()
        death.reach(step, "before")
        death.reach(step, "inside")
        rate, scale = self.optimizer.param_groups[0]["lr"], self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        death.reach(step, "answered")
        self.scaler.update()
        self.scheduler.step()
        death.reach(step, "finished")
        return [loss.item().hex(), rate.hex(), scale.hex(), digest([self.net.mask])]


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(rank, log, how, arguments, death):
    """Runs to the end, or to its death. Appends a line for the beginning and one for each step."""
    trainer = Trainer(rank, how, {**arguments, "rank": rank})
    step = trainer.resume() or 0
    death = Death(*death) if death is not None else NoDeath()
    with open(f"{log}.{rank}", "a", buffering=1) as lines:
        lines.write(f"begin {step}\n")
        while step < STEPS:
            step += 1
            lines.write(" ".join(["step", str(step), *trainer.iterate(step, death)]) + "\n")
        final = digest([whole(value) for value in trainer.net.state_dict().values()])
        lines.write(f"final {final}\n")
