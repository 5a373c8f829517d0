"""Linearizability of short concurrent histories, by processes of two mounts with their caches on.

usage: histories.py DIR_AT_A DIR_AT_B ROUNDS|SECONDSs [SEED [OBJECT,...]]     (`200` is a number of rounds, `3s` is a time)
       histories.py --self-test

Two processes at each mount run random operations on a few shared objects. They record when each call began and ended, and its result.
Afterwards a checker (Wing and Gong, with Lowe's memory of configurations) looks for an order that explains all results of an object: each
operation takes effect at one moment between its begin and its end (but see `Names`). Each round ends with looks by one process per mount
while nothing else runs. They are a part of the history, and give the state in which the next round begins.

Objects: registers (8 bytes of a file), names of a directory, a log with O_APPEND, and the size and content of a file.
"""

import bisect
import collections
import errno
import multiprocessing
import os
import random
import re
import struct
import sys
import time
import zlib

PROCESSES = 4
NAMES = ["n0", "n1", "n2"]
LARGE, SMALL = 4 << 20, 4 << 10
# The limit of inline files. Logs and sizes cross it in some rounds.
INLINE_MAX = 64 << 10
# Records and pieces end at multiples of their length, so none crosses a page: local file systems lengthen a file page by page.
RECORD, PIECE = 16, 32
LOG_MAX = 1024
# Configurations of one check, so seconds. Rounds take some hundreds, and few reach the limit.
LOOKS_MAX = 100_000
# An evicted mount or a lost notice delays a call by less.
ANSWER_MAX_S = 90
REFUSED = {errno.EEXIST: "EEXIST", errno.ENOENT: "ENOENT"}

STEPS = {"link": 2, "rename": 2}

Op = collections.namedtuple("Op", "process verb args result begin end")


class Register:
    """8 bytes; the state is their value."""

    verbs = {"pwrite": 2, "pread": 3, "open-pwrite": 1, "open-pread": 2}

    def __init__(self, _start, ops):
        self.read = {op.result for op in ops if not self.is_write(op)}

    @staticmethod
    def is_write(op):
        return op.verb in ("pwrite", "open-pwrite")

    def step(self, state, op, _half, _key):
        if self.is_write(op):
            return op.args[0] if op.result == "ok" else None
        return state if op.result == state else None

    def is_passive(self, op):
        return not self.is_write(op)

    def can_be_left_out(self, op):
        return self.is_passive(op) or op.args[0] not in self.read


class Names:
    """The state is the inode number of each name, and the sources that calls under way have found.

    Two calls have two steps. Linux: `link` finds its source, and makes the new name of that inode at a later moment. SEMANTICS, Exceptions:
    `rename` may find the same inode under its old name, and under its new one at a later moment; it then does nothing. `link` may miss a
    source that loses another name at that moment, by a call of the same mount: the kernel subtracts from a count that is new already.
    """

    verbs = {"create": 3, "unlink": 2, "stat": 4, "rename": 2, "link": 2}

    def __init__(self, _start, ops):
        self.removers = [op for op in ops if op.verb in ("unlink", "rename") and op.result == "ok"]

    def has_remover_beside(self, op):
        return any(
            other.process != op.process and (other.process - op.process) % 2 == 0 and other.begin < op.end and op.begin < other.end
            for other in self.removers
        )

    def step(self, state, op, half, key):
        (inodes, found), result = state, op.result
        at = [NAMES.index(name) for name in op.args]
        here = inodes[at[0]]

        def put(*changes):
            new = list(inodes)
            for place, inode in changes:
                new[place] = inode
            return tuple(new), found

        if op.verb == "create":
            if result == "EEXIST":
                return state if here else None
            return put((at[0], result)) if not here and isinstance(result, int) else None
        if op.verb == "stat":
            return state if result == (here or "ENOENT") else None
        if op.verb == "look":
            return state if result == ((here, inodes.count(here)) if here else "ENOENT") else None
        if op.verb == "link":
            return self.link(state, op, half, key, at)
        if op.verb == "rename" and result == "ok":
            if half == 0:
                return [state, (inodes, tuple(sorted((*found, (key, here)))))] if here else state
            if key in dict(found):
                rest = tuple(pair for pair in found if pair[0] != key)
                return (inodes, rest) if dict(found)[key] == inodes[at[1]] else None
        elif half == 0 and op.verb == "rename":
            return state
        if not here or result != "ok":
            return state if not here and result == "ENOENT" else None
        if op.verb == "unlink":
            return put((at[0], 0))
        return state if here == inodes[at[1]] else put((at[0], 0), (at[1], here))

    def link(self, state, op, half, key, at):
        (inodes, found), result = state, op.result
        if half == 0:
            here = inodes[at[0]]
            return (inodes, tuple(sorted((*found, (key, here))))) if here or result == "ENOENT" else None
        source = dict(found)[key]
        found = tuple(pair for pair in found if pair[0] != key)
        if result == "ENOENT":
            is_missed = source not in inodes or not source or self.has_remover_beside(op)
            return (inodes, found) if is_missed else None
        if result == "EEXIST":
            return (inodes, found) if inodes[at[1]] else None
        if result != "ok" or source not in inodes or inodes[at[1]]:
            return None
        return tuple(source if place == at[1] else inode for place, inode in enumerate(inodes)), found

    def is_passive(self, op):
        return op.verb in ("stat", "look") or (op.verb != "link" and op.result in ("ENOENT", "EEXIST"))

    def can_be_left_out(self, op):
        return self.is_passive(op) or op.result in ("ENOENT", "EEXIST")


