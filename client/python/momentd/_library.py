"""libmoment.so by ctypes: structs and prototypes of client/include/moment/moment.h."""

import ctypes
import os
import pathlib
import sysconfig
import threading
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import List, Optional, Type, TypeVar, Union

OK = 0
UNAVAILABLE = 14
REWOUND = 100
FORKED = 101

FLOAT32, BFLOAT16, FLOAT16 = 1, 2, 3
FLOAT8_E4M3, FLOAT8_E5M2 = 4, 5
ADAMW, ADAM = 1, 2
PROFILES = {
    None: 0,
    "torch-cpu": 1,
    "torch-cuda": 2,
    "torch-cuda-foreach": 3,
    "torch-cuda-210": 4,
    "te": 5,
    "torch-cpu-ieee": 6,
}
SEGMENTS = {"main": 0, "exp_avg": 1, "exp_avg_sq": 2}
RESUMES = {None: 0, "never": 1, "must": 2, "auto": 3}


class ShardPiece(ctypes.Structure):
    _fields_ = [
        ("key", c_char_p),
        ("dimensions", c_uint32),
        ("global_shape", POINTER(c_uint64)),
        ("offset", POINTER(c_uint64)),
        ("extent", POINTER(c_uint64)),
        ("flat_begin", c_uint64),
        ("flat_count", c_uint64),
    ]


class Shard(ctypes.Structure):
    _fields_ = [
        ("pieces", POINTER(ShardPiece)),
        ("piece_count", c_size_t),
        ("replica", c_uint32),
        ("may_pad", c_int32),
    ]


class Member(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("exp_avg", c_int), ("exp_avg_sq", c_int)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("member", c_uint32),
        ("dimensions", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("type", c_int),
        ("shard", POINTER(Shard)),
    ]


class OpenOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("socket", c_char_p),
        ("job", c_char_p),
        ("role", c_char_p),
        ("rank", c_uint32),
        ("members", POINTER(Member)),
        ("member_count", c_size_t),
        ("tensors", POINTER(Tensor)),
        ("tensor_count", c_size_t),
        ("positional", c_int32),
        ("profile", c_int),
        ("commit_every", c_uint64),
        ("blob_limit_bytes", c_uint64),
        ("bucket_elements", c_uint64),
        ("resume", c_int),
        ("takeover", c_int32),
        ("state_directory", c_char_p),
        ("device", c_char_p),
        ("program", c_char_p),
        ("connect_for_seconds", c_double),
        ("retry_for_seconds", c_double),
    ]


class Commit(ctypes.Structure):
    _fields_ = [
        ("id", c_uint64),
        ("sequence", c_uint64),
        ("due", c_int32),
        ("step_id", c_uint8 * 16),
        ("unix_time_ns", c_int64),
    ]


class Info(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("empty", c_int32),
        ("parameters_stale", c_int32),
        ("step_in_flight", c_int32),
        ("rewound", c_int32),
        ("sequence", c_uint64),
        ("step_id", c_uint8 * 16),
        ("commit_every", c_uint64),
        ("profile", c_int),
        ("reserved_bytes", c_uint64),
        ("resident_bytes", c_uint64),
        ("lease_seconds", c_double),
        ("reconnects", c_uint64),
        ("store_uuid", c_char * 64),
        ("device", c_char * 64),
        ("io_engine", c_char * 64),
        ("transport", c_char * 32),
    ]


class Run(ctypes.Structure):
    _fields_ = [("first", c_uint32), ("count", c_uint32)]


class Group(ctypes.Structure):
    _fields_ = [
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("mode", c_int),
        ("no_bias_correction", c_int32),
        ("maximize", c_int32),
        ("gradient_scale", c_float),
        ("runs", POINTER(Run)),
        ("run_count", c_size_t),
    ]


class Statistics(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("sequence", c_uint64),
        ("replayed", c_int32),
        ("bytes_read", c_uint64),
        ("bytes_written", c_uint64),
        ("total_seconds", c_double),
        ("waiting_for_read_seconds", c_double),
        ("waiting_for_copy_seconds", c_double),
        ("waiting_for_adam_seconds", c_double),
        ("waiting_for_frame_seconds", c_double),
        ("waiting_for_commit_seconds", c_double),
        ("adam_seconds", c_double),
        ("chunks", c_uint64),
        ("chunks_in_pool", c_uint64),
    ]


class StepOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("groups", POINTER(Group)),
        ("group_count", c_size_t),
        ("gradients", POINTER(c_void_p)),
        ("gradient_types", POINTER(c_int)),
        ("participants", POINTER(Run)),
        ("participant_count", c_size_t),
        ("blob", c_char_p),
        ("blob_bytes", c_size_t),
        ("bucket_final", c_void_p),
        ("context", c_void_p),
        ("resend", c_int32),
    ]


class Buffer(ctypes.Structure):
    _fields_ = [("tensor", c_uint32), ("segment", c_int), ("data", c_void_p), ("type", c_int)]


class TensorSteps(ctypes.Structure):
    _fields_ = [("tensor", c_uint32), ("t", c_uint64)]


class WriteOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("buffers", POINTER(Buffer)),
        ("buffer_count", c_size_t),
        ("steps", POINTER(TensorSteps)),
        ("step_count", c_size_t),
        ("parameters_match", c_int32),
    ]


