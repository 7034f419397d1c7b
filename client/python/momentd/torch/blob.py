"""What a trainer keeps with a step, as bytes: plain values and tensors, and nothing that runs.

    magic "MMTB" | version u16 | 0 u16 | length of the header u32 | header, JSON | payload

All numbers are little-endian. Values that JSON has are themselves; every other one is an object of
one entry, {"$": [kind, ...]}; tensors, arrays and bytes stand in the payload, named by offset and
length. Decoding makes values of the types below and calls nothing else.
"""

import collections
import ctypes
import json
import math
import struct
import sys

import torch

MAGIC = b"MMTB"
VERSION = 1
_PREFIX = struct.Struct("<4sHHI")
_TAG = "$"
_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES = {tuple: "tuple", set: "set", frozenset: "frozenset", torch.Size: "size"}
_MAPPINGS = {dict: "dict", collections.OrderedDict: "ordered", collections.Counter: "counter"}
_DTYPES = {
    str(value).partition(".")[2]: value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


def encode(value, name="blob"):
    """`value` as bytes. TypeError names (from `name` on) what is not a plain value or a tensor."""
    encoder = _Encoder()
    header = json.dumps(encoder.value(value, name), separators=(",", ":")).encode()
    prefix = _PREFIX.pack(MAGIC, VERSION, 0, len(header))
    return b"".join([prefix, header, *encoder.payload])


def decode(data):
    """The value that encode() was given. ValueError if `data` is not whole, or of another
    version."""
    if len(data) < _PREFIX.size or data[: len(MAGIC)] != MAGIC:
        raise ValueError("these bytes are not a blob of momentd.torch.TrainerState")
    _, version, _, header_bytes = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise ValueError(
            f"the blob is of version {version}, this momentd reads version {VERSION}: resume with "
            "the version that wrote it"
        )
    begin = _PREFIX.size + header_bytes
    try:
        header = json.loads(bytes(data[_PREFIX.size : begin]))
        return _Decoder(memoryview(data)[begin:]).value(header)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the blob is damaged: {error}") from error


def raw_bytes(tensor):
    """The elements of a tensor, row-major, as bytes."""
    tensor = tensor.detach().to("cpu").contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _dtype_name(dtype):
    return str(dtype).partition(".")[2]


def _is_numpy(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


class _Encoder:
    def __init__(self):
        self.payload = []
        self._length = 0

    def value(self, value, name):
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is list:
            return self._items(value, name)
        if kind in _MAPPINGS:
            return self._mapping(value, name)
        if kind in _SEQUENCES:
            return _tagged(_SEQUENCES[kind], self._items(value, name))
        if kind is collections.deque:
            return _tagged("deque", value.maxlen, self._items(value, name))
        if kind is bytes:
            return _tagged("bytes", *self._append(value))
        if kind is torch.dtype:
            return _tagged("dtype", _dtype_name(value))
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value, name)
        if _is_numpy(value):
            return self._array(value, name)
        raise TypeError(
            f"{name} is of type {kind.__module__}.{kind.__qualname__}, which is not kept with a "
            "step: plain values, tensors and containers of them are"
        )

    def _items(self, values, name):
        return [self.value(value, f"{name}[{index}]") for index, value in enumerate(values)]

    def _mapping(self, value, name):
        if type(value) is dict and all(type(key) is str and key != _TAG for key in value):
            return {key: self.value(item, f"{name}.{key}") for key, item in value.items()}
        pairs = [
            [self.value(key, f"a key of {name}"), self.value(item, f"{name}[{key!r}]")]
            for key, item in value.items()
        ]
        return _tagged(_MAPPINGS[type(value)], pairs)

    def _tensor(self, tensor, name):
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise TypeError(f"{name} is a tensor that is not kept: only dense ones with values are")
        shape = list(tensor.shape)
        return _tagged("tensor", _dtype_name(tensor.dtype), shape, *self._append(raw_bytes(tensor)))

    def _array(self, array, name):
        if array.dtype.kind not in "?biufc":
            raise TypeError(f"{name} is an array of {array.dtype}, which is not kept: numbers are")
        kind = "array" if array.ndim or type(array).__name__ == "ndarray" else "scalar"
        return _tagged(kind, array.dtype.str, list(array.shape), *self._append(array.tobytes()))

    def _append(self, data):
        self.payload.append(data)
        self._length += len(data)
        return self._length - len(data), len(data)


def _tagged(kind, *fields):
    return {_TAG: [kind, *fields]}


class _Decoder:
    def __init__(self, payload):
        self._payload = payload

    def value(self, value):
        if type(value) is list:
            return [self.value(item) for item in value]
        if type(value) is not dict:
            return value
        if _TAG not in value:
            return {key: self.value(item) for key, item in value.items()}
        kind, *fields = value[_TAG]
        return _KINDS[kind](self, *fields)

    def pairs(self, pairs):
        return {self.value(key): self.value(item) for key, item in pairs}

    def part(self, begin, length):
        if begin < 0 or length < 0 or begin + length > len(self._payload):
            raise ValueError("its payload is shorter than it says")
        return self._payload[begin : begin + length]

    def tensor(self, name, shape, begin, length):
        part, dtype = self.part(begin, length), _DTYPES[name]
        if math.prod(shape) * dtype.itemsize != length:
            raise ValueError(f"{length} bytes for a tensor of {shape}")
        tensor = torch.empty(shape, dtype=dtype)
        ctypes.memmove(tensor.data_ptr(), bytes(part), length)
        return tensor

    def array(self, name, shape, begin, length):
        import numpy

        elements = numpy.frombuffer(self.part(begin, length), numpy.dtype(name))
        return elements.reshape(shape).copy()


def _sequence(kind):
    return lambda decoder, items: kind(decoder.value(items))


def _mapping(kind):
    return lambda decoder, pairs: kind(decoder.pairs(pairs))


_KINDS = {
    **{name: _sequence(kind) for kind, name in _SEQUENCES.items()},
    **{name: _mapping(kind) for kind, name in _MAPPINGS.items()},
    "deque": lambda decoder, most, items: collections.deque(decoder.value(items), most),
    "bytes": lambda decoder, begin, length: bytes(decoder.part(begin, length)),
    "dtype": lambda decoder, name: _DTYPES[name],
    "tensor": _Decoder.tensor,
    "array": _Decoder.array,
    "scalar": lambda decoder, *fields: decoder.array(*fields)[()],
}
