"""Adam and AdamW with torch's arguments, over momentd."""

from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch.optim.optimizer import ParamsT

from momentd.torch.streamed import Streamed

_Number = Union[float, torch.Tensor]


class Adam(Streamed):
    """torch.optim.Adam over momentd.

    torch's arguments: params (tensors, named tensors or groups; a group may name its `member`), lr,
    betas, eps, weight_decay (added to the gradient, unless decoupled_weight_decay), foreach,
    maximize. Refused with a reason: amsgrad, capturable, differentiable, fused.

    The constructor asks that a daemon answers, and no more. The store is opened by what needs it
    first: step(), load_state_dict() with content, resume(), or open().

    job: the run's name; with role and rank it names the store, for ever.
    role: "model" by default; a second optimizer in the process needs another one.
    rank: that of torch.distributed when the store is opened, else $RANK, else 0.
    resume: "never" (start over), "must" (no state is an error), "auto"; None: existing state is an
        error. With existing state call resume() before the first step.
    socket: the daemon's; $MOMENTD_SOCKET, else /run/momentd/momentd.sock.
    module: gives the parameters their names; without it (or named parameters) they are positions,
        and the store never fits another sharding.
    exp_avg_dtype, exp_avg_sq_dtype: of the moments on disk; float32, bfloat16 (and float16 for
        exp_avg).
    commit_every: commit each Nth step; 0: on flush() alone; equal on all ranks.
    blob: a callable that returns the bytes to keep with each step.
    takeover: end another live session of this store.
    connect_for, retry_for: seconds to wait for a daemon at the start, and for a lost one.
    replicas: whether other ranks may hold the same parameters, each rank with a state of its own.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: _Number = 1e-3,
        betas: Tuple[_Number, _Number] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: Optional[bool] = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: Optional[bool] = None,
        decoupled_weight_decay: bool = False,
        **momentd: Any,
    ) -> None:
        defaults = dict(
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            maximize=maximize,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )
        super().__init__(params, defaults, **momentd)


class AdamW(Adam):
    """torch.optim.AdamW over momentd: arguments as Adam's; weight decay acts on the parameter."""

    def __init__(
        self,
        params: ParamsT,
        lr: _Number = 1e-3,
        betas: Tuple[_Number, _Number] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            decoupled_weight_decay=True,
            **others,
        )

    def _adopt_groups(self, groups: List[Dict[str, Any]]) -> None:
        """Whatever was loaded, weight decay acts on the parameter: torch's rule."""
        for group in groups:
            group["decoupled_weight_decay"] = True
        super()._adopt_groups(groups)
