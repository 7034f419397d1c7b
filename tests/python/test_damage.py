"""Damaged and missing files of a store, through the client: refused naming file and offset, nothing is
computed or written, the daemon and its other stores go on."""

import shutil

import pytest

import momentd
from bare_trainer import (
    STREAMED,
    STREAMED_OPTIONS,
    BareTrainer,
    content_of,
    flip_bit,
    newest_file,
    store_directory,
    undisturbed,
)

SHAPES = {"first": (300, 100), "second": (70_000,), "third": (5,)}
BUCKET = 40_000  # elements: three buckets


def open_trainer(daemon, **options):
    return BareTrainer(daemon, SHAPES, bucket_elements=BUCKET, **options)


@pytest.fixture
def directory(daemon, scratch):
    """A closed store of four steps, and beside it one that lives on."""
    open_trainer(daemon).steps(4).close()
    return store_directory(scratch / "state")


@pytest.fixture
def other(daemon):
    trainer = open_trainer(daemon, job="other")
    yield trainer
    trainer.step()
    trainer.close()


def truncate(path, length):
    with open(path, "r+b") as file:
        file.truncate(length)


def damage_cut_by_a_block(directory):
    path = newest_file(directory, 1).path
    length = path.stat().st_size - 4096
    truncate(path, length)
    return path, length


def damage_emptied(directory):
    path = newest_file(directory, 1).path
    truncate(path, 0)
    return path, 0


def damage_missing(directory):
    path = newest_file(directory, 2).path
    path.unlink()
    return path, 0


def damage_header(directory):
    path = newest_file(directory, 0).path
    flip_bit(path, 20)
    return path, 20


def damage_table(directory):
    file = newest_file(directory, 0)
    flip_bit(file.path, file.table_offset + 64)
    return file.path, file.table_offset


def damage_swapped(directory):
    """The newest file and another of the same bucket."""
    file = newest_file(directory, 0)
    path = next(
        path for path in file.path.parent.glob("bucket00000.*") if path != file.path
    )
    newest, older = file.path.read_bytes(), path.read_bytes()
    file.path.write_bytes(older)
    path.write_bytes(newest)
    return file.path, file.table_offset


def damage_other_bucket(directory):
    file, other = newest_file(directory, 0).path, newest_file(directory, 1).path
    pairs = zip(file.read_bytes(), other.read_bytes())
    offset = next(index for index, (one, another) in enumerate(pairs) if one != another)
    shutil.copy(other, file)
    return file, offset


def layout_of(directory):
    return next(directory.glob("layout.*.json"))


def damage_layout_missing(directory):
    path = layout_of(directory)
    path.unlink()
    return path, 0


def damage_layout_cut(directory):
    path = layout_of(directory)
    truncate(path, 100)
    return path, 0


def damage_layout_changed(directory):
    path = layout_of(directory)
    path.write_text(path.read_text().replace("second", "sekond"))
    return path, 0


def damage_store_file(directory):
    path = directory / "store.json"
    truncate(path, 10)
    return path, 0


def damage_commit_missing(directory):
    path = directory / "commit.1"
    path.unlink()
    return path, 0


def damage_commit_cut(directory):
    path = directory / "commit.1"
    truncate(path, 100)
    return path, 100


def damage_all_records(directory):
    for path in sorted(directory.glob("commit.*")):
        room = path.stat().st_size // 2
        for offset in (70, room + 70):
            flip_bit(path, offset)
    return None, 0


DAMAGES = [value for name, value in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_refused_naming_file_and_offset(daemon, other, directory, damage):
    path, offset = damage(directory)
    before = content_of(directory)
    for resume in ("auto", "must", None):
        with pytest.raises(momentd.Error) as refused:
            open_trainer(daemon, resume=resume)
        # Without a choice the newest record alone is looked at, and the state is offered.
        if resume is None and refused.value.code == "ALREADY_EXISTS":
            continue
        assert refused.value.code == "DATA_LOSS"
        if path is None:
            assert str(directory / "commit.") in str(refused.value)
        else:
            assert f"{path} at offset {offset}:" in str(refused.value)
    assert content_of(directory) == before
    other.step()


def test_an_older_copy_of_a_bucket_file_is_refused(daemon, directory):
    file = newest_file(directory, 0)
    older = file.path.read_bytes()
    trainer = open_trainer(daemon, resume="must")
    while True:
        trainer.step()
        trainer.store.flush()
        newest = newest_file(directory, 0)
        if newest.path == file.path:
            break
    trainer.close()
    file.path.write_bytes(older)
    with pytest.raises(momentd.Error, match=f"DATA_LOSS.*{file.path} at offset {file.table_offset}:"):
        open_trainer(daemon)


def test_older_commit_files_are_refused_once_their_state_was_written_over(daemon, directory):
    older = {path: path.read_bytes() for path in directory.glob("commit.*")}
    file = newest_file(directory, 0)
    open_trainer(daemon, resume="must").steps(4).close()
    for path, content in older.items():
        path.write_bytes(content)
    with pytest.raises(momentd.Error, match=f"DATA_LOSS.*{file.path} at offset {file.table_offset}:"):
        open_trainer(daemon)


def test_it_does_not_matter_which_commit_file_holds_which_record(daemon, directory):
    paths = sorted(directory.glob("commit.*"))
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1]):
        path.write_bytes(content)
    trainer = open_trainer(daemon, resume="must")
    assert trainer.sequence == 4 and not trainer.store.warnings()
    trainer.step()
    assert trainer.bits() == undisturbed(daemon, SHAPES, 5, bucket_elements=BUCKET)
    trainer.close()


