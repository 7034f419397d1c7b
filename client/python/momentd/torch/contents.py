"""What the store of a session holds: read, mapped, written."""

import gc

import torch

from momentd.errors import Error
from momentd.torch.snapshot import map_pin
from momentd.torch.tensors import TYPES, like
from momentd.torch.values import MOMENTS, keys_of, readable, step_number, step_tensor

# The state of a parameter that has none: zeros without memory.
_NOTHING = {"step": 0, **dict.fromkeys(MOMENTS)}


def read(session, index, key):
    """A copy of one value of one tensor."""
    if key == "step":
        return step_tensor(session.steps()[index])
    slot = session.slots[index]
    values = torch.empty(slot.shape, dtype=_dtype(session, key))
    session.store.read([(index, key, values.data_ptr(), TYPES[values.dtype])])
    return like(slot.parameter, values)


def snapshot(session):
    """The state of every tensor as torch has it, mapped from the files of one commit."""
    session.make_ready()
    pin = _pin(session.store)
    steps, tensors = pin.steps, map_pin(pin)
    return [
        _mapped(session, index, steps[index], tensors) for index in range(len(session.slots))
    ]


def _dtype(session, key):
    return session.moment_dtypes.get(key, torch.float32)


def _pin(store):
    try:
        return store.pin()
    except Error as error:
        if error.code != "RESOURCE_EXHAUSTED":
            raise
    gc.collect()  # state dicts that nobody holds but a cycle
    return store.pin()


def _mapped(session, index, t, tensors):
    slot = session.slots[index]
    state = {"step": step_tensor(t)}
    for key in keys_of(slot.parameter)[1:]:
        values = tensors.get((index, key))
        if values is None:  # of no elements
            values = torch.empty(0, dtype=_dtype(session, key))
        state[key] = like(slot.parameter, values.view(slot.shape))
    return state


def replace(session, values):
    """The state of all tensors becomes `values`, by id of the parameter; without an entry t and
    moments are zero. Mains come from `main`, else from the parameters. One commit, after that which
    fills an empty store."""
    with torch.no_grad():
        if not session.ready and session.store.info().empty:
            session.fill()
        session.locate()
        session.admit()
        session.slots.before_reading(range(len(session.slots)))
        _write_all(session, values, mains=session.ready)
        if not session.ready:
            # The store held another run. Its mains are the parameters now, so that these stay as
            # they are, and steps may go on.
            session.materialize()
            _write_mains(session, values)
        session.assigned.clear()


def _write_all(session, values, mains):
    """mains: take `main` where there is one."""
    write = _Write()
    for index, slot in enumerate(session.slots):
        entries = {**_NOTHING, **values.get(id(slot.parameter), {})}
        main = entries.pop("main", None)
        write.add(index, slot, entries)
        if mains and main is not None:
            write.add(index, slot, {"main": main})
        else:
            write.add_parameter(index, slot)
    write.send(session)


def _write_mains(session, values):
    write = _Write()
    for index, slot in enumerate(session.slots):
        entries = values.get(id(slot.parameter), {})
        if "main" in entries:
            write.add(index, slot, {"main": entries["main"]})
    write.send(session)


def write_assigned(session):
    """What was assigned to `optimizer.state`, in one commit."""
    write = _Write()
    for parameter in session.assigned.parameters():
        index = session.slots.index(parameter)
        write.add(index, session.slots[index], session.assigned.of(parameter))
    write.send(session)
    session.assigned.clear()


class _Write:
    """Values that are written together.

    The parameters win in the end: where a main that was given does not round to its parameter, the
    Refresh before the next step takes the parameter.
    """

    def __init__(self):
        self._held = []  # until they are written
        self._buffers = []
        self._steps = {}
        self._slots = []  # whose mains are written
        self._given = False  # some of those mains

    def add(self, index, slot, entries):
        for key, value in entries.items():
            if key == "step":
                self._steps[index] = step_number(value, slot.name)
            elif value is None:
                self._buffers.append((index, key, None, TYPES[torch.float32]))
            else:
                self._add(index, key, readable(value))
        if "main" in entries:
            self._slots.append(slot)
            self._given = True

    def add_parameter(self, index, slot):
        """The main becomes what the parameter is."""
        self._buffers.append((index, "main", slot.address, TYPES[slot.dtype]))
        self._slots.append(slot)

    def _add(self, index, key, value):
        self._held.append(value)
        self._buffers.append((index, key, value.data_ptr() or None, TYPES[value.dtype]))

    def send(self, session):
        if not (self._buffers or self._steps):
            return
        session.changes += 1
        session.store.write(self._buffers, self._steps, parameters_match=not self._given)
        if self._given:
            for slot in self._slots:
                slot.forget()
