"""The bucket files of a store, opened by the safetensors library."""

import os
import subprocess

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

SEGMENTS = ("main", "exp_avg", "exp_avg_sq")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The state directory and the path of each bucket's file."""
    directory = tmp_path_factory.mktemp("state")
    lines = subprocess.run(
        [os.environ["MOMENT_WRITE_STORE"], str(directory)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()
    return directory, [line.split(" ", 1)[1] for line in lines]


def raw(store, bucket, segment):
    return (store[0] / f"{bucket}.{segment}.raw").read_bytes()


def data_bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def test_every_bucket_opens(store):
    assert len(store[1]) == 3
    for path in store[1]:
        assert "__checksums__" in load_file(path)


def test_metadata_names_member_and_bucket(store):
    for path, member, bucket in zip(store[1], ("opt0_0", "opt0_0", "opt0_1"), "010"):
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {
                "format": "momentd bucket",
                "version": "1",
                "member": member,
                "bucket": bucket,
            }


def test_names_and_shapes(store):
    shapes = {}
    for path in store[1]:
        with safe_open(path, framework="pt") as file:
            shapes.update({key: file.get_slice(key).get_shape() for key in file.keys()})
    euro = 'quote" back\\slash \n \u20ac'
    for segment in SEGMENTS:
        assert shapes[f"{segment}@0/weight"] == [1500]
        assert shapes[f"{segment}@1500/weight"] == [500]
        assert shapes[f"{segment}/bias"] == [7]
        assert shapes[f"{segment}/scalar"] == []
        assert shapes[f"{segment}/{euro}"] == [2, 1, 3]
        assert shapes[f"{segment}/{'n' * 1000}"] == [1024]
        assert f"{segment}/none" not in shapes


def test_types(store):
    first = load_file(store[1][0])
    assert first["main@0/weight"].dtype == torch.float32
    assert first["exp_avg@0/weight"].dtype == torch.float16
    assert first["exp_avg_sq@0/weight"].dtype == torch.bfloat16
    assert load_file(store[1][2])["exp_avg/expert"].dtype == torch.bfloat16


def test_bytes_are_those_that_were_written(store):
    for bucket, path in enumerate(store[1]):
        tensors = load_file(path)
        with safe_open(path, framework="pt") as file:
            keys = file.offset_keys() if hasattr(file, "offset_keys") else None
        for segment in SEGMENTS:
            whole = raw(store, bucket, segment)
            for key, tensor in tensors.items():
                if key.split("/")[0].split("@")[0] != segment:
                    continue
                assert data_bytes(tensor) in whole
            if keys is not None:
                own = [k for k in keys if k.split("/")[0].split("@")[0] == segment]
                pads = [k for k in keys if k == f"__pad__/{segment}"]
                joined = b"".join(data_bytes(tensors[k]) for k in own + pads)
                assert joined == whole


def test_checksum_table_begins_with_what_the_file_is(store):
    table = data_bytes(load_file(store[1][1])["__checksums__"])
    assert table[:8] == b"MOMENTCK"
    assert int.from_bytes(table[8:12], "little") == 1
    assert int.from_bytes(table[12:16], "little") == 1  # bucket
    assert int.from_bytes(table[32:40], "little") == 2  # id: Refresh, then a step
    assert int.from_bytes(table[48:56], "little") == 3  # a unit each segment
