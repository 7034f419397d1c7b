"""momentd.resume(): a run goes on where it was interrupted."""

from typing import Any, Callable, Optional, Sequence, Union

import torch

from momentd.torch.ranks import agree, start_of
from momentd.torch.streamed import Streamed
from momentd.torch.trainer_state import TrainerState
from momentd.torch.zero import is_zero, send_parameters


def resume(
    model: torch.nn.Module,
    optimizer: Union[Any, Sequence[Any]],
    state: Optional[TrainerState] = None,
    *,
    group: Optional["torch.distributed.ProcessGroup"] = None,
    sequence: Optional[int] = None,
    finish: Optional[Callable[[], None]] = None,
    **objects: Any,
) -> Optional[int]:
    """Brings a run back to where it was interrupted; call it once on every rank, after everything
    is built and before the first iteration, in a new run too.

    Parameters, moments, hyperparameters, and what `state` holds, are those inside the last step
    that all ranks have; the rest of that step's iteration is run here, so that the loop goes on
    with the next one.

    model: refused with ValueError if it has persistent buffers that `state` neither keeps nor names
        as rebuilt.
    optimizer: momentd's, or one that wraps it (ZeroRedundancyOptimizer, accelerate's); or a list of
        those that step once in each iteration, in their order.
    state: a TrainerState; that of the optimizer's `blob=`, else a new one, by default.
    group: the torch.distributed process group of the job's ranks; all of them by default.
    sequence: go back to this live commit instead of the newest; equal on all ranks.
    finish: called with no arguments to run what the loop does after the optimizer's step. By
        default the scaler is updated and each scheduler makes its step.
    objects: as TrainerState's: scheduler, scaler, loader, keep, rebuilt, and more by name.

    Returns the sequence of the step that the run goes on after; None if it is at its start.
    """
    optimizers = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
    streamed = [find_streamed(one) for one in optimizers]
    last = streamed[-1]
    state = _state_of(model, last, state, objects)
    state.bind(optimizers, last)
    _check_size(state, last)
    data = _bring_back(streamed, sequence, _all_ranks(group))
    for one in optimizers:
        if is_zero(one):
            send_parameters(one)
    if data is None or last.sequence == start_of(last):
        return None
    _forget_gradients(optimizers)
    if not data:
        raise RuntimeError(
            f"step {last.sequence} of the store was made without a TrainerState: there is nothing "
            "to bring scheduler, generators and loader back from; optimizer.resume() brings back "
            "parameters and moments alone"
        )
    skipped = state.restore(data)
    _finish(state, optimizers, finish, skipped)
    return last.sequence


def _bring_back(streamed, sequence, group):
    """Parameters and moments; the blob of the optimizer that steps last."""
    for one in streamed:
        one.open()
    sequences = [sequence] * len(streamed)
    if sequence is None and (group is not None or len(streamed) > 1):
        sequences = agree([one._session.store for one in streamed], group)
    return [one.resume(where) for one, where in zip(streamed, sequences)][-1]


def find_streamed(optimizer: Any) -> Streamed:
    """momentd's optimizer within the wrappers of torch.distributed, accelerate and Lightning."""
    inner = optimizer
    while not isinstance(inner, Streamed):
        for name in ("optim", "optimizer", "_optimizer"):
            if isinstance(getattr(inner, name, None), torch.optim.Optimizer):
                inner = getattr(inner, name)
                break
        else:
            raise TypeError(f"{type(optimizer).__qualname__} is no optimizer of momentd.torch")
    return inner


def _state_of(model, streamed, state, objects):
    """The TrainerState in use, which the optimizer's blobs come from hereafter."""
    given = streamed.blob if state is None else state
    if given is None:
        given = TrainerState(model, **objects)
    elif not isinstance(given, TrainerState):
        raise TypeError("the optimizer's blob= is not a TrainerState: use optimizer.resume()")
    else:
        given.register(model=model, **objects)
    if streamed.blob not in (None, given):
        raise ValueError("the optimizer has another blob= than this TrainerState")
    streamed.blob = given
    return given


def _all_ranks(group):
    distributed = torch.distributed
    if group is not None or not distributed.is_available() or not distributed.is_initialized():
        return group
    return distributed.group.WORLD if distributed.get_world_size() > 1 else None


def _check_size(state, streamed):
    """Buffers that cannot fit are noticed here, not in the first step."""
    kept = state.kept_bytes()
    if sum(kept.values()) <= streamed.blob_limit_bytes:
        return
    largest = sorted(kept, key=kept.get, reverse=True)[:3]
    raise ValueError(
        f"keep= names {sum(kept.values())} bytes, above all "
        f"{', '.join(f'{name} ({kept[name]})' for name in largest)}; a blob has at most "
        f"{streamed.blob_limit_bytes}: raise blob_limit_bytes of the optimizer (16 MiB at most), "
        "or save those elsewhere and name them in rebuilt="
    )


def _parameters(optimizers):
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _forget_gradients(optimizers):
    """Those of a step that was given up must not be added to the next one's."""
    for parameter in _parameters(optimizers):
        parameter.grad = None


def _finish(state, optimizers, finish, skipped):
    """The rest of the interrupted iteration."""
    for scheduler in state.schedulers:
        if hasattr(scheduler, "optimizer"):
            scheduler.optimizer._opt_called = True  # by which they know that it has stepped
    if state.scaler is not None and state.scaler.is_enabled():
        devices = [parameter.device for parameter in _parameters(optimizers)]
        _record_inf(state.scaler, devices[0] if devices else torch.device("cpu"), skipped)
    if finish is not None:
        finish()
        return
    if state.scaler is not None:
        state.scaler.update()
    for scheduler in state.schedulers:
        scheduler.step()


def _record_inf(scaler, device, found):
    """Leaves the scaler as its step() left it: having looked for an overflow, and found one or
    not."""
    scaler.scale(torch.zeros((), device=device))
    parameter = torch.zeros(1, device=device, requires_grad=True)
    parameter.grad = torch.full_like(parameter, float("inf") if found else 0.0)
    scaler.unscale_(torch.optim.SGD([parameter], lr=0.0))
