"""What the wheel needs to know of ELF objects, as binutils and the loader tell it."""

import os
import re
import subprocess

# Of every Linux that a manylinux wheel is for; everything else goes into the wheel.
BASE = frozenset(
    {
        "ld-linux-x86-64.so.2",
        "libc.so.6",
        "libdl.so.2",
        "libgcc_s.so.1",
        "libm.so.6",
        "libpthread.so.0",
        "librt.so.1",
        "libstdc++.so.6",
        "libz.so.1",
    }
)

_VERSION = re.compile(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9]+(?:\.[0-9]+)*)\b")


def run(*command, **environment):
    """The standard output of a program; its messages are part of the error if it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    result = subprocess.run(
        [os.fspath(part) for part in command],
        env={**kept, "LC_ALL": "C", **environment},
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {result.stderr or result.stdout}")
    return result.stdout


def needed(path):
    """The sonames that an object names in DT_NEEDED."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", path))


def dependencies(path):
    """soname -> file of all shared objects that the loader would load with `path`, transitively.

    Raises RuntimeError if one is missing, or if a symbol of any of them cannot be bound.
    """
    found, complaints = {}, []
    for line in run("ldd", "-r", path).splitlines():
        name, arrow, target = line.strip().partition(" => ")
        if target.startswith("not found") or line.startswith("undefined symbol"):
            complaints.append(line.strip())
        elif arrow:  # not the vDSO and the loader itself
            found[name] = target.rsplit(" (", 1)[0]
    if complaints:
        raise RuntimeError(f"{path} cannot be loaded: {'; '.join(complaints)}")
    return found


def defined(path):
    """Names of the symbols that a shared object or program offers to others."""
    names = set()
    for line in run("nm", "-D", "--defined-only", path).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the names of versions
            names.add(name.partition("@")[0])
    return names


def symbol_versions(path):
    """{"GLIBC": (2, 34), ...}: the newest versions among the symbols that an object needs."""
    newest = {}
    for line in run("readelf", "-VW", path).splitlines():
        for family, version in _VERSION.findall(line):
            numbers = tuple(int(number) for number in version.split("."))
            newest[family] = max(newest.get(family, (0,)), numbers)
    return newest
