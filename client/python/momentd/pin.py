"""A pinned commit: read-only files that hold one step's state while later steps go on."""

import ctypes
import os
import weakref
from typing import Any, Callable, List, NamedTuple

from momentd import _library as c
from momentd._structs import Commit, fields
from momentd.errors import Error, ForkedError


_SEGMENT_NAMES = {number: name for name, number in c.SEGMENTS.items()}


class PinPiece(NamedTuple):
    """A run of elements of one segment of one tensor, in a file.

    `count` little-endian elements of `type` lie at `offset_bytes` of the file `fd`; they are those
    from `first` on of the flattened tensor. A tensor has one piece a segment, or several where it
    spans buckets, in the order of `first`; an empty tensor has none.
    """

    tensor: int
    segment: str  # "main", "exp_avg", "exp_avg_sq"
    type: int  # momentd._library.FLOAT32, BFLOAT16, FLOAT16
    fd: int
    offset_bytes: int
    first: int
    count: int  # type: ignore[assignment]  # tuple has a method of this name


class Pin:
    """The state of one answered step, kept as it is until release(); made by Store.pin().

    commit      the Commit whose files it keeps
    id          its name in `momentctl status` and `inspect`
    size_bytes  of its files
    steps       Adam's t of each tensor
    pieces      PinPieces by tensor, segment and first element

    The file descriptors belong to the pin: read them (os.pread) or map them (mmap with ACCESS_READ),
    never close them. A mapping stays valid after release(); so does, after a lost session, what is
    open: the files are never written again. The pin is released when it is collected, and may
    outlive its store.
    """

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._pid = os.getpid()
        self._releaser = weakref.finalize(self, _release, library, handle, self._pid)
        info = c.sized(c.PinInfo)
        self._now(library.moment_pin_get_info, handle, ctypes.byref(info))
        self.commit = fields(info.commit, Commit)
        self.id: str = info.id.decode()
        self.size_bytes: int = info.size_bytes
        self.steps: List[int] = list(self._list(library.moment_pin_steps, handle, ctypes.c_uint64))
        self.pieces = [
            PinPiece(
                piece.tensor,
                _SEGMENT_NAMES[piece.segment],
                piece.type,
                piece.fd,
                piece.offset_bytes,
                piece.first,
                piece.count,
            )
            for piece in self._list(library.moment_pin_pieces, handle, c.PinPiece)
        ]

    def release(self) -> None:
        """Closes the files and gives back what the pin holds on disk. Calling it again does nothing."""
        if os.getpid() != self._pid:
            raise ForkedError("the pin was made by the parent of this process")
        self._releaser()

    @property
    def released(self) -> bool:
        return not self._releaser.alive

    def __enter__(self) -> "Pin":
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    def _list(self, function: Callable[..., int], handle: ctypes.c_void_p, kind: Any) -> Any:
        count = ctypes.c_size_t()
        self._now(function, handle, None, 0, ctypes.byref(count))
        items = (kind * count.value)()
        self._now(function, handle, items, count.value, ctypes.byref(count))
        return items

    def _now(self, function: Callable[..., int], *arguments: Any) -> None:
        status = function(*arguments)
        if status != c.OK:
            name = self._library.moment_status_name(status).decode()
            raise Error(name, self._library.moment_last_error().decode("utf-8", "replace"))


def _release(library: ctypes.CDLL, handle: ctypes.c_void_p, pid: int) -> None:
    # A failure leaves nothing to do: the daemon drops the pin with its session.
    if os.getpid() == pid:
        library.moment_pin_release(ctypes.byref(handle))
