"""Whose work is in the wheel beside ours: the distribution's packages and their licences."""

import pathlib
import shutil
import subprocess

from elf import run

# Compiled into our objects from headers alone.
_HEADERS = {
    "CLI11": "/usr/include/CLI/CLI.hpp",
    "prometheus-cpp (headers)": "/usr/include/prometheus/registry.h",
    "spdlog (headers)": "/usr/include/spdlog/spdlog.h",
}

_ROW = "${Package} ${Architecture} ${Version}\n"


def _names_of(file):
    """What dpkg may know a file by: links resolved or not, before and after /lib became /usr/lib."""
    resolved = str(pathlib.Path(file).resolve())
    return {name for path in (file, resolved) for name in (path, path.removeprefix("/usr"))}


def _owners(files):
    """{file: its package}; one call, because dpkg reads the lists of all packages for each."""
    names = set().union(*map(_names_of, files))
    # It ends with 1 if it knows any of the names not, which is so for most.
    said = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True).stdout
    known = {}
    for line in said.splitlines():
        packages, _, name = line.rpartition(": ")
        if not packages.startswith("diversion "):
            known[name] = packages.split(", ")[0]
    owners = {file: known[name] for file in files for name in _names_of(file) if name in known}
    unknown = sorted(set(files) - set(owners))
    if unknown:
        raise RuntimeError(f"of no package of the distribution, so of unknown licence: {unknown}")
    return owners


def _versions(owners):
    """{package as dpkg names it, perhaps with an architecture: (its name, its version)}."""
    said = {}
    for line in run("dpkg-query", "-W", "-f", _ROW, *owners).splitlines():
        package, architecture, version = line.split()
        said[package] = said[f"{package}:{architecture}"] = package, version
    return said


def write_licences(origins, folder):
    """Copies the licence of each package of `origins` ({name: file}) into `folder`, with a list.

    Returns the names of the files written.
    """
    lines = ["Objects of other projects in this wheel, as the distribution packages them.", ""]
    written = set()
    files = {**origins, **_HEADERS}
    owners = _owners(files.values())
    versions = _versions(set(owners.values()))
    for name, file in sorted(files.items()):
        package, version = versions[owners[file]]
        licence = f"{package}.copyright"
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", folder / licence)
        written.add(licence)
        lines.append(f"{name}: package {package} {version}, licence in {licence}")
    (folder / "THIRD_PARTY.txt").write_text("\n".join(lines) + "\n")
    return sorted(written | {"THIRD_PARTY.txt"})
