"""Single values of the state: what `optimizer.state` reads and writes."""

from momentd.torch import contents
from momentd.torch.state import StateValue
from momentd.torch.tensors import is_distributed
from momentd.torch.values import check_values, fresh_with_main, keys_of


class Assigned:
    """Values given to `optimizer.state` and not written yet, by parameter; {} starts it over. What
    was given is kept, not a copy, as torch keeps it."""

    def __init__(self):
        self._of = {}  # id of the parameter -> the parameter, its values by key

    def __bool__(self):
        return bool(self._of)

    def clear(self):
        self._of.clear()

    def find(self, parameter, key):
        """The value; None if nobody gave one."""
        if id(parameter) not in self._of:
            return None
        return self._of[id(parameter)][1].get(key)

    def put(self, parameter, values):
        self._of.setdefault(id(parameter), (parameter, {}))[1].update(values)

    def parameters(self):
        return [parameter for parameter, _ in self._of.values()]

    def of(self, parameter):
        return self._of[id(parameter)][1]


class StateAccess:
    def __init__(self, session):
        self._session = session
        self.expected = False  # state_dict() shows state that no step has made

    def has(self, parameter):
        """It has state, or will have."""
        return parameter.requires_grad or self._session.slots.index(parameter) is not None

    def parameters(self, groups):
        """Those that have state, or will have."""
        every = (parameter for group in groups for parameter in group["params"])
        return [parameter for parameter in every if self.has(parameter)]

    def get(self, parameter, key):
        given = self._session.assigned.find(parameter, key)
        if given is not None:
            return given
        value = self._read(parameter, key)
        if key != "step" and not is_distributed(value):
            value = value.as_subclass(StateValue)
            value.origin = self._origin(parameter, key)
        return value

    def set(self, parameter, values):
        """values: by key; none at all starts over: t and moments zero, the main as the parameter."""
        name = f"a parameter of shape {tuple(parameter.shape)}"
        if not self.has(parameter):
            raise ValueError(f"{name} requires no gradient and has no state")
        if not values:
            (values,) = self._fresh(parameter)
        changed = {}
        for key, value in values.items():
            if key not in keys_of(parameter):
                raise KeyError(f"{key!r}: the state of {name} has {', '.join(keys_of(parameter))}")
            check_values(value, parameter, name, key)
            if not self._is_current(value, parameter, key):
                changed[key] = value
        if changed:
            self._session.assigned.put(parameter, changed)

    def _fresh(self, parameter):
        return fresh_with_main([parameter], self._session.moment_dtypes.values())

    def _is_current(self, value, parameter, key):
        """It is what is there already: it was read from here, and nothing has changed since."""
        if key == "step":
            return float(value) == float(self.get(parameter, key))
        return isinstance(value, StateValue) and value.origin == self._origin(parameter, key)

    def _origin(self, parameter, key):
        return id(parameter), key, self._session.changes

    def _read(self, parameter, key):
        session = self._session
        index = session.slots.index(parameter)
        if not session.ready or index is None:
            return self._fresh(parameter)[0][key]
        return contents.read(session, index, key)
