"""An idmapped mount of a directory: `idmap.py DIR POINT FIRST HOST COUNT` mounts DIR at POINT, where the ids from FIRST on that the files
have show as those from HOST on, COUNT of them. It ends when its input does, and takes the mount away."""

import ctypes
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER = 0x10000000
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
MOUNT_ATTR_IDMAP = 0x00100000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442


def called(result):
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def name_space(first, host, count):
    """A user name space with this map; a child that does nothing else keeps it until it is open."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        called(libc.unshare(CLONE_NEWUSER))
        os.write(ready[1], b".")
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    for kind in "ug":
        with open(f"/proc/{child}/{kind}id_map", "w") as f:
            f.write(f"{first} {host} {count}\n")
    name_space = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.close(go[0])
    os.close(go[1])
    os.waitpid(child, 0)
    return name_space


directory, point = sys.argv[1:3]
users = name_space(*map(int, sys.argv[3:6]))
tree = called(libc.syscall(SYS_OPEN_TREE, AT_FDCWD, directory.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC))
attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, users)
called(libc.syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes)))
called(libc.syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, point.encode(), MOVE_MOUNT_F_EMPTY_PATH))
os.close(tree)
print("mounted", flush=True)
sys.stdin.read()
called(libc.umount2(point.encode(), 0))
