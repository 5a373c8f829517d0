"""shutil, zipfile, tarfile, mmap, fcntl and sqlite3 on files of the directory; several processes where that is the point."""

import errno
import fcntl
import filecmp
import mmap
import os
import random
import shutil
import sqlite3
import struct
import tarfile
import zipfile

from common import expect, main


def tree(path, seed):
    rng = random.Random(seed)
    for n in range(60):
        d = f"{path}/d{n % 7}/e{n % 3}"
        os.makedirs(d, exist_ok=True)
        with open(f"{d}/f{n}", "wb") as f:
            f.write(rng.randbytes(rng.choice([0, 10, 5000, 70_000, 300_000])))
        os.chmod(f"{d}/f{n}", rng.choice([0o600, 0o644, 0o755]))
    os.symlink("d0/e0", f"{path}/link")


def same(a, b):
    c = filecmp.dircmp(a, b)
    todo = [c]
    while todo:
        c = todo.pop()
        assert not (c.left_only or c.right_only or c.funny_files), (c.left_only, c.right_only, c.funny_files)
        _, differ, errors = filecmp.cmpfiles(c.left, c.right, c.common_files, shallow=False)
        assert not (differ or errors), (differ, errors)
        todo.extend(c.subdirs.values())


def in_child(work):
    """Runs `work` in another process; its result must be true."""
    pid = os.fork()
    if pid == 0:
        good = False
        try:
            good = bool(work())
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(pid, 0)[1] == 0, "the other process says no"


def test_shutil():
    tree("a", 1)
    shutil.copytree("a", "b", symlinks=True)
    same("a", "b")
    shutil.copyfile("a/d1/e1/f1", "single")
    shutil.copy2("a/d1/e1/f1", "kept")
    assert os.stat("kept").st_mtime_ns == os.stat("a/d1/e1/f1").st_mtime_ns
    os.mkdir("target")
    shutil.move("b", "target")
    same("a", "target/b")
    usage = shutil.disk_usage(".")
    assert usage.total > usage.used > 0
    shutil.rmtree("target")
    assert not os.path.exists("target")


def test_archives():
    tree("a", 2)
    shutil.make_archive("z", "zip", "a")
    with zipfile.ZipFile("z.zip") as z:
        assert z.testzip() is None
    shutil.make_archive("t", "gztar", "a")
    shutil.unpack_archive("t.tar.gz", "from-tar")
    same("a", "from-tar")
    with zipfile.ZipFile("z.zip", "a") as z:
        z.writestr("more", b"y" * 100_000)
    shutil.unpack_archive("z.zip", "from-zip")
    assert open("from-zip/more", "rb").read() == b"y" * 100_000
    with tarfile.open("t.tar.gz") as t:
        assert any(m.issym() for m in t)


def test_mmap_shared():
    size = 3 * 1024 * 1024 + 17
    with open("f", "w+b") as f:
        f.truncate(size)
        with mmap.mmap(f.fileno(), size) as m:
            for at in range(0, size - 8, 65_521):
                m[at : at + 8] = struct.pack("<Q", at)
            m.flush()
            for at in range(0, size - 8, 65_521):
                assert os.pread(f.fileno(), 8, at) == struct.pack("<Q", at), "read sees what the mapping wrote"
            os.pwrite(f.fileno(), b"by write", 1_000_000)
            assert m[1_000_000:1_000_008] == b"by write"
            m[2_000_000:2_000_004] = b"late"
    with open("f", "rb") as f:
        f.seek(2_000_000)
        assert f.read(4) == b"late" and os.fstat(f.fileno()).st_size == size


def test_mmap_private_and_between_processes():
    with open("f", "wb") as f:
        f.write(b"a" * 100_000)
    with open("f", "r+b") as f:
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
            m[0:5] = b"zzzzz"
            assert os.pread(f.fileno(), 5, 0) == b"aaaaa", "a private mapping stays private"
        with mmap.mmap(f.fileno(), 0) as m:

            def child():
                with open("f", "r+b") as g, mmap.mmap(g.fileno(), 0) as n:
                    n[50_000:50_005] = b"child"
                return True

            in_child(child)
            assert m[50_000:50_005] == b"child"
            # A mapping outlives its name and its descriptor.
            os.unlink("f")
            f.close()
            m[10:14] = b"more"
            assert m[10:14] == b"more"


