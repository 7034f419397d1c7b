"""Pins: the state of one step, read by the trainer while the steps go on."""

import gc
import mmap
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch

import momentd
from momentd import _library as c
from momentd.store import Group, Member, Options, Store, Tensor

SHAPES = {"weight": (300, 100), "bias": (7,), "none": (0, 3), "scalar": (), "expert": (64, 9)}
TYPES = {c.FLOAT32: torch.float32, c.BFLOAT16: torch.bfloat16, c.FLOAT16: torch.float16}
LR, BETAS, DECAY = 1e-2, (0.9, 0.99), 0.1


class Trainer:
    """Tensors, their gradients, an open store, and torch's own optimizer beside it."""

    def __init__(self, socket, job="job", seed=1, **options):
        generator = torch.Generator().manual_seed(seed)
        self.parameters = [torch.randn(shape, generator=generator) for shape in SHAPES.values()]
        self.twins = [parameter.clone() for parameter in self.parameters]
        self.reference = torch.optim.AdamW(
            self.twins, lr=LR, betas=BETAS, eps=1e-8, weight_decay=DECAY, foreach=False
        )
        tensors = [Tensor(name, shape) for name, shape in SHAPES.items()]
        options.setdefault("bucket_elements", 20_000)
        self.store = Store(Options(job=job, socket=str(socket), tensors=tensors, **options))
        self.store.attach([parameter.data_ptr() for parameter in self.parameters])
        if self.store.info().empty:
            self.store.refresh_all()
        else:
            self.store.materialize()

    def step(self):
        sequence = self.store.info().sequence + 1
        generator = torch.Generator().manual_seed(sequence)
        gradients = [torch.randn(p.shape, generator=generator) for p in self.parameters]
        for twin, gradient in zip(self.twins, gradients):
            twin.grad = gradient.clone()
        self.reference.step()
        everything = range(len(self.parameters))
        self.store.step(
            [Group(everything, lr=LR, betas=BETAS, eps=1e-8, weight_decay=DECAY)],
            [gradient.data_ptr() for gradient in gradients],
            [c.FLOAT32] * len(gradients),
            everything,
        )

    def expected(self):
        """By segment and tensor, what a pin of this moment holds."""
        state = self.reference.state
        zeros = [torch.zeros_like(twin) for twin in self.twins]
        moments = {
            name: [state[twin][name] if twin in state else zero
                   for twin, zero in zip(self.twins, zeros)]
            for name in ("exp_avg", "exp_avg_sq")
        }
        values = {"main": self.twins, **moments}
        return {name: [v.clone() for v in tensors] for name, tensors in values.items()}


def read(pin, shapes=tuple(SHAPES.values())):
    """By segment, the tensors that a pin holds, mapped and put together."""
    parts = {}
    for piece in pin.pieces:
        size = torch.empty((), dtype=TYPES[piece.type]).element_size()
        begin = piece.offset_bytes - piece.offset_bytes % mmap.ALLOCATIONGRANULARITY
        length = piece.offset_bytes - begin + piece.count * size
        with mmap.mmap(piece.fd, length, offset=begin, access=mmap.ACCESS_READ) as mapping:
            data = bytearray(mapping[piece.offset_bytes - begin :])
        values = torch.frombuffer(data, dtype=TYPES[piece.type])
        at = parts.setdefault((piece.segment, piece.tensor), [])
        assert piece.first == sum(len(part) for part in at)
        at.append(values)
    return {
        segment: [
            torch.cat(parts[segment, i]).reshape(shape) if (segment, i) in parts
            else torch.empty(shape)
            for i, shape in enumerate(shapes)
        ]
        for segment in ("main", "exp_avg", "exp_avg_sq")
    }


def assert_holds(pin, expected):
    held = read(pin)
    for segment, tensors in expected.items():
        for name, ours, theirs in zip(SHAPES, held[segment], tensors):
            assert torch.equal(ours, theirs), f"{segment} of {name}"


def pin_directories(scratch, job="job"):
    pins = scratch / "state" / "jobs" / job / "model" / "rank00000" / "pins"
    try:
        return sorted(pins / name for name in os.listdir(pins))
    except FileNotFoundError:  # it goes with the last of them
        return []


def used_bytes(directory):
    """Of the files below, each once; the daemon may remove some meanwhile."""
    blocks = {}
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
                blocks[status.st_ino] = status.st_blocks * 512
            except FileNotFoundError:
                pass
    return sum(blocks.values())


def deleted_descriptors(process):
    """Files that the daemon holds open although they have no name."""
    links = []
    for entry in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:
            pass
    return [link for link in links if link.endswith("(deleted)") and ".safetensors" in link]


