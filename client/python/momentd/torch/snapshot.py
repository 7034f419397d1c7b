"""Tensors mapped from the bucket files that a pin holds. They may be written to, as loading a
checkpoint in place does: that changes nothing but them."""

import weakref

import torch

from momentd.torch.mapping import can_join, map_file, map_joined
from momentd.torch.values import dtype_of


def map_pin(pin):
    """The tensors of a pin by (tensor, segment), flat. The pin is released with the last of them."""
    pieces = {}
    for piece in pin.pieces:
        pieces.setdefault((piece.tensor, piece.segment), []).append(piece)
    files = _Files(pin)
    return {key: files.tensor(found) for key, found in pieces.items()}


class _Files:
    """The mappings of a pin: one a file, shared by its tensors, and one for each tensor that lies in
    several buckets. Each holds the pin."""

    def __init__(self, pin):
        self._pin = pin
        self._whole = {}  # by descriptor

    def tensor(self, pieces):
        if len(pieces) == 1:
            return self._single(pieces[0])
        dtype = dtype_of(pieces[0].type)
        parts = [
            (piece.fd, piece.offset_bytes, piece.count * dtype.itemsize) for piece in pieces
        ]
        if not can_join(parts):  # buckets of a size of the user's own
            return torch.cat([self._single(piece) for piece in pieces])
        buffer, begin = map_joined(parts)
        self._hold(buffer)
        count = sum(piece.count for piece in pieces)
        return torch.frombuffer(buffer, dtype=dtype, count=count, offset=begin)

    def _single(self, piece):
        if piece.fd not in self._whole:
            self._whole[piece.fd] = map_file(piece.fd)
            self._hold(self._whole[piece.fd])
        return torch.frombuffer(
            self._whole[piece.fd],
            dtype=dtype_of(piece.type),
            count=piece.count,
            offset=piece.offset_bytes,
        )

    def _hold(self, buffer):
        weakref.finalize(buffer, _let_go, self._pin).atexit = False


def _let_go(pin):
    """A mapping is gone. A pin that nothing refers to is released."""
