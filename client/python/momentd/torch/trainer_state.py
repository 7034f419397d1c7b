"""What a trainer holds besides its parameters: captured inside each step, restored by resume()."""

import itertools
import numbers
from typing import Any, Dict, Iterable, List, Optional, Sequence

import torch

from momentd.torch import blob, random_state
from momentd.torch.stateful import check_loader, reader_of, set_state
from momentd.torch.untrained import Untrained

_GROUP_VALUES = (type(None), str, numbers.Number, torch.Tensor)


class TrainerState:
    """Scheduler, scaler, loader, random generators and buffers of a training run, as the bytes that
    stand with each step in the store. Give it to the optimizer as `blob=`, and to resume().

    model: its persistent buffers must be named by `keep` or `rebuilt`.
    scheduler: one LR scheduler, or a list: those that step once an iteration, after the optimizer.
    scaler: a torch.amp.GradScaler.
    loader: the data's position: anything with state_dict() and load_state_dict().
    keep: patterns (as of fnmatch) of buffers and frozen parameters to keep with each step.
    rebuilt: patterns of those that the program makes again by itself before it resumes.
    random: whether to keep the generators of Python, NumPy (if imported), torch and the devices.
    objects: more by name: stateful objects, torch.Generator, random.Random, numpy.random.Generator.

    `values` is a dict of plain values of the program's own (an epoch, a best loss), kept too.
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        *,
        scheduler: Any = None,
        scaler: Optional[torch.amp.GradScaler] = None,
        loader: Any = None,
        keep: Iterable[str] = (),
        rebuilt: Iterable[str] = (),
        random: bool = True,
        **objects: Any,
    ) -> None:
        self.values: Dict[str, Any] = {}
        self.schedulers: List[Any] = []
        self.scaler: Optional[torch.amp.GradScaler] = None
        self._random = random
        self._objects: Dict[str, Any] = {}
        self._optimizers: Sequence[Any] = []
        self._store: Any = None
        self._devices: List[torch.device] = []
        self._last_schedules: Any = None
        self._untrained = Untrained()
        self.register(
            model=model,
            scheduler=scheduler,
            scaler=scaler,
            loader=loader,
            keep=keep,
            rebuilt=rebuilt,
            **objects,
        )

    def register(
        self,
        *,
        model: Optional[torch.nn.Module] = None,
        scheduler: Any = None,
        scaler: Optional[torch.amp.GradScaler] = None,
        loader: Any = None,
        keep: Iterable[str] = (),
        rebuilt: Iterable[str] = (),
        **objects: Any,
    ) -> None:
        """Adds objects, by the names of the constructor's arguments; before the first step. Those
        that are registered already may be named again."""
        self._untrained.add(model, keep, rebuilt)
        schedulers = scheduler if isinstance(scheduler, (list, tuple)) else [scheduler]
        for one in schedulers:
            if one is not None and not any(one is known for known in self.schedulers):
                self._add(f"scheduler{len(self.schedulers)}", one)
                self.schedulers.append(one)
        if scaler is not None:
            self._add("scaler", scaler)
            self.scaler = scaler
        if loader is not None:
            check_loader(loader)
            self._add("loader", loader)
        for name, value in objects.items():
            self._add(name, value)

    def bind(self, optimizers: Sequence[Any], store: Any) -> None:
        """The optimizers whose groups are kept, and the one of momentd that the bytes go with,
        which may be within the last. ValueError where the model holds what neither the stores nor
        this object keep."""
        self._optimizers = optimizers
        self._store = store
        groups = [group["params"] for group in self._groups()]
        parameters = itertools.chain(self._untrained.parameters(), *groups)
        self._devices = random_state.devices_of(parameters)
        self._untrained.check(self._streamed())

    def __call__(self) -> bytes:
        """The bytes to keep with a step that updates the parameters."""
        return self.capture(skipped=False)

    def capture(self, skipped: bool) -> bytes:
        """The bytes to keep with a step; `skipped`: one without an update."""
        if self._store is None:
            raise RuntimeError(
                "this TrainerState belongs to no optimizer yet: call momentd.resume(model, "
                "optimizer, state) before the first step"
            )
        streamed = self._streamed()
        state = {
            "skipped": skipped,
            "values": self.values,
            "groups": [_group_values(group) for group in self._groups()],
            "objects": {
                name: reader_of(value, name)(value) for name, value in self._objects.items()
            },
            "kept": self._untrained.kept(streamed),
            "frozen": self._untrained.fingerprints(streamed),
        }
        self._check_schedules(state["objects"])
        if self._random:
            state["random"] = random_state.capture(self._devices)
        return blob.encode(state, "state")

    def kept_bytes(self) -> Dict[str, int]:
        """The size of the buffers and parameters that are kept, by name."""
        kept = self._untrained.kept(self._streamed())
        return {name: value.numel() * value.element_size() for name, value in kept.items()}

    def restore(self, data: bytes) -> bool:
        """Sets everything to what capture() found; the generators last. Returns whether the step
        was skipped. The parameters must be back already."""
        state = blob.decode(data)
        _check_names(set(state["objects"]), set(self._objects))
        self.values.clear()
        self.values.update(state["values"])
        for name, value in self._objects.items():
            set_state(value, state["objects"][name])
        _restore_groups(self._groups(), state["groups"])
        self._untrained.restore(state["kept"], self._streamed())
        self._untrained.compare(state["frozen"])
        self._last_schedules = None
        if self._random and "random" in state:
            random_state.restore(state["random"], self._devices)
        return state["skipped"]

    def _add(self, name, value):
        if self._objects.get(name, value) is not value:
            raise ValueError(f"another {name} is registered already")
        reader_of(value, name)
        self._objects[name] = value

    def _groups(self):
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _streamed(self):
        """The parameters that have a main in the store."""
        return {
            id(parameter)
            for group in self._groups()
            for parameter in group["params"]
            if parameter.requires_grad
        }

    def _check_schedules(self, objects):
        """resume() steps a scheduler once for the interrupted iteration: one that the program does
        not step in every iteration would be ahead after it."""
        count = len(self.schedulers)
        schedules = [blob.encode(objects[f"scheduler{index}"]) for index in range(count)]
        sequence = self._store.sequence
        before, self._last_schedules = self._last_schedules, (sequence, schedules)
        if before is None or before[0] == sequence:
            return
        for index, (was, now) in enumerate(zip(before[1], schedules)):
            if was == now:
                raise RuntimeError(
                    f"scheduler {index} did not step between two steps of the optimizer: "
                    "`scheduler=` is for those that step in every iteration; register another one "
                    "by a name of its own (epoch_scheduler=...)"
                )


def _check_names(saved, present):
    if saved != present:
        raise RuntimeError(
            f"kept by the interrupted run: {sorted(saved)}; registered now: {sorted(present)}"
        )


def _group_values(group):
    """The hyperparameters of a group: plain values, tuples of them, and tensors."""
    values = {}
    for name, value in group.items():
        items = value if isinstance(value, (tuple, list)) else [value]
        if name in ("params", "param_names"):
            continue
        if all(isinstance(item, _GROUP_VALUES) for item in items):
            values[name] = value
    return values


def _restore_groups(groups, saved):
    if len(saved) != len(groups):
        raise RuntimeError(
            f"the interrupted run had {len(saved)} parameter groups, this one has {len(groups)}: "
            "add the groups before resuming"
        )
    for group, values in zip(groups, saved):
        for name, value in values.items():
            if isinstance(group.get(name), torch.Tensor):
                group[name].fill_(value)
            else:
                group[name] = value
