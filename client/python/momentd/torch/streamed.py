"""A torch.optim.Optimizer whose state lives in momentd: what AdamW and Adam share."""

import inspect
import os
import weakref
from typing import Any, Callable, Dict, Iterable, List, NoReturn, Optional, TypeVar, Union

import torch
from torch.optim.optimizer import ParamsT

from momentd._library import Path
from momentd._structs import Commit
from momentd.daemon import ping
from momentd.errors import ForkedError
from momentd.store import Info, Options, Statistics
from momentd.torch.access import StateAccess
from momentd.torch.devices import check_arithmetic
from momentd.torch.hyperparameters import check_choices, check_defaults
from momentd.torch.names import Names
from momentd.torch.session import Session
from momentd.torch.state import StreamedState
from momentd.torch.state_dict import StateDicts
from momentd.torch.tensors import check_kind
from momentd.torch.torch_form import merge_groups
from momentd.torch.trainer_state import TrainerState
from momentd.torch.values import check_moment
from momentd.torch.zero import check_names, drop_arguments, refuse_invented_step


_Result = TypeVar("_Result")
_Groups = List[Dict[str, Any]]


def _unless_none(result: Optional[_Result], otherwise: _Result) -> _Result:
    return otherwise if result is None else result


class Streamed(torch.optim.Optimizer):
    """torch's interface and what goes beyond it. AdamW and Adam give it torch's arguments as the
    `defaults` of the groups."""

    def __init__(
        self,
        params: ParamsT,
        defaults: Dict[str, Any],
        *,
        job: str,
        role: str = "model",
        rank: Optional[int] = None,
        resume: Optional[str] = None,
        socket: Optional[Path] = None,
        module: Optional[torch.nn.Module] = None,
        exp_avg_dtype: torch.dtype = torch.float32,
        exp_avg_sq_dtype: torch.dtype = torch.float32,
        commit_every: int = 1,
        blob: Union[Callable[[], bytes], TrainerState, None] = None,
        blob_limit_bytes: int = 1 << 20,
        bucket_elements: int = 0,
        takeover: bool = False,
        state_directory: Optional[Path] = None,
        profile: Optional[str] = None,
        connect_for: float = 10.0,
        retry_for: float = 300.0,
        replicas: bool = False,
    ) -> None:
        check_defaults(defaults)
        self._process = os.getpid()
        self._names = Names(module)
        self.blob = blob
        self._state: Any = None  # a StreamedState, once torch's constructor is done
        self.last_statistics: Optional[Statistics] = None
        super().__init__(params, defaults)
        options = Options(
            job=job,
            role=role,
            rank=rank,
            profile=profile,
            commit_every=commit_every,
            blob_limit_bytes=blob_limit_bytes,
            bucket_elements=bucket_elements,
            resume=resume,
            takeover=takeover,
            socket=socket,
            state_directory=state_directory,
            connect_for_seconds=connect_for,
            retry_for_seconds=retry_for,
        )
        options.check()
        moment_dtypes = {
            "exp_avg": check_moment("exp_avg", exp_avg_dtype),
            "exp_avg_sq": check_moment("exp_avg_sq", exp_avg_sq_dtype),
        }
        own = weakref.ref(self)  # no cycle: the session ends with the last reference to the optimizer

        def groups() -> _Groups:
            optimizer = own()
            assert optimizer is not None  # it outlives its session
            return optimizer.param_groups

        for group in self.param_groups:
            check_choices(group)
        if options.profile is None:
            check_arithmetic(self.param_groups)
        self._session = Session(options, moment_dtypes, self._names, groups, replicas)
        access = StateAccess(self._session)
        self._state = StreamedState(access, groups)
        self._state_dicts = StateDicts(self._session, access, self._names)
        ping(socket, connect_for)

    # What torch keeps in the optimizer, and we do not.

    @property  # type: ignore[override]
    def state(self) -> StreamedState:
        state: StreamedState = self._state
        return state

    @state.setter
    def state(self, value: object) -> None:
        if self._state is not None:
            raise TypeError("the state of this optimizer lives in momentd and cannot be assigned")

    @torch._disable_dynamo
    def state_dict(self, *, reference: bool = False) -> Dict[str, Any]:
        """As torch's: `state`, by number of the parameter, and `param_groups`.

        The tensors are mapped from files that are pinned for as long as one of them lives. They are
        read when they are looked at, may be written to (that changes nothing but them), and hold
        disk: a state dict that is kept costs one more image of the store.

        reference: no tensors; `momentd` says which state is meant instead.
        """
        self._check_process()
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        drop_arguments(self.param_groups, _ARGUMENTS)
        make = self._state_dicts.refer if reference else self._state_dicts.make
        state_dict = make(self.param_groups)
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            state_dict = _unless_none(post_hook(self, state_dict), state_dict)
        return state_dict

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """As torch's, of what state_dict() of this or of torch's own optimizer returned. Raises
        ValueError for what does not fit, and then nothing is changed."""
        self._check_process()
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = _unless_none(hook(self, state_dict), state_dict)
        groups = merge_groups(self.param_groups, state_dict["param_groups"])
        self._state_dicts.load(state_dict, self.param_groups)
        self._adopt_groups(groups)
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def _adopt_groups(self, groups: _Groups) -> None:
        self.param_groups = groups

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "an optimizer whose state lives in momentd cannot be copied or pickled: state_dict() has "
            "its state, and a second optimizer needs a store of its own"
        )

    def __deepcopy__(self, memo: Dict[int, Any]) -> NoReturn:
        self.__getstate__()

    # Groups and steps.

    @torch._disable_dynamo
    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As torch's. With the store open, it is opened again with the parameters that came in."""
        self._check_process()
        super().add_param_group(param_group)
        try:
            check_names(self.param_groups[-1])
            drop_arguments(self.param_groups[-1:], _ARGUMENTS)
            self._names.note(self.param_groups)
            self._check_kinds(self.param_groups[-1])
            if self._opened:
                self._session.extend()
        except BaseException:
            self.param_groups.pop()
            self._names.forget_beyond(self.param_groups)
            raise

    def _check_kinds(self, group: Dict[str, Any]) -> None:
        names = self._names.of(self.param_groups)[len(self.param_groups) - 1]
        for parameter, name in zip(group["params"], names):
            if parameter.requires_grad:
                check_kind(parameter, name)

    @torch._disable_dynamo
    def step(
        self, closure: Optional[Callable[[], Any]] = None, *, blob: Optional[bytes] = None
    ) -> Any:
        """One step, as torch's; returns the closure's loss.

        blob: bytes to keep with the step (at most blob_limit_bytes), for resume(); else what the
            constructor's `blob` returns.
        """
        self._check_process()
        refuse_invented_step(self.param_groups)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        drop_arguments(self.param_groups, _ARGUMENTS)
        self.open()
        with torch.no_grad():
            self.last_statistics = self._session.step(self._blob_bytes(blob))
        return loss

    def _blob_bytes(self, blob: Optional[bytes], skipped: bool = False) -> bytes:
        if blob is None and isinstance(self.blob, TrainerState):
            blob = self.blob.capture(skipped)
        elif blob is None:
            blob = self.blob() if self.blob is not None else b""
        return bytes(blob)

    # What goes beyond torch.

    def open(self) -> None:
        """Opens the store now, with the parameters that the groups hold. Else the first of step(),
        resume(), load_state_dict() and the calls below does it. Calling it again does nothing."""
        self._check_process()
        self._session.open()

    def resume(
        self,
        sequence: Optional[int] = None,
        group: Optional["torch.distributed.ProcessGroup"] = None,
    ) -> Optional[bytes]:
        """Goes on where the store stands: parameters and moments are those of its last step.

        sequence: go back to this live commit instead.
        group: a torch.distributed process group; all its ranks go back to the newest sequence that
            all of them have.

        Returns the blob given with that step, or None if the store is new (there is nothing to
        resume, and the parameters stay as they are).
        """
        self.open()
        return self._session.resume(sequence, group)

    def flush(self) -> int:
        """Returns when the last step is committed (it survives a crash of anything); its sequence."""
        self.open()
        self._session.settle()
        return self._session.store.flush().sequence

    def skip(self, *, blob: Optional[bytes] = None) -> int:
        """A step without an update: the sequence advances, nothing else. Returns the sequence."""
        self.open()
        return self._session.skip(self._blob_bytes(blob, skipped=True))

    def refresh(self, parameters: Optional[Iterable[torch.Tensor]] = None) -> None:
        """Brings parameters that were changed outside of step() to the daemon; all by default.

        Needed only for changes that torch does not count, such as writes through `parameter.data` or
        NumPy; all others are noticed.
        """
        self.open()
        indices = self._session.slots.indices(parameters)
        self._session.make_ready()
        with torch.no_grad():
            self._session.refresh(indices)

    @property
    def blob_limit_bytes(self) -> int:
        """The most that a blob may have."""
        return self._session.options.blob_limit_bytes

    @property
    def sequence(self) -> int:
        """The number of the last step."""
        return self.info().sequence

    def info(self) -> Info:
        """Where the store stands: sequence, device, engine, reserved bytes, reconnects."""
        self.open()
        return self._session.store.info()

    def detach(self) -> None:
        """Lets go of the parameters' memory: the daemon closes all of it that it shared, and touches none
        until attach(). Between two steps; for a trainer that gives its GPU memory away for a while.
        """
        self.open()
        self._session.detach()

    def attach(self, *, restore: bool = False) -> None:
        """After detach(): shares the parameters' memory again, wherever it is now.

        Each parameter is compared with its main first, rounded to the parameter's type. RuntimeError
        names those that differ (their memory lost its contents on the way), and nothing is attached.

        restore: write the parameters from the mains instead.
        """
        self.open()
        with torch.no_grad():
            self._session.attach(restore)

    def commits(self) -> List[Commit]:
        """Live commits as of opening, newest first."""
        self.open()
        return self._session.store.commits()

    def close(self) -> None:
        """Commits the last step and ends the session. Calling it again does nothing."""
        self._check_process()
        if self._opened and not self._session.store.closed:
            self._session.settle()
            self._session.store.close()

    @property
    def _opened(self) -> bool:
        session = self.__dict__.get("_session")  # none while torch's constructor adds its groups
        return session is not None and session.store is not None

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError(
                "the optimizer was made by the parent of this process: make its calls in the "
                "training process, not in a forked worker"
            )


_ARGUMENTS = frozenset(
    name
    for name, parameter in inspect.signature(Streamed.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)
