"""Daemon and trainer that are process 1 of PID namespaces of their own, as in two containers."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
import sharing  # noqa: F401  (puts momentd on the path)

from momentd.daemon import ping  # isort: skip

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
TRAINER = """
import sys
from sharing import Beside, momentd, parameters
class Daemon: socket = sys.argv[1]
try:
    beside = Beside(Daemon, "namespaces", parameters([(1000, 1000)]), lr=1e-3)
    for _ in range(3): beside.step()
    print("TRANSPORT", beside.transport(), "DIFFERING", beside.differing())
    beside.optimizer.close()
except momentd.Error as error:
    print("ERROR", error)
"""


def train_as_process_one(tmp_path, **environment):
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare")
    with tempfile.TemporaryDirectory(prefix="momentd-") as sockets:
        (tmp_path / "state").mkdir()
        with open(tmp_path / "log", "wb") as log:
            daemon = subprocess.Popen(
                [*UNSHARE, os.environ["MOMENTD_BINARY"], "--state-dir", tmp_path / "state",
                 "--socket-dir", sockets, "--host-memory", "512MiB"], stdout=log, stderr=log)
        try:
            socket = os.path.join(sockets, "momentd.sock")
            ping(socket, 30)
            done = subprocess.run(
                [*UNSHARE, sys.executable, "-c", TRAINER, socket], capture_output=True, text=True,
                timeout=100, cwd=pathlib.Path(__file__).parent, env={**os.environ, **environment})
        finally:
            daemon.kill()
            daemon.wait()
    print(done.stdout, done.stderr[-2000:])
    return done.stdout


def test_equal_process_numbers_are_an_error_that_says_what_to_do(tmp_path):
    said = train_as_process_one(tmp_path)
    assert "ERROR" in said and "shareProcessNamespace" in said and "expandable_segments" in said


def test_descriptors_work_with_equal_process_numbers(tmp_path):
    said = train_as_process_one(tmp_path, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert "TRANSPORT cuda_vmm DIFFERING 0" in said
