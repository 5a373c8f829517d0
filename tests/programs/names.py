"""Names seen from two mounts while both kernels have them cached: no lookup is older than the last completed change.

usage: names.py DIR_AT_A DIR_AT_B ROUNDS [SEED]

Threads look names up at both mounts all the time, so that each kernel has them. Each round changes a name at A or at B, and then looks at all
names at both.
"""

import os
import random
import sys
import threading

DIRS = ["", "s", "s/t"]
NAMES = ["n%d" % n for n in range(6)]


def keep_warm(top, seed, is_over):
    rnd = random.Random(seed)
    while not is_over.is_set():
        try:
            os.stat(os.path.join(top, rnd.choice(DIRS), rnd.choice(NAMES)))
        except FileNotFoundError:
            pass


def seen(top):
    found = {}
    for folder in DIRS:
        for name in NAMES:
            try:
                st = os.lstat(os.path.join(top, folder, name))
                found[folder, name] = (st.st_ino, st.st_mode, st.st_nlink, st.st_size)
            except FileNotFoundError:
                pass
    return found


def change(top, rnd):
    def path():
        return os.path.join(top, rnd.choice(DIRS), rnd.choice(NAMES))

    verb = rnd.choice(["create", "unlink", "rename", "chmod", "link", "write"])
    try:
        if verb == "create":
            os.close(os.open(path(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        elif verb == "unlink":
            os.unlink(path())
        elif verb == "rename":
            os.rename(path(), path())
        elif verb == "chmod":
            os.chmod(path(), rnd.choice([0o600, 0o644, 0o755]))
        elif verb == "link":
            os.link(path(), path())
        else:
            fd = os.open(path(), os.O_WRONLY)
            os.write(fd, b"x" * rnd.randrange(100))
            os.close(fd)
        return verb
    except (FileNotFoundError, FileExistsError):
        return verb + ", refused"


def main():
    tops, rounds = sys.argv[1:3], int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    rnd = random.Random(seed)
    os.makedirs(os.path.join(tops[0], DIRS[-1]))
    is_over = threading.Event()
    threads = [threading.Thread(target=keep_warm, args=(tops[n % 2], seed + n, is_over)) for n in range(4)]
    for thread in threads:
        thread.start()
    done = {}
    try:
        for n in range(rounds):
            at = rnd.randrange(2)
            verb = change(tops[at], rnd)
            done[verb] = done.get(verb, 0) + 1
            other, own = seen(tops[1 - at]), seen(tops[at])
            if own != other:
                sys.exit("seed %d, round %d: after %s at %s the mounts differ in %s"
                         % (seed, n, verb, "AB"[at], set(own.items()) ^ set(other.items())))
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for verb in ["create", "unlink", "rename", "chmod", "link", "write"]:
        assert done.get(verb, 0) > 0, "no %s was carried out" % verb
    print("ok names, %d rounds" % rounds)


main()
