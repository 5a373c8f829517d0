"""Holds one file open through libnfs (NFS 3) while its server and the mount below come and go.

nfs_held.py SERVER EXPORT NAME: opens the file. For each line of standard input it appends that line to the file by the handle that it
holds, makes it durable, and prints what the file holds then, in one line. Ends with its input.
"""

import ctypes
import os
import sys

lib = ctypes.CDLL("libnfs.so.13")
lib.nfs_init_context.restype = ctypes.c_void_p
lib.nfs_get_error.restype = ctypes.c_char_p
lib.nfs_get_error.argtypes = [ctypes.c_void_p]
lib.nfs_mount.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
lib.nfs_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
for name in ("nfs_pread", "nfs_pwrite"):
    getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p]
lib.nfs_fsync.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


def check(what, result):
    if result < 0:
        sys.exit(f"{what}: {result}: {lib.nfs_get_error(nfs).decode()}")
    return result


server, export, name = (word.encode() for word in sys.argv[1:])
nfs = lib.nfs_init_context()
check("mount", lib.nfs_mount(nfs, server, export))
held = ctypes.c_void_p()
check("open", lib.nfs_open(nfs, b"/" + name, os.O_RDWR, ctypes.byref(held)))
print("held", flush=True)
end = 0
for line in sys.stdin.buffer:
    while line:
        written = check("write", lib.nfs_pwrite(nfs, held, end, len(line), line))
        end, line = end + written, line[written:]
    check("fsync", lib.nfs_fsync(nfs, held))
    content = ctypes.create_string_buffer(4096)
    count = check("read", lib.nfs_pread(nfs, held, 0, len(content), content))
    print(content.raw[:count].decode().replace("\n", "+"), flush=True)