def fill(path):
    """Leaves no room on the file system of `path`."""
    with open(path, "wb") as file:
        end = 0
        with pytest.raises(OSError):
            while True:
                os.posix_fallocate(file.fileno(), end, 4096)
                end += 4096


def eventually(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


@pytest.mark.parametrize("commit_every", [1, 0, 3])
def test_a_pin_holds_its_step_while_others_follow(daemon, commit_every):
    trainer = Trainer(daemon.socket, commit_every=commit_every)
    start = trainer.store.pin()
    assert_holds(start, trainer.expected())
    assert start.steps == [0] * len(SHAPES)
    start.release()
    trainer.step()
    trainer.step()
    pin, expected = trainer.store.pin(), trainer.expected()
    assert pin.commit.sequence == 2
    assert pin.commit.due == (commit_every == 1)
    assert pin.steps == [2] * len(SHAPES)
    later = []
    for _ in range(4):
        trainer.step()
        assert_holds(pin, expected)
    with trainer.store.pin() as second:
        later = trainer.expected()
        trainer.step()
        trainer.step()
        assert_holds(second, later)
    assert second.released and not pin.released
    assert_holds(pin, expected)
    pin.release()
    pin.release()
    trainer.store.flush()
    with trainer.store.pin() as last:
        assert_holds(last, trainer.expected())
    trainer.store.close()


def test_pieces_are_ordered_and_cover_every_element_once(daemon):
    trainer = Trainer(daemon.socket, bucket_elements=1_000)
    with trainer.store.pin() as pin:
        order = [(p.tensor, ("main", "exp_avg", "exp_avg_sq").index(p.segment), p.first)
                 for p in pin.pieces]
        assert order == sorted(order)
        for i, parameter in enumerate(trainer.parameters):
            for segment in ("main", "exp_avg", "exp_avg_sq"):
                mine = [p for p in pin.pieces if (p.tensor, p.segment) == (i, segment)]
                assert sum(p.count for p in mine) == parameter.numel()
        assert len({p.fd for p in pin.pieces}) > 30  # files of many buckets
        assert all(p.type == c.FLOAT32 for p in pin.pieces)
    trainer.store.close()


def test_narrow_moments_have_their_own_types(daemon):
    values = torch.linspace(-1, 1, 5000)
    store = Store(Options(
        job="narrow", socket=str(daemon.socket), tensors=[Tensor("a", (5000,))],
        members=[Member(exp_avg=c.BFLOAT16, exp_avg_sq=c.BFLOAT16)]))
    store.attach([values.data_ptr()])
    store.refresh_all()
    gradient = torch.full_like(values, 0.5)
    store.step([Group([0], lr=0.0)], [gradient.data_ptr()], [c.FLOAT32], [0])
    with store.pin() as pin:
        held = read(pin, [(5000,)])
        assert held["main"][0].dtype == torch.float32
        assert torch.equal(held["exp_avg"][0], torch.full_like(values, 0.05).bfloat16())
        assert held["exp_avg_sq"][0].dtype == torch.bfloat16
    store.close()


def test_pinned_files_are_safetensors(daemon):
    from safetensors import safe_open

    trainer = Trainer(daemon.socket)
    trainer.step()
    with trainer.store.pin() as pin:
        files = {piece.fd for piece in pin.pieces}
        found = {}
        for fd in files:
            with safe_open(f"/proc/self/fd/{fd}", framework="pt") as file:
                found.update({key: file.get_tensor(key) for key in file.keys()})
        assert torch.equal(found["exp_avg/bias"], trainer.expected()["exp_avg"][1])
    trainer.store.close()


def test_pinned_files_cannot_be_written_through_their_descriptors(daemon):
    trainer = Trainer(daemon.socket)
    with trainer.store.pin() as pin:
        fd = pin.pieces[0].fd
        with pytest.raises(OSError):
            os.pwrite(fd, b"x", 0)
        assert os.fstat(fd).st_mode & 0o222 == 0
    trainer.store.close()


def test_more_commits_than_max_saves_are_refused_and_one_commit_counts_once(daemon):
    trainer = Trainer(daemon.socket)
    shared = [trainer.store.pin() for _ in range(4)]
    trainer.step()
    second = trainer.store.pin()
    trainer.step()
    with pytest.raises(momentd.Error, match="max_saves") as failure:
        trainer.store.pin()
    assert failure.value.code == "RESOURCE_EXHAUSTED"
    assert f"process {os.getpid()}" in str(failure.value)
    trainer.step()
    second.release()
    third = trainer.store.pin()
    assert third.commit.sequence == 3
    for pin in shared + [third]:
        pin.release()
    trainer.store.close()


def test_max_saves_is_an_option_of_the_daemon(other_daemon):
    with other_daemon(arguments=["--max-saves", "1"]) as daemon:
        trainer = Trainer(daemon.socket)
        with trainer.store.pin():
            trainer.step()
            with pytest.raises(momentd.Error, match="max_saves is 1"):
                trainer.store.pin()
        trainer.store.pin().release()
        trainer.store.close()


def test_a_pin_that_is_collected_is_released(daemon, scratch):
    trainer = Trainer(daemon.socket)
    pin = trainer.store.pin()
    assert [path.name for path in pin_directories(scratch)] == [pin.id]
    fds = {piece.fd for piece in pin.pieces}
    del pin
    gc.collect()
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)
    eventually(lambda: pin_directories(scratch) == [])
    trainer.store.close()


