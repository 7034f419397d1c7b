"""The store of an optimizer: opened late, opened again with tensors that were added, filled from the
parameters or brought into them."""

import os
import warnings

import torch

from momentd.store import Member, Store
from momentd.torch.ranks import agree, refuse_copies
from momentd.torch.slots import Slots
from momentd.torch.tensors import after_writing


def _default_rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


class Session:
    """`store` is None until open(). `ready`: parameters and store agree, steps may go on."""

    def __init__(self, options, moment_types, names, replicas):
        """moment_types: of exp_avg and exp_avg_sq. replicas: other ranks may hold the same tensors."""
        self.options = options
        self.slots = Slots()
        self.store = None
        self.ready = False
        self._moment_types = moment_types
        self._names = names
        self._replicas = replicas
        self._added = []

    def open(self, groups):
        """Opens the store unless it is open, with the parameters that the groups hold now."""
        if self.store is not None:
            return
        if self.options.rank is None:
            self.options.rank = _default_rank()
        slots = Slots()
        slots.collect(groups, self._names.of(groups))
        self._open(slots)
        self._names.tell(f"job {self.options.job!r}, role {self.options.role!r}")

    def _open(self, slots):
        members = slots.members()
        options = self.options
        options.members = [Member(name, *self._moment_types) for name in members]
        options.tensors = [slot.tensor(members.index(slot.member)) for slot in slots]
        options.positional = self._names.positional
        if not self._replicas:
            refuse_copies(options, [slot.parameter for slot in slots])
        store = Store(options)
        try:
            for degraded in store.warnings():
                warnings.warn(f"momentd: {degraded}", RuntimeWarning, stacklevel=4)
            slots.locate()
            store.attach(slots.addresses())
            self._added = [] if store.info().empty else store.added()
        except BaseException:
            store.close()
            raise
        self.slots, self.store = slots, store

    def extend(self, groups):
        """Takes in what the groups hold more than before: the store is opened again with it."""
        if self.ready:
            self.make_ready()
        slots = self.slots.copy()
        slots.collect(groups, self._names.of(groups))
        if len(slots) == len(self.slots):
            self.slots = slots
            return
        resume, takeover = self.options.resume, self.options.takeover
        if self.ready:
            self.options.resume, self.options.takeover = "must", False
        self.store.close()
        try:
            self._open(slots)
        finally:
            self.options.resume, self.options.takeover = resume, takeover
        if self.ready:
            self.materialize()

    def make_ready(self):
        """Fills an empty store, and brings over what was changed outside of the steps. Raises
        RuntimeError over existing state that nobody resumed."""
        with torch.no_grad():
            if self.slots.locate():
                self.store.attach(self.slots.addresses())
            if self.ready:
                self.refresh(self.slots.changed())
                return
            if not self.store.info().empty:
                raise RuntimeError(
                    "the store holds the state of an earlier run: call optimizer.resume() before "
                    "the first step, it brings the parameters back"
                )
            self.slots.before_reading(range(len(self.slots)))
            self.store.refresh_all()
            self.ready = True

    def refresh(self, indices):
        """These parameters -> their mains."""
        if indices:
            self.slots.before_reading(indices)
            self.store.refresh(indices)

    def materialize(self):
        """Mains -> parameters; first those that this opening added go the other way."""
        with torch.no_grad():
            self.refresh(self._added)
            self._added = []
            self.store.materialize()
            after_writing(self.slots)
            self.ready = True

    def step(self, groups, wire_groups, blob):
        """One step of the tensors whose parameters have a gradient. `wire_groups(slots)` gives the
        hyperparameters. Returns the statistics."""
        if self.slots.any_unfrozen(groups):
            self.extend(groups)
        gradients = self.slots.gradients(groups)
        self.make_ready()
        statistics = self.store.step(
            wire_groups(self.slots),
            gradients.addresses,
            gradients.types,
            gradients.participants,
            blob,
        )
        after_writing([self.slots[index] for index in gradients.participants])
        return statistics

    def resume(self, sequence, process_group):
        """As Streamed.resume()."""
        if process_group is not None:
            (sequence,) = agree([self.store], process_group)
        if self.store.info().empty:
            return None
        if sequence is not None:
            self.store.rollback(sequence)
        self.materialize()
        return self.store.blob()