class Log:
    """The state is what was appended in this round. The result of a read is that, or a text if older bytes differ."""

    verbs = {"append": 3, "read": 2, "open-read": 2}

    def __init__(self, _start, ops):
        self.longest = max((op.result for op in ops if isinstance(op.result, bytes)), key=len, default=b"")

    def step(self, state, op, _half, _key):
        if op.verb != "append":
            return state if op.result == state else None
        new = state + op.args[0]
        # A log only grows: it is the begin of what any read finds later.
        fits = self.longest.startswith(new) or new.startswith(self.longest)
        return new if op.result == "ok" and fits else None

    def is_passive(self, op):
        return op.verb != "append"

    can_be_left_out = is_passive


class Size:
    """The state is the content, as pairs of a byte and its count."""

    verbs = {"ftruncate": 1, "truncate": 1, "append": 3, "fstat": 2, "stat": 2, "seek-end": 1}

    def __init__(self, _start, _ops):
        pass

    @staticmethod
    def runs(content):
        return tuple((run[0][0], len(run[0])) for run in re.finditer(rb"(.)\1*", content, re.DOTALL))

    @staticmethod
    def longer(state, byte, count):
        if count and state and state[-1][0] == byte:
            return (*state[:-1], (byte, state[-1][1] + count))
        return (*state, (byte, count)) if count else state

    def step(self, state, op, _half, _key):
        size = sum(count for _, count in state)
        if op.verb == "look":
            return state if op.result == (size, b"".join(bytes([byte]) * count for byte, count in state)) else None
        if op.verb in ("fstat", "stat", "seek-end"):
            return state if op.result == size else None
        if op.result != "ok":
            return None
        if op.verb == "append":
            return self.longer(state, op.args[0][0], len(op.args[0]))
        left = op.args[0]
        if left >= size:
            return self.longer(state, 0, left - size)
        new = ()
        for byte, count in state:
            new = self.longer(new, byte, min(count, left))
            left -= min(count, left)
        return new

    def is_passive(self, op):
        return op.verb in ("look", "fstat", "stat", "seek-end")

    can_be_left_out = is_passive


class Undecided(Exception):
    pass


