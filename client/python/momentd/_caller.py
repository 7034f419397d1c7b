"""Runs blocking C calls so that Ctrl-C ends them."""

import queue
import threading
from typing import Any, Callable, NoReturn, Optional, Sequence

from momentd import _library
from momentd.errors import Error


class Result:
    """The outcome of one C call: its status and, if it failed, its sentence."""

    __slots__ = ("done", "status", "message", "failure")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.status: Optional[int] = None
        self.message = ""
        self.failure: Optional[BaseException] = None

    def run(self, function: Callable[..., int], arguments: Sequence[Any]) -> None:
        library = _library.load()
        try:
            self.status = function(*arguments)
            if self.status != _library.OK:
                self.message = library.moment_last_error().decode("utf-8", "replace")
        except BaseException as failure:  # carried to the thread that waits
            self.failure = failure
        finally:
            self.done.set()


class Caller:
    """Calls from the main thread run on a helper thread, because Python runs signal handlers on the
    main thread only, and only between bytecodes: a main thread inside a C call would not notice
    Ctrl-C until the call ends. Calls from other threads run where they are.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._work: Optional["queue.SimpleQueue[Any]"] = None

    def call(self, function: Callable[..., int], *arguments: Any) -> Result:
        result = Result()
        if threading.current_thread() is not threading.main_thread():
            result.run(function, arguments)
        else:
            self._hand_over(result, function, arguments)
            self._wait(result)
        if result.failure is not None:
            raise result.failure
        return result

    def close(self) -> None:
        if self._work is not None:
            self._work.put(None)

    def _hand_over(
        self, result: Result, function: Callable[..., int], arguments: Sequence[Any]
    ) -> None:
        if self._work is None:
            self._work = queue.SimpleQueue()
            threading.Thread(
                target=_serve, args=(self._work,), name="momentd", daemon=True
            ).start()
        self._work.put((result, function, arguments))

    def _wait(self, result: Result) -> None:
        try:
            result.done.wait()
        except BaseException:
            self._cancel()
            result.done.wait()
            raise


def _serve(work: "queue.SimpleQueue[Any]") -> None:
    while True:
        item = work.get()
        if item is None:
            return
        result, function, arguments = item
        result.run(function, arguments)
        del item, result, function, arguments


def raise_for(result: Result) -> NoReturn:
    """Raises what a failed call means; Rewound and ForkedError are made by the store."""
    name = _library.load().moment_status_name(result.status).decode()
    raise Error(name, result.message)
