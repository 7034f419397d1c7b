"""The state by tensor through momentd.Store: read, write, reset, digest and t, beside torch."""

import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch")

import momentd  # noqa: E402
import momentd.torch.profile  # noqa: E402
from momentd import _library as c  # noqa: E402
from momentd.store import Buffer, Group, Member, Options, Store, Tensor  # noqa: E402

TYPES = {torch.float32: c.FLOAT32, torch.bfloat16: c.BFLOAT16, torch.float16: c.FLOAT16}
SEGMENTS = ("main", "exp_avg", "exp_avg_sq")
LR = 1e-2


class Trainer:
    """A store with its parameters, and torch's AdamW on fp32 copies of them."""

    def __init__(self, daemon, shapes=((300, 7), (5,), (0, 3), (), (4000,)), dtype=torch.float32,
                 job="job", moments=(torch.float32, torch.float32), fill=True, **options):
        torch.manual_seed(3)
        self.parameters = [torch.randn(shape).to(dtype) for shape in shapes]
        self.masters = [torch.nn.Parameter(p.float()) for p in self.parameters]
        self.twin = torch.optim.AdamW(self.masters, lr=LR)
        self.options = Options(
            job=job,
            members=[Member("opt0_0", *[TYPES[kind] for kind in moments])],
            tensors=[
                Tensor(f"p{i}", tuple(p.shape), TYPES[dtype])
                for i, p in enumerate(self.parameters)
            ],
            socket=daemon.socket,
            bucket_elements=options.pop("bucket_elements", 3000),
            profile=momentd.torch.profile.torch_profile(),
            **options,
        )
        self.store = Store(self.options)
        self.attach()
        if fill:
            self.store.refresh_all()

    def attach(self):
        self.store.attach([p.data_ptr() or None for p in self.parameters])

    def reopen(self):
        self.store.close()
        self.options.resume = "must"
        self.store = Store(self.options)
        self.attach()

    def step(self, seed, only=None):
        torch.manual_seed(seed)
        taking_part = list(range(len(self.parameters)) if only is None else only)
        gradients = [torch.randn(p.shape) for p in self.parameters]
        for i, master in enumerate(self.masters):
            master.grad = gradients[i].clone() if i in taking_part else None
        self.twin.step()
        self.store.step(
            [Group(range(len(self.parameters)), lr=LR, weight_decay=1e-2)],
            [g.data_ptr() if i in taking_part and g.numel() else None
             for i, g in enumerate(gradients)],
            [c.FLOAT32] * len(gradients),
            taking_part,
        )

    def expected(self, tensor, segment):
        """What torch holds."""
        if segment == "main":
            return self.masters[tensor].detach()
        state = self.twin.state[self.masters[tensor]]
        return state.get(segment, torch.zeros(self.masters[tensor].shape))

    def read(self, tensor, segment, dtype=torch.float32):
        out = torch.full(self.parameters[tensor].shape, 7.0).to(dtype)
        self.store.read([buffer(tensor, segment, out)])
        return out


def buffer(tensor, segment, values):
    return Buffer(tensor, segment, values.data_ptr() or None, TYPES[values.dtype])


def same(a, b):
    """Equal bits."""
    kind = torch.int32 if a.dtype == torch.float32 else torch.int16
    return a.dtype == b.dtype and torch.equal(a.view(kind), b.view(kind))


@pytest.fixture
def trainer(daemon):
    made = Trainer(daemon)
    yield made
    made.store.close()


def test_every_segment_is_what_torch_holds(trainer):
    for seed in range(3):
        for tensor in range(len(trainer.parameters)):
            for segment in SEGMENTS:
                assert same(trainer.read(tensor, segment), trainer.expected(tensor, segment))
        trainer.step(seed)


