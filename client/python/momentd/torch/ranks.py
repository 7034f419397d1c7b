"""What the ranks of a job tell each other about their stores."""

import hashlib
import logging
import math

import torch

from momentd.torch.untrained import fingerprint

_log = logging.getLogger("momentd.torch")
_MOST_COMMITS = 8
_NONE = -1


def agree(stores, group):
    """The sequence that each of these stores goes back to: the newest one that the stores of all
    ranks have a live commit of; or each its start, where a store is still empty (whose own is
    None). With a process group one all-gather, with None these stores alone.

    RuntimeError if there is none, or the stores were opened with different commit_every.
    """
    mine = torch.stack([_describe(store) for store in stores])
    everyones = [mine] if group is None else _gather(mine, group)
    rows = [row for rank in everyones for row in rank.tolist()]
    names = [
        f"{rank}" if len(stores) == 1 else f"{rank}, store {index}"
        for rank in range(len(everyones))
        for index in range(len(stores))
    ]
    if len({row[0] for row in rows}) > 1:
        raise RuntimeError(
            f"commit_every differs between the ranks: {_by_rank(names, [row[0] for row in rows])}"
        )
    live = [{sequence for sequence in row[2:] if sequence != _NONE} for row in rows]
    empty = [rank for rank, sequences in zip(names, live) if not sequences]
    if not empty:
        return [_common(names, live)] * len(stores)
    if all(row[1] != _NONE for row, sequences in zip(rows, live) if sequences):
        return [start_of(store) for store in stores]
    raise RuntimeError(
        f"the stores of {'; '.join(f'rank {name}' for name in empty)} are empty: "
        f"{_by_rank(names, live)}; what these ranks held is lost: load the last save on all ranks, "
        "or start over with resume=\"never\""
    )


def refuse_copies(options, parameters):
    """RuntimeError if another rank of the process has the same tensors, cut in the same way: it
    would be the same state, once a rank.

    Asked of the key-value store behind torch.distributed, so that no rank waits for one that opens
    no store; of two equal ranks the later one hears of it. Where tensors are positions, equal
    shapes prove nothing: then the parameters' values count, too.
    """
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return
    anything = any(math.prod(tensor.shape) for tensor in options.tensors)
    if distributed.get_world_size() == 1 or not anything:
        return
    keys = distributed.distributed_c10d._get_default_store()
    if keys is None:
        _log.warning("this backend has no key-value store: equal layouts of ranks go unnoticed")
        return
    layout = hashlib.sha256(repr(options.tensors).encode())
    if options.positional:
        layout.update("".join(fingerprint(parameter) for parameter in parameters).encode())
    key = f"momentd/{options.job}/{options.role}/{layout.hexdigest()}"
    rank = str(distributed.get_rank())
    first = keys.compare_set(key, "", rank).decode()
    if first != rank:
        raise RuntimeError(
            f"ranks {first} and {rank} hold the same parameters, and would keep and stream the "
            "same state twice. Deal it out with ZeroRedundancyOptimizer(model.parameters(), "
            "optimizer_class=momentd.torch.AdamW, ...), or cut the model with FSDP2 (fully_shard). "
            "Where the ranks train apart and their states differ, say replicas=True"
        )


def start_of(store):
    """The sequence that the store's first step follows, if a live commit still has it."""
    for commit in store.commits():
        if not any(commit.step_id):
            return commit.sequence
    return None


def _common(names, live):
    common = set.intersection(*live)
    if not common:
        raise RuntimeError(
            "the ranks have no common sequence; their live commits are of "
            f"{_by_rank(names, live)}: load the last save on all ranks"
        )
    return max(common)


def _by_rank(names, values):
    """`rank: value, ...` for a message."""
    texts = [sorted(value) if isinstance(value, set) else value for value in values]
    return "; ".join(f"rank {name}: {text}" for name, text in zip(names, texts))


def _describe(store):
    """commit_every, the start, and the sequences of the live commits."""
    info = store.info()
    row = torch.full((2 + _MOST_COMMITS,), _NONE, dtype=torch.int64)
    row[0] = info.commit_every
    if info.empty:
        return row
    start = start_of(store)
    row[1] = _NONE if start is None else start
    for index, commit in enumerate(store.commits()[:_MOST_COMMITS]):
        row[2 + index] = commit.sequence
    return row


def _gather(mine, group):
    mine = mine.to(_device(group))
    everyones = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(everyones, mine, group=group)
    return everyones


def _device(group):
    """A device whose tensors this group's backend moves."""
    backend = str(torch.distributed.get_backend(group))
    if "gloo" in backend or "mpi" in backend:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
