"""The programs of this installation, momentd and momentctl; a wheel holds them in momentd/bin."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn, Optional


def find(name: str) -> Optional[str]:
    """The program's path, in this package or where `cmake --install` lays it out; else None."""
    package = pathlib.Path(__file__).resolve().parent
    candidates = [package / "bin" / name]
    if package.parents[1].name == "momentd":  # <prefix>/share/momentd/python/momentd
        candidates.append(package.parents[3] / "bin" / name)
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return None


def _become(name: str) -> NoReturn:
    program = find(name)
    if program is None:
        sys.exit(f"{name}: this installation of the package momentd has no programs in it")
    os.execv(program, [program, *sys.argv[1:]])


def momentd() -> NoReturn:
    """The command `momentd`."""
    _become("momentd")


def momentctl() -> NoReturn:
    """The command `momentctl`."""
    _become("momentctl")
