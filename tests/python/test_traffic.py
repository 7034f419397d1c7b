"""What a step moves to and from the disk, as the client and the daemon's status tell it."""

from bare_trainer import (
    STREAMED,
    STREAMED_OPTIONS,
    BareTrainer,
    content_of,
    store_directory,
)
from momentctl import directory_status

MAINS = 8 * 983_040  # STREAMED: eight buckets of 245,760 fp32 elements
SEGMENTS = 3 * MAINS


def open_streamed(daemon, **options):
    return BareTrainer(daemon, STREAMED, **STREAMED_OPTIONS, **options)


def reads_all(statistics):
    """Every segment, but for chunks that were still being written when the step read ahead: they are
    in the pool."""
    return SEGMENTS // 2 < statistics.bytes_read <= SEGMENTS


def test_what_a_step_reads(streaming_daemon):
    """The first: mains alone, moments are known to be zero. Later ones and the first after a resume:
    every segment. What was read ahead counts for the step that uses it, not for the calls before."""
    daemon, _ = streaming_daemon
    open_streamed(daemon).close()
    trainer = open_streamed(daemon)
    first, second = trainer.step(), trainer.step()
    assert first.bytes_read == MAINS
    assert reads_all(second)
    assert first.bytes_written == second.bytes_written == SEGMENTS
    trainer.close()
    trainer = open_streamed(daemon, resume="must")
    before = directory_status(daemon)["bytes_read"]
    resumed, next_one = trainer.step(), trainer.step()
    assert resumed.bytes_read == SEGMENTS
    assert reads_all(next_one)
    trainer.close()
    # The daemon's own count says no more than that, and five frames read ahead.
    moved = directory_status(daemon)["bytes_read"] - before
    assert SEGMENTS < moved <= 2 * SEGMENTS + 5 * SEGMENTS // 8


def test_a_state_that_fits_the_pool_is_read_once(daemon):
    open_streamed(daemon).close()
    trainer = open_streamed(daemon)
    assert [trainer.step().bytes_read for _ in range(3)] == [MAINS, 0, 0]
    trainer.close()
    trainer = open_streamed(daemon, resume="must")
    assert [trainer.step().bytes_read for _ in range(3)] == [SEGMENTS, 0, 0]
    trainer.close()


def test_the_status_counts_what_is_written(daemon):
    trainer = open_streamed(daemon)
    trainer.step()
    trainer.store.flush()
    before = directory_status(daemon)["bytes_written"]
    written = trainer.step().bytes_written + trainer.step().bytes_written
    trainer.store.flush()
    assert written == 2 * SEGMENTS
    grown = directory_status(daemon)["bytes_written"] - before
    # The pipeline's count: headers, tables and records are not in it.
    assert written <= grown <= 1.02 * written
    trainer.close()


def test_buckets_without_participants_are_not_written(daemon, scratch):
    shapes = {f"tensor{index}": (245_760,) for index in range(8)}
    trainer = BareTrainer(daemon, shapes, **STREAMED_OPTIONS)
    trainer.step()
    trainer.store.flush()
    before = content_of(store_directory(scratch / "state") / "opt0_0")
    statistics = trainer.step(only=[3])
    trainer.store.flush()
    after = content_of(store_directory(scratch / "state") / "opt0_0")
    assert statistics.bytes_written == SEGMENTS // 8
    changed = [path.name for path in before if before[path] != after[path]]
    assert len(changed) == 1 and changed[0].startswith("bucket00003.")
    trainer.close()


def test_a_skip_changes_no_byte_of_a_bucket(daemon, scratch):
    trainer = open_streamed(daemon, blob_limit_bytes=100).steps(2)
    trainer.store.flush()
    members = store_directory(scratch / "state") / "opt0_0"
    before, bits = content_of(members), trainer.bits()
    assert trainer.store.skip(b"overflow") == 3
    assert trainer.sequence == 3
    trainer.store.flush()
    assert content_of(members) == before
    assert trainer.bits() == bits
    trainer.close()
    again = open_streamed(daemon, resume="must")
    assert again.sequence == 3 and again.store.blob() == b"overflow"
    assert again.bits() == bits
    again.close()


def test_opening_again_and_again_takes_no_more_disk(daemon, scratch):
    sizes = set()
    for _ in range(5):
        open_streamed(daemon).steps(1).close()
        directory = store_directory(scratch / "state")
        names = sorted(path.name for path in directory.rglob("*"))
        sizes.add((len(names), sum(p.stat().st_blocks for p in directory.rglob("*"))))
    assert len(sizes) == 1
