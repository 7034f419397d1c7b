"""A real file system without room: Open says so and leaves nothing behind, steps go on."""

import os
import subprocess
import time

import pytest

import momentd
from bare_trainer import BareTrainer, content_of, store_directory, undisturbed
from momentctl import directory_status

SHAPES = {"weight": (500, 1000), "bias": (77,)}  # 18 MB in three images
LARGE = {"weight": (4000, 1000)}  # 144 MB
MIB = 1 << 20


@pytest.fixture
def small_disk(scratch):
    """An ext4 of 100 MiB, mounted."""
    image, place = scratch / "image", scratch / "disk"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(100 * MIB)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield place
    # The kernel lets go of an ended daemon's rings, and with them of its lock, a moment later.
    deadline = time.monotonic() + 30
    while subprocess.run(["umount", place], capture_output=True).returncode != 0:
        assert time.monotonic() < deadline, f"{place} stays busy"
        time.sleep(0.05)


def free_bytes(place):
    space = os.statvfs(place)
    return space.f_bavail * space.f_frsize


def fill(place):
    """Takes the last block; what was taken goes with the returned file's name."""
    path = place / "filler"
    with open(path, "wb", buffering=0) as file:
        for size in (MIB, 4096):
            block = b"x" * size
            try:
                while True:
                    file.write(block)
            except OSError:
                continue
    assert free_bytes(place) < 4096
    return path


def await_health(daemon, expected):
    deadline = time.monotonic() + 60
    while (health := directory_status(daemon)["health"]) != expected:
        assert time.monotonic() < deadline, health
        time.sleep(0.2)


def test_open_without_room_leaves_nothing_behind(small_disk):
    with momentd.spawn(small_disk / "state", log=small_disk.with_name("log")) as daemon:
        BareTrainer(daemon, SHAPES, job="small").steps(1).close()
        names, free = content_of(small_disk / "state").keys(), free_bytes(small_disk)
        with pytest.raises(momentd.Error, match="RESOURCE_EXHAUSTED.*are needed.*are free"):
            BareTrainer(daemon, LARGE, job="large")
        assert content_of(small_disk / "state").keys() == names
        assert not (small_disk / "state/jobs/large").exists()
        assert free_bytes(small_disk) == free
        trainer = BareTrainer(daemon, SHAPES, job="small", resume="must").steps(2)
        assert trainer.sequence == 3
        trainer.close()


def test_open_without_a_block_leaves_nothing_behind(small_disk):
    with momentd.spawn(small_disk / "state") as daemon:
        filler = fill(small_disk)
        for _ in range(3):
            with pytest.raises(momentd.Error, match="RESOURCE_EXHAUSTED"):
                BareTrainer(daemon, SHAPES)
        assert [path for path in (small_disk / "state").rglob("*") if path.is_file()] == [
            small_disk / "state/LOCK"
        ]
        filler.unlink()
        BareTrainer(daemon, SHAPES).steps(1).close()


def test_steps_go_on_when_the_disk_is_full(small_disk, daemon):
    expected = undisturbed(daemon, SHAPES, 10)
    with momentd.spawn(small_disk / "state") as full:
        trainer = BareTrainer(full, SHAPES).steps(2)
        filler = fill(small_disk)
        trainer.steps(3)
        trainer.store.flush()
        await_health(full, "space")
        trainer.close()
        # What is there can be opened, too.
        trainer = BareTrainer(full, SHAPES, resume="must").steps(2)
        trainer.close()
    # And served by a daemon that starts on the full disk.
    with momentd.spawn(small_disk / "state") as full:
        trainer = BareTrainer(full, SHAPES, resume="must").steps(1)
        assert trainer.sequence == 8
        filler.unlink()
        await_health(full, "serving" if free_bytes(small_disk) > 64 * MIB else "space")
        trainer.steps(2)
        assert trainer.bits() == expected
        trainer.close()


def test_health_says_space_and_recovers(small_disk):
    with momentd.spawn(small_disk / "state") as daemon:
        await_health(daemon, "serving")
        filler = fill(small_disk)
        await_health(daemon, "space")
        status = directory_status(daemon)
        assert status["free_bytes"] < MIB < status["total_bytes"]
        filler.unlink()
        await_health(daemon, "serving")


def test_a_fourth_image_without_room_is_refused_and_steps_go_on(small_disk):
    """A change between two steps needs one image more than stepping does."""
    with momentd.spawn(small_disk / "state") as daemon:
        trainer = BareTrainer(daemon, SHAPES).steps(4)
        filler = fill(small_disk)
        trainer.parameters["bias"][...] = 1.0
        with pytest.raises(momentd.Error, match="RESOURCE_EXHAUSTED"):
            trainer.store.refresh([1])
        trainer.step()
        filler.unlink()
        trainer.parameters["bias"][...] = 1.0
        trainer.store.refresh([1])
        directory = store_directory(small_disk / "state")
        assert len(list((directory / "opt0_0").glob("bucket00000.*"))) == 4
        trainer.step()
        assert trainer.sequence == 6
        assert abs(trainer.parameters["bias"] - 1.0).max() < 0.1
        trainer.close()
        BareTrainer(daemon, SHAPES, resume="must").close()
        assert len(list((directory / "opt0_0").glob("bucket00000.*"))) == 3
