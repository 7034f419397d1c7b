"""Tensors mapped from the bucket files that a pin holds.

A mapping is private: its pages are the file's until somebody writes to a tensor (loading a
checkpoint in place does), and then that tensor's own. The file is never touched.
"""

import mmap
import os
import weakref

import torch

from momentd.torch.values import dtype_of

_MAP_NORESERVE = 0x4000  # a private mapping of a file larger than the memory is no promise to fill it


def map_pin(pin):
    """The tensors of a pin by (tensor, segment), flat. The pin is released with the last of them."""
    mappings, pieces = {}, {}
    for piece in pin.pieces:
        if piece.fd not in mappings:
            mappings[piece.fd] = _map(piece.fd)
        pieces.setdefault((piece.tensor, piece.segment), []).append(
            torch.frombuffer(
                mappings[piece.fd],
                dtype=dtype_of(piece.type),
                count=piece.count,
                offset=piece.offset_bytes,
            )
        )
    for mapping in mappings.values():
        weakref.finalize(mapping, _let_go, pin).atexit = False
    return {key: _join(found) for key, found in pieces.items()}


def _map(fd):
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
    return mmap.mmap(fd, os.fstat(fd).st_size, flags=flags, prot=protection)


def _let_go(pin):
    """A mapping is gone. A pin that nothing refers to is released."""


def _join(found):
    """A tensor that lies in several buckets is copied together."""
    return found[0] if len(found) == 1 else torch.cat(found)
