"""state_dict() and load_state_dict(): between torch's form and the store."""

import torch
from torch.utils.weak import WeakIdKeyDictionary

from momentd.torch import contents
from momentd.torch.reference import go_to, refer
from momentd.torch.tensors import versions
from momentd.torch.torch_form import pack_groups, unpack_state
from momentd.torch.values import fresh_with_main

# Where state_dict(reference=True) says which state it means.
REFERENCE = "momentd"


class Handed:
    """The tensors of the state dicts that were given out and are still somewhere: a dict that comes
    back with all of them, as they were, is no news.

    It is asked for each tensor, not for the dict: accelerate builds its own dicts around them.
    """

    def __init__(self):
        self._origins = WeakIdKeyDictionary()

    def note(self, state, parameters, changes):
        """`state`: of a state dict, before others see it; parameters: by its keys; changes: what
        counts the changes of the state, as of now."""
        for number, entries in state.items():
            for key, tensor in entries.items():
                origin = (id(parameters[number]), key, changes, versions(tensor))
                self._origins[tensor] = origin

    def untouched(self, values, expected, changes):
        """`values` (of unpack_state) are all that was given out since the last change: those of the
        parameters `expected` (ids), and nothing was written to them."""
        if values.keys() != expected:
            return False
        return all(
            isinstance(tensor, torch.Tensor)
            and self._origins.get(tensor) == (parameter, key, changes, versions(tensor))
            for parameter, entries in values.items()
            for key, tensor in entries.items()
        )


class StateDicts:
    """Those of one optimizer: gives them out and takes them in."""

    def __init__(self, session, access, names):
        self._session = session
        self._access = access
        self._names = names
        self._handed = Handed()

    def make(self, groups):
        """`state` and `param_groups`. The state is that of the last step, pinned and mapped; before
        there is one it is empty, or zeros once somebody expects it to be there."""
        packed, numbers = pack_groups(groups)
        return {"state": self._state(groups, numbers), "param_groups": packed}

    def refer(self, groups):
        """No tensors: which state is meant."""
        self._session.open()
        packed, _ = pack_groups(groups)
        return {"state": {}, "param_groups": packed, REFERENCE: refer(self._session)}

    def load(self, state_dict, groups):
        """`groups`: of the optimizer. Raises ValueError before anything is changed."""
        if REFERENCE in state_dict:
            go_to(self._session, state_dict[REFERENCE])
            return
        saved, names = state_dict["param_groups"], self._names.of(groups)
        values = unpack_state(state_dict["state"], saved, groups, names)
        session = self._session
        if not (values or session.ready or session.assigned):
            return  # no state, and none there
        expected = {id(parameter) for parameter in self._access.parameters(groups)}
        if not session.assigned and self._handed.untouched(values, expected, session.changes):
            return
        session.open(values)
        session.extend(values)
        contents.replace(session, values)

    def _state(self, groups, numbers):
        session = self._session
        if session.assigned:
            session.open()
            session.settle()
        mapped = contents.snapshot(session) if session.ready else []
        if not (mapped or self._access.expected):
            return {}
        states = {id(slot.parameter): state for slot, state in zip(session.slots, mapped)}
        parameters = self._access.parameters(groups)
        unseen = [parameter for parameter in parameters if id(parameter) not in states]
        zeros = fresh_with_main(unseen, session.moment_dtypes.values())
        states.update({id(parameter): state for parameter, state in zip(unseen, zeros)})
        owners = {numbers[id(parameter)]: parameter for parameter in parameters}
        state = {number: states[id(parameter)] for number, parameter in owners.items()}
        self._handed.note(state, owners, session.changes)
        return state