def test_a_pin_outlives_its_store(daemon, scratch):
    trainer = Trainer(daemon.socket)
    trainer.step()
    pin, expected = trainer.store.pin(), trainer.expected()
    trainer.store.close()
    eventually(lambda: pin_directories(scratch) == [])
    assert_holds(pin, expected)
    pin.release()


def test_two_hundred_pins_leave_the_disk_and_the_descriptors_as_they_were(daemon, scratch):
    trainer = Trainer(daemon.socket)
    for _ in range(3):
        trainer.step()
    base = used_bytes(scratch / "state")
    descriptors = len(os.listdir("/proc/self/fd"))
    for i in range(200):
        with trainer.store.pin() as pin:
            assert pin.commit.sequence == trainer.store.info().sequence
            if i % 2 == 0:
                trainer.step()
    for _ in range(3):
        trainer.step()
    eventually(lambda: used_bytes(scratch / "state") == base)
    eventually(lambda: deleted_descriptors(daemon.process) == [])
    assert len(os.listdir("/proc/self/fd")) == descriptors
    trainer.store.close()


def test_a_job_that_starts_again_five_times_takes_no_more_disk(daemon, scratch):
    sizes = []
    for _ in range(5):
        trainer = Trainer(daemon.socket, resume="auto")
        pins = []
        for _ in range(3):
            trainer.step()
            pins = [trainer.store.pin()]
        trainer.store.close()
        eventually(lambda: pin_directories(scratch) == [])
        trainer = Trainer(daemon.socket, resume="auto")  # the session before is over by then
        sizes.append(used_bytes(scratch / "state"))
        trainer.store.close()
        del pins
    assert len(set(sizes)) == 1


def test_a_killed_trainer_leaves_no_pin(daemon, scratch):
    script = textwrap.dedent(f"""
        import sys, time
        sys.path[:0] = [{str(pathlib.Path(__file__).parent)!r},
                        {str(pathlib.Path(momentd.__file__).parents[1])!r}]
        from test_pins import Trainer
        trainer = Trainer({str(daemon.socket)!r})
        trainer.step()
        pin = trainer.store.pin()
        print(pin.id, flush=True)
        time.sleep(600)
    """)
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pin = trainer.stdout.readline().strip()
    assert [path.name for path in pin_directories(scratch)] == [pin]
    trainer.kill()
    trainer.wait()
    eventually(lambda: pin_directories(scratch) == [])


def test_a_forked_child_may_not_use_a_pin_and_takes_nothing_with_it(daemon, scratch):
    trainer = Trainer(daemon.socket)
    pin, expected = trainer.store.pin(), trainer.expected()
    child = os.fork()
    if child == 0:
        try:
            pin.release()
        except momentd.ForkedError:
            del pin
            gc.collect()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert [path.name for path in pin_directories(scratch)] == [pin.id]
    assert_holds(pin, expected)
    pin.release()
    trainer.store.close()


def test_more_files_than_the_process_may_open_are_an_error_that_says_so(daemon, scratch):
    trainer = Trainer(daemon.socket, bucket_elements=300)  # over a hundred files
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
    try:
        with pytest.raises(momentd.Error, match="ulimit -n") as failure:
            trainer.store.pin()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert failure.value.code == "RESOURCE_EXHAUSTED"
    eventually(lambda: pin_directories(scratch) == [])
    with trainer.store.pin() as pin:
        assert_holds(pin, trainer.expected())
    trainer.store.close()


def test_a_finalizer_does_not_wait_for_a_step(daemon):
    """Releasing is no call of the store's turn: other threads may be stepping."""
    trainer = Trainer(daemon.socket)
    stop = threading.Event()

    def stepping():
        while not stop.is_set():
            trainer.step()

    pins = []
    for _ in range(2):
        pins.append(trainer.store.pin())
        trainer.step()
    thread = threading.Thread(target=stepping)
    thread.start()
    try:
        for pin in pins:
            pin.release()
    finally:
        stop.set()
        thread.join()
    assert all(pin.released for pin in pins)
    trainer.store.close()