def test_locks():
    def refused(kind, start, length):
        with open("f", "r+b") as g:
            try:
                fcntl.lockf(g, kind | fcntl.LOCK_NB, length, start)
                return False
            except OSError as e:
                return e.errno in (errno.EAGAIN, errno.EACCES)

    with open("f", "w+b") as f:
        f.write(b"x" * 1000)
        f.flush()
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 100)
        in_child(lambda: refused(fcntl.LOCK_EX, 150, 10))
        in_child(lambda: refused(fcntl.LOCK_SH, 199, 1))
        in_child(lambda: not refused(fcntl.LOCK_EX, 200, 100))
        fcntl.lockf(f, fcntl.LOCK_SH, 100, 100)
        in_child(lambda: not refused(fcntl.LOCK_SH, 100, 100))
        fcntl.lockf(f, fcntl.LOCK_UN, 50, 100)
        in_child(lambda: not refused(fcntl.LOCK_EX, 100, 50))
        in_child(lambda: refused(fcntl.LOCK_EX, 150, 50))
    in_child(lambda: not refused(fcntl.LOCK_EX, 0, 0))
    with open("f", "r+b") as f, open("f", "r+b") as g:
        fcntl.flock(f, fcntl.LOCK_EX)
        expect(errno.EAGAIN, fcntl.flock, g, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(f, fcntl.LOCK_SH)
        fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_counter_under_a_lock():
    with open("count", "w") as f:
        f.write("0")
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            for _ in range(100):
                with open("count", "r+") as f:
                    fcntl.lockf(f, fcntl.LOCK_EX)
                    n = int(f.read())
                    f.seek(0)
                    f.write(str(n + 1))
                    f.flush()
                    fcntl.lockf(f, fcntl.LOCK_UN)
            os._exit(0)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    assert open("count").read() == "400"


def test_appenders():
    children = []
    for w in range(4):
        pid = os.fork()
        if pid == 0:
            with open("log", "ab", buffering=0) as f:
                for n in range(300):
                    f.write(f"{w} {n:05} {'x' * (n % 90)}\n".encode())
            os._exit(0)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
    lines = open("log").read().splitlines()
    assert len(lines) == 1200
    for w in range(4):
        own = [line for line in lines if line.startswith(f"{w} ")]
        assert own == [f"{w} {n:05} {'x' * (n % 90)}" for n in range(300)], "each line whole and in its writer's order"


def test_sparse():
    with open("f", "wb") as f:
        f.seek(1 << 32)
        f.write(b"end")
    s = os.stat("f")
    assert s.st_size == (1 << 32) + 3 and s.st_blocks * 512 < 16 << 20
    fd = os.open("f", os.O_RDONLY)
    assert os.pread(fd, 3, 1 << 32) == b"end" and os.pread(fd, 100, 1 << 31) == bytes(100)
    data = os.lseek(fd, 0, os.SEEK_DATA)
    assert 0 <= data <= 1 << 32 and os.lseek(fd, data, os.SEEK_HOLE) > data
    expect(errno.ENXIO, os.lseek, fd, (1 << 32) + 3, os.SEEK_DATA)
    os.close(fd)


def test_copy_file_range_and_sendfile():
    data = random.Random(3).randbytes(2_000_003)
    with open("a", "wb") as f:
        f.write(data)
    a, b, c = os.open("a", os.O_RDONLY), os.open("b", os.O_CREAT | os.O_RDWR), os.open("c", os.O_CREAT | os.O_RDWR)
    done = 0
    while done < len(data):
        n = os.copy_file_range(a, b, len(data) - done, done, done)
        assert n > 0
        done += n
    done = 0
    while done < len(data):
        done += os.sendfile(c, a, done, len(data) - done)
    assert os.pread(b, len(data) + 1, 0) == data == os.pread(c, len(data) + 1, 0)


def test_sqlite3():
    db = sqlite3.connect("db", timeout=60)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB)")
    with db:
        db.executemany("INSERT INTO t VALUES (?, ?)", ((n, bytes([n % 256]) * n) for n in range(1000)))

    def child():
        other = sqlite3.connect("db", timeout=60)
        with other:
            other.execute("DELETE FROM t WHERE n % 2 = 1")
        return other.execute("SELECT count(*) FROM t").fetchone() == (500,)

    in_child(child)
    assert db.execute("SELECT count(*), sum(length(v)) FROM t").fetchone() == (500, sum(range(0, 1000, 2)))
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.backup(sqlite3.connect("backup"))
    assert sqlite3.connect("backup").execute("SELECT count(*) FROM t").fetchone() == (500,)


main(globals())
