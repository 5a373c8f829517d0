"""holds.py FILE [rw]: has FILE open, and its first page mapped and cached. Prints `ready`; after a line on stdin, prints what a read by the
descriptor and an access by the mapping give now."""

import errno
import mmap
import os
import sys

stores = len(sys.argv) > 2
fd = os.open(sys.argv[1], os.O_RDWR if stores else os.O_RDONLY)
mapped = mmap.mmap(fd, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE if stores else mmap.PROT_READ)
if os.pread(fd, 1, 0) != mapped[:1]:
    sys.exit("the mapping shows another byte")
print("ready", flush=True)
if not sys.stdin.readline():
    sys.exit()
try:
    print("read", os.pread(fd, 1, 0).decode(), flush=True)
except OSError as e:
    print("read", errno.errorcode[e.errno], flush=True)
child = os.fork()
if child == 0:
    os._exit(mapped[0])
status = os.waitpid(child, 0)[1]
print("mapping", f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
