"""Whether a daemon serves; a private one for one trainer: no service to install, no root."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
from typing import IO, List, Optional, Sequence

from momentd import _library, _programs
from momentd._library import Path
from momentd.errors import Error, ForkedError

_STOP_SECONDS = 60.0
_SLICE_SECONDS = 0.25


class Daemon:
    """A running momentd, made by spawn(); a context manager. `socket` is where it serves."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        socket: str,
        directory: Optional["tempfile.TemporaryDirectory[str]"],
    ) -> None:
        self.process = process
        self.socket = socket
        self._directory = directory
        self._pid = os.getpid()

    def close(self) -> None:
        """Stops the daemon: it commits, drains and exits. Calling it again does nothing.

        A forked child may call it, too: there it does nothing, the daemon belongs to the parent.
        """
        if os.getpid() != self._pid:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _find_binary(binary: Optional[Path]) -> str:
    named = binary or os.environ.get("MOMENTD_BINARY")
    found = named or _programs.find("momentd") or shutil.which("momentd")
    if not found or not os.access(found, os.X_OK):
        raise FileNotFoundError(
            f"momentd: no program at {named}" if named else
            "momentd was not found; set MOMENTD_BINARY to its path, or put it on PATH"
        )
    return os.fspath(found)


def _tied_to_parent(command: List[str]) -> List[str]:
    """The daemon drains and ends when its parent dies, however it dies. The kernel ties it to the
    thread that starts it, so this is done for the main thread only, which lasts as long as the
    process."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return command
    return [setpriv, "--pdeathsig", "TERM", "--", *command]


def ping(socket: Optional[Path] = None, wait: float = 10.0) -> None:
    """Returns when the daemon at `socket` (by default $MOMENTD_SOCKET, else that of the node)
    serves. Raises Error("UNAVAILABLE") if it does not within `wait` seconds."""
    library = _library.load()
    path = None if socket is None else os.fsencode(socket)
    deadline = time.monotonic() + wait
    while True:  # in slices: Ctrl-C is noticed between two of them
        left = max(deadline - time.monotonic(), 0.0)
        status = library.moment_ping(path, min(left, _SLICE_SECONDS))
        if status == _library.OK:
            return
        if left <= _SLICE_SECONDS or status != _library.UNAVAILABLE:
            message = library.moment_last_error().decode("utf-8", "replace")
            if status == _library.FORKED:
                raise ForkedError(message)
            raise Error(library.moment_status_name(status).decode(), message)


def _await(
    process: "subprocess.Popen[bytes]", socket: str, timeout: float, log: IO[bytes]
) -> None:
    deadline = time.monotonic() + timeout
    message = ""
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return ping(socket, _SLICE_SECONDS)
        except Error as error:
            message = str(error)
    log.seek(0)
    tail = log.read().decode("utf-8", "replace").strip().splitlines()[-5:]
    if process.poll() is not None:
        message = f"it exited with status {process.returncode}"
    else:
        process.terminate()
        process.wait()
    raise Error("UNAVAILABLE", "\n".join([f"momentd did not start: {message}", *tail]))


def spawn(
    state_dir: Path,
    *,
    socket_dir: Optional[Path] = None,
    binary: Optional[Path] = None,
    arguments: Sequence[str] = (),
    log: Optional[Path] = None,
    timeout: float = 30.0,
) -> Daemon:
    """Runs momentd on `state_dir` for this process alone and waits until it serves.

    state_dir: a directory, made if it is missing.
    socket_dir: where the sockets go; a temporary one by default (a socket's path has at most 107
        bytes).
    binary: the program; by default MOMENTD_BINARY, then that of this installation, then `momentd`
        on PATH.
    arguments: further flags of momentd.
    log: a path for what the daemon prints; shown only if it does not start, by default.
    timeout: seconds to wait for it.

    Returns a Daemon; pass its `socket` to the optimizer and close() it at the end. It also ends when
    this process ends, when spawn() was called on the main thread.
    """
    _library.load()  # before a process is started that would have to be stopped again
    program = _find_binary(binary)
    pathlib.Path(state_dir).mkdir(parents=True, exist_ok=True)
    directory = None
    if socket_dir is None:
        directory = tempfile.TemporaryDirectory(prefix="momentd-")
        socket_dir = directory.name
    command = [program, "--state-dir", os.fspath(state_dir), "--socket-dir", os.fspath(socket_dir)]
    socket = os.path.join(socket_dir, "momentd.sock")
    output = open(log, "a+b") if log is not None else tempfile.TemporaryFile()
    try:
        process = subprocess.Popen(
            _tied_to_parent(command + list(arguments)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the trainer
        )
        _await(process, socket, timeout, output)
    except BaseException:
        if directory is not None:
            directory.cleanup()
        raise
    finally:
        output.close()
    return Daemon(process, socket, directory)
