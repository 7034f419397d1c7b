"""The Python client of momentd, over the C ABI of libmoment.so.

`momentd.torch` has the optimizers, `momentd.spawn` runs a private daemon, `momentd.Store` is the C
ABI as an object. The library is found by MOMENTD_LIBRARY, then in this package (a wheel has it),
then where `cmake --install` puts it, then by the system's loader.
"""

from typing import TYPE_CHECKING, Any

from momentd.daemon import Daemon, spawn
from momentd.errors import Error, ForkedError, Rewound
from momentd.store import Store

if TYPE_CHECKING:
    from momentd.torch.resuming import resume

__version__ = "0.1.0"
__all__ = ["Daemon", "Error", "ForkedError", "Rewound", "Store", "resume", "spawn"]


def __getattr__(name: str) -> Any:
    """`momentd.resume` needs torch, which the rest of this package does not import."""
    if name != "resume":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from momentd.torch import resume

    return resume
