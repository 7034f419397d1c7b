"""Which part of a parameter a rank holds, against torch's own arithmetic and against cuts of
numbers."""

import itertools

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as some  # noqa: E402

from momentd.torch.shards import Split, box_of  # noqa: E402

sizes = some.integers(1, 5)
shapes = some.lists(some.integers(0, 13), min_size=1, max_size=3).map(tuple)
meshes = some.lists(sizes, min_size=1, max_size=3).map(tuple)


def coordinates(mesh):
    return itertools.product(*(range(size) for size in mesh))


def boxed(tensor, box):
    for dimension, (offset, extent) in enumerate(zip(box.offset, box.extent)):
        tensor = tensor.narrow(dimension, offset, extent)
    return tensor


@given(some.data(), shapes, meshes)
@settings(max_examples=150, deadline=None)
def test_boxes_are_those_of_torch(data, shape, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

    placement = some.none() | some.integers(0, len(shape) - 1)
    dimensions = [data.draw(placement) for _ in mesh]
    theirs = [Replicate() if dim is None else Shard(dim) for dim in dimensions]
    for coordinate in coordinates(mesh):
        box = box_of(shape, mesh, coordinate, [Split(dim) for dim in dimensions])
        extent, offset = _compute_local_shape_and_global_offset(
            shape, mesh, list(coordinate), theirs
        )
        assert box.extent == extent
        for ours, other, size in zip(box.offset, offset, box.extent):
            assert ours == other or size == 0  # of an empty part torch names the end


@given(some.data(), shapes, meshes)
@settings(max_examples=150, deadline=None)
def test_each_copy_holds_every_element_once(data, shape, mesh):
    placement = some.none() | some.integers(0, len(shape) - 1)
    splits = [Split(data.draw(placement)) for _ in mesh]
    copies = 1
    for size, split in zip(mesh, splits):
        copies *= size if split.dimension is None else 1
    whole = torch.zeros((copies, *shape), dtype=torch.int32)
    for coordinate in coordinates(mesh):
        box = box_of(shape, mesh, coordinate, splits)
        boxed(whole[box.replica], box).add_(1)
    assert bool((whole == 1).all())


@given(some.integers(0, 40), sizes, sizes, some.none() | sizes)
@settings(max_examples=200, deadline=None)
def test_fsdp_cuts_what_tensor_parallelism_has_cut(rows, fsdp, tensor, replicas):
    """fully_shard over a sharded parameter: _StridedShard(0), Shard(0); with replicas in front."""
    numbers = torch.arange(rows)
    mesh = (fsdp, tensor) if replicas is None else (replicas, fsdp, tensor)
    splits = [Split(0, tensor), Split(0)]
    splits = splits if replicas is None else [Split(None), *splits]
    for coordinate in coordinates(mesh):
        box = box_of((rows,), mesh, coordinate, splits)
        here = numbers
        for parts, which in ((tensor, coordinate[-1]), (fsdp, coordinate[-2])):
            chunks = here.chunk(parts) if here.numel() else ()
            here = chunks[which] if which < len(chunks) else here[:0]
        assert boxed(numbers, box).tolist() == here.tolist()
        assert box.replica == (0 if replicas is None else coordinate[0])


def test_an_outer_split_comes_first():
    """Shard over pipeline-like groups, FSDP over tensor parallelism within them."""
    splits = [Split(0), Split(0, 2), Split(0)]
    begins = [box_of((16,), (2, 4, 2), at, splits).offset[0] for at in coordinates((2, 4, 2))]
    assert begins[:8] == [0, 4, 1, 5, 2, 6, 3, 7]
    assert begins[8:] == [8 + begin for begin in begins[:8]]


def test_a_stride_without_a_cause_is_refused():
    with pytest.raises(ValueError, match="stride 2, which the mesh does not explain"):
        box_of((8,), (2,), (0,), [Split(0, 2)])
    with pytest.raises(ValueError, match="stride 3"):
        box_of((8,), (2, 2), (0, 0), [Split(0, 3), Split(0)])