class TensorDigest(ctypes.Structure):
    _fields_ = [
        ("tensor", c_uint32),
        ("main", c_uint64),
        ("exp_avg", c_uint64),
        ("exp_avg_sq", c_uint64),
        ("t", c_uint64),
    ]


class Operation(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("done", c_int32),
        ("bytes_done", c_uint64),
        ("bytes_total", c_uint64),
        ("error_code", c_int32),
        ("kind", c_char * 32),
        ("error_message", c_char * 256),
    ]


class PinInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("commit", Commit),
        ("size_bytes", c_uint64),
        ("id", c_char * 72),
    ]


class PinPiece(ctypes.Structure):
    _fields_ = [
        ("tensor", c_uint32),
        ("segment", c_int),
        ("type", c_int),
        ("fd", c_int32),
        ("offset_bytes", c_uint64),
        ("first", c_uint64),
        ("count", c_uint64),
    ]


_PROTOTYPES = {
    "moment_open": [POINTER(OpenOptions), POINTER(c_void_p)],
    "moment_close": [c_void_p],
    "moment_ping": [c_char_p, c_double],
    "moment_get_info": [c_void_p, POINTER(Info)],
    "moment_commits": [c_void_p, POINTER(Commit), c_size_t, POINTER(c_size_t)],
    "moment_blob": [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)],
    "moment_warnings": [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)],
    "moment_added": [c_void_p, POINTER(c_uint32), c_size_t, POINTER(c_size_t)],
    "moment_attach": [c_void_p, POINTER(c_void_p), c_size_t],
    "moment_detach": [c_void_p],
    "moment_step": [c_void_p, POINTER(StepOptions), POINTER(Statistics)],
    "moment_skip": [c_void_p, c_char_p, c_size_t, POINTER(c_uint64)],
    "moment_flush": [c_void_p, POINTER(Commit)],
    "moment_refresh": [c_void_p, POINTER(Run), c_size_t, POINTER(Commit)],
    "moment_refresh_all": [c_void_p, c_int32, c_uint64, c_char_p, c_size_t, POINTER(Commit)],
    "moment_materialize": [c_void_p, POINTER(Run), c_size_t],
    "moment_rollback": [c_void_p, c_uint64, POINTER(Commit)],
    "moment_read_tensors": [c_void_p, POINTER(Buffer), c_size_t, POINTER(c_uint64)],
    "moment_write_tensors": [c_void_p, POINTER(WriteOptions), POINTER(Commit)],
    "moment_reset_moments": [c_void_p, POINTER(Run), c_size_t, POINTER(Commit)],
    "moment_digest": [
        c_void_p,
        POINTER(Run),
        c_size_t,
        POINTER(TensorDigest),
        c_size_t,
        POINTER(c_size_t),
    ],
    "moment_steps": [c_void_p, POINTER(c_uint64), c_size_t, POINTER(c_size_t)],
    "moment_pin_create": [c_void_p, POINTER(c_void_p)],
    "moment_pin_get_info": [c_void_p, POINTER(PinInfo)],
    "moment_pin_steps": [c_void_p, POINTER(c_uint64), c_size_t, POINTER(c_size_t)],
    "moment_pin_pieces": [c_void_p, POINTER(PinPiece), c_size_t, POINTER(c_size_t)],
    "moment_pin_release": [POINTER(c_void_p)],
    "moment_get_operation": [c_void_p, c_char_p, POINTER(Operation)],
    "moment_cancel": [c_void_p],
}

Path = Union[str, "os.PathLike[str]"]
_NAME = "libmoment.so.1"
_loading = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None
_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def _candidates() -> List[str]:
    named = os.environ.get("MOMENTD_LIBRARY")
    if named:
        return [named]
    package = pathlib.Path(__file__).resolve().parent
    files = [package / "lib" / _NAME]  # of a wheel
    # <prefix>/share/momentd/python/momentd, as `cmake --install` lays it out.
    prefix = package.parents[3]
    libraries = ("lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH')}")
    files += [prefix / directory / _NAME for directory in libraries]
    return [str(file) for file in files if file.exists()] + [_NAME]


def _open() -> ctypes.CDLL:
    failures = []
    for candidate in _candidates():
        try:
            # Local: none of the library's dependencies is offered to what is loaded later.
            return ctypes.CDLL(candidate, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            failures.append(str(error))
    raise ImportError(
        "libmoment.so was not found; set MOMENTD_LIBRARY to its path: " + "; ".join(failures)
    )


def load() -> ctypes.CDLL:
    """The library, loaded once, with its prototypes set."""
    global _loaded
    with _loading:
        if _loaded is None:
            library = _open()
            for name, arguments in _PROTOTYPES.items():
                function = getattr(library, name)
                function.argtypes = arguments
                function.restype = c_int
            library.moment_last_error.restype = c_char_p
            library.moment_status_name.argtypes = [c_int]
            library.moment_status_name.restype = c_char_p
            library.moment_version.restype = c_char_p
            _loaded = library
        return _loaded


def sized(struct: Type[_Struct]) -> _Struct:
    """An instance of a struct that begins with its size."""
    return struct(struct_size=ctypes.sizeof(struct))
