"""Pages of one file seen from two mounts: no read and no mapping is older than the last completed write.

usage: pages.py DIR_AT_A DIR_AT_B ROUNDS [SEED]

Each round changes one page through one of several ways, at A or at B, and then looks at it through all ways at both.
"""

import mmap
import os
import random
import sys

PAGE = 4096
PAGES = 64


class View:
    """One mount: descriptors and mappings that stay open over all rounds."""

    def __init__(self, path):
        self.read_only = os.open(path, os.O_RDONLY)
        self.both = os.open(path, os.O_RDWR)
        self.direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.shown = mmap.mmap(self.read_only, PAGES * PAGE, prot=mmap.PROT_READ)
        self.stored = mmap.mmap(self.both, PAGES * PAGE)
        self.aligned = mmap.mmap(-1, PAGE)

    def looks(self, page):
        at = page * PAGE
        yield "pread", os.pread(self.read_only, PAGE, at)
        yield "pread of a writer", os.pread(self.both, PAGE, at)
        yield "mapping", self.shown[at : at + PAGE]
        yield "writable mapping", self.stored[at : at + PAGE]
        os.preadv(self.direct, [self.aligned], at)
        yield "direct read", self.aligned[:]

    def change(self, how, page, byte):
        at = page * PAGE
        if how == "pwrite":
            os.pwrite(self.both, byte * PAGE, at)
        elif how == "direct":
            self.aligned[:] = byte * PAGE
            os.pwritev(self.direct, [self.aligned], at)
        else:
            self.stored[at : at + PAGE] = byte * PAGE


def main():
    a, b, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    dice = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    path = os.path.join(a, "pages")
    with open(path, "wb") as file:
        file.write(b"\0" * PAGES * PAGE)
    views = {"A": View(path), "B": View(os.path.join(b, "pages"))}
    content = [b"\0"] * PAGES
    bad = 0
    for number in range(rounds):
        where, how = dice.choice("AB"), dice.choice(["pwrite", "direct", "store"])
        page = dice.randrange(PAGES)
        content[page] = bytes([1 + number % 255])
        views[where].change(how, page, content[page])
        for name in dice.sample("AB", 2):
            for page in [page, dice.randrange(PAGES)]:
                for look, got in views[name].looks(page):
                    if got != content[page] * PAGE:
                        bad += 1
                        if bad < 10:
                            print(f"round {number}: {how} at {where}, then {look} at {name}: {got[:4]}")
    os.unlink(path)
    print(f"FAILED {bad} looks" if bad else f"ok pages, {rounds} rounds")
    sys.exit(1 if bad else 0)


main()
