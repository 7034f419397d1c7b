"""The wheel in an environment of its own: nothing of this checkout or its build is in reach."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))

from needs import ToldToCtest  # noqa: E402


def pytest_configure(config):
    config.pluginmanager.register(ToldToCtest())


class Installed:
    """A fresh environment with the wheel in it. It sees the packages of this interpreter, too, which
    is where torch, grpcio, protobuf and onnx come from."""

    def __init__(self, folder, wheel):
        self.folder = folder
        self.python = folder / "bin" / "python"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder], check=True
        )
        self._pip("install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel)
        (self.packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def _pip(self, *arguments):
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", self.python, *arguments], check=True
        )

    @property
    def packages(self):
        version = "python{}.{}".format(*sys.version_info)
        return self.folder / "lib" / version / "site-packages"

    def run(self, *command, **environment):
        """Runs a program in the environment; returns the finished process, its output as text."""
        return subprocess.run(
            [os.fspath(part) for part in command],
            env={**clean_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=1200,
        )


def clean_environment():
    ours = ("LD_", "MOMENTD_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def objects(installed):
    """The shared objects and programs of the wheel."""
    package = installed.packages / "momentd"
    found = [*(package / "lib").iterdir(), *(package / "bin").iterdir()]
    assert len(found) > 3
    return found


def defined_symbols(path):
    """Names of what an object offers to others, without versions."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split()[-2:] for line in listing.splitlines())
    return {name.partition("@")[0] for kind, name in rows if kind != "A"}


def of_the_standard_library(name):
    """Whether a mangled name begins with std::, which the wheel leaves to the system's libstdc++."""
    return re.match(r"_Z(GV)?(T[A-Za-z]|GV)?[NZ]*[KVRO]*S[atbsiod]", name) is not None


@pytest.fixture(scope="session")
def bundled_symbols(installed):
    """The names that bundled symbols had, those of the standard library's templates apart."""
    names = set().union(*(defined_symbols(path) for path in objects(installed)))
    were = {name.removesuffix(".momentd") for name in names if name.endswith(".momentd")}
    return sorted(name for name in were if not of_the_standard_library(name))


def make_wheel(folder, **environment):
    """Makes the wheel of this build in `folder`; returns its path."""
    subprocess.run(
        [*os.environ["MOMENT_MAKE_WHEEL"].split(";"), "--out", folder],
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return make_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def installed(wheel):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mwh"))
    yield Installed(folder / "venv", wheel)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def daemon(installed):
    """A daemon of the wheel, started by momentd.spawn() of the wheel; yields its socket."""
    keeper = subprocess.Popen(
        [installed.python, "-c", _KEEP_A_DAEMON, installed.folder / "state"],
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield keeper.stdout.readline().strip()
    keeper.communicate("", timeout=60)
    assert keeper.returncode == 0


_KEEP_A_DAEMON = """
import sys
import momentd
with momentd.spawn(sys.argv[1]) as daemon:
    print(daemon.socket, flush=True)
    sys.stdin.read()
sys.exit(daemon.process.returncode)
"""
