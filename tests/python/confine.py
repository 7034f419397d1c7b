"""Runs a program under a seccomp filter, as a container or a kernel setting would:

    confine.py RULE... -- PROGRAM ARGUMENT...

RULE is io_uring=<errno> (its three calls fail) or direct=<errno> (a file cannot be turned to direct
I/O, as on a file system that has none).
"""

import ctypes
import os
import platform
import struct
import sys

FCNTL = {"x86_64": 72, "aarch64": 25}
IO_URING = (425, 426, 427)  # set up, enter, register
F_SETFL = 4
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, ARGUMENT_1, ARGUMENT_2 = 0, 24, 32  # offsets in struct seccomp_data
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def refuse_io_uring(error):
    program = [(LOAD, 0, 0, NUMBER)]
    for call in IO_URING:
        program += [(EQUAL, 0, 1, call), (RETURN, 0, 0, ERRNO | error)]
    return program


def refuse_direct(error):
    return [
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 5, FCNTL[platform.machine()]),
        (LOAD, 0, 0, ARGUMENT_1),
        (EQUAL, 0, 3, F_SETFL),
        (LOAD, 0, 0, ARGUMENT_2),
        (ANY_BIT, 0, 1, os.O_DIRECT),
        (RETURN, 0, 0, ERRNO | error),
    ]


REFUSALS = {"io_uring": refuse_io_uring, "direct": refuse_direct}


def confine(rules):
    program = []
    for rule in rules:
        name, _, error = rule.partition("=")
        program += REFUSALS[name](int(error))
    program.append((RETURN, 0, 0, ALLOW))
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def main():
    split = sys.argv.index("--")
    confine(sys.argv[1:split])
    os.execv(sys.argv[split + 1], sys.argv[split + 1 :])


if __name__ == "__main__":
    main()
