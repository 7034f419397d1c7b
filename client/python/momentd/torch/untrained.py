"""What belongs to a model and has no main: persistent buffers and frozen parameters. The
optimizer's state does not rebuild them."""

import fnmatch
import hashlib

import torch

from momentd.torch.blob import raw_bytes
from momentd.torch.tensors import local

_SAMPLES = 4096
_WAYS = (
    "keep={name!r} (a pattern; \"*\" is all) keeps it with every step, and rebuilt={name!r} says "
    "that your program makes it again by itself before it resumes"
)


class Untrained:
    """Persistent buffers and frozen parameters of a model. Those that match `keep` go into the
    blob; those that match `rebuilt` are the program's business. Every other buffer is refused;
    every other frozen parameter must not change, and must be the same when the run is resumed."""

    def __init__(self):
        self._modules = []  # with their names; what they hold is looked up anew each time
        self._keep = []
        self._rebuilt = []
        self._choices = {}  # by name
        self._seen = {}

    def add(self, model, keep, rebuilt):
        """Names the model (None: as before) and more patterns."""
        if model is not None:
            modules = model.named_modules()
            self._modules = [(f"{name}." if name else "", module) for name, module in modules]
        self._keep += _patterns(keep)
        self._rebuilt += _patterns(rebuilt)
        self._choices = {}

    def parameters(self):
        return [parameter for _, parameter in self._parameters_but(())]

    def check(self, streamed):
        """Raises ValueError if a buffer is neither kept nor rebuilt, or a pattern names nothing.
        `streamed`: the parameters that have a main."""
        for name, _ in self._persistent_buffers():
            if self._choice(name) is None:
                raise ValueError(
                    f"the model has a persistent buffer, {name}, which the optimizer's state does "
                    f"not rebuild: {_WAYS.format(name=name)}"
                )
        names = [name for name, _ in self._all(streamed)]
        for pattern in self._keep + self._rebuilt:
            if not fnmatch.filter(names, pattern):
                raise ValueError(
                    f"{pattern!r} names no persistent buffer and no frozen parameter of the model"
                )

    def kept(self, streamed):
        """This rank's parts of what `keep` names, by name."""
        return {
            name: local(tensor).detach()
            for name, tensor in self._all(streamed)
            if self._choice(name) == "keep"
        }

    def fingerprints(self, streamed):
        """A digest of each frozen parameter that is neither kept nor rebuilt. RuntimeError if one
        changed since the last call."""
        self._seen = {
            name: _unchanged(name, parameter, self._seen.get(name))
            for name, parameter in self._frozen(streamed)
            if self._choice(name) is None
        }
        return {name: digest for name, (_, digest) in self._seen.items()}

    def restore(self, tensors, streamed):
        """Writes what kept() found into the model."""
        present = self.kept(streamed)
        if present.keys() != tensors.keys():
            different = sorted(present.keys() ^ tensors.keys())
            raise RuntimeError(
                f"kept by one of this run and the interrupted one alone: {different}"
            )
        with torch.no_grad():
            for name, value in tensors.items():
                if present[name].shape != value.shape:
                    raise RuntimeError(
                        f"{name} was {tuple(value.shape)} in the interrupted run and is "
                        f"{tuple(present[name].shape)}"
                    )
                present[name].copy_(value)

    def compare(self, fingerprints):
        """Raises RuntimeError if a frozen parameter is not what it was in the interrupted run."""
        parameters = dict(self._parameters_but(()))
        for name, digest in fingerprints.items():
            if name not in parameters or fingerprint(parameters[name]) != digest:
                raise RuntimeError(
                    f"the frozen parameter {name} is not what it was in the interrupted run: load "
                    f"it before resuming; or {_WAYS.format(name=name)}"
                )

    def _choice(self, name):
        """Which argument names it, or None."""
        if name not in self._choices:
            kept, rebuilt = _matches(name, self._keep), _matches(name, self._rebuilt)
            self._choices[name] = "keep" if kept else "rebuilt" if rebuilt else None
        return self._choices[name]

    def _persistent_buffers(self):
        """Buffers that are part of the model's state_dict, by name."""
        for prefix, module in self._modules:
            for name, buffer in module._buffers.items():
                if buffer is not None and name not in module._non_persistent_buffers_set:
                    yield prefix + name, buffer

    def _parameters_but(self, left_out):
        seen = set(left_out)
        for prefix, module in self._modules:
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield prefix + name, parameter

    def _frozen(self, streamed):
        return self._parameters_but(streamed)

    def _all(self, streamed):
        yield from self._persistent_buffers()
        yield from self._frozen(streamed)


def _unchanged(name, parameter, seen):
    """When and as what the parameter was seen: now, or still as `seen`."""
    now = (parameter._version, local(parameter).data_ptr())
    if seen is not None and seen[0] == now:
        return seen
    digest = fingerprint(parameter)
    if seen is not None and seen[1] != digest:
        raise RuntimeError(
            f"the frozen parameter {name} changed between two steps, and the optimizer's state "
            f"does not hold it: {_WAYS.format(name=name)}"
        )
    return now, digest


def _patterns(patterns):
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def fingerprint(parameter):
    """A digest of some thousands of this rank's elements."""
    value = local(parameter).detach()
    elements = value.reshape(-1)
    stride = max(elements.numel() // _SAMPLES, 1)
    result = hashlib.sha256(f"{tuple(value.shape)} {value.dtype}".encode())
    result.update(raw_bytes(elements[::stride]))
    return result.hexdigest()[:16]
