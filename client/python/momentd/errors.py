"""What the client raises."""


class Error(RuntimeError):
    """A call of the daemon or the client failed.

    `code` is the name of the moment_status: "INVALID_ARGUMENT", "FAILED_PRECONDITION",
    "RESOURCE_EXHAUSTED", "UNAVAILABLE", "DATA_LOSS", ...; docs/reference/errors.md names the action.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


class Rewound(Error):
    """The store stands at `sequence`, behind the last answered step.

    The daemon or the node was lost before that step was committed. With one rank, call `resume()` and
    go on from there. With several, let the process end: the launcher restarts the job and every rank
    resumes.
    """

    def __init__(self, message: str, sequence: int) -> None:
        super().__init__("REWOUND", message)
        self.sequence = sequence


class ForkedError(Error):
    """The store was opened by the parent of this process; only that one may use it."""

    def __init__(
        self, message: str = "the store was opened by the parent of this process"
    ) -> None:
        super().__init__("FORKED", message)
