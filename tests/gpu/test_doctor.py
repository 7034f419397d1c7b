"""momentctl about the GPU: doctor's trial of two processes, and what status says of its memory."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)
if "MOMENTD_BINARY" not in os.environ or "MOMENTCTL_BINARY" not in os.environ:
    pytest.skip("MOMENTD_BINARY and MOMENTCTL_BINARY do not name the programs",
                allow_module_level=True)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))
import momentd

MIB = 1 << 20


def momentctl(*arguments, accepted=(0,), under=()):
    done = subprocess.run([*under, os.environ["MOMENTCTL_BINARY"], *arguments, "--json"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode in accepted, done.stdout + done.stderr
    return json.loads(done.stdout)


def checks(*arguments, **options):
    document = momentctl("doctor", *arguments, accepted=(0, 1), **options)
    print(json.dumps(document, indent=1))
    return document["checks"]


def results(found, name):
    return [check["result"] for check in found if check["name"] == name]


def test_doctor_shares_memory_of_every_gpu_between_two_processes(tmp_path):
    found = checks("--state-dir", tmp_path)
    (driver,) = [check for check in found if check["name"] == "driver"]
    assert driver["result"] in ("ok", "warning")
    assert driver["finding"].count("GPU-") == torch.cuda.device_count()
    for name in ("ipc-handle", "ipc-descriptor", "compute-mode", "mps", "mig", "confidential"):
        assert results(found, name) == ["ok"] * torch.cuda.device_count(), name


def test_doctor_says_that_no_gpu_is_visible(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = checks()
    assert results(found, "driver") == ["not_applicable"]
    assert results(found, "ipc-handle") == ["not_applicable"]


def test_doctor_in_a_pid_namespace_of_its_own(tmp_path):
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no new PID namespace here")
    found = checks(under=alone)
    assert results(found, "pid-numbers") == ["warning"]
    assert set(results(found, "ipc-descriptor")) == {"ok"}


def test_status_shows_what_the_daemon_takes_of_the_gpu_before_any_store(tmp_path):
    torch.zeros(1, device="cuda")
    free_before, _ = torch.cuda.mem_get_info()
    (tmp_path / "run").mkdir()
    with momentd.spawn(tmp_path / "state", socket_dir=tmp_path / "run", log=tmp_path / "log",
                       arguments=["--gpu-staging", "64MiB"]):
        free, _ = torch.cuda.mem_get_info()
        status = momentctl("status", "--socket-dir", os.fspath(tmp_path / "run"))
        gpus = [device for device in status["devices"] if device["name"].startswith("GPU-")]
        assert len(gpus) == torch.cuda.device_count()
        memory = gpus[0]["memory"]
        assert memory["staging_bytes"] == 64 * MIB
        assert memory["staging_used_bytes"] == 0
        assert status["gpu_notices"] == []
        if memory["context_bytes"] is not None:
            taken = free_before - free
            assert abs(taken - memory["context_bytes"] - memory["staging_bytes"]) < 64 * MIB
            assert 100 * MIB < memory["context_bytes"] < 1500 * MIB
