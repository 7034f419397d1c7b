"""On which sequence stores agree, by what their live commits are."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from momentd.torch.ranks import agree  # noqa: E402


class Stub:
    """A store that has live commits of these sequences; of the start, if it is among them."""

    def __init__(self, *sequences, start=0, commit_every=1):
        self._sequences = sequences
        self._start = start
        self._commit_every = commit_every

    def info(self):
        return SimpleNamespace(commit_every=self._commit_every, empty=not self._sequences)

    def commits(self):
        return [
            SimpleNamespace(sequence=s, step_id=bytes(16) if s == self._start else b"\1" * 16)
            for s in sorted(self._sequences, reverse=True)
        ]


@pytest.mark.parametrize(
    "stores, expected",
    [
        ([Stub(4, 5), Stub(5)], [5, 5]),
        ([Stub(4, 5), Stub(3, 4), Stub(4)], [4, 4, 4]),
        ([Stub(0), Stub(0, 1)], [0, 0]),
        ([Stub(), Stub()], [None, None]),
        ([Stub(), Stub(0, 1), Stub(0)], [None, 0, 0]),
        ([Stub(7, 8, start=7), Stub()], [7, None]),
        ([Stub(9, commit_every=0), Stub(9, commit_every=0)], [9, 9]),
    ],
    ids=["newest", "newest of all", "start", "new", "one has not begun", "another start",
         "on flush"],
)
def test_the_newest_common_sequence(stores, expected):
    assert agree(stores, None) == expected


def test_no_common_sequence_names_what_each_has():
    with pytest.raises(RuntimeError, match=r"no common.*store 0: \[5, 6\].*store 1: \[3, 4\]"):
        agree([Stub(5, 6), Stub(3, 4)], None)


def test_a_lost_store_is_named():
    with pytest.raises(RuntimeError, match="rank 0, store 1 are empty.*load the last save"):
        agree([Stub(5, 6), Stub()], None)


def test_different_commit_every_are_named():
    with pytest.raises(RuntimeError, match="commit_every differs.*store 0: 1; rank 0, store 1: 4"):
        agree([Stub(4), Stub(4, commit_every=4)], None)
