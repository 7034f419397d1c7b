"""`optimizer.state`: looks as torch's does, and reads and writes through the daemon."""

from collections.abc import MutableMapping

import torch

from momentd.torch.values import keys_of

_IN_PLACE = ("__setitem__", "__set__")  # and every name that ends in one underscore


class StateValue(torch.Tensor):
    """A value read from the daemon. It is a copy, and a change in place would be lost, so that is
    refused; what is computed from it is an ordinary tensor. `origin` says what it was read as."""

    origin = None

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        name = function.__name__
        in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        if in_place or keywords.get("out") is not None:
            # No TypeError: from that, torch's `x *= 2` would make `x = x * 2`.
            raise RuntimeError(
                "a value of optimizer.state is a copy of what momentd holds, a change in place would "
                "be lost: assign a tensor instead, optimizer.state[parameter][key] = tensor"
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*arguments, **keywords)
            if type(result) is torch.Tensor and _same_memory(result, arguments):
                result = result.as_subclass(cls)  # a view
        return result

    def __reduce_ex__(self, protocol):
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return self.as_subclass(torch.Tensor).clone()


def _same_memory(result, arguments):
    return any(
        isinstance(argument, StateValue)
        and argument.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
        for argument in arguments
    )


class ParameterState:
    """What `optimizer.state[parameter]` is.

    A mapping by what it does and not by type: tools that walk through nested mappings to move what
    is in them to a device (Lightning) take it for one value and leave it where it is.
    """

    __slots__ = ("_values", "parameter")

    def __init__(self, values, parameter):
        self._values = values
        self.parameter = parameter

    def keys(self):
        return keys_of(self.parameter) if self._values.has(self.parameter) else ()

    def __getitem__(self, key):
        if key not in self.keys():
            raise KeyError(key)
        return self._values.get(self.parameter, key)

    def __setitem__(self, key, value):
        self._values.set(self.parameter, {key: value})

    def __iter__(self):
        return iter(self.keys())

    def __len__(self):
        return len(self.keys())

    def __contains__(self, key):
        return key in self.keys()

    def get(self, key, default=None):
        return self[key] if key in self else default

    def values(self):
        return [self[key] for key in self.keys()]

    def items(self):
        return [(key, self[key]) for key in self.keys()]

    def update(self, *values, **keywords):
        self._values.set(self.parameter, dict(*values, **keywords))

    def __repr__(self):
        return f"<state in momentd: {', '.join(self.keys())}>"


class StreamedState(MutableMapping):
    """What `optimizer.state` is: parameter -> ParameterState, for every parameter that has state or
    will have.

    An assigned value is kept here and written before anything uses the state, in one commit with
    all others. `{}` starts over: t and moments are zero, as those of a parameter that torch has no
    state of. Entries cannot be deleted.
    """

    def __init__(self, values, groups):
        """groups(): the parameter groups."""
        self._values = values
        self._groups = groups

    def __bool__(self):
        """Always true. torch.distributed.checkpoint asks it, and steps an optimizer that has no
        state with zero gradients to give it one, which would decay the moments. The question counts
        as that step: from then on state_dict() shows the zeros of what no step has seen."""
        self._values.expected = True
        return True

    def _parameters(self):
        return self._values.parameters(self._groups())

    def __getitem__(self, parameter):
        if not any(parameter is own for group in self._groups() for own in group["params"]):
            raise KeyError("not a parameter of this optimizer")
        return ParameterState(self._values, parameter)

    def __contains__(self, parameter):
        return any(parameter is own for own in self._parameters())

    def __iter__(self):
        return iter(self._parameters())

    def __len__(self):
        return len(self._parameters())

    def __setitem__(self, parameter, value):
        state = self[parameter]
        if isinstance(value, ParameterState) and value.parameter is parameter:
            return
        self._values.set(parameter, dict(value) or None)

    def __delitem__(self, parameter):
        raise TypeError(
            "the state of a parameter lives in momentd and cannot be deleted; assign {} to start over"
        )
