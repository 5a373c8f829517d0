"""File handles as file servers use them: `take PATH...` prints the handle of each, `open DIR HANDLE...` opens them on the file system
of DIR and prints one line each: what a file holds, the path of a directory and its names, or the error's name."""

import ctypes
import errno
import os
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
HANDLE_BYTES_MAX = 128


def called(result):
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def take(path):
    """The kernel's struct: length, type, bytes."""
    handle = ctypes.create_string_buffer(8 + HANDLE_BYTES_MAX)
    struct.pack_into("Ii", handle, 0, HANDLE_BYTES_MAX, 0)
    mount = ctypes.c_int()
    called(libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount), 0))
    length, _ = struct.unpack_from("Ii", handle)
    return handle.raw[: 8 + length].hex()


def show(directory, handle):
    try:
        fd = called(libc.open_by_handle_at(directory, ctypes.create_string_buffer(handle), os.O_RDONLY))
    except OSError as e:
        return errno.errorcode[e.errno]
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return " ".join([os.readlink(f"/proc/self/fd/{fd}")] + sorted(os.listdir(fd)))
        return os.read(fd, 1 << 20).decode()
    finally:
        os.close(fd)


if sys.argv[1] == "take":
    for path in sys.argv[2:]:
        print(take(path))
else:
    directory = os.open(sys.argv[2], os.O_RDONLY)
    for handle in sys.argv[3:]:
        print(show(directory, bytes.fromhex(handle)))
