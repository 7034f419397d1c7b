"""C structs as named tuples."""

import ctypes
from typing import NamedTuple


class Commit(NamedTuple):
    id: int
    sequence: int
    due: bool
    step_id: bytes
    unix_time_ns: int


def fields(struct, kind):
    """A C struct as one of the named tuples above."""
    values = []
    for name in kind._fields:
        value = getattr(struct, name)
        if isinstance(value, ctypes.Array):
            value = bytes(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        wanted = kind.__annotations__[name]
        values.append(bool(value) if wanted is bool else value)
    return kind(*values)