class Daemons:
    """Daemons on one state directory, one after the other."""

    def __init__(self, scratch):
        self.scratch = scratch
        (scratch / "run").mkdir(mode=0o750)
        self.running = None

    def start(self, **environment):
        os.environ.update(environment)
        try:
            self.running = momentd.spawn(self.scratch / "state", socket_dir=self.scratch / "run",
                                         log=self.scratch / "log")
        finally:
            for name in environment:
                del os.environ[name]
        return self.running

    def kill(self):
        self.running.process.send_signal(signal.SIGKILL)
        self.running.process.wait()


@pytest.fixture
def daemons(scratch):
    if not os.environ.get("MOMENTD_BINARY"):
        pytest.skip("MOMENTD_BINARY does not name the daemon")
    daemons = Daemons(scratch)
    yield daemons
    daemons.running.close()


def test_a_pin_outlives_a_killed_daemon_and_its_files_are_never_written_again(daemons, scratch):
    trainer = Trainer(daemons.start().socket)
    trainer.step()
    trainer.store.flush()
    pin, expected = trainer.store.pin(), trainer.expected()
    daemons.kill()
    daemons.start()
    for _ in range(6):
        trainer.step()
        assert_holds(pin, expected)
    assert pin_directories(scratch) == []
    pin.release()
    with trainer.store.pin() as again:
        assert_holds(again, trainer.expected())
    trainer.store.close()


@pytest.mark.parametrize("point", ["before_pin_manifest", "before_pin_mark", "after_pin_mark"])
def test_a_daemon_killed_within_a_pin_is_waited_for_and_the_pin_made_again(daemons, scratch, point):
    first = daemons.start(MOMENTD_FAILPOINTS=f"store.{point}=kill@1")
    trainer = Trainer(first.socket)
    trainer.step()
    trainer.store.flush()

    def restart():
        first.process.wait()
        daemons.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    pin = trainer.store.pin()
    restarting.join()
    assert_holds(pin, trainer.expected())
    assert [path.name for path in pin_directories(scratch)] == [pin.id]
    pin.release()
    trainer.step()
    trainer.store.close()
    eventually(lambda: pin_directories(scratch) == [])


def test_a_daemon_killed_at_any_moment_of_pins_and_drops_opens_clean(daemons, scratch):
    seed = int(os.environ.get("MOMENT_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print("seed", seed)
    chance = random.Random(seed)
    trainer = Trainer(daemons.start().socket)
    trainer.store.flush()
    stop, failures, made = threading.Event(), [], []

    def pin_and_step():
        try:
            with trainer.store.pin() as pin:
                before = read(pin)
                trainer.step()
                for segment, tensors in read(pin).items():
                    assert all(map(torch.equal, tensors, before[segment])), segment
                made.append(pin.id)
        except momentd.Rewound:
            trainer.store.materialize()

    def pinning():
        try:
            while not stop.is_set():
                pin_and_step()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=pinning)
    thread.start()
    try:
        for _ in range(12):
            time.sleep(chance.uniform(0, 0.3))
            daemons.kill()
            daemons.start()
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert made
    with trainer.store.pin() as pin:
        assert pin.commit.sequence == trainer.store.info().sequence
        assert [path.name for path in pin_directories(scratch)] == [pin.id]
    trainer.store.close()
    eventually(lambda: pin_directories(scratch) == [])


@pytest.fixture
def small_disk(scratch):
    """A file system of 16 MiB."""
    directory = scratch / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not permitted")
    yield directory
    # What the daemon's ring held is let go behind its end.
    eventually(lambda: subprocess.run(["umount", str(directory)]).returncode == 0)


def test_a_full_disk_refuses_the_pin_and_lets_steps_go_on(small_disk, scratch):
    if not os.environ.get("MOMENTD_BINARY"):
        pytest.skip("MOMENTD_BINARY does not name the daemon")
    with momentd.spawn(small_disk / "state", log=scratch / "log") as daemon:
        trainer = Trainer(daemon.socket)
        trainer.step()
        filler = small_disk / "filler"
        fill(filler)
        with pytest.raises(momentd.Error, match="bytes are needed") as failure:
            trainer.store.pin()
        assert failure.value.code == "RESOURCE_EXHAUSTED"
        assert pin_directories(small_disk) == []
        for _ in range(4):
            trainer.step()
        filler.unlink()
        with trainer.store.pin() as pin:
            expected = trainer.expected()
            fill(filler)
            for _ in range(4):
                trainer.step()
            assert_holds(pin, expected)
        trainer.store.close()