def test_many_buffers_are_read_in_one_call_with_their_t(trainer):
    trainer.step(0)
    trainer.step(1, only=[0, 4])
    out = {
        (tensor, segment): torch.empty(trainer.parameters[tensor].shape)
        for tensor in (4, 0, 3)
        for segment in SEGMENTS
    }
    t = trainer.store.read([buffer(*key, values) for key, values in out.items()])
    assert t == [2, 2, 2, 2, 2, 2, 1, 1, 1]
    assert all(same(values, trainer.expected(*key)) for key, values in out.items())
    assert trainer.store.steps() == [2, 1, 1, 1, 2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_reading_narrows_as_torch_does(trainer, dtype):
    trainer.step(0)
    for segment in SEGMENTS:
        assert same(trainer.read(0, segment, dtype), trainer.expected(0, segment).to(dtype))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_segments_of_16_bits_are_converted_both_ways(daemon, kind):
    trainer = Trainer(daemon, moments=(kind, torch.bfloat16))
    values = torch.randn(4000)
    narrow = values.to(torch.float16)
    trainer.store.write([buffer(4, "exp_avg", values), buffer(4, "exp_avg_sq", narrow)])
    assert same(trainer.read(4, "exp_avg"), values.to(kind).float())
    assert same(trainer.read(4, "exp_avg", kind), values.to(kind))
    assert same(trainer.read(4, "exp_avg_sq"), narrow.float().to(torch.bfloat16).float())
    trainer.store.close()


def test_equal_types_are_copied_bit_for_bit(daemon):
    trainer = Trainer(daemon, shapes=((65536,),), moments=(torch.bfloat16, torch.float32))
    patterns = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    trainer.store.write([buffer(0, "exp_avg", patterns)])
    assert same(trainer.read(0, "exp_avg", torch.bfloat16), patterns)
    trainer.store.close()


def test_a_torch_run_goes_on_in_a_store_and_back(daemon):
    """What torch's state_dict holds is written into a fresh store; both go on alike."""
    source = Trainer(daemon, job="source")
    for seed in range(3):
        source.step(seed)
    source.store.close()
    ours = Trainer(daemon, job="ours")
    ours.twin, ours.masters = source.twin, source.masters
    state = [
        buffer(i, segment, source.expected(i, segment))
        for i in range(len(source.masters))
        for segment in SEGMENTS
    ]
    before = ours.store.commits()[0].id if ours.store.commits() else 1
    commit = ours.store.write(state, steps={i: 3 for i in range(len(source.masters))})
    assert commit.sequence == 0 and commit.id == before + 1 and commit.due
    ours.store.materialize()
    ours.reopen()
    ours.store.materialize()
    assert ours.store.steps() == [3] * 5
    for seed in range(3, 5):
        ours.step(seed)
    for i in range(len(source.masters)):
        assert same(ours.parameters[i], source.expected(i, "main"))
        for segment in SEGMENTS:
            assert same(ours.read(i, segment), source.expected(i, segment))
    ours.store.close()


def test_what_is_not_written_stays(trainer):
    trainer.step(0)
    expected = {
        (i, segment): trainer.expected(i, segment).clone() for i in range(5) for segment in SEGMENTS
    }
    written = torch.randn(300, 7)
    trainer.store.write([buffer(0, "exp_avg", written), Buffer(4, "exp_avg_sq", None)], {3: 40})
    expected[0, "exp_avg"] = written
    expected[4, "exp_avg_sq"] = torch.zeros(4000)
    for key, values in expected.items():
        assert same(trainer.read(*key), values), key
    assert trainer.store.steps() == [1, 1, 1, 40, 1]
    assert not trainer.store.info().parameters_stale


def test_a_step_is_refused_while_parameters_are_older_than_their_mains(trainer):
    values = torch.randn(300, 7)

    def write(**options):
        trainer.store.write([buffer(0, "main", values), Buffer(1, "main", None)], **options)

    write()
    assert trainer.store.info().parameters_stale
    with pytest.raises(momentd.Error, match="FAILED_PRECONDITION.*2 tensors.*materialize"):
        trainer.step(0)
    trainer.store.materialize([0])
    assert same(trainer.parameters[0], values)
    with pytest.raises(momentd.Error, match="FAILED_PRECONDITION.*1 tensors"):
        trainer.step(0)
    trainer.store.refresh([1])  # the parameter counts
    assert same(trainer.read(1, "main"), trainer.parameters[1])
    trainer.step(0)
    write()
    trainer.store.materialize()
    trainer.step(1)
    write(parameters_match=True)
    trainer.step(2)


def test_refreshed_parameters_of_16_bits_keep_what_nobody_changed(daemon):
    trainer = Trainer(daemon, dtype=torch.bfloat16)
    trainer.step(0)
    mains = trainer.read(0, "main")
    assert not same(mains, mains.bfloat16().float())
    trainer.store.refresh([0])
    assert same(trainer.read(0, "main"), mains)
    trainer.parameters[0][1] += 1.0
    trainer.store.refresh([0])
    refreshed = trainer.read(0, "main")
    assert same(refreshed[1], trainer.parameters[0][1].float())
    assert same(refreshed[2:], mains[2:]) and same(refreshed[0], mains[0])
    trainer.store.refresh_all(discard=True)
    assert same(trainer.read(0, "main"), trainer.parameters[0].float())
    trainer.store.close()


def test_moments_are_reset_and_mains_stay(trainer):
    for seed in range(2):
        trainer.step(seed)
    commit = trainer.store.reset_moments([0, 3])
    assert commit.sequence == 2
    assert trainer.store.steps() == [0, 2, 2, 0, 2]
    for i in range(5):
        assert same(trainer.read(i, "main"), trainer.expected(i, "main"))
        reset = i in (0, 3)
        for segment in ("exp_avg", "exp_avg_sq"):
            kept = trainer.expected(i, segment)
            assert same(trainer.read(i, segment), torch.zeros(kept.shape) if reset else kept)
    for i in (0, 3):
        trainer.twin.state.pop(trainer.masters[i])
    trainer.step(2)
    assert all(same(p, m.detach()) for p, m in zip(trainer.parameters, trainer.masters))
    trainer.store.reset_moments([])
    assert trainer.store.steps() == [1, 3, 3, 1, 3]
    trainer.store.reset_moments()
    trainer.twin.state.clear()
    assert trainer.store.steps() == [0] * 5
    trainer.step(3)
    assert all(same(p, m.detach()) for p, m in zip(trainer.parameters, trainer.masters))


def test_digests_tell_contents_and_nothing_else(daemon):
    one = Trainer(daemon, job="one", bucket_elements=0)
    seven = Trainer(daemon, job="seven", bucket_elements=900)
    for seed in range(2):
        one.step(seed)
        seven.step(seed)
    digests = one.store.digest()
    assert digests == seven.store.digest()
    assert [digest.tensor for digest in digests] == list(range(5))
    assert [digest.t for digest in digests] == [2] * 5
    assert one.store.digest([4, 1]) == [digests[1], digests[4]]
    assert one.store.digest([]) == []
    before = one.store.flush().id
    assert one.store.digest() == digests
    assert one.store.flush().id == before
    seven.reopen()
    assert seven.store.digest() == digests
    seven.store.materialize()
    seven.store.write([Buffer(1, "exp_avg_sq", None)])
    changed = seven.store.digest()
    assert [a == b for a, b in zip(changed, digests)] == [True, False, True, True, True]
    assert changed[1]._replace(exp_avg_sq=digests[1].exp_avg_sq) == digests[1]
    one.store.close()
    seven.store.close()


def test_what_cannot_be_is_refused_with_the_tensor_and_the_segment(trainer):
    values = torch.randn(300, 7)
    good = buffer(0, "exp_avg", values)
    digests = trainer.store.digest()
    for buffers, message in (
        ([good, good], "buffer 1: exp_avg of tensor 0 is listed twice"),
        ([good._replace(tensor=5)], "tensor 5 of a store of 5"),
        ([good._replace(type=c.FLOAT8_E4M3)], "exp_avg of tensor 0: type 4"),
    ):
        for call in (trainer.store.read, trainer.store.write):
            with pytest.raises(momentd.Error, match=f"INVALID_ARGUMENT.*{message}"):
                call(buffers)
    with pytest.raises(ValueError, match="segment='scales'.*exp_avg_sq"):
        trainer.store.read([good._replace(segment="scales")])
    with pytest.raises(momentd.Error, match="exp_avg of tensor 0 has no buffer"):
        trainer.store.read([good._replace(address=None)])
    with pytest.raises(momentd.Error, match="INVALID_ARGUMENT.*t of tensor 3.*above 2\\^53"):
        trainer.store.write([good], {0: 1, 3: 2**53 + 1})
    with pytest.raises(momentd.Error, match="t of tensor 9 of a store of 5"):
        trainer.store.write([], {9: 1})
    with pytest.raises(momentd.Error, match="tensors 9"):
        trainer.store.reset_moments([9])
    assert trainer.store.digest() == digests
    trainer.store.detach()
    for call in (trainer.store.read, trainer.store.write):
        with pytest.raises(momentd.Error, match="FAILED_PRECONDITION.*attached"):
            call([good])
    # What moves nothing needs nothing attached.
    assert trainer.store.digest() == digests
    trainer.store.write([Buffer(0, "exp_avg", None)], {0: 4})
    assert trainer.store.steps()[0] == 4


def test_an_empty_store_has_nothing_to_read(daemon):
    trainer = Trainer(daemon, fill=False)
    values = torch.empty(300, 7)
    for call in (
        trainer.store.steps,
        trainer.store.digest,
        trainer.store.reset_moments,
        lambda: trainer.store.read([buffer(0, "main", values)]),
        lambda: trainer.store.write([buffer(0, "main", values)]),
    ):
        with pytest.raises(momentd.Error, match="FAILED_PRECONDITION.*empty"):
            call()
    trainer.store.close()


def test_added_tensors_are_refreshed_before_they_are_reached(daemon):
    trainer = Trainer(daemon)
    trainer.step(0)
    trainer.parameters.append(torch.ones(50))
    trainer.options.tensors.append(Tensor("new", (50,)))
    trainer.reopen()
    values = torch.randn(50)
    assert trainer.store.steps() == [1, 1, 1, 1, 1, 0]
    assert len(trainer.store.digest()) == 5
    for call in (
        lambda: trainer.store.read([buffer(5, "main", values)]),
        lambda: trainer.store.write([buffer(5, "main", values)]),
        lambda: trainer.store.write([], {5: 3}),
        lambda: trainer.store.reset_moments([5]),
        lambda: trainer.store.digest([5]),
    ):
        with pytest.raises(momentd.Error, match="FAILED_PRECONDITION.*new.*Refresh"):
            call()
    trainer.store.reset_moments()
    trainer.store.refresh([5])
    trainer.store.write([buffer(5, "exp_avg", values)], {5: 3})
    assert same(trainer.read(5, "exp_avg"), values)
    assert trainer.store.steps() == [0, 0, 0, 0, 0, 3]
    trainer.store.close()


def test_other_threads_run_while_a_call_waits(daemon):
    trainer = Trainer(daemon, shapes=((3_000_000,),), bucket_elements=0)
    out = torch.empty(3_000_000)
    ticks = 0
    done = threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    while time.monotonic() - start < 0.5:
        trainer.store.read([buffer(0, "main", out)])
    done.set()
    thread.join()
    assert ticks > 50
    trainer.store.close()


def peak_memory(process):
    """VmHWM in bytes."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def test_the_daemons_memory_does_not_grow_with_what_is_read_and_written(scratch):
    budget = 200 << 20
    arguments = ["--host-memory", "200MiB"]
    with momentd.spawn(scratch / "state", log=scratch / "log", arguments=arguments) as daemon:
        count, elements = 6, 5_000_000
        trainer = Trainer(daemon, shapes=((elements,),) * count, bucket_elements=0)
        state_bytes = 12 * count * elements
        values = [torch.randn(elements) for _ in range(3 * count)]
        buffers = [
            buffer(i % count, SEGMENTS[i // count], values[i]) for i in range(3 * count)
        ]
        trainer.store.write(buffers, parameters_match=True)
        kept = [v.clone() for v in values]
        for v in values:
            v.zero_()
        trainer.store.read(buffers)
        assert all(same(v, k) for v, k in zip(values, kept))
        trainer.store.digest()
        trainer.store.reset_moments()
        # Frames, the ring's slots (four of 16 MiB), the program.
        bound = budget + (64 << 20) + (60 << 20)
        assert state_bytes > bound
        assert peak_memory(daemon.process) < bound
        trainer.store.close()


def test_a_hundred_thousand_tensors_in_one_call(daemon):
    count = 100_000
    names = [f"model.layers.{i}.mixer.experts.projection.weight" for i in range(count)]
    memory = torch.randn(count, 4)
    store = Store(
        Options(
            job="many",
            tensors=[Tensor(name, (4,)) for name in names],
            socket=daemon.socket,
            connect_for_seconds=60,
        )
    )
    store.attach([memory[i].data_ptr() for i in range(count)])
    store.refresh_all()
    values = [torch.randn(count, 4) for _ in SEGMENTS]
    rows = [values[s].data_ptr() + 16 * i for s in range(3) for i in range(count)]
    buffers = [
        Buffer(i, segment, rows[s * count + i])
        for s, segment in enumerate(SEGMENTS)
        for i in range(count)
    ]
    store.write(buffers, steps={i: i for i in range(count)}, parameters_match=True)
    kept = [v.clone() for v in values]
    for v in values:
        v.fill_(0)
    assert store.read(buffers)[count - 1] == count - 1
    assert all(same(a, b) for a, b in zip(values, kept))
    assert store.steps() == list(range(count))
    digests = store.digest()
    assert len(digests) == count and digests[-1].t == count - 1
    assert len({digest.exp_avg for digest in digests}) == count
    store.close()


def test_a_lost_daemon_is_waited_for(scratch):
    """kill -9 between calls, and again in the middle of a write: each call does what it says."""
    def start():
        return momentd.spawn(scratch / "state", socket_dir=scratch / "run", log=scratch / "log")

    (scratch / "run").mkdir()
    daemon = start()
    trainer = Trainer(daemon, shapes=((2_000_000,), (10,)), bucket_elements=0)
    values = torch.randn(2_000_000)
    digests = trainer.store.digest()
    for delay in (0.0, 0.002, 0.01, 0.03, 0.1):
        def kill():
            time.sleep(delay)
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()

        killer = threading.Thread(target=kill)
        killer.start()
        result = []
        writer = threading.Thread(
            target=lambda: result.append(trainer.store.write([buffer(0, "exp_avg", values)]))
        )
        writer.start()
        killer.join()
        daemon = start()
        writer.join()
        assert len(result) == 1
        after = trainer.store.digest()
        assert same(trainer.read(0, "exp_avg"), values)
        assert after[0]._replace(exp_avg=digests[0].exp_avg) == digests[0]
        assert after[1] == digests[1]
        values = torch.randn(2_000_000)
    assert trainer.store.info().reconnects >= 5
    trainer.store.close()
    daemon.close()