@pytest.mark.parametrize("segment", ["main", "exp_avg", "exp_avg_sq"])
def test_a_flipped_bit_of_the_state_ends_the_step_and_nothing_is_computed_with_it(
    daemon, other, directory, segment
):
    file = newest_file(directory, 0)
    offset = file.offset(f"{segment}/first")
    flip_bit(file.path, offset + 1234)
    trainer = BareTrainer.__new__(BareTrainer)
    with pytest.raises(momentd.Error, match=f"DATA_LOSS.*{segment}.*{file.path} at offset {offset}"):
        # With a damaged main already the parameters cannot be brought to the trainer.
        trainer.__init__(daemon, SHAPES, bucket_elements=BUCKET)
        before = trainer.parameters["first"].copy()
        try:
            trainer.step()
        finally:
            assert (trainer.parameters["first"] == before).all()
            trainer.close()
    other.step()


def test_a_record_that_is_damaged_in_both_copies_is_told_and_the_one_before_is_taken(
    daemon, directory
):
    newest = max(directory.glob("commit.*"), key=lambda path: path.stat().st_mtime_ns)
    for offset in (70, newest.stat().st_size // 2 + 70):
        flip_bit(newest, offset)
    trainer = open_trainer(daemon, resume="must")
    assert trainer.sequence == 3
    assert any("never acknowledged" in warning for warning in trainer.store.warnings())
    trainer.step()
    assert trainer.bits() == undisturbed(daemon, SHAPES, 4, bucket_elements=BUCKET)
    trainer.close()


def test_starting_over_is_possible_when_every_record_is_lost(daemon, directory):
    damage_all_records(directory)
    trainer = open_trainer(daemon, resume="never").steps(2)
    assert any("starts over" in warning for warning in trainer.store.warnings())
    assert trainer.bits() == undisturbed(daemon, SHAPES, 2, bucket_elements=BUCKET)
    trainer.close()
    assert open_trainer(daemon, resume="must").sequence == 2


@pytest.mark.parametrize("cut", ["a block", "everything"])
def test_a_file_that_is_cut_between_two_steps_ends_the_step_not_the_daemon(streaming_daemon, cut):
    daemon, state = streaming_daemon
    trainer = BareTrainer(daemon, STREAMED, job="cut", **STREAMED_OPTIONS).steps(2)
    trainer.store.flush()
    file = newest_file(store_directory(state, job="cut"), 7)
    content = file.path.read_bytes()
    truncate(file.path, len(content) - 4096 if cut == "a block" else 0)
    with pytest.raises(momentd.Error, match=f"DATA_LOSS.*{file.path}.*offset") as failed:
        trainer.step()
    assert "jobs/cut/" in str(failed.value)
    with pytest.raises(momentd.Error, match="FAILED_PRECONDITION"):
        trainer.step()
    open_trainer(daemon, job="beside").steps(2).close()
    file.path.write_bytes(content)
    trainer.step(resend=True)
    trainer.step()
    trainer.close()  # its frames are needed for the other
    assert trainer.bits() == undisturbed(daemon, STREAMED, 4, **STREAMED_OPTIONS)


def test_another_layout_is_refused_naming_the_first_difference(daemon, directory):
    before = content_of(directory)
    for shapes, words in (
        ({**SHAPES, "second": (70_001,)}, "second.*70001.*70000|second.*70000.*70001"),
        ({"first": (300, 100), "third": (5,)}, "second"),
        ({"first": (100, 300), "second": (70_000,), "third": (5,)}, "first"),
    ):
        with pytest.raises(momentd.Error, match=f"FAILED_PRECONDITION.*{words}"):
            BareTrainer(daemon, shapes, bucket_elements=BUCKET)
    assert content_of(directory) == before
    assert open_trainer(daemon, resume="must").sequence == 4
