#!/usr/bin/env python3
"""power.py BINARY SIDE DIR CUTS: what an engine's files are after power loss, from a trace of its system calls.

A write that was not followed by a flush of its file is kept, lost or torn at 4 KiB, each by chance; names, sizes and removals are
as of the last call. Each cut is opened and judged."""
import os, random, re, shutil, subprocess, sys

binary, side, base, cuts = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
random.seed(int(os.environ.get("SEED", "1")))
live, dead, log = base + "/live", base + "/dead", base + "/trace"
shutil.rmtree(base, ignore_errors=True)
os.makedirs(live)
calls = "openat,creat,pwrite64,write,pwritev,pwritev2,writev,fsync,fdatasync,msync,ftruncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,lseek,mkdir,sync_file_range,io_uring_setup"
subprocess.run(["strace", "-f", "-y", "-xx", "-s", "40000000", "-e", "trace=" + calls, "-o", log, binary, side, live, "write", "240"],
               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

unhex = lambda s: bytes(int(h, 16) for h in s.split("\\x")[1:])
text = lambda s: unhex(s).decode() if s.startswith("\\x") else s
# Calls that another thread's line tears apart are joined.
lines, torn = [], {}
for line in open(log):
    pid, call = line.rstrip("\n").split(None, 1)
    if call.endswith("<unfinished ...>"):
        torn[pid] = call[: -len("<unfinished ...>")]
        continue
    m = re.match(r"<\.\.\. \w+ resumed>(.*)", call)
    if m:
        call = torn.pop(pid) + m.group(1)
    lines.append(call)

events, at, durable = [], {}, 0
for call in lines:
    m = re.match(r"(\w+)\((.*)\)\s+= (-?\d+)(.*)$", call)
    if not m or int(m.group(3)) < 0:
        continue
    name, args, result = m.group(1), m.group(2), int(m.group(3))
    fd = re.match(r"(?:\d+|AT_FDCWD)<([^>]*)>", args)
    path = text(fd.group(1)) if fd else None
    strings = re.findall(r'"([^"]*)"', args)
    if name == "write" and strings and not (path or "").startswith(live):
        said = unhex(strings[0]).decode(errors="replace")
        for m in re.finditer(r"durable (\d+)", said):
            events.append(("durable", int(m.group(1))))
        continue
    absolute = lambda p: os.path.join(live, text(p)) if not text(p).startswith("/") else text(p)
    if name in ("openat", "creat"):
        p = absolute(strings[0])
        if p.startswith(live) and ("O_CREAT" in args or name == "creat"):
            events.append(("create", p, "O_TRUNC" in args))
        at[p] = 0
    elif name in ("rename", "renameat", "renameat2"):
        events.append(("rename", absolute(strings[0]), absolute(strings[1])))
    elif name in ("unlink", "unlinkat"):
        events.append(("unlink", absolute(strings[0])))
    elif name == "mkdir":
        events.append(("mkdir", absolute(strings[0])))
    elif path is None or not path.startswith(live):
        continue
    elif name == "write" or name == "writev":
        data = b"".join(unhex(s) for s in strings)[:result]
        # Appending, or from where the file stands; engines do not mix the two here.
        events.append(("write", path, at.get(path, 0), data))
        at[path] = at.get(path, 0) + len(data)
    elif name == "lseek":
        at[path] = result
    elif name in ("pwrite64", "pwritev", "pwritev2"):
        offset = int(args.rsplit(", ", 1 if name != "pwritev2" else 2)[1])
        events.append(("write", path, offset, b"".join(unhex(s) for s in strings)[:result]))
    elif name in ("fsync", "fdatasync"):
        events.append(("sync", path))
    elif name == "ftruncate":
        events.append(("truncate", path, int(args.rsplit(",", 1)[1])))
    elif name == "fallocate":
        offset, length = [int(x) for x in args.rsplit(",", 2)[1:]]
        if "KEEP_SIZE" not in args:
            events.append(("grow", path, offset + length))

files, dirs, pending, durable = {}, {live}, {}, 0

def put(content, offset, data):
    if len(content) < offset + len(data):
        content.extend(bytes(offset + len(data) - len(content)))
    content[offset:offset + len(data)] = data

def step(event):
    global durable
    kind, *rest = event
    if kind == "durable":
        durable = rest[0]
    elif kind == "create":
        if rest[0] not in files or rest[1]:
            files[rest[0]], pending[rest[0]] = bytearray(), []
    elif kind == "mkdir":
        dirs.add(rest[0])
    elif kind == "rename":
        for table in (files, pending):
            if rest[0] in table:
                table[rest[1]] = table.pop(rest[0])
    elif kind == "unlink":
        files.pop(rest[0], None), pending.pop(rest[0], None)
    elif kind == "write":
        pending.setdefault(rest[0], []).append((rest[1], rest[2]))
        files.setdefault(rest[0], bytearray())
    elif kind == "truncate" or kind == "grow":
        for w in pending.get(rest[0], []):
            put(files[rest[0]], *w)
        pending[rest[0]] = []
        content = files.setdefault(rest[0], bytearray())
        if len(content) < rest[1]:
            content.extend(bytes(rest[1] - len(content)))
        elif kind == "truncate":
            del content[rest[1]:]
    elif kind == "sync":
        for w in pending.get(rest[0], []):
            put(files[rest[0]], *w)
        pending[rest[0]] = []

def made():
    shutil.rmtree(dead, ignore_errors=True)
    for d in sorted(dirs):
        os.makedirs(d.replace(live, dead, 1), exist_ok=True)
    for path, content in files.items():
        content = bytearray(content)
        mode = random.choice(["all", "none", "some", "prefix"])
        left = pending.get(path, [])
        stop = random.randrange(len(left) + 1) if mode == "prefix" else len(left)
        for offset, data in left[:stop]:
            if mode == "none":
                break
            if mode in ("all", "prefix"):
                put(content, offset, data)
            elif random.random() < 0.5:
                for a in range(0, len(data), 4096):
                    if random.random() < 0.7:
                        put(content, offset + a, data[a:a + 4096])
        out = path.replace(live, dead, 1)
        os.makedirs(os.path.dirname(out), exist_ok=True)
        open(out, "wb").write(content)

first = next(i for i, e in enumerate(events) if e[0] == "durable")
points = sorted(random.randrange(first, len(events)) for _ in range(cuts))
bad, done, why = 0, 0, {}
for i, event in enumerate(events):
    while points and points[0] == i:
        points.pop(0)
        made()
        r = subprocess.run([binary, side, dead, "judge", str(durable)], capture_output=True, text=True, timeout=60)
        done += 1
        if r.returncode != 0 or not r.stdout.startswith("sound"):
            bad += 1
            reason = ([l for l in r.stderr.splitlines() if "panicked" not in l and l.strip() and "RUST_BACKTRACE" not in l] or [f"code {r.returncode}"])[0][:150]
            why[reason] = why.get(reason, 0) + 1
    step(event)
print(f"{side}: {len(events)} calls, {done} cuts, {done - bad} sound, {bad} not", why or "")
