"""The C ABI as an object: one open store. Pointers are plain integers; no torch here."""

import ctypes
import os
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple

from momentd import _library as c
from momentd._caller import Caller, Result, raise_for
from momentd._structs import Commit, fields
from momentd.errors import ForkedError, Rewound
from momentd.pin import Pin


class Piece(NamedTuple):
    """A part of one global tensor: the box [offset, offset + extent) of global_shape, and within it
    (row-major) flat_count elements from flat_begin on."""

    key: str
    global_shape: Sequence[int]
    offset: Sequence[int]
    extent: Sequence[int]
    flat_begin: int
    flat_count: int


class Shard(NamedTuple):
    """What a rank-local tensor holds of the model: pieces, one after the other, and the index among
    equal copies on other ranks."""

    pieces: Sequence[Piece]
    replica: int = 0
    may_pad: bool = False


class Tensor(NamedTuple):
    """A rank-local tensor: its name within the member, shape, and parameter type; its shard, None if
    it is a whole parameter and its name is the parameter's."""

    name: str
    shape: Sequence[int]
    type: int = c.FLOAT32
    member: int = 0
    shard: Optional[Shard] = None


class Member(NamedTuple):
    """One optimizer of the store, with its moments' types."""

    name: str = "opt0_0"
    exp_avg: int = c.FLOAT32
    exp_avg_sq: int = c.FLOAT32


