"""What is in the wheel, and what it needs of the system it is installed on."""

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import defined_symbols, make_wheel, objects, of_the_standard_library
from needs import needs

needs("auditwheel", "patchelf")


@pytest.fixture(scope="module")
def archive(wheel):
    with zipfile.ZipFile(wheel) as opened:
        yield opened


def dist_info(archive, name):
    (path,) = [entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}")]
    return archive.read(path).decode()


def test_record_lists_every_file_with_its_digest(archive):
    recorded = {name: (digest, size) for name, digest, size in
                csv.reader(dist_info(archive, "RECORD").splitlines())}
    assert set(recorded) == set(archive.namelist())
    for name, (digest, size) in recorded.items():
        if name.endswith("/RECORD"):
            assert (digest, size) == ("", "")
            continue
        content = archive.read(name)
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={sha256}", str(len(content))), name


def test_the_platform_is_the_one_that_is_promised(wheel):
    promised = os.environ["MOMENT_GLIBC_VERSION"].replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-manylinux_{promised}_x86_64.whl")


def test_auditwheel_finds_the_platform_right_and_nothing_missing(wheel):
    said = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    text = " ".join(said.stdout.split())
    promised = os.environ["MOMENT_GLIBC_VERSION"].replace(".", "_")
    # Were an object missing, it would say linux_x86_64.
    assert f'is consistent with the following platform tag: "manylinux_{promised}_x86_64"' in text


def test_no_object_needs_newer_symbols_than_promised(installed):
    promised = {
        family: tuple(map(int, os.environ[f"MOMENT_{family}_VERSION"].split(".")))
        for family in ("GLIBC", "GLIBCXX", "CXXABI")
    }
    newest = dict.fromkeys(promised, (0,))
    for path in objects(installed):
        text = subprocess.run(["readelf", "-VW", path], capture_output=True, text=True).stdout
        for family, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([0-9.]+[0-9])\b", text):
            newest[family] = max(newest[family], tuple(map(int, version.split("."))))
    assert all((0,) < newest[family] <= promised[family] for family in promised), newest


def test_nothing_but_the_base_system_comes_from_outside(installed):
    base = r"(ld-linux-x86-64|libc|libm|libgcc_s|libstdc\+\+|libz)\.so\.\d+$"
    for path in objects(installed):
        for line in installed.run("ldd", path).stdout.splitlines():
            soname, arrow, target = line.strip().partition(" => ")
            if arrow and not target.startswith(str(installed.packages)):
                assert re.match(base, soname), f"{path.name} takes {soname} from {target}"


def test_objects_offer_no_name_that_another_build_of_them_has(installed):
    of_the_linker = {"_init", "_fini", "_edata", "_end", "__bss_start"}
    renamed = 0
    for path in objects(installed):
        for name in defined_symbols(path):
            if name.endswith(".momentd"):
                renamed += 1
            elif name.startswith("moment_"):
                assert path.name == "libmoment.so.1"
            elif not of_the_standard_library(name):
                # A program has copies of libc's data that it refers to.
                assert path.parent.name == "bin" or name in of_the_linker, f"{path.name}: {name}"
    assert renamed > 10_000


def test_each_bundled_object_has_its_licence(archive):
    bundled = {
        name.rpartition("/")[2]
        for name in archive.namelist()
        if name.startswith("momentd/lib/") and not name.endswith("/libmoment.so.1")
    }
    listed = {}
    for line in dist_info(archive, "licenses/THIRD_PARTY.txt").splitlines():
        name, colon, rest = line.partition(": package ")
        if colon:
            listed[name] = rest.rpartition(" ")[2]
    assert bundled and bundled <= set(listed)
    declared = re.findall(r"^License-File: (.+)$", dist_info(archive, "METADATA"), re.MULTILINE)
    for licence in listed.values():
        assert licence in declared
        assert len(dist_info(archive, f"licenses/{licence}")) > 500
    assert "Apache License" in dist_info(archive, "licenses/LICENSE")


def test_the_package_says_that_it_is_typed(archive):
    assert "momentd/py.typed" in archive.namelist()


def test_the_programs_run_by_their_names(installed):
    for program in ("momentd", "momentctl"):
        result = installed.run(installed.folder / "bin" / program, "--version", PATH="/nowhere")
        assert result.returncode == 0, result.stderr
        assert "0.1.0" in result.stdout


def test_a_command_line_reaches_the_program(installed):
    result = installed.run(installed.folder / "bin" / "momentctl", "list", "--no-such-flag")
    assert result.returncode == 2
    assert "no-such-flag" in result.stderr


def test_the_same_build_makes_the_same_wheel(wheel, tmp_path):
    """At another time, in another time zone, with another umask."""
    before = os.umask(0o077)
    try:
        again = make_wheel(tmp_path / "dist", TZ="Asia/Tokyo", LC_ALL="C.UTF-8")
    finally:
        os.umask(before)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
