"""A torch.optim.Optimizer whose state lives in momentd: what AdamW and Adam share."""

import os
import warnings

import torch

from momentd import _library as c
from momentd.store import Group, Member, Options, Store
from momentd.torch.profile import torch_profile
from momentd.torch.state import StreamedState
from momentd.torch.tensors import TYPES, Names, Slot, after_writing, check, moment_type

_REFUSED = {
    "amsgrad": "it needs a third moment, which momentd does not keep",
    "foreach": "results are held to torch's default on CPU tensors, which is not foreach",
    "capturable": "a CUDA graph cannot hold a call of the daemon",
    "differentiable": "autograd cannot see through the daemon",
    "fused": "results are held to torch's default on CPU tensors; fused rounds otherwise",
}


def _default_rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def _check_range(name, value, good):
    if not good:
        raise ValueError(f"Invalid {name}: {value}")


class Streamed(torch.optim.Optimizer):
    """Opens the store, notices what changed outside of the steps, and steps. AdamW and Adam give it
    torch's arguments: `defaults` of the groups, and those that are refused."""

    def __init__(
        self,
        params,
        defaults,
        refused,
        *,
        job,
        role="model",
        rank=None,
        resume=None,
        socket=None,
        module=None,
        exp_avg_dtype=torch.float32,
        exp_avg_sq_dtype=torch.float32,
        commit_every=1,
        blob=None,
        blob_limit_bytes=1 << 20,
        bucket_elements=0,
        takeover=False,
        state_directory=None,
        profile=None,
        connect_for=10.0,
        retry_for=300.0,
    ):
        for name, value in refused.items():
            if value:
                raise ValueError(f"{name}={value!r}: {_REFUSED[name]}")
        for name in ("lr", "eps", "weight_decay"):
            _check_range(name, defaults[name], 0.0 <= float(defaults[name]) < float("inf"))
        for index, beta in enumerate(defaults["betas"]):
            _check_range(f"beta at index {index}", beta, 0.0 <= float(beta) < 1.0)
        self._store = None
        self._slots = []
        self._index = {}
        self._frozen = {}
        self._added = []
        self._ready = False
        self.last_statistics = None
        self._names = Names(module)
        self._blob = blob
        super().__init__(params, defaults)
        self._options = Options(
            job=job,
            role=role,
            rank=_default_rank() if rank is None else rank,
            profile=torch_profile() if profile is None else profile,
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
        self._moment_types = (
            moment_type(exp_avg_dtype, "exp_avg_dtype"),
            moment_type(exp_avg_sq_dtype, "exp_avg_sq_dtype"),
        )
        self._collect()
        self._open()
        self._state = StreamedState(self)

    # What torch keeps in the optimizer, and we do not.

    @property
    def state(self):
        return self._state

    @state.setter
    def state(self, value):
        if getattr(self, "_store", None) is not None:
            raise TypeError("the state of this optimizer lives in momentd and cannot be assigned")
        self._state = value

    def state_dict(self):
        raise NotImplementedError(
            "momentd: state_dict() is not offered, the state would not fit where it would go; it is "
            "on disk already: optimizer.flush() commits the last step, optimizer.resume() goes on"
        )

    def load_state_dict(self, state_dict):
        raise NotImplementedError(
            "momentd: load_state_dict() is not offered; open the optimizer with resume= and call "
            "optimizer.resume()"
        )

    def __getstate__(self):
        raise TypeError("an optimizer whose state lives in momentd cannot be copied or pickled")

    def __deepcopy__(self, memo):
        self.__getstate__()

    # Opening.

    def add_param_group(self, param_group):
        self._check_process()
        super().add_param_group(param_group)
        if self._store is not None:
            try:
                self._extend()
            except BaseException:
                self.param_groups.pop()
                raise

    def _collect(self):
        """Brings the groups' parameters into slots; those that are known keep theirs."""
        position = 0
        for group in self.param_groups:
            member = group.setdefault("member", "opt0_0")
            for index, parameter in enumerate(group["params"]):
                name = self._names.name(parameter, group, index, position)
                position += 1
                if id(parameter) in self._index:
                    continue
                if not parameter.requires_grad:
                    self._frozen[id(parameter)] = name
                    continue
                check(parameter, name)
                self._frozen.pop(id(parameter), None)
                self._index[id(parameter)] = len(self._slots)
                self._slots.append(Slot(parameter, name, member))

    def _open(self):
        members = sorted({slot.member for slot in self._slots}) or ["opt0_0"]
        self._options.members = [Member(name, *self._moment_types) for name in members]
        self._options.tensors = [slot.tensor(members.index(slot.member)) for slot in self._slots]
        self._options.positional = self._names.positional
        self._store = Store(self._options)
        for degraded in self._store.warnings():
            warnings.warn(f"momentd: {degraded}", RuntimeWarning, stacklevel=4)
        for slot in self._slots:
            slot.locate()
        self._store.attach([slot.address for slot in self._slots])
        self._added = [] if self._store.info().empty else self._store.added()

    def _extend(self):
        """Opens the store again with the tensors that were added since."""
        if self._ready:
            with torch.no_grad():
                self._make_ready()
        before = len(self._slots)
        self._collect()
        if len(self._slots) == before:
            return
        resume, takeover = self._options.resume, self._options.takeover
        if self._ready:
            self._options.resume, self._options.takeover = "must", False
        self._store.close()
        try:
            self._open()
        finally:
            self._options.resume, self._options.takeover = resume, takeover
        if self._ready:
            self._materialize()

    # Stepping.

    def step(self, closure=None, *, blob=None):
        """One step, as torch's; returns the closure's loss.

        blob: bytes to keep with the step (at most blob_limit_bytes), for resume(); else what the
        constructor's `blob` returns.
        """
        self._check_process()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self._step(blob)
        return loss

    def _step(self, blob):
        gradients, addresses, types, participants = self._gradients()
        self._make_ready()
        try:
            self.last_statistics = self._store.step(
                self._groups(), addresses, types, participants, self._blob_bytes(blob)
            )
        finally:
            del gradients
        after_writing([self._slots[index] for index in participants])

    def _gradients(self):
        """The gradients (held until the step is over), their addresses and types by tensor, and the
        indices of those that take part."""
        if any(
            parameter.grad is not None and id(parameter) not in self._index
            for group in self.param_groups
            for parameter in group["params"]
        ):
            self._adopt_unfrozen()
        held, participants = [], []
        addresses = [None] * len(self._slots)
        types = [0] * len(self._slots)
        for group in self.param_groups:
            for parameter in group["params"]:
                index = self._index.get(id(parameter))
                if index is None or parameter.grad is None:
                    continue
                gradient = self._check_gradient(parameter, self._slots[index].name)
                held.append(gradient)
                addresses[index] = gradient.data_ptr() or None
                types[index] = TYPES[gradient.dtype]
                participants.append(index)
        return held, addresses, types, participants

    def _check_gradient(self, parameter, name):
        gradient = parameter.grad
        if gradient.is_sparse:
            raise RuntimeError("Adam does not support sparse gradients")
        if gradient.dtype not in TYPES or gradient.device.type != "cpu":
            raise RuntimeError(
                f"the gradient of {name} is {gradient.dtype} on {gradient.device}; momentd takes "
                "float32, bfloat16 and float16 on the CPU"
            )
        return gradient if gradient.is_contiguous() else gradient.contiguous()

    def _adopt_unfrozen(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or id(parameter) in self._index:
                    continue
                if id(parameter) not in self._frozen:
                    raise RuntimeError(
                        "a parameter group holds a parameter that this optimizer does not know; "
                        "parameters cannot be swapped after the optimizer was made"
                    )
        self._extend()

    def _groups(self):
        groups = []
        for group in self.param_groups:
            indices = [self._index.get(id(parameter)) for parameter in group["params"]]
            groups.append(
                Group(
                    [index for index in indices if index is not None],
                    lr=float(group["lr"]),
                    betas=tuple(float(beta) for beta in group["betas"]),
                    eps=float(group["eps"]),
                    weight_decay=float(group["weight_decay"]),
                    mode=c.ADAMW if group["decoupled_weight_decay"] else c.ADAM,
                    maximize=bool(group["maximize"]),
                )
            )
            for name in _REFUSED:
                if group.get(name):
                    raise RuntimeError(f"a group has {name}={group[name]!r}: {_REFUSED[name]}")
        return groups

    def _blob_bytes(self, blob):
        if blob is None:
            blob = self._blob() if self._blob is not None else b""
        return bytes(blob)

    def _make_ready(self):
        """Fills an empty store, and brings over what was changed outside of the steps."""
        if any([slot.locate() for slot in self._slots]):
            self._store.attach([slot.address for slot in self._slots])
        if self._ready:
            self._refresh([i for i, slot in enumerate(self._slots) if slot.changed()])
            return
        if not self._store.info().empty:
            raise RuntimeError(
                "the store holds the state of an earlier run: call optimizer.resume() before the "
                "first step, it brings the parameters back"
            )
        self._read(range(len(self._slots)))
        self._store.refresh_all()
        self._ready = True

    def _read(self, indices):
        """Before the daemon reads these parameters."""
        for index in indices:
            self._slots[index].before_reading()
            self._slots[index].note()

    def _refresh(self, indices):
        if indices:
            self._read(indices)
            self._store.refresh(indices)

    def _materialize(self):
        if self._added:
            self._read(self._added)
            self._store.refresh(self._added)
            self._added = []
        self._store.materialize()
        with torch.no_grad():
            after_writing(self._slots)
        self._ready = True

    # What goes beyond torch.

    def resume(self, sequence=None, group=None):
        """Goes on where the store stands: parameters and moments are those of its last step.

        sequence: go back to this live commit instead.
        group: a torch.distributed process group; all its ranks go back to the newest sequence that
            all of them have.

        Returns the blob given with that step, or None if the store is new (there is nothing to
        resume, and the parameters stay as they are).
        """
        self._check_process()
        if self._store.info().empty:
            return None
        if group is not None:
            sequence = self._common_sequence(group)
        if sequence is not None:
            self._store.rollback(sequence)
        self._materialize()
        return self._store.blob()

    def _common_sequence(self, group):
        mine = [commit.sequence for commit in self._store.commits()]
        everyones = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(everyones, mine, group=group)
        common = set(mine).intersection(*everyones)
        if not common:
            raise RuntimeError(f"the ranks have no common sequence: {everyones}")
        return max(common)

    def flush(self):
        """Returns when the last step is committed (it survives a crash of anything); its sequence."""
        self._check_process()
        return self._store.flush().sequence

    def skip(self, *, blob=None):
        """A step without an update: the sequence advances, nothing else. Returns the sequence."""
        self._check_process()
        with torch.no_grad():
            self._make_ready()
        return self._store.skip(self._blob_bytes(blob))

    def refresh(self, parameters=None):
        """Brings parameters that were changed outside of step() to the daemon; all by default.

        Needed only for changes that torch does not count, such as writes through `parameter.data` or
        NumPy; all others are noticed.
        """
        self._check_process()
        if parameters is None:
            indices = range(len(self._slots))
        else:
            indices = [self._index[id(parameter)] for parameter in parameters]
        with torch.no_grad():
            self._make_ready()
            self._refresh(list(indices))

    @property
    def sequence(self):
        """The number of the last step."""
        self._check_process()
        return self._store.info().sequence

    def info(self):
        """Where the store stands: sequence, device, engine, reserved bytes, reconnects."""
        self._check_process()
        return self._store.info()

    def commits(self):
        """Live commits as of opening, newest first."""
        self._check_process()
        return self._store.commits()

    def close(self):
        """Commits the last step and ends the session. Calling it again does nothing."""
        self._check_process()
        self._store.close()

    def _check_process(self):
        if self._store is not None:
            self._store._check_process()
