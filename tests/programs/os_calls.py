"""os, pathlib and tempfile as programs use them."""

import errno
import os
import pathlib
import stat
import tempfile
import time

from common import expect, main


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def test_open_flags():
    fd = os.open("f", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    os.write(fd, b"hello")
    os.close(fd)
    expect(errno.EEXIST, os.open, "f", os.O_CREAT | os.O_EXCL)
    expect(errno.ENOTDIR, os.open, "f", os.O_DIRECTORY)
    expect(errno.EISDIR, os.open, ".", os.O_WRONLY)
    fd = os.open("f", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b" world")
    os.close(fd)
    fd = os.open("f", os.O_RDWR | os.O_TRUNC)
    assert os.fstat(fd).st_size == 0
    expect(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
    os.close(fd)
    os.symlink("f", "l")
    expect(errno.ELOOP, os.open, "l", os.O_RDONLY | os.O_NOFOLLOW)
    os.symlink("loop", "loop")
    expect(errno.ELOOP, os.open, "loop", os.O_RDONLY)
    expect(errno.ENOENT, os.open, "none", os.O_RDONLY)


def test_positioned_and_vectored():
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    assert os.pwrite(fd, b"tail", 100_000) == 4
    assert os.pwritev(fd, [b"ab", b"cd", b"e" * 5000], 10) == 5004
    assert os.pread(fd, 4, 10) == b"abcd"
    assert os.pread(fd, 10, 0) == bytes(10)
    parts = [bytearray(3), bytearray(10)]
    assert os.preadv(fd, parts, 100_000) == 4
    assert parts[0] + parts[1][:1] == b"tail"
    assert os.pread(fd, 10, 200_000) == b""
    os.ftruncate(fd, 12)
    assert os.pread(fd, 100, 0) == bytes(10) + b"ab"
    os.ftruncate(fd, 20)
    assert os.pread(fd, 100, 0) == bytes(10) + b"ab" + bytes(8)
    os.close(fd)


def test_names_of_any_bytes():
    names = [b"plain", b"with space", b"new\nline", b"\xff\xfe", "fünf €".encode(), b"-rf", b"*", b"x" * 255]
    for name in names:
        write(name, name)
    assert sorted(os.listdir(b".")) == sorted(names)
    for name in names:
        assert open(name, "rb").read() == name
    expect(errno.ENAMETOOLONG, os.stat, b"x" * 256)


def test_directories_by_descriptor():
    os.makedirs("a/b/c")
    fd = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
    os.mkdir("d", dir_fd=fd)
    with open(os.open("b/f", os.O_CREAT | os.O_WRONLY, dir_fd=fd), "w") as f:
        f.write("x")
    os.rename("b/f", "d/g", src_dir_fd=fd, dst_dir_fd=fd)
    assert os.stat("d/g", dir_fd=fd).st_size == 1
    os.symlink("g", "d/l", dir_fd=fd)
    assert os.readlink("d/l", dir_fd=fd) == "g"
    os.link("d/g", "h", src_dir_fd=fd, dst_dir_fd=fd)
    assert os.stat("h", dir_fd=fd).st_nlink == 2
    assert sorted(os.listdir(fd)) == ["b", "d", "h"]
    expect(errno.ENOTEMPTY, os.rmdir, "d", dir_fd=fd)
    # A working directory that somebody removes: what is left of it can be asked, and nothing can be made in it.
    os.mkdir("gone")
    here = os.getcwd()
    os.chdir("gone")
    os.rmdir(here + "/gone")
    expect(errno.ENOENT, open, "f", "w")
    os.chdir(here)
    os.close(fd)


def test_walk_and_scandir():
    want = []
    for a in range(8):
        for b in range(5):
            path = f"t/a{a}/b{b}"
            os.makedirs(path)
            for c in range(4):
                write(f"{path}/c{c}", b"x" * c)
                want.append(f"{path}/c{c}")
    os.symlink("a0", "t/link")
    got = [os.path.join(d, f) for d, _, files in os.walk("t") for f in files]
    assert sorted(got) == want
    with os.scandir("t/a3/b1") as entries:
        assert {(e.name, e.is_file(), e.stat().st_size, e.inode() > 0) for e in entries} == {(f"c{n}", True, n, True) for n in range(4)}
    followed = sum(len(files) for _, _, files in os.walk("t", followlinks=True))
    assert followed == len(want) + 20
    assert len(list(pathlib.Path("t").rglob("c2"))) == 40
    for d, dirs, files in os.walk("t", topdown=False):
        for f in files:
            os.unlink(os.path.join(d, f))
        for x in dirs:
            path = os.path.join(d, x)
            os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    assert os.listdir("t") == []


def test_listing_while_it_changes():
    for n in range(3000):
        write(f"keep{n}", b"")
    seen = []
    with os.scandir(".") as entries:
        for n, e in enumerate(entries):
            seen.append(e.name)
            if n % 3 == 0:
                write(f"new{n}", b"")
            if n % 5 == 0 and e.name.startswith("new"):
                os.unlink(e.name)
    kept = [s for s in seen if s.startswith("keep")]
    assert len(kept) == len(set(kept)) == 3000, f"{len(kept)} and {len(set(kept))} of 3000"


def test_pathlib():
    p = pathlib.Path("dir/sub/file.txt")
    p.parent.mkdir(parents=True)
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_text("one\ntwo\n")
    assert p.read_text().splitlines() == ["one", "two"]
    q = p.rename(p.with_suffix(".md"))
    assert not p.exists() and q.exists() and q.is_file()
    link = pathlib.Path("link")
    link.symlink_to(q)
    assert link.resolve() == q.resolve() and link.is_symlink() and link.samefile(q)
    hard = pathlib.Path("hard")
    hard.hardlink_to(q)
    assert hard.stat().st_ino == q.stat().st_ino and q.stat().st_nlink == 2
    q.chmod(0o400)
    assert stat.S_IMODE(hard.stat().st_mode) == 0o400
    hard.touch()
    other = pathlib.Path("other")
    other.write_bytes(b"new")
    other.replace(hard)
    assert hard.read_bytes() == b"new" and q.stat().st_nlink == 1
    link.unlink()
    link.unlink(missing_ok=True)
    assert [x.name for x in sorted(pathlib.Path(".").iterdir())] == ["dir", "hard"]


def test_tempfile():
    with tempfile.TemporaryDirectory(dir=".") as d:
        with tempfile.NamedTemporaryFile(dir=d) as f:
            f.write(b"x" * 100_000)
            f.flush()
            assert os.path.getsize(f.name) == 100_000
            assert stat.S_IMODE(os.stat(f.name).st_mode) == 0o600
        assert os.listdir(d) == []
        # O_TMPFILE where the file system has it: a file without a name.
        with tempfile.TemporaryFile(dir=d) as f:
            f.write(b"unnamed" * 1000)
            f.seek(0)
            assert f.read() == b"unnamed" * 1000
            assert os.listdir(d) == [] and os.fstat(f.fileno()).st_nlink == 0
        with tempfile.SpooledTemporaryFile(max_size=10, dir=d) as f:
            f.write(b"more than ten bytes")
            f.seek(0)
            assert f.read() == b"more than ten bytes"
        names = [tempfile.mkstemp(dir=d) for _ in range(200)]
        assert len({n for _, n in names}) == 200
        for fd, _ in names:
            os.close(fd)
    assert os.listdir(".") == []


def test_unlinked_but_open():
    f = open("f", "w+b")
    f.write(b"a" * 200_000)
    f.flush()
    os.unlink("f")
    write("f", b"another")
    f.seek(100_000)
    assert f.read() == b"a" * 100_000
    f.write(b"b")
    f.flush()
    s = os.fstat(f.fileno())
    assert s.st_nlink == 0 and s.st_size == 200_001
    # Through its descriptor it can be opened anew.
    with open(f"/proc/self/fd/{f.fileno()}", "rb") as again:
        assert again.read()[-1:] == b"b"
    f.close()
    assert open("f", "rb").read() == b"another"


def test_times():
    write("f", b"x")
    os.utime("f", ns=(1_000_000_000_123_456_789, 2_000_000_000_987_654_321))
    s = os.stat("f")
    assert (s.st_atime_ns, s.st_mtime_ns) == (1_000_000_000_123_456_789, 2_000_000_000_987_654_321)
    os.symlink("f", "l")
    os.utime("l", ns=(5, 6), follow_symlinks=False)
    assert os.lstat("l").st_mtime_ns == 6 and os.stat("f").st_mtime_ns == 2_000_000_000_987_654_321
    before = time.time() - 5
    with open("f", "ab") as f:
        f.write(b"y")
    assert before <= os.stat("f").st_mtime < before + 1000
    os.utime("f", (-100, -200))
    assert os.stat("f").st_mtime == -200
    assert os.stat("f").st_ctime >= before


def test_links_and_modes():
    write("f", b"x")
    for n in range(100):
        os.link("f", f"l{n}")
    assert os.stat("f").st_nlink == 101
    expect(errno.EPERM, os.link, ".", "d")
    os.chmod("l50", 0o4711)
    assert stat.S_IMODE(os.stat("f").st_mode) == 0o4711
    os.chown("f", 1234, 2345)
    s = os.stat("l99")
    assert (s.st_uid, s.st_gid) == (1234, 2345)
    assert stat.S_IMODE(s.st_mode) in (0o4711, 0o711), "root may keep the set-id bits of a file"
    old = os.umask(0o027)
    os.mkdir("d")
    write("g", b"")
    os.umask(old)
    assert stat.S_IMODE(os.stat("d").st_mode) == 0o750 and stat.S_IMODE(os.stat("g").st_mode) == 0o640
    expect(errno.ENOTDIR, os.rename, "d", "f")
    expect(errno.EISDIR, os.rename, "f", "d")
    expect(errno.EINVAL, os.rename, "d", "d/below")
    os.rename("f", "l0")
    assert os.path.exists("f"), "two names of one file: rename does nothing"


def test_special_files():
    os.mkfifo("fifo", 0o600)
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open("fifo", os.O_WRONLY)
    os.write(writer, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    os.close(writer)
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    s = os.stat("null")
    assert stat.S_ISCHR(s.st_mode) and s.st_rdev == os.makedev(1, 3)
    import socket

    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("sock")
        server.listen()
        client.connect("sock")
        client.sendall(b"hi")
        assert server.accept()[0].recv(10) == b"hi"
    assert stat.S_ISSOCK(os.stat("sock").st_mode)


def test_statvfs_and_sync():
    s = os.statvfs(".")
    assert s.f_files > s.f_ffree > 0
    assert s.f_namemax == 255 and s.f_blocks >= s.f_bfree >= s.f_bavail > 0
    with open("f", "wb") as f:
        f.write(b"x" * 1_000_000)
        f.flush()
        os.fsync(f.fileno())
        os.fdatasync(f.fileno())
    d = os.open(".", os.O_RDONLY)
    os.fsync(d)
    os.close(d)
    os.sync()
    assert os.stat("f").st_blocks * 512 >= 1_000_000


def test_xattrs():
    write("f", b"")
    os.setxattr("f", "user.a", b"1")
    os.setxattr("f", "user.b", b"x" * 4000)
    expect(errno.EEXIST, os.setxattr, "f", "user.a", b"2", os.XATTR_CREATE)
    expect(errno.ENODATA, os.setxattr, "f", "user.c", b"2", os.XATTR_REPLACE)
    os.setxattr("f", "user.a", b"", os.XATTR_REPLACE)
    assert sorted(n for n in os.listxattr("f") if n.startswith("user.")) == ["user.a", "user.b"]
    assert os.getxattr("f", "user.a") == b"" and len(os.getxattr("f", "user.b")) == 4000
    os.removexattr("f", "user.a")
    expect(errno.ENODATA, os.getxattr, "f", "user.a")
    expect(errno.EOPNOTSUPP, os.setxattr, "f", "noclass.a", b"")


main(globals())
