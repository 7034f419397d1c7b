"""What the ranks of a job tell each other about their stores."""

import torch

_MOST_COMMITS = 8
_NONE = -1


def agree(store, group):
    """The newest sequence that every rank's store has a live commit of; None for a store that is empty
    yet: then the sequence is that of the others' start. One all-gather.

    RuntimeError if there is none, or the ranks were opened with different commit_every.
    """
    everyones = [row.tolist() for row in _gather(_describe(store), group)]
    commit_every = [row[0] for row in everyones]
    if len(set(commit_every)) > 1:
        raise RuntimeError(f"commit_every differs between the ranks: {commit_every}")
    starts = [row[1] for row in everyones]
    live = [{sequence for sequence in row[2:] if sequence != _NONE} for row in everyones]
    empty = [rank for rank, sequences in enumerate(live) if not sequences]
    if not empty:
        return _common(live)
    if all(start != _NONE or rank in empty for rank, start in enumerate(starts)):
        return None if store.info().empty else start_of(store)
    raise RuntimeError(
        f"the stores of ranks {empty} are empty, and those of others stand at "
        f"{[max(sequences, default=None) for sequences in live]}: what these ranks held is lost; "
        "load the last save on all ranks, or start over with resume=\"never\""
    )


def start_of(store):
    """The sequence that the store's first step follows, if a live commit still has it."""
    for commit in store.commits():
        if not any(commit.step_id):
            return commit.sequence
    return None


def _common(live):
    common = set.intersection(*live)
    if not common:
        raise RuntimeError(
            "the ranks have no common sequence; their live commits are of "
            f"{[sorted(sequences) for sequences in live]}: load the last save on all ranks"
        )
    return max(common)


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


def _gather(row, group):
    row = row.to(_device(group))
    rows = [torch.empty_like(row) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(rows, row, group=group)
    return rows


def _device(group):
    """A device whose tensors this group's backend moves."""
    backend = str(torch.distributed.get_backend(group))
    if "gloo" in backend or "mpi" in backend:
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
