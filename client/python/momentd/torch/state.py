"""Stands where torch keeps an optimizer's state: the state is not in this process."""

from collections.abc import MutableMapping

_ELSEWHERE = (
    "the state of this optimizer lives in momentd, not in this process: {what} is not there to be "
    "read or written; use optimizer.flush() and optimizer.resume()"
)


class TensorState(dict):
    """What `optimizer.state[parameter]` is: empty, and it says so."""

    def __missing__(self, key):
        raise KeyError(_ELSEWHERE.format(what=repr(key)))

    def _refuse(self, *_, **__):
        raise TypeError(_ELSEWHERE.format(what="an entry"))

    __setitem__ = _refuse
    update = _refuse
    setdefault = _refuse
    __ior__ = _refuse


class StreamedState(MutableMapping):
    """`optimizer.state`: one entry a parameter, so that nobody takes the optimizer for a fresh one
    (torch.distributed.checkpoint steps an optimizer whose state is empty, which would decay the
    moments); what is in an entry, and every change, is refused with a sentence."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def _parameters(self):
        for group in self._optimizer.param_groups:
            yield from group["params"]

    def __getitem__(self, parameter):
        if any(parameter is known for known in self._parameters()):
            return TensorState()
        raise KeyError("not a parameter of this optimizer")

    def __iter__(self):
        return iter(list(self._parameters()))

    def __len__(self):
        return sum(len(group["params"]) for group in self._optimizer.param_groups)

    def __setitem__(self, parameter, value):
        if value:
            raise TypeError(_ELSEWHERE.format(what="a parameter's entry"))

    def __delitem__(self, parameter):
        raise TypeError(_ELSEWHERE.format(what="a parameter's entry"))
