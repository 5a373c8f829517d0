"""One file reached in several ways at once: `coherence.py DIR CASE...` prints `ok CASE` for each that holds."""

import ctypes
import mmap
import os
import signal
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
PAGE = 4096


def child(work):
    """Runs `work` in a process of its own, until it returns or is killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def must(condition, what):
    if not condition:
        raise SystemExit(f"FAILED {what}")


def growing_size(path):
    """Every byte below st_size can be read, and mapped, while another process makes the file longer."""

    def grow():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        # More than a slow reader needs for its looks.
        for _ in range(40_000):
            os.write(fd, b"x" * PAGE)

    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    pid, fd, looks = child(grow), os.open(path, os.O_RDONLY), 0
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if looks == 1000:
            end(pid)
            break
        size = os.fstat(fd).st_size
        if size:
            looks += 1
            must(os.pread(fd, 1, size - 1) == b"x", f"byte {size - 1} of {size} cannot be read")
            page = (size - 1) // PAGE * PAGE
            with mmap.mmap(fd, size - page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page) as m:
                must(m[-1] == ord("x"), "the last byte of a mapping")
    must(looks > 50, f"only {looks} looks")


def mapped_times(path):
    """A time that is set after a store through a mapping stays, whatever is written back later; a later store changes it."""
    old = 10**18 + 123456789
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 16 * PAGE)
    m = mmap.mmap(fd, 16 * PAGE)
    m[0:5] = b"first"
    os.utime(path, ns=(old, old))
    m.flush()
    os.fsync(fd)
    must(os.stat(path).st_mtime_ns == old, "mtime after the pages were written")
    must(os.pread(fd, 5, 0) == b"first", "the stored bytes")
    m[0:6] = b"second"
    m.flush()
    must(os.stat(path).st_mtime_ns != old, "mtime after a later store")
    os.utime(fd, ns=(old, old))
    m.close()
    os.close(fd)
    time.sleep(1.5)  # A commit interval: what is told later must not change it either.
    must(os.stat(path).st_mtime_ns == old, "mtime after the last close")


def submitter(fd, data):
    """One asynchronous write of `data` at offset 0, by io_submit(2); returns when it is complete."""
    size = len(data)
    buffer = mmap.mmap(-1, size)
    buffer[:] = data
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    context = ctypes.c_ulong(0)
    must(libc.syscall(206, 8, ctypes.byref(context)) == 0, "io_setup")

    def write(byte):
        buffer[:] = bytes([byte]) * size
        # data, key and flags, opcode and priority, descriptor, buffer, bytes, offset; the rest is zero.
        iocb = ctypes.create_string_buffer(struct.pack("QQHhIQQqQII", 0, 0, 1, 0, fd, address, size, 0, 0, 0, 0))
        pointer = ctypes.c_void_p(ctypes.addressof(iocb))
        must(libc.syscall(209, context, ctypes.c_long(1), ctypes.byref(pointer)) == 1, "io_submit")
        event = ctypes.create_string_buffer(32)
        must(libc.syscall(208, context, ctypes.c_long(1), ctypes.c_long(1), event, None) == 1, "io_getevents")
        must(struct.unpack_from("QQq", event.raw)[2] == size, "bytes of an asynchronous write")

    return write


def async_direct(path):
    """A buffered read after an asynchronous direct write gives the new bytes, while others read the file through pages."""
    size = 16 * PAGE
    with open(path, "wb") as f:
        f.write(bytes(8 * size))

    def read():
        fd = os.open(path, os.O_RDONLY)
        while True:
            os.pread(fd, size, 0)

    readers = [child(read) for _ in range(2)]
    fd, direct = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR | os.O_DIRECT)
    try:
        write = submitter(direct, bytes(size))
        for n in range(1500):
            byte = n % 255 + 1
            write(byte)
            got = os.pread(fd, size, 0)
            must(got == bytes([byte]) * size, f"write {n}: stale bytes after it was complete")
    finally:
        [end(pid) for pid in readers]


def mapped_beside_pwrite(path):
    """A store through a mapping and a pwrite to other bytes of the same page both stay."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 32 * PAGE)
    m = mmap.mmap(fd, 32 * PAGE)

    def store():
        n = 0
        while True:
            n += 1
            m[3072:3080] = struct.pack("Q", n)

    pid = child(store)
    try:
        while m[3072:3080] == bytes(8):
            pass
        for n in range(600):
            os.pwrite(fd, struct.pack("Q", n), 1024)
            got = struct.unpack("Q", os.pread(fd, 8, 1024))[0]
            must(got == n, f"pwrite {n} is lost: {got}")
    finally:
        end(pid)


def first_write(path):
    """A read that meets the first write of an object gives zeros or the new bytes, and no error."""
    half = 1 << 19
    for n in range(60):
        name = f"{path}{n}"
        fd = os.open(name, os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 32 << 20)

        def read():
            other = os.open(name, os.O_RDONLY)
            while True:
                try:
                    os.pread(other, half, 0)
                except OSError:
                    os._exit(1)

        readers = [child(read) for _ in range(2)]
        time.sleep(0.0005 + n % 7 * 0.0003)
        os.pwrite(fd, b"7" * half, 0)
        got = os.pread(fd, half, 0)
        failed = [os.waitpid(pid, os.WNOHANG)[0] for pid in readers]
        [end(pid) for pid, was in zip(readers, failed) if not was]
        must(not any(failed), f"file {n}: a read failed")
        must(got == b"7" * half, f"file {n}: the bytes")
        os.close(fd)


for case in sys.argv[2:]:
    globals()[case](os.path.join(sys.argv[1], case))
    print("ok", case)
