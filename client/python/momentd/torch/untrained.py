"""What belongs to a model and has no main: persistent buffers and frozen parameters. The optimizer's
state does not rebuild them."""

import fnmatch
import hashlib

import torch

from momentd.torch.blob import raw_bytes
from momentd.torch.tensors import local

_SAMPLES = 4096
_WAYS = (
    "keep={name!r} (a pattern; \"*\" is all) keeps it with every step, and rebuilt={name!r} says that "
    "your program makes it again by itself before it resumes"
)


def persistent_buffers(model):
    """Buffers that are part of the model's state_dict, by name."""
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer


class Untrained:
    """Persistent buffers and frozen parameters of a model. Those that match `keep` go into the blob;
    those that match `rebuilt` are the program's business. Every other buffer is refused; every
    other frozen parameter must not change, and must be the same when the run is resumed."""

    def __init__(self):
        self._model = torch.nn.Module()
        self._keep = []
        self._rebuilt = []
        self._seen = {}

    def add(self, model, keep, rebuilt):
        """Names the model (None: as before) and more patterns."""
        self._model = self._model if model is None else model
        self._keep += _patterns(keep)
        self._rebuilt += _patterns(rebuilt)

    def parameters(self):
        return self._model.parameters()

    def check(self, streamed):
        """Raises ValueError if a buffer is neither kept nor rebuilt, or a pattern names nothing.
        `streamed`: the parameters that have a main."""
        for name, _ in persistent_buffers(self._model):
            if not _matches(name, self._keep + self._rebuilt):
                raise ValueError(
                    f"the model has a persistent buffer, {name}, which the optimizer's state does not "
                    f"rebuild: {_WAYS.format(name=name)}"
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
            if _matches(name, self._keep)
        }

    def fingerprints(self, streamed):
        """A digest of each frozen parameter that is neither kept nor rebuilt, of some thousands of its
        elements. RuntimeError if one changed since the last call."""
        constant = dict(self._constant(streamed))
        self._seen = {name: seen for name, seen in self._seen.items() if name in constant}
        return {name: self._unchanged(name, value) for name, value in constant.items()}

    def restore(self, tensors, streamed):
        """Writes what kept() found into the model."""
        present = self.kept(streamed)
        if present.keys() != tensors.keys():
            different = sorted(present.keys() ^ tensors.keys())
            raise RuntimeError(f"kept by one of this run and the interrupted one alone: {different}")
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
        parameters = dict(self._model.named_parameters())
        for name, digest in fingerprints.items():
            if name not in parameters or fingerprint(parameters[name]) != digest:
                raise RuntimeError(
                    f"the frozen parameter {name} is not what it was in the interrupted run: load it "
                    f"before resuming; or {_WAYS.format(name=name)}"
                )

    def _all(self, streamed):
        yield from persistent_buffers(self._model)
        yield from self._frozen(streamed)

    def _frozen(self, streamed):
        for name, parameter in self._model.named_parameters():
            if id(parameter) not in streamed:
                yield name, parameter

    def _constant(self, streamed):
        for name, parameter in self._frozen(streamed):
            if not _matches(name, self._keep + self._rebuilt):
                yield name, parameter

    def _unchanged(self, name, parameter):
        where = (parameter._version, local(parameter).data_ptr())
        last, digest = self._seen.get(name, (None, None))
        if last == where:
            return digest
        now = fingerprint(parameter)
        if digest is not None and now != digest:
            raise RuntimeError(
                f"the frozen parameter {name} changed between two steps, and the optimizer's state "
                f"does not hold it: {_WAYS.format(name=name)}"
            )
        self._seen[name] = (where, now)
        return now


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
