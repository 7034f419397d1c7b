"""A rank over momentd.Store alone, without torch: its gradients follow from name and sequence, so two
runs of the same steps end with the same bits."""

import json
import pathlib
import struct
import zlib

import numpy as np

from momentd import Store
from momentd import _library as c
from momentd.store import Group, Options, Tensor


# Eight buckets, each a chunk of 2.8 MiB: with the smallest pool (16 MiB) no frame stays between steps.
STREAMED = {"long": (1_966_080,)}
STREAMED_OPTIONS = {"bucket_elements": 245_760}
SMALLEST_POOL = ["--host-memory", "16MiB"]


def deviates(shape, *key):
    """fp32 deviates that follow from the key."""
    seed = zlib.crc32(repr(key).encode())
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


class BareTrainer:
    """Opens, fills or materializes, and steps. `shapes`: shape by tensor name, in order."""

    def __init__(self, daemon, shapes, job="bare", resume="auto", **options):
        self.shapes = dict(shapes)
        tensors = [Tensor(name, shape) for name, shape in self.shapes.items()]
        self.store = Store(
            Options(job=job, tensors=tensors, resume=resume, socket=daemon.socket, **options)
        )
        try:
            self._begin(discard=resume == "never")
        except BaseException:
            self.store.close()
            raise

    def _begin(self, discard):
        self.parameters = {
            name: np.zeros(shape, np.float32) for name, shape in self.shapes.items()
        }
        self.store.attach([array.ctypes.data for array in self.parameters.values()])
        if self.store.info().empty or discard:
            for name, array in self.parameters.items():
                array[...] = deviates(array.shape, "parameter", name)
            self.store.refresh_all(discard=discard)
        else:
            self.store.materialize()

    @property
    def sequence(self):
        return self.store.info().sequence

    def step(self, resend=False, only=None, **hyperparameters):
        """`only`: indices of the tensors that take part."""
        sequence = self.sequence + 1
        gradients = {
            name: deviates(shape, "gradient", name, sequence)
            for name, shape in self.shapes.items()
        }
        group = Group(
            tensors=range(len(gradients)), **{"lr": 1e-2, "weight_decay": 0.1, **hyperparameters}
        )
        return self.store.step(
            [group],
            [array.ctypes.data for array in gradients.values()],
            [c.FLOAT32] * len(gradients),
            range(len(gradients)) if only is None else only,
            blob=b"",
            resend=resend,
        )

    def steps(self, count):
        for _ in range(count):
            self.step()
        return self

    def bits(self):
        return {name: array.tobytes() for name, array in self.parameters.items()}

    def close(self):
        self.store.close()


def undisturbed(daemon, shapes, steps, job="undisturbed", **options):
    """The parameters of a run that nothing happens to."""
    trainer = BareTrainer(daemon, shapes, job=job, **options).steps(steps)
    trainer.close()
    return trainer.bits()


def store_directory(state, job="bare", role="model", rank=0):
    return pathlib.Path(state) / "jobs" / job / role / f"rank{rank:05d}"


class BucketFile:
    """What a bucket file says of itself; see docs/internals/formats.md."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        data = self.path.read_bytes()
        length = struct.unpack_from("<Q", data)[0]
        self.header = json.loads(data[8 : 8 + length])
        self.data_offset = 8 + length
        table = self.offset("__checksums__")
        self.table_offset = table
        self.written_by, self.file = struct.unpack_from("<QI", data, table + 32)

    def offset(self, entry):
        return self.data_offset + self.header[entry]["data_offsets"][0]


def newest_file(directory, bucket=0, member="opt0_0"):
    """The file of a bucket that the highest id wrote: the one that the newest commit names, after
    steps of all tensors."""
    paths = sorted((directory / member).glob(f"bucket{bucket:05d}.*.safetensors"))
    return max((BucketFile(path) for path in paths), key=lambda file: file.written_by)


def flip_bit(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def content_of(directory):
    """Every file below a directory with its bytes."""
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
