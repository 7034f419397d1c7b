"""Private mappings of files: the pages are the file's until they are written to, and then the
process's own. The file is never touched."""

import ctypes
import mmap
import os
import weakref

# A private mapping of a file larger than the memory is no promise to fill it.
_MAP_NORESERVE = 0x4000
_MAP_FIXED = 0x10
_PROT_NONE = 0
_FLAGS = mmap.MAP_PRIVATE | _MAP_NORESERVE
_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value


def map_file(fd):
    """All of a file, as a buffer."""
    return mmap.mmap(fd, os.fstat(fd).st_size, flags=_FLAGS, prot=_PROTECTION)


def can_join(parts):
    """map_joined() can map these parts of files, (fd, offset, length) in bytes, one behind the other:
    where two meet, one ends at the end of a page, and the next begins at the beginning of one."""
    ends = [(offset + length) % mmap.PAGESIZE for _, offset, length in parts[:-1]]
    begins = [offset % mmap.PAGESIZE for _, offset, _ in parts[1:]]
    return not any(ends) and not any(begins)


def map_joined(parts):
    """Parts of files in one piece: a buffer, and where in it they begin."""
    lead = parts[0][1] % mmap.PAGESIZE
    size = lead + sum(length for _, _, length in parts)
    base = _map(None, size, _PROT_NONE, _FLAGS | mmap.MAP_ANONYMOUS, -1, 0)
    at = base
    try:
        for index, (fd, offset, length) in enumerate(parts):
            before = lead if index == 0 else 0
            flags = _FLAGS | _MAP_FIXED
            _map(at, before + length, _PROTECTION, flags, fd, offset - before)
            at += before + length
    except BaseException:
        _libc.munmap(base, size)
        raise
    buffer = (ctypes.c_char * size).from_address(base)
    weakref.finalize(buffer, _libc.munmap, base, size).atexit = False
    return buffer, lead


def _map(address, size, protection, flags, fd, offset):
    mapped = _libc.mmap(address, size, protection, flags, fd, offset)
    if mapped == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"mmap of {size} bytes: {os.strerror(error)}")
    return mapped


def _load_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int64,
    ]
    libc.munmap.restype = ctypes.c_int
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


_libc = _load_libc()
