"""momentctl doctor under the limits of users and containers: what is missing is found, with what to
do about it, and the exit code tells failures from warnings."""

import errno
import json
import os
import subprocess
import sys

import pytest

CONFINE = os.path.join(os.path.dirname(__file__), "confine.py")
ANYONE = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")


def doctor(*arguments, under=()):
    """Exit code, and checks by name (of several, the last)."""
    program = os.environ.get("MOMENTCTL_BINARY")
    if not program:
        pytest.skip("MOMENTCTL_BINARY does not name momentctl")
    done = subprocess.run(
        [*under, program, "doctor", "--json", *map(os.fspath, arguments)],
        capture_output=True, text=True, timeout=300,
        env={key: value for key, value in os.environ.items() if key != "MOMENTD_SOCKET_DIR"})
    assert done.returncode in (0, 1), done.stderr
    document = json.loads(done.stdout)
    checks = document["checks"]
    failures = [check for check in checks if check["result"] == "failure"]
    assert document["failure_count"] == len(failures)
    assert done.returncode == (1 if failures else 0), failures
    for check in checks:
        assert check["finding"], check
        assert check["advice"] or check["result"] in ("ok", "not_applicable"), check
    return done.returncode, {check["name"]: check for check in checks}


def test_every_check_has_a_result_without_a_daemon(scratch):
    _, checks = doctor("--state-dir", scratch)
    assert {"io-uring", "locked-memory", "file-limit", "state-directory", "driver", "compute-mode",
            "mps", "mig", "confidential", "ipc-handle", "ipc-descriptor", "pid-numbers",
            "daemon"} <= checks.keys()
    assert checks["state-directory"]["subject"] == os.fspath(scratch)


def test_it_prints_a_table_and_what_to_do(scratch):
    program = os.environ.get("MOMENTCTL_BINARY")
    if not program:
        pytest.skip("MOMENTCTL_BINARY does not name momentctl")
    missing = scratch / "missing"
    done = subprocess.run([program, "doctor", "--state-dir", missing],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "state-directory  failure" in done.stdout
    assert f"state-directory {missing}: make it" in done.stdout


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_io_uring_that_a_filter_refuses_is_a_warning(scratch, error):
    _, checks = doctor("--state-dir", scratch,
                       under=[sys.executable, CONFINE, f"io_uring={error}", "--"])
    assert checks["io-uring"]["result"] == "warning"
    assert os.strerror(error) in checks["io-uring"]["finding"]
    assert "seccomp" in checks["io-uring"]["advice"]


def test_a_state_directory_without_direct_io_is_a_warning(scratch):
    _, checks = doctor("--state-dir", scratch,
                       under=[sys.executable, CONFINE, f"direct={errno.EINVAL}", "--"])
    assert checks["state-directory"]["result"] == "warning"
    assert "O_DIRECT" in checks["state-directory"]["advice"]


@needs_root
def test_no_locked_memory_is_a_warning_for_a_user_and_none_for_root():
    limited = ["bash", "-c", 'ulimit -l 0; exec "$@"', "-"]
    _, checks = doctor(under=[*limited, *ANYONE])
    assert checks["locked-memory"]["result"] == "warning"
    assert "LimitMEMLOCK" in checks["locked-memory"]["advice"]
    _, checks = doctor(under=limited)
    assert checks["locked-memory"]["result"] == "ok"


def test_few_descriptors_are_a_failure():
    code, checks = doctor(under=["bash", "-c", 'ulimit -n 100; exec "$@"', "-"])
    assert code == 1
    assert checks["file-limit"]["result"] == "failure"
    assert "LimitNOFILE" in checks["file-limit"]["advice"]


def test_a_state_directory_in_memory_is_a_warning():
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    _, checks = doctor("--state-dir", "/dev/shm")
    assert checks["state-directory"]["result"] == "warning"
    assert "tmpfs" in checks["state-directory"]["finding"]


@needs_root
def test_a_state_directory_of_others_is_a_failure(scratch):
    scratch.chmod(0o755)
    code, checks = doctor("--state-dir", scratch, under=ANYONE)
    assert code == 1
    assert checks["state-directory"]["result"] == "failure"
    assert "right to write" in checks["state-directory"]["advice"]


def test_a_daemon_is_asked(daemon):
    _, checks = doctor("--socket-dir", os.path.dirname(daemon.socket))
    assert checks["daemon"]["result"] == "ok"
    assert f"pid {daemon.process.pid}" in checks["daemon"]["finding"]
    assert checks["pid-numbers"]["result"] == "ok"
    assert checks["daemon-directory"]["finding"]


def test_a_daemon_that_does_not_answer_is_a_failure(scratch):
    code, checks = doctor("--socket-dir", scratch, "--timeout", "1")
    assert code == 1
    assert checks["daemon"]["result"] == "failure"


@needs_root
def test_a_daemon_with_this_process_number_in_another_namespace_is_a_failure(daemon):
    """In a new PID namespace the process may have any number, the daemon's too."""
    number = daemon.process.pid
    script = f'echo {number - 1} > /proc/sys/kernel/ns_last_pid && "$@"; exit $?'
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", script, "-"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no new PID namespace here")
    code, checks = doctor("--socket-dir", os.path.dirname(daemon.socket), under=alone)
    assert code == 1
    assert checks["pid-numbers"]["result"] == "failure", checks["pid-numbers"]
    assert "shareProcessNamespace" in checks["pid-numbers"]["advice"]
