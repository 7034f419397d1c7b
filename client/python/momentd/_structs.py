"""C structs as named tuples."""

import ctypes
from typing import Any, List, NamedTuple, Tuple, Type, TypeVar


class Commit(NamedTuple):
    id: int
    sequence: int
    due: bool
    step_id: bytes
    unix_time_ns: int


_Kind = TypeVar("_Kind", bound=Tuple[Any, ...])


def fields(struct: ctypes.Structure, kind: Type[_Kind]) -> _Kind:
    """A C struct as one of the named tuples above."""
    values: List[Any] = []
    for name, wanted in kind.__annotations__.items():
        value = getattr(struct, name)
        if isinstance(value, ctypes.Array):
            value = bytes(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        values.append(bool(value) if wanted is bool else value)
    return kind(*values)
