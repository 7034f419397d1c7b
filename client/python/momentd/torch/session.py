"""The store of an optimizer: opened late, opened again with tensors that were added, filled from the
parameters or brought into them, and stepped."""

import os
import warnings

import torch

from momentd.store import Member, Store
from momentd.torch import contents
from momentd.torch.access import Assigned
from momentd.torch.devices import device_of, name_of, profile_for, synchronize
from momentd.torch.hyperparameters import wire_group
from momentd.torch.ranks import agree, refuse_copies
from momentd.torch.slots import Slots
from momentd.torch.tensors import TYPES, after_writing, local
from momentd.torch.values import MOMENTS

_UNRESUMED = (
    "the store holds the state of an earlier run: call optimizer.resume() before the first step, it "
    "brings the parameters back"
)


def _default_rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


class Session:
    """`store` is None until open(). `ready`: parameters and store agree, steps may go on.
    `changes` counts what changed the state; `assigned` is what is to be written before it is used.
    """

    def __init__(self, options, moment_dtypes, names, groups, replicas):
        """moment_dtypes: by segment. groups(): the parameter groups, as they are now. replicas: other
        ranks may hold the same tensors."""
        self.options = options
        self.moment_dtypes = moment_dtypes
        self.slots = Slots()
        self.store = None
        self.device = torch.device("cpu")  # of the parameters
        self._default_profile = options.profile is None
        self.ready = False
        self.changes = 0
        self.assigned = Assigned()
        self._names = names
        self._groups = groups
        self._replicas = replicas
        self._added = []
        self._steps = None  # as of which change, and t by tensor

    # Opening.

    def open(self, wanted=()):
        """Opens the store unless it is open, with the parameters that the groups hold now: those that
        require a gradient, and those that are wanted (ids) besides."""
        if self.store is not None:
            return
        if self.options.rank is None:
            self.options.rank = _default_rank()
        self._open(self._collect(Slots(), wanted))
        self._names.tell(f"job {self.options.job!r}, role {self.options.role!r}")

    def _collect(self, slots, wanted):
        groups = self._groups()
        slots.collect(groups, self._names.of(groups), wanted)
        return slots

    def _open(self, slots):
        members = slots.members()
        types = [TYPES[self.moment_dtypes[moment]] for moment in MOMENTS]
        options = self.options
        options.members = [Member(name, *types) for name in members]
        options.tensors = [slot.tensor(members.index(slot.member)) for slot in slots]
        options.positional = self._names.positional
        self._choose_device(slots)
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

    def _choose_device(self, slots):
        """The store is computed where the parameters are, in the arithmetic that torch has there."""
        self.device = device_of((slot.name, slot.parameter) for slot in slots)
        self.options.device = name_of(self.device)
        if self._default_profile:
            self.options.profile = profile_for(self.device, self._groups())

    def extend(self, wanted=()):
        """Takes in what the groups hold more than before: the store is opened again with it."""
        slots = self._collect(self.slots.copy(), wanted)
        if len(slots) == len(self.slots):
            self.slots = slots
            return
        if self.ready:
            self._agree()
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

    # Parameters and mains.

    def make_ready(self):
        """Fills an empty store, and brings over what was changed outside of the steps. Raises
        RuntimeError over existing state that nobody resumed."""
        with torch.no_grad():
            if not self.ready:
                if not self.store.info().empty:
                    raise RuntimeError(_UNRESUMED)
                self.fill()
            self._write_assigned()
            self._agree()

    def _agree(self):
        """What parameters have become -> mains."""
        self.locate()
        self.refresh(self.slots.changed())

    def _write_assigned(self):
        if not self.assigned:
            return
        if any(self.slots.index(parameter) is None for parameter in self.assigned.parameters()):
            self.extend()
        contents.write_assigned(self)

    def settle(self):
        """Writes what was assigned and not written yet."""
        if self.assigned:
            self.make_ready()

    def locate(self):
        try:
            if self.slots.locate():
                self.store.attach(self.slots.addresses())
        except BaseException:
            self.slots.lose()  # or what was found would count as attached
            raise

    def fill(self):
        """Parameters -> mains of an empty store, or of one that starts over."""
        self.locate()
        self.slots.before_reading(range(len(self.slots)))
        self.changes += 1
        synchronize(self.device)
        self.store.refresh_all()
        self.ready = True

    def refresh(self, indices):
        """These parameters -> their mains."""
        if indices:
            self.slots.before_reading(indices)
            self.changes += 1
            synchronize(self.device)
            self.store.refresh(indices)

    def admit(self):
        """Tensors that this opening added to the store get their mains."""
        self.refresh(self._added)
        self._added = []

    def materialize(self):
        """Mains -> parameters."""
        with torch.no_grad():
            self.admit()
            self.locate()
            self.changes += 1
            synchronize(self.device)
            self.store.materialize()
            after_writing(self.slots)
            self.ready = True

    # Sleep and wake.

    def detach(self):
        if self.ready:
            self.make_ready()  # what was changed outside of the steps goes along
        synchronize(self.device)
        self.store.detach()
        self.slots.lose()

    def attach(self, restore):
        known = [slot.version for slot in self.slots]
        self.locate()
        if not self.ready:
            return
        if restore:
            self.materialize()
            return
        differing = [slot.name for index, slot in enumerate(self.slots) if self._differs(index)]
        if differing:
            self.store.detach()
            self.slots.lose()
            for slot, version in zip(self.slots, known):
                slot.version = version
            raise RuntimeError(
                f"{len(differing)} parameters are not what they were when their memory was let go, "
                f"the first is {differing[0]}: attach(restore=True) writes them from the mains"
            )
        for slot in self.slots:
            slot.note()

    def _differs(self, index):
        """The parameter's bits are not those of its main, rounded to its type."""
        slot = self.slots[index]
        rounded = torch.empty(slot.shape, dtype=slot.dtype)
        self.store.read([(index, "main", rounded.data_ptr() or None, TYPES[slot.dtype])])
        here = local(slot.parameter).detach().cpu().contiguous()
        bits = torch.int32 if slot.dtype == torch.float32 else torch.int16
        return not torch.equal(here.view(bits), rounded.view(bits))

    # Steps.

    def step(self, blob):
        """One step of the tensors whose parameters have a gradient. Returns the statistics."""
        groups = self._groups()
        if self.slots.any_unfrozen(groups):
            self.extend()
        gradients = self.slots.gradients(groups)
        self.make_ready()
        self.changes += 1
        synchronize(self.device)
        statistics = self.store.step(
            [wire_group(group, self.slots.of_group(group)) for group in groups],
            gradients.addresses,
            gradients.types,
            gradients.participants,
            blob,
        )
        after_writing([self.slots[index] for index in gradients.participants])
        return statistics

    def steps(self):
        """Adam's t of every tensor, asked for once a change."""
        if self._steps is None or self._steps[0] != self.changes:
            self._steps = self.changes, self.store.steps()
        return self._steps[1]

    def skip(self, blob):
        self.make_ready()
        self.changes += 1
        return self.store.skip(blob)

    def resume(self, sequence, process_group):
        """As Streamed.resume()."""
        if process_group is not None:
            (sequence,) = agree([self.store], process_group)
        if self.store.info().empty:
            return None
        self.assigned.clear()
        if sequence is not None:
            self.store.rollback(sequence)
        self.materialize()
        return self.store.blob()
