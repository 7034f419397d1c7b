"""Which part of the model's parameter a rank holds: from the mesh and the placements of a
DTensor."""

import math
from typing import NamedTuple, Optional, Sequence

from momentd.store import Piece, Shard


class Split(NamedTuple):
    """One placement: `dimension` of the tensor is cut over a dimension of the mesh, after `factor`
    cuts that dimensions to the right of it make; None: every rank has a copy."""

    dimension: Optional[int]
    factor: int = 1


class Box(NamedTuple):
    offset: Sequence[int]
    extent: Sequence[int]
    replica: int


def shard_of(tensor, name):
    """The Shard of a DTensor. ValueError for placements that leave no box, or no rank of this
    mesh."""
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError(f"parameter {name} is on {mesh}, which this rank is not part of")
    splits = [_split(placement, name) for placement in tensor.placements]
    try:
        box = box_of(tuple(tensor.shape), tuple(mesh.shape), coordinate, splits)
    except ValueError as error:
        raise ValueError(f"parameter {name} has placements {tensor.placements}: {error}") from None
    here = tuple(tensor._local_tensor.shape)
    if here != tuple(box.extent):
        raise ValueError(
            f"parameter {name} of shape {tuple(tensor.shape)} has placements {tensor.placements} "
            f"on {mesh}: rank {coordinate} should hold {tuple(box.extent)} of it and holds {here}"
        )
    count = math.prod(box.extent)
    return Shard([Piece(name, tuple(tensor.shape), box.offset, box.extent, 0, count)], box.replica)


def box_of(shape, mesh_shape, coordinate, splits):
    """The box of a tensor of `shape` that the rank at `coordinate` of a mesh holds, and which of
    its copies. `splits`: one a dimension of the mesh."""
    offset, extent = list(shape), list(shape)
    for dimension, size in enumerate(shape):
        cuts = _in_order(mesh_shape, splits, dimension)
        offset[dimension], extent[dimension] = _cut(
            size, [(mesh_shape[axis], coordinate[axis]) for axis in cuts]
        )
    return Box(tuple(offset), tuple(extent), _replica(mesh_shape, coordinate, splits))


def _split(placement, name):
    if placement.is_replicate():
        return Split(None)
    if placement.is_partial() or not isinstance(getattr(placement, "dim", None), int):
        raise ValueError(
            f"parameter {name} has placement {placement}: a parameter is sharded or replicated"
        )
    return Split(placement.dim, getattr(placement, "split_factor", 1))


def _in_order(mesh_shape, splits, dimension):
    """The dimensions of the mesh that cut `dimension`, first cut first. A plain split comes before
    those to the right of it; a strided one (FSDP over tensor parallelism) after as many as have
    `factor` parts together."""
    order = []
    for axis in reversed(range(len(splits))):
        if splits[axis].dimension != dimension:
            continue
        parts, place = 1, 0
        while parts < splits[axis].factor and place < len(order):
            parts *= mesh_shape[order[place]]
            place += 1
        if parts != splits[axis].factor:
            raise ValueError(
                f"dimension {dimension} is cut with stride {splits[axis].factor}, which the mesh "
                "does not explain"
            )
        order.insert(place, axis)
    return order


def _cut(size, cuts):
    """Begin and length of a range of `size` after cuts into (parts, which), as torch.chunk cuts:
    equal parts, the last ones shorter or empty."""
    begin, length = 0, size
    for parts, which in cuts:
        part = -(-length // parts)
        first = min(which * part, length)
        begin, length = begin + first, min(part, length - first)
    return begin, length


def _replica(mesh_shape, coordinate, splits):
    index = 0
    for parts, which, split in zip(mesh_shape, coordinate, splits):
        if split.dimension is None:
            index = index * parts + which
    return index