def is_linearizable(kind, start, ops, until=None):
    """Is there an order? Operations that end after `until` may have taken effect or not; such that begin after it are left out."""
    ops = sorted((op for op in ops if until is None or op.begin <= until), key=lambda op: op.end)
    model = kind(start, ops)
    steps = []
    for key, op in enumerate(ops):
        for half in range(STEPS.get(op.verb, 1)):
            steps.append((op, half, key, 1 << len(steps), model.is_passive(op)))
    required = sum(bit for op, _, _, bit, _ in steps if until is None or op.end <= until)
    stack, seen = [(0, start)], {(0, start)}
    while stack:
        done, state = stack.pop()
        if done & required == required:
            return True
        bound = next(op.end for op, _, _, bit, _ in steps if bit & required & ~done)
        following = []
        for op, half, key, bit, is_passive in steps:
            if done & bit or op.begin > bound or (half and not done & bit >> 1):
                continue
            new = model.step(state, op, half, key)
            if new is None:
                continue
            if is_passive:
                # It changes nothing, so if it may be here it need not be anywhere else.
                following = [(done | bit, new)]
                break
            following += [(done | bit, each) for each in (new if isinstance(new, list) else [new])]
        for config in reversed(following):
            if config not in seen:
                seen.add(config)
                stack.append(config)
        if len(seen) > LOOKS_MAX:
            raise Undecided
    return False


def shortest(kind, start, ops):
    """The begin of a history until no order exists, without the operations that are not needed for that."""

    def fails(ops, until):
        try:
            return not is_linearizable(kind, start, ops, until)
        except Undecided:
            return False

    ends = sorted(op.end for op in ops)
    until = ends[bisect.bisect_left(ends, True, key=lambda end: fails(ops, end))]
    ops = [op for op in ops if op.begin <= until]
    for op in sorted(ops, key=lambda op: -op.begin):
        rest = [other for other in ops if other is not op]
        if kind(start, rest).can_be_left_out(op) and fails(rest, until):
            ops = rest
    return ops, until


def listing(name, kind, start, ops):
    ops, until = shortest(kind, start, ops)
    zero = min(op.begin for op in ops)
    first = f"{sum(count for _, count in start)} bytes" if kind is Size else shown(start)
    lines = [f"{name}, at first {first}; no order explains this (microseconds):"]
    for op in sorted(ops, key=lambda op: op.begin):
        end = f"{(op.end - zero) / 1000:10.1f}" if op.end <= until else "     later"
        mount = "AB"[op.process % 2]
        args = " ".join(shown(arg) for arg in op.args)
        lines.append(f"{(op.begin - zero) / 1000:10.1f} {end}  {mount}{op.process} {op.verb} {args} -> {shown(op.result)}")
    return "\n".join(lines)


def shown(value):
    if isinstance(value, bytes):
        if value.endswith(b"\n"):
            return value.decode(errors="replace").replace(".", "").replace("\n", " ").strip()
        return " ".join(f"{chr(byte) if byte else '0'}*{count}" for byte, count in Size.runs(value)) or "nothing"
    return str(value)


def overlapping(ops):
    """Pairs of operations of two processes that overlap in time, and those of two mounts."""
    pairs = [
        (one.process - two.process) % 2
        for n, one in enumerate(ops)
        for two in ops[:n]
        if one.process != two.process and one.begin < two.end and two.begin < one.end
    ]
    return len(pairs), sum(pairs)


