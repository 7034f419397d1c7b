"""A trainer that a type checker reads with everything strict."""

import pathlib
from typing import List, Optional

import momentd
import momentd.torch
import torch
from momentd.store import Buffer, Group, Member, Options, Tensor


def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def train(model: torch.nn.Module, socket: str) -> Optional[int]:
    optimizer = momentd.torch.AdamW(
        model.parameters(), lr=1e-3, job="typed", module=model, resume="auto", socket=socket
    )
    other: torch.optim.Optimizer = momentd.torch.Adam(
        [{"params": list(model.parameters())}], betas=(0.9, 0.99), job="typed", role="critic"
    )
    state = momentd.torch.TrainerState(model, scheduler=schedule(optimizer))
    reached: Optional[int] = momentd.resume(model, optimizer, state, epoch_scheduler=schedule(other))
    model(torch.ones(1)).sum().backward()
    optimizer.step()
    optimizer.step(lambda: 1.0, blob=b"kept")
    optimizer.load_state_dict(optimizer.state_dict())
    moments: torch.Tensor = optimizer.state[next(model.parameters())]["exp_avg"]
    sequence: int = optimizer.flush() + optimizer.skip() + optimizer.sequence
    optimizer.add_param_group({"params": [moments]})
    optimizer.refresh(model.parameters())
    newest: int = optimizer.commits()[0].sequence
    blob: Optional[bytes] = optimizer.resume(newest)
    print(optimizer.info().io_engine, reached, sequence, blob)
    if optimizer.last_statistics is not None:
        print(optimizer.last_statistics.total_seconds + 0.0)
    optimizer.close()
    return reached


def by_hand(folder: pathlib.Path) -> List[int]:
    with momentd.spawn(folder, log=folder / "log", arguments=["--device", "host"]) as daemon:
        options = Options(
            job="typed", socket=daemon.socket, members=[Member()], tensors=[Tensor("a", [4])]
        )
        store = momentd.Store(options)
        store.attach([4096])
        store.refresh_all()
        store.step([Group([0], lr=1e-3)], [4096], [1], [0])
        with store.pin() as pin:
            offsets = [piece.offset_bytes for piece in pin.pieces]
        store.read([Buffer(0, "main", 4096)])
        store.close()
    return offsets


def failing() -> str:
    try:
        raise momentd.Rewound("the daemon was lost", 3)
    except momentd.Error as error:
        return error.code
