"""The daemon and the trainer as containers and plain users run them: filtered calls, small limits,
another user. Full function, and what is degraded is said."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
import textwrap

import pytest

import momentd
from bare_trainer import BareTrainer, undisturbed
from momentctl import directory_status

# 774,528 fp32 elements, 3,098,112 bytes: no multiple of 4096.
SHAPES = {"odd": (774_528,), "last": (3,)}
OPTIONS = {"bucket_elements": 774_528}
CONFINE = os.path.join(os.path.dirname(__file__), "confine.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")


@pytest.fixture
def under(scratch):
    """Starts the daemon by a shell line that ends with its command, `"$@"`."""

    def start(line, name="other", **arguments):
        script = scratch / f"{name}.sh"
        binary = shlex.quote(os.environ["MOMENTD_BINARY"])
        script.write_text(f"#!/bin/bash\nset -e\nset -- {binary} \"$@\"\n{line}\n")
        script.chmod(0o755)
        state = scratch / f"{name}-state"
        return momentd.spawn(state, binary=script, log=scratch / f"{name}-log", **arguments)

    return start


def confined(*rules):
    return f'exec {sys.executable} {CONFINE} {" ".join(rules)} -- "$@"'


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS, errno.ENOMEM])
def test_without_io_uring_threads_serve_and_the_reason_is_told(under, daemon, error):
    expected = undisturbed(daemon, SHAPES, 3, **OPTIONS)
    with under(confined(f"io_uring={error}")) as filtered:
        directory = directory_status(filtered)
        assert directory["io_engine"] == "threads"
        assert os.strerror(error) in directory["io_engine_reason"]
        trainer = BareTrainer(filtered, SHAPES, **OPTIONS).steps(3)
        assert any(os.strerror(error) in warning for warning in trainer.store.warnings())
        trainer.close()
        assert trainer.bits() == expected


def test_io_uring_that_was_asked_for_is_not_replaced(under):
    with pytest.raises(momentd.Error, match="Operation not permitted"):
        under(confined(f"io_uring={errno.EPERM}"), arguments=["--io-engine", "io_uring"])


@pytest.mark.parametrize("engine", ["auto", "threads"])
def test_without_direct_io_buffered_files_serve_and_the_reason_is_told(under, daemon, engine):
    expected = undisturbed(daemon, SHAPES, 3, **OPTIONS)
    with under(confined(f"direct={errno.EINVAL}"), arguments=["--io-engine", engine]) as filtered:
        directory = directory_status(filtered)
        assert not directory["direct_io"]
        assert "Invalid argument" in directory["direct_io_reason"]
        trainer = BareTrainer(filtered, SHAPES, **OPTIONS).steps(3)
        assert any("direct I/O" in warning for warning in trainer.store.warnings())
        trainer.close()
        assert trainer.bits() == expected
        again = BareTrainer(filtered, SHAPES, resume="must", **OPTIONS)
        assert again.bits() == expected
        again.close()


@pytest.mark.parametrize("place", ["/dev/shm"])
def test_a_state_directory_in_memory_serves_and_says_so(daemon, tmp_path_factory, place):
    if not os.path.isdir(place):
        pytest.skip(f"no {place}")
    state = os.path.join(place, f"moment-test-{os.getpid()}")
    try:
        with momentd.spawn(state) as volatile:
            assert directory_status(volatile)["is_volatile"]
            trainer = BareTrainer(volatile, SHAPES, **OPTIONS).steps(3)
            assert any("is lost with the machine" in text for text in trainer.store.warnings())
            trainer.close()
            assert trainer.bits() == undisturbed(daemon, SHAPES, 3, **OPTIONS)
        with pytest.raises(momentd.Error, match="allow_volatile"):
            momentd.spawn(state, arguments=["--allow-volatile=false"])
    finally:
        shutil.rmtree(state, ignore_errors=True)


@needs_root
def test_two_daemons_of_a_user_with_64_kib_of_locked_memory(under, scratch, daemon):
    """Where rings count against the user's limit the second finds less; it starts all the same."""
    expected = undisturbed(daemon, SHAPES, 3, **OPTIONS)
    scratch.chmod(0o755)
    daemons = []
    try:
        for name in ("first", "second"):
            for directory in (scratch / f"{name}-state", scratch / f"{name}-run"):
                directory.mkdir()
                os.chown(directory, 65534, 65534)
            line = 'ulimit -l 64\nexec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
            daemons.append(under(line, name, socket_dir=scratch / f"{name}-run"))
            limits = open(f"/proc/{daemons[-1].process.pid}/limits").read()
            assert "Max locked memory         65536" in limits
        for running in daemons:
            directory = directory_status(running)
            assert (directory["io_engine"] == "io_uring") == (not directory["io_engine_reason"])
            trainer = BareTrainer(running, SHAPES, **OPTIONS).steps(3)
            trainer.close()
            assert trainer.bits() == expected
    finally:
        for running in daemons:
            running.close()


TRAIN = textwrap.dedent(
    """
    import sys
    sys.path[:0] = {path!r}
    from types import SimpleNamespace
    from bare_trainer import BareTrainer
    trainer = BareTrainer(SimpleNamespace(socket={socket!r}), {{"w": (1000,)}}, connect_for_seconds=2)
    trainer.steps(2)
    print(trainer.sequence)
    trainer.close()
    """
)


def train_as(uid, daemon):
    script = TRAIN.format(path=sys.path, socket=daemon.socket)
    user = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    return subprocess.run(
        [*user, sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )


@needs_root
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_daemon_of_root_serves_the_group_it_was_given_whatever_the_umask(scratch, umask):
    scratch.chmod(0o755)
    run = scratch / "run"
    before = os.umask(umask)
    try:
        running = momentd.spawn(
            scratch / "state",
            socket_dir=run,
            log=scratch / "log",
            arguments=["--socket-group", "1000", "--allow-gid", "1000"],
        )
    finally:
        os.umask(before)
    with running:
        assert oct(run.stat().st_mode & 0o777) == oct(0o750)
        assert run.stat().st_gid == 1000
        for socket in ("momentd.sock", "fd.sock", "admin.sock"):
            assert oct((run / socket).stat().st_mode & 0o777) == oct(0o660)
            assert (run / socket).stat().st_gid == 1000
        trained = train_as(1000, running)
        assert trained.stdout.split() == ["2"], trained.stderr
        # A stranger does not get through the directory, and is told so.
        stranger = train_as(1001, running)
        assert stranger.returncode != 0
        assert "Permission denied" in stranger.stderr, stranger.stderr


@needs_root
def test_a_user_who_is_not_allowed_is_told_so_and_another_users_store_is_kept(scratch):
    """Sockets open to all, so that the daemon's own list decides."""
    scratch.chmod(0o755)
    arguments = ["--socket-mode", "0666", "--socket-dir-mode", "0755", "--allow-uid", "1000"]
    with momentd.spawn(
        scratch / "state",
        socket_dir=scratch / "run",
        log=scratch / "log",
        arguments=[*arguments, "--allow-uid", "1001"],
    ) as running:
        assert train_as(1000, running).stdout.split() == ["2"]
        other = train_as(1001, running)
        assert "PERMISSION_DENIED" in other.stderr and "uid 1000" in other.stderr, other.stderr
        refused = train_as(1002, running)
        assert refused.returncode != 0
        assert "uid 1002" in (scratch / "log").read_text() or "uid=1002" in (
            scratch / "log"
        ).read_text()