class Client:
    """One process: descriptors that stay open, and each verb by the object's name."""

    def __init__(self, top):
        self.top = top
        self.fds = {name: os.open(self.path(name), os.O_RDWR) for name in ("large", "small")}
        self.fds |= {name: os.open(self.path(name), os.O_RDWR | os.O_APPEND) for name in ("log", "size")}

    def path(self, name):
        return os.path.join(self.top, name)

    def by_open(self, name, flags, work):
        fd = os.open(self.path(name), flags)
        try:
            return work(fd)
        finally:
            os.close(fd)

    def register(self, place, verb, value=0):
        name, at = place

        def work(fd):
            if "pwrite" in verb:
                return "ok" if os.pwrite(fd, struct.pack("<Q", value), at) == 8 else "short"
            return struct.unpack("<Q", os.pread(fd, 8, at))[0]

        flags = os.O_WRONLY if "pwrite" in verb else os.O_RDONLY
        return self.by_open(name, flags, work) if verb.startswith("open") else work(self.fds[name])

    def names(self, _place, verb, *names):
        paths = [self.path(os.path.join("names", name)) for name in names]
        if verb == "create":
            # The caller takes the time before it asks the descriptor.
            return os.open(paths[0], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        if verb in ("stat", "look"):
            st = os.stat(paths[0])
            return st.st_ino if verb == "stat" else (st.st_ino, st.st_nlink)
        {"unlink": os.unlink, "rename": os.rename, "link": os.link}[verb](*paths)
        return "ok"

    def log(self, place, verb, record=b""):
        if verb == "append":
            return "ok" if os.write(self.fds["log"], record) == len(record) else "short"
        if verb == "reset":
            os.ftruncate(self.fds["log"], 0)
            return "ok" if os.write(self.fds["log"], record) == len(record) else "short"
        length, crc = place

        def work(fd):
            content = os.pread(fd, length + LOG_MAX, 0)
            if len(content) < length:
                return f"cut to {len(content)} of {length} bytes that were there before the round"
            return content[length:] if zlib.crc32(content[:length]) == crc else "other bytes than before the round"

        return self.by_open("log", os.O_RDONLY, work) if verb == "open-read" else work(self.fds["log"])

    def size(self, _place, verb, *args):
        fd = self.fds["size"]
        if verb == "append":
            return "ok" if os.write(fd, args[0]) == len(args[0]) else "short"
        if verb == "look":
            size = os.stat(self.path("size")).st_size
            return size, os.pread(fd, size + 1, 0)
        if verb == "fstat":
            return os.fstat(fd).st_size
        if verb == "stat":
            return os.stat(self.path("size")).st_size
        if verb == "seek-end":
            return os.lseek(fd, 0, os.SEEK_END)
        if verb == "ftruncate":
            os.ftruncate(fd, args[0])
        else:
            os.truncate(self.path("size"), args[0])
        return "ok"


def serve(top, pipe):
    client = Client(top)
    while (task := pipe.recv()) is not None:
        start, plan = task
        recorded = []
        time.sleep(max(0, start - time.monotonic_ns()) / 1e9)
        for name, kind, place, verb, args in plan:
            work = getattr(client, kind)
            begin = time.monotonic_ns()
            try:
                result = work(place, verb, *args)
                end = time.monotonic_ns()
            except OSError as error:
                end = time.monotonic_ns()
                result = REFUSED.get(error.errno, errno.errorcode.get(error.errno, str(error.errno)))
            if verb == "create" and isinstance(result, int):
                fd = result
                result = os.fstat(fd).st_ino
                os.close(fd)
            recorded.append((name, verb, args, result, begin, end))
        pipe.send(recorded)


class Run:
    """The processes, and what is known of each object."""

    def __init__(self, tops, seed, kinds):
        self.seed, self.dice, self.round, self.kinds = seed, random.Random(seed), 0, kinds
        os.makedirs(os.path.join(tops[0], "names"))
        for name, size in [("large", LARGE), ("small", SMALL), ("log", 0), ("size", 0)]:
            with open(os.path.join(tops[0], name), "wb") as file:
                file.truncate(size)
        self.registers = collections.defaultdict(int)
        self.inodes = (0,) * len(NAMES)
        self.log_content, self.size_content = b"", b""
        self.value = 0
        self.succeeded = collections.Counter()
        self.checks = self.undecided = self.operations = self.pairs = self.pairs_of_mounts = 0
        fork = multiprocessing.get_context("fork")
        self.pipes, self.processes = [], []
        for n in range(PROCESSES):
            ours, theirs = fork.Pipe()
            self.pipes.append(ours)
            self.processes.append(fork.Process(target=serve, args=(tops[n % 2], theirs), daemon=True))
            self.processes[-1].start()

    def fail(self, why):
        sys.exit(f"FAILED seed {self.seed}, round {self.round}: {why}")

    def ask(self, plans):
        """Runs one plan per process at the same time."""
        start = time.monotonic_ns() + 500_000
        for pipe, plan in zip(self.pipes, plans):
            pipe.send((start, plan))
        done = []
        for n, pipe in enumerate(self.pipes[: len(plans)]):
            if not pipe.poll(ANSWER_MAX_S):
                self.fail(f"process {n} has not ended its operations for {ANSWER_MAX_S} s")
            try:
                done += [(name, Op(n, *rest)) for name, *rest in pipe.recv()]
            except (EOFError, ConnectionResetError):
                self.fail(f"process {n} has ended")
        return done

    def objects(self):
        """What this round uses: name, model, verbs' owner, place, state, looks at the end."""
        dice = self.dice
        page = dice.randrange(LARGE // 4096) * 4096
        places = [("large", page), ("large", page + dice.randrange(1, 512) * 8), ("small", dice.randrange(SMALL // 8) * 8)]
        if Log in self.kinds and dice.random() < 0.2 or len(self.log_content) > INLINE_MAX + LOG_MAX:
            self.reset()
        of_log = (len(self.log_content), zlib.crc32(self.log_content))
        found = [
            (f"register at {at} of {name}", Register, "register", (name, at), self.registers[name, at], [("pread", ())])
            for name, at in places
        ]
        found.append(("names", Names, "names", None, (self.inodes, ()), [("look", (name,)) for name in NAMES]))
        found.append(("log", Log, "log", of_log, b"", [("open-read", ())]))
        found.append(("size", Size, "size", None, Size.runs(self.size_content), [("look", ())]))
        found = [item for item in found if item[1] in self.kinds]
        return dice.sample(found, min(len(found), dice.choice([1, 2, 3, 6])))

    def reset(self):
        filler = self.dice.choice([0, 0, 4096 - 64, INLINE_MAX - 64, INLINE_MAX - 256])
        self.log_content = bytes(self.dice.choices(b"abcdefgh", k=filler))
        plan = [("log", "log", None, "reset", (self.log_content,))]
        at = self.dice.randrange(PROCESSES)
        for _, op in self.ask([plan if n == at else [] for n in range(PROCESSES)]):
            if op.result != "ok":
                self.fail(f"the log was not written anew: {op.result}")

    def args(self, kind, verb, near):
        dice = self.dice
        self.value += 1
        if kind is Register:
            return (self.value,) if "pwrite" in verb else ()
        if kind is Names:
            return tuple(dice.sample(NAMES, 2 if verb in ("rename", "link") else 1))
        if verb == "append":
            if kind is Log:
                return (f"{self.value}".ljust(RECORD - 1, ".").encode() + b"\n",)
            return (bytes([97 + self.value % 26]) * PIECE,)
        return (max(0, near + dice.randrange(-3, 4) * PIECE),) if verb in ("truncate", "ftruncate") else ()

    def one(self):
        dice, objects = self.dice, self.objects()
        near = dice.choice([0, 4096, INLINE_MAX])
        plans = []
        for _ in range(PROCESSES):
            plan = []
            for name, kind, verbs, place, _, _ in objects:
                for verb in dice.choices(list(kind.verbs), kind.verbs.values(), k=dice.randrange(6, 11)):
                    plan.append((name, verbs, place, verb, self.args(kind, verb, near)))
            dice.shuffle(plan)
            plans.append(plan)
        done = self.ask(plans)
        looks = [(name, verbs, place, verb, args) for name, _, verbs, place, _, last in objects for verb, args in last]
        last = self.ask([looks if n < 2 else [] for n in dice.sample(range(2), 2)] + [[]] * (PROCESSES - 2))
        histories = collections.defaultdict(list)
        for name, op in done + last:
            histories[name].append(op)
        for name, kind, _, place, start, _ in objects:
            ops = histories[name]
            self.check(name, kind, start, ops)
            self.learn(kind, place, ops)
        self.round += 1

    def check(self, name, kind, start, ops):
        try:
            if not is_linearizable(kind, start, ops):
                self.fail(listing(name, kind, start, ops))
        except Undecided:
            self.undecided += 1
        self.checks += 1
        self.operations += len(ops)
        pairs, of_mounts = overlapping(ops)
        self.pairs += pairs
        self.pairs_of_mounts += of_mounts
        for op in ops:
            if op.result not in REFUSED.values():
                self.succeeded[kind, op.verb] += 1

    def learn(self, kind, place, ops):
        """The state after the looks, which the check has found right."""
        last = max(ops, key=lambda op: op.end)
        if kind is Register:
            self.registers[place] = last.result
        elif kind is Names:
            looks = {op.args[0]: op.result for op in ops if op.verb == "look"}
            self.inodes = tuple(0 if looks[name] == "ENOENT" else looks[name][0] for name in NAMES)
        elif kind is Log:
            self.log_content += last.result
        else:
            self.size_content = last.result[1]

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()
        for kind in self.kinds:
            for verb in kind.verbs:
                assert self.succeeded[kind, verb] > 0, f"no {verb} of {kind.__name__} has succeeded"
        assert self.undecided <= self.checks // 100, f"{self.undecided} of {self.checks} checks ended at {LOOKS_MAX} configurations"
        assert self.pairs > self.operations // 50, f"only {self.pairs} pairs of {self.operations} operations overlap"
        assert self.pairs_of_mounts > self.pairs // 10, f"only {self.pairs_of_mounts} of {self.pairs} pairs are of two mounts"


def histories(tops, amount, seed="1", kinds="Register,Names,Log,Size"):
    run = Run(tops, int(seed), [globals()[kind.capitalize()] for kind in kinds.split(",")])
    until = time.monotonic() + float(amount[:-1]) if amount.endswith("s") else None
    while time.monotonic() < until if until else run.round < int(amount):
        run.one()
    run.end()
    print(
        f"ok histories, {run.round} rounds, {run.operations} operations, {run.pairs} overlapping pairs,"
        f" {run.pairs_of_mounts} of them between the mounts; {run.undecided} checks undecided; seed {seed}"
    )


# Lines of planted histories: process, begin, end, verb, arguments, result.
NOTHING = ((0, 0, 0), ())
ONE = ((5, 0, 0), ())
RIGHT = [
    ("a read beside a write finds either value", Register, 0,
     [(0, 0, 9, "pwrite", (1,), "ok"), (1, 1, 2, "pread", (), 0), (1, 3, 4, "pread", (), 1), (2, 3, 5, "pread", (), 0),
      (2, 6, 7, "pread", (), 1)]),
    ("two writes in the other order", Register, 0,
     [(0, 0, 5, "pwrite", (1,), "ok"), (1, 1, 6, "pwrite", (2,), "ok"), (2, 7, 8, "pread", (), 1)]),
    ("one of two creates", Names, NOTHING,
     [(0, 0, 5, "create", ("n0",), 7), (1, 1, 4, "create", ("n0",), "EEXIST"), (2, 6, 7, "look", ("n0",), (7, 1))]),
    ("a link of a source that is renamed meanwhile", Names, ONE,
     [(0, 0, 9, "link", ("n0", "n1"), "ok"), (1, 1, 2, "rename", ("n0", "n2"), "ok"), (1, 3, 4, "stat", ("n1",), "ENOENT"),
      (1, 10, 11, "look", ("n1",), (5, 2))]),
    ("a link of a source that loses another name by the same mount", Names, ((5, 5, 7), ()),
     [(0, 0, 8, "rename", ("n2", "n1"), "ok"), (2, 1, 9, "link", ("n0", "n2"), "ENOENT"), (0, 10, 11, "look", ("n0",), (5, 1))]),
    ("a rename to another name of the inode does nothing", Names, ((5, 5, 0), ()),
     [(0, 0, 1, "rename", ("n0", "n1"), "ok"), (1, 2, 3, "stat", ("n0",), 5)]),
    ("two renames of one name to another one", Names, ONE,
     [(0, 0, 5, "rename", ("n0", "n1"), "ok"), (1, 1, 7, "rename", ("n0", "n1"), "ok"), (2, 8, 9, "look", ("n1",), (5, 1))]),
    ("two appends in one order", Log, b"",
     [(0, 0, 5, "append", (b"x",), "ok"), (1, 0, 5, "append", (b"y",), "ok"), (2, 1, 2, "read", (), b"y"), (2, 6, 7, "read", (), b"yx")]),
    ("a truncate beside an append", Size, (),
     [(0, 0, 5, "truncate", (10,), "ok"), (1, 0, 5, "append", (b"xx",), "ok"), (2, 2, 3, "fstat", (), 2), (2, 6, 7, "stat", (), 10)]),
    ("zeros after an extension", Size, ((120, 9),),
     [(0, 0, 1, "truncate", (2,), "ok"), (1, 2, 3, "ftruncate", (4,), "ok"), (2, 4, 5, "look", (), (4, b"xx\0\0"))]),
]
WRONG = [
    ("a stale read", Register, 0, [(0, 0, 1, "pwrite", (1,), "ok"), (1, 2, 3, "pread", (), 0)]),
    ("the new value and then the old one", Register, 0,
     [(0, 0, 9, "pwrite", (1,), "ok"), (1, 1, 2, "pread", (), 1), (2, 3, 4, "pread", (), 0)]),
    ("a lost write", Register, 0,
     [(0, 0, 1, "pwrite", (1,), "ok"), (1, 2, 3, "pwrite", (2,), "ok"), (2, 4, 5, "pread", (), 2), (2, 6, 7, "pread", (), 1)]),
    ("bytes that nothing has written", Register, 0, [(0, 0, 5, "pwrite", (1,), "ok"), (1, 0, 5, "pread", (), 257)]),
    ("an error", Register, 0, [(0, 0, 5, "pread", (), "EIO")]),
    ("a create that succeeds twice", Names, NOTHING, [(0, 0, 5, "create", ("n0",), 7), (1, 0, 5, "create", ("n0",), 8)]),
    ("an unlink that succeeds twice", Names, ONE, [(0, 0, 5, "unlink", ("n0",), "ok"), (1, 0, 5, "unlink", ("n0",), "ok")]),
    ("a name after its unlink", Names, ONE, [(0, 0, 1, "unlink", ("n0",), "ok"), (1, 2, 3, "stat", ("n0",), 5)]),
    ("a created name that is not found", Names, NOTHING,
     [(0, 0, 1, "create", ("n1",), 7), (1, 2, 3, "stat", ("n1",), "ENOENT")]),
    ("a moment of a rename without either name", Names, ONE,
     [(0, 0, 9, "rename", ("n0", "n1"), "ok"), (1, 1, 2, "stat", ("n0",), "ENOENT"), (1, 3, 4, "stat", ("n1",), "ENOENT")]),
    ("a rename of a name that is long gone", Names, ONE,
     [(0, 0, 1, "rename", ("n0", "n1"), "ok"), (1, 2, 3, "rename", ("n0", "n1"), "ok")]),
    ("one name is renamed to two others", Names, ONE,
     [(0, 0, 5, "rename", ("n0", "n1"), "ok"), (1, 0, 5, "rename", ("n0", "n2"), "ok")]),
    ("another inode under a name", Names, ((5, 6, 0), ()),
     [(0, 0, 1, "rename", ("n0", "n1"), "ok"), (1, 2, 3, "stat", ("n1",), 6)]),
    ("a link to what is long gone", Names, ONE, [(0, 0, 1, "unlink", ("n0",), "ok"), (1, 2, 3, "link", ("n0", "n1"), "ok")]),
    ("a link that misses its source for no cause", Names, ((5, 5, 7), ()),
     [(0, 0, 4, "rename", ("n2", "n1"), "ok"), (2, 5, 9, "link", ("n0", "n2"), "ENOENT")]),
    ("a link that misses its source for a call of another mount", Names, ((5, 5, 7), ()),
     [(1, 0, 8, "rename", ("n2", "n1"), "ok"), (2, 1, 9, "link", ("n0", "n2"), "ENOENT")]),
    ("a wrong count of links", Names, ONE, [(0, 0, 1, "link", ("n0", "n1"), "ok"), (1, 2, 3, "look", ("n0",), (5, 1))]),
    ("a lost append", Log, b"",
     [(0, 0, 5, "append", (b"x",), "ok"), (1, 0, 5, "append", (b"y",), "ok"), (2, 6, 7, "read", (), b"y")]),
    ("appends in two orders", Log, b"",
     [(0, 0, 9, "append", (b"x",), "ok"), (1, 0, 9, "append", (b"y",), "ok"), (2, 1, 2, "read", (), b"y"), (3, 10, 11, "read", (), b"xy")]),
    ("an append that is there twice", Log, b"", [(0, 0, 1, "append", (b"x",), "ok"), (1, 2, 3, "read", (), b"xx")]),
    ("other bytes before the appended ones", Log, b"", [(1, 2, 3, "read", (), "other bytes")]),
    ("a size older than an append", Size, (), [(0, 0, 1, "append", (b"xx",), "ok"), (1, 2, 3, "fstat", (), 0)]),
    ("a lost truncate", Size, ((120, 9),), [(0, 0, 1, "truncate", (2,), "ok"), (1, 2, 3, "seek-end", (), 9)]),
    ("cut bytes that come back", Size, ((120, 9),),
     [(0, 0, 1, "truncate", (2,), "ok"), (1, 2, 3, "ftruncate", (4,), "ok"), (2, 4, 5, "look", (), (4, b"xxxx"))]),
]


def by_all_orders(kind, start, ops):
    """The same question, by all orders."""
    model = kind(start, ops)
    steps = [(op, half, key) for key, op in enumerate(ops) for half in range(STEPS.get(op.verb, 1))]

    def rest(left, state):
        for step in left:
            op, half, key = step
            if any(other.end < op.begin or (k == key and h < half) for other, h, k in left):
                continue
            new = model.step(state, op, half, key)
            for each in new if isinstance(new, list) else [] if new is None else [new]:
                if rest([other for other in left if other is not step], each):
                    return True
        return not left

    return rest(steps, start)


def some_history(dice, kind):
    ops, length = [], dice.choice([2, 8, 30])
    for process in range(3):
        now = 0
        for _ in range(dice.choice([1, 2])):
            begin = now + dice.randrange(1, 5)
            now = begin + dice.randrange(1, length)
            verb = dice.choice(list(kind.verbs))
            args, result = (), "ok"
            if kind is Register:
                args, result = ((dice.randrange(3),), "ok") if "pwrite" in verb else ((), dice.randrange(3))
            elif kind is Names:
                args = tuple(dice.sample(NAMES, 2 if verb in ("rename", "link") else 1))
                good = {"create": 7 + process, "stat": dice.choice([5, 7, 8])}.get(verb, "ok")
                result = dice.choice([good, good, "EEXIST" if verb in ("create", "link") else "ENOENT"])
            elif verb == "append":
                args = (dice.choice([b"x", b"y"]),)
            elif kind is Log:
                result = bytes(dice.choices(b"xy", k=dice.randrange(3)))
            elif "truncate" in verb:
                args = (dice.randrange(3),)
            else:
                result = dice.randrange(4)
            ops.append(Op(process, verb, args, result, begin, now))
    return ops


def self_test():
    for planted, expected in [(RIGHT, True), (WRONG, False)]:
        for name, kind, start, lines in planted:
            ops = [Op(process, verb, args, result, begin, end) for process, begin, end, verb, args, result in lines]
            assert is_linearizable(kind, start, ops) == expected, f"{name}: the checker does not say {expected}"
            if not expected:
                # Looks that explain nothing, and whatever comes later, are not listed.
                later = Op(3, *ops[0][1:4], 100, 101)
                kept, until = shortest(kind, start, [*ops, later])
                assert later not in kept and set(kept) <= set(ops) and listing(name, kind, start, ops), name
    dice, starts = random.Random(7), {Register: 0, Names: ONE, Log: b"", Size: ()}
    answers = collections.Counter()
    for n in range(2000):
        kind = list(starts)[n % 4]
        ops = some_history(dice, kind)
        answer = by_all_orders(kind, starts[kind], ops)
        assert is_linearizable(kind, starts[kind], ops) == answer, f"{ops}: all orders say {answer}"
        answers[kind, answer] += 1
        if not answer:
            kept, until = shortest(kind, starts[kind], ops)
            cut = [op for op in kept if op.end <= until]
            assert not is_linearizable(kind, starts[kind], kept, until) and cut, ops
    assert len(answers) == 8 and min(answers.values()) > 20, answers
    print(f"ok self-test, {len(WRONG)} faults found, {len(RIGHT)} correct histories passed, 2000 compared with all orders")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        histories(sys.argv[1:3], *sys.argv[3:])