@dataclass
class Group:
    """Tensors (by index) that share hyperparameters in a step."""

    tensors: Sequence[int]
    lr: float
    betas: Sequence[float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    mode: int = c.ADAMW
    maximize: bool = False
    gradient_scale: float = 1.0


class Buffer(NamedTuple):
    """Memory of all elements of one segment ("main", "exp_avg", "exp_avg_sq") of a tensor.

    address: of contiguous elements in host memory; None in a write: the segment becomes zero.
    type: of those elements; the daemon converts to and from what is stored (exactly where it widens,
        to nearest even where it narrows).
    """

    tensor: int
    segment: str
    address: Optional[int]
    type: int = c.FLOAT32


class Digest(NamedTuple):
    """XXH3-64 of a tensor's segments as they are stored, and Adam's t."""

    tensor: int
    main: int
    exp_avg: int
    exp_avg_sq: int
    t: int


class Info(NamedTuple):
    """Where the store stands; see moment_info in moment.h."""

    empty: bool
    parameters_stale: bool
    step_in_flight: bool
    rewound: bool
    sequence: int
    step_id: bytes
    commit_every: int
    profile: int
    reserved_bytes: int
    resident_bytes: int
    lease_seconds: float
    reconnects: int
    store_uuid: str
    device: str
    io_engine: str
    transport: str


class Statistics(NamedTuple):
    """Where the seconds and bytes of a step went; see moment_statistics in moment.h."""

    sequence: int
    replayed: bool
    bytes_read: int
    bytes_written: int
    total_seconds: float
    waiting_for_read_seconds: float
    waiting_for_copy_seconds: float
    waiting_for_adam_seconds: float
    waiting_for_frame_seconds: float
    waiting_for_commit_seconds: float
    adam_seconds: float
    chunks: int
    chunks_in_pool: int


@dataclass
class Options:
    """How a store is opened; see moment_open_options in moment.h."""

    job: str
    role: str = "model"
    rank: Optional[int] = 0  # None: to be set before the store is opened
    members: Sequence[Member] = field(default_factory=lambda: [Member()])
    tensors: Sequence[Tensor] = ()
    positional: bool = False
    profile: Optional[str] = None
    commit_every: int = 1
    blob_limit_bytes: int = 0
    bucket_elements: int = 0
    resume: Optional[str] = None
    takeover: bool = False
    socket: Optional[c.Path] = None
    state_directory: Optional[c.Path] = None
    device: Optional[str] = None
    connect_for_seconds: float = 10.0
    retry_for_seconds: float = 300.0

    def check(self) -> None:
        """Raises ValueError for what no daemon could take."""
        _utf8(self.job), _utf8(self.role)
        _choice(c.PROFILES, self.profile, "profile")
        _choice(c.RESUMES, self.resume, "resume")
        for name in ("commit_every", "blob_limit_bytes", "bucket_elements"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: it cannot be negative")


def _text(value: Optional[c.Path]) -> Optional[bytes]:
    return None if value is None else os.fsencode(value)


def _choice(choices: Mapping[Any, int], value: Optional[str], what: str) -> int:
    if value not in choices:
        names = ", ".join(repr(name) for name in choices)
        raise ValueError(f"{what}={value!r}: it must be one of {names}")
    return choices[value]


def _runs(indices: Sequence[int]) -> "ctypes.Array[c.Run]":
    """Sorted tensor indices as an array of runs."""
    runs: List[List[int]] = []
    for index in sorted(indices):
        if runs and runs[-1][0] + runs[-1][1] == index:
            runs[-1][1] += 1
        else:
            runs.append([index, 1])
    return (c.Run * len(runs))(*[c.Run(first, count) for first, count in runs])


def _buffers(buffers: Sequence[Buffer]) -> "ctypes.Array[c.Buffer]":
    return (c.Buffer * len(buffers))(
        *[
            c.Buffer(tensor, _choice(c.SEGMENTS, segment, "segment"), address, kind)
            for tensor, segment, address, kind in buffers
        ]
    )


def _pointers(addresses: Sequence[Optional[int]]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _open_options(options: Options, keep: List[Any]) -> c.OpenOptions:
    """The C struct of `options`; what it points to is appended to `keep`."""
    members = (c.Member * len(options.members))()
    for at, member in zip(members, options.members):
        at.name, at.exp_avg, at.exp_avg_sq = _utf8(member.name), member.exp_avg, member.exp_avg_sq
    tensors = (c.Tensor * len(options.tensors))()
    for at, tensor in zip(tensors, options.tensors):
        shape = (ctypes.c_uint64 * len(tensor.shape))(*tensor.shape)
        keep.append(shape)
        at.name, at.member, at.type = _utf8(tensor.name), tensor.member, tensor.type
        at.dimensions = len(tensor.shape)
        at.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_uint64))
        if tensor.shard is not None:
            at.shard = ctypes.pointer(_shard(tensor.shard, keep))
    keep += [members, tensors]
    return c.OpenOptions(
        struct_size=ctypes.sizeof(c.OpenOptions),
        socket=_text(options.socket),
        job=_utf8(options.job),
        role=_utf8(options.role),
        rank=options.rank,
        members=members,
        member_count=len(members),
        tensors=tensors,
        tensor_count=len(tensors),
        positional=options.positional,
        profile=_choice(c.PROFILES, options.profile, "profile"),
        commit_every=options.commit_every,
        blob_limit_bytes=options.blob_limit_bytes,
        bucket_elements=options.bucket_elements,
        resume=_choice(c.RESUMES, options.resume, "resume"),
        takeover=options.takeover,
        state_directory=_text(options.state_directory),
        device=_text(options.device),
        program=None,
        connect_for_seconds=options.connect_for_seconds,
        retry_for_seconds=options.retry_for_seconds,
    )


def _shard(shard: Shard, keep: List[Any]) -> c.Shard:
    pieces = (c.ShardPiece * len(shard.pieces))()
    for at, piece in zip(pieces, shard.pieces):
        at.key, at.dimensions = _utf8(piece.key), len(piece.global_shape)
        for field in ("global_shape", "offset", "extent"):
            values = (ctypes.c_uint64 * at.dimensions)(*getattr(piece, field))
            keep.append(values)
            setattr(at, field, ctypes.cast(values, ctypes.POINTER(ctypes.c_uint64)))
        at.flat_begin, at.flat_count = piece.flat_begin, piece.flat_count
    keep.append(pieces)
    return c.Shard(pieces, len(pieces), shard.replica, shard.may_pad)


def _utf8(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    if b"\0" in encoded:
        raise ValueError(f"a name with a NUL byte: {text!r}")
    return encoded


def _close(
    library: ctypes.CDLL, handle: ctypes.c_void_p, caller: Caller, pid: int
) -> None:
    if os.getpid() == pid:
        library.moment_close(handle)
        caller.close()


class _Canceller:
    """Ends a call that waits. It does not know the store: the store's finalizer holds it, and would
    keep the store alive for ever."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self.armed = False  # not while the store is being opened or closed: those end by themselves

    def __call__(self) -> None:
        if self.armed:
            self._library.moment_cancel(self._handle)


class Store:
    """One open store. Threads as in moment.h; ForkedError in a forked child, at once."""

    def __init__(self, options: Options) -> None:
        self._library = c.load()
        self._tensor_count = len(options.tensors)
        self._pid = os.getpid()
        self._handle = ctypes.c_void_p()
        self._closer: Optional["weakref.finalize[Any, Any]"] = None
        self._canceller = _Canceller(self._library, self._handle)
        self._caller = Caller(self._canceller)
        try:
            self._open(options)
        except BaseException:
            _close(self._library, self._handle, self._caller, self._pid)
            raise
        self._canceller.armed = True
        self._closer = weakref.finalize(
            self, _close, self._library, self._handle, self._caller, self._pid
        )

    def _open(self, options: Options) -> None:
        keep: List[Any] = []
        struct = _open_options(options, keep)
        result = self._caller.call(
            self._library.moment_open, ctypes.byref(struct), ctypes.byref(self._handle)
        )
        if result.status != c.OK:
            self._fail(result)

    def close(self) -> None:
        """Commits the last applied step and ends the session. Calling it again does nothing."""
        self._check_process()
        if self._closer is None or self.closed:
            return
        self._closer.detach()
        self._closer = None
        self._canceller.armed = False
        try:
            result = self._caller.call(self._library.moment_close, self._handle)
        finally:
            self._caller.close()
        if result.status != c.OK:
            self._fail(result)

    @property
    def closed(self) -> bool:
        return self._closer is None or not self._closer.alive

    def info(self) -> Info:
        info = c.sized(c.Info)
        self._now(self._library.moment_get_info, ctypes.byref(info))
        return fields(info, Info)

    def commits(self) -> List[Commit]:
        """Live commits as of the last open, reconnect or rollback, newest first."""
        count = ctypes.c_size_t()
        self._now(self._library.moment_commits, None, 0, ctypes.byref(count))
        commits = (c.Commit * count.value)()
        self._now(self._library.moment_commits, commits, count.value, ctypes.byref(count))
        return [fields(commit, Commit) for commit in commits]

    def blob(self) -> bytes:
        """What the trainer gave with the step that the store stands at."""
        length = ctypes.c_size_t()
        self._now(self._library.moment_blob, None, 0, ctypes.byref(length))
        data = ctypes.create_string_buffer(max(length.value, 1))
        self._now(self._library.moment_blob, data, length.value, ctypes.byref(length))
        return data.raw[: length.value]

    def warnings(self) -> List[str]:
        length = ctypes.c_size_t()
        self._now(self._library.moment_warnings, None, 0, ctypes.byref(length))
        text = ctypes.create_string_buffer(length.value + 1)
        self._now(self._library.moment_warnings, text, length.value + 1, ctypes.byref(length))
        return text.value.decode("utf-8", "replace").splitlines()

    def added(self) -> List[int]:
        """Indices of tensors that this open added to an existing store."""
        count = ctypes.c_size_t()
        self._now(self._library.moment_added, None, 0, ctypes.byref(count))
        tensors = (ctypes.c_uint32 * count.value)()
        self._now(self._library.moment_added, tensors, count.value, ctypes.byref(count))
        return list(tensors)

    def attach(self, addresses: Sequence[Optional[int]]) -> None:
        """Addresses of all parameters, contiguous, in the order of the tensors."""
        self._wait(self._library.moment_attach, _pointers(addresses), len(addresses))

    def detach(self) -> None:
        self._wait(self._library.moment_detach)

    def step(
        self,
        groups: Sequence[Group],
        gradients: Sequence[Optional[int]],
        gradient_types: Sequence[int],
        participants: Sequence[int],
        blob: bytes = b"",
        resend: bool = False,
    ) -> Statistics:
        """One Adam step. `gradients` and `gradient_types` have one entry a tensor."""
        keep: List[Any] = []
        array = (c.Group * len(groups))()
        for at, group in zip(array, groups):
            runs = _runs(group.tensors)
            keep.append(runs)
            at.lr, at.eps, at.weight_decay = group.lr, group.eps, group.weight_decay
            at.beta1, at.beta2 = group.betas
            at.mode, at.maximize = group.mode, group.maximize
            at.gradient_scale = group.gradient_scale
            at.runs, at.run_count = runs, len(runs)
        taking_part = _runs(participants)
        options = c.StepOptions(
            struct_size=ctypes.sizeof(c.StepOptions),
            groups=array,
            group_count=len(array),
            gradients=_pointers(gradients),
            gradient_types=(ctypes.c_int * len(gradient_types))(*gradient_types),
            participants=ctypes.cast(
                taking_part if len(taking_part) else (c.Run * 1)(), ctypes.POINTER(c.Run)
            ),
            participant_count=len(taking_part),
            blob=blob,
            blob_bytes=len(blob),
            resend=resend,
        )
        statistics = c.sized(c.Statistics)
        self._wait(self._library.moment_step, ctypes.byref(options), ctypes.byref(statistics))
        return fields(statistics, Statistics)

    def skip(self, blob: bytes = b"") -> int:
        sequence = ctypes.c_uint64()
        self._wait(self._library.moment_skip, blob, len(blob), ctypes.byref(sequence))
        return sequence.value

    def flush(self) -> Commit:
        return self._committing(self._library.moment_flush)

    def refresh(self, tensors: Sequence[int]) -> Commit:
        runs = _runs(tensors)
        return self._committing(self._library.moment_refresh, runs, len(runs))

    def refresh_all(
        self, discard: bool = False, start_sequence: int = 0, blob: bytes = b""
    ) -> Commit:
        return self._committing(
            self._library.moment_refresh_all, discard, start_sequence, blob, len(blob)
        )

    def materialize(self, tensors: Sequence[int] = ()) -> None:
        runs = _runs(tensors)
        self._wait(self._library.moment_materialize, runs, len(runs))

    def rollback(self, sequence: int) -> Commit:
        return self._committing(self._library.moment_rollback, sequence)

    def read(self, buffers: Sequence[Buffer]) -> List[int]:
        """Segments of the last applied step -> buffers, all of one state.

        A segment of a tensor may stand there once. Returns Adam's t of each buffer's tensor.
        """
        t = (ctypes.c_uint64 * len(buffers))()
        self._wait(self._library.moment_read_tensors, _buffers(buffers), len(buffers), t)
        return list(t)

    def write(
        self,
        buffers: Sequence[Buffer],
        steps: Optional[Mapping[int, int]] = None,
        parameters_match: bool = False,
    ) -> Commit:
        """Buffers -> segments of many tensors, and t, in one commit; what is not named stays.

        steps: Adam's t by tensor.
        parameters_match: the parameters of the mains that are written fit them already. Otherwise the
            next step is refused until these tensors are materialized, or refreshed.
        """
        array = _buffers(buffers)
        steps = dict(steps or {})
        t = (c.TensorSteps * len(steps))(*[c.TensorSteps(*item) for item in steps.items()])
        options = c.WriteOptions(
            struct_size=ctypes.sizeof(c.WriteOptions),
            buffers=array,
            buffer_count=len(array),
            steps=t,
            step_count=len(t),
            parameters_match=parameters_match,
        )
        return self._committing(self._library.moment_write_tensors, ctypes.byref(options))

    def reset_moments(self, tensors: Optional[Sequence[int]] = None) -> Commit:
        """Zero moments and t of these tensors (None: of all), in one commit; mains stay."""
        runs, count = self._runs_or_all(tensors)
        return self._committing(self._library.moment_reset_moments, runs, count)

    def digest(self, tensors: Optional[Sequence[int]] = None) -> List[Digest]:
        """A Digest of each of these tensors (None: of all), by rising index; changes nothing."""
        runs, count = self._runs_or_all(tensors)
        digests = (c.TensorDigest * self._tensor_count)()
        found = ctypes.c_size_t()
        self._wait(
            self._library.moment_digest, runs, count, digests, len(digests), ctypes.byref(found)
        )
        return [fields(digest, Digest) for digest in digests[: found.value]]

    def steps(self) -> List[int]:
        """Adam's t of every tensor."""
        t = (ctypes.c_uint64 * self._tensor_count)()
        count = ctypes.c_size_t()
        self._wait(self._library.moment_steps, t, len(t), ctypes.byref(count))
        return list(t)

    @staticmethod
    def _runs_or_all(tensors: Optional[Sequence[int]]) -> Tuple[Any, int]:
        if tensors is None:
            return None, 0
        runs = _runs(tensors)
        return runs, len(runs)

    def pin(self) -> Pin:
        """Keeps the files of the last answered step as they are, while steps go on.

        The step is committed first, due only if it is so anyway. RESOURCE_EXHAUSTED without room for
        one more image of the state on disk, or when `max_saves` commits are pinned already.
        """
        handle = ctypes.c_void_p()
        try:
            self._wait(self._library.moment_pin_create, ctypes.byref(handle))
        except BaseException:
            # Ctrl-C may come when the pin was made.
            self._library.moment_pin_release(ctypes.byref(handle))
            raise
        return Pin(self._library, handle)

    def _committing(self, function: Callable[..., int], *arguments: Any) -> Commit:
        commit = c.Commit()
        self._wait(function, *arguments, ctypes.byref(commit))
        return fields(commit, Commit)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                "the store was opened by the parent of this process: make the optimizer's calls in "
                "the training process, not in a forked worker"
            )

    def _check_usable(self) -> None:
        self._check_process()
        if self.closed:
            raise RuntimeError("the store is closed")

    def _wait(self, function: Callable[..., int], *arguments: Any) -> None:
        """A call that may take long."""
        self._check_usable()
        result = self._caller.call(function, self._handle, *arguments)
        if result.status != c.OK:
            self._fail(result)

    def _now(self, function: Callable[..., int], *arguments: Any) -> None:
        """A call that returns at once."""
        self._check_usable()
        status = function(self._handle, *arguments)
        if status != c.OK:
            message = self._library.moment_last_error().decode("utf-8", "replace")
            raise RuntimeError(message)

    def _fail(self, result: Result) -> NoReturn:
        if result.status == c.REWOUND:
            raise Rewound(result.message, self.info().sequence)
        if result.status == c.FORKED:
            raise ForkedError(result.message)
        raise_for(result)
