#!/usr/bin/env python3
"""run.py DIR FILES CACHE_MIB ROUNDS SIDE=BINARY...: all sides in turns, and a table."""
import json, os, shutil, statistics, subprocess, sys, time

base, files, cache, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
sides = [s.split("=") for s in sys.argv[5:]]
got = {name: [] for name, _ in sides}
for turn in range(rounds):
    for name, binary in sides if turn % 2 == 0 else reversed(sides):
        shutil.rmtree(base, ignore_errors=True)
        os.makedirs(base)
        run = lambda *a: subprocess.run([binary, name, base, *a], capture_output=True, text=True)
        r = run("run", files, cache)
        if r.returncode:
            print(name, r.stderr[-500:], file=sys.stderr)
            continue
        rows = json.loads(r.stdout)
        rows["open_clean_ms"] = int(run("open", cache).stdout.split()[0])
        # Killed in the middle of creates: what is there is from the last checkpoint on.
        p = subprocess.Popen([binary, name, base, "again", files, cache], stdout=subprocess.PIPE, text=True)
        p.stdout.readline()
        time.sleep(2)
        p.kill()
        p.wait()
        rows["open_killed_ms"] = int(run("open", cache).stdout.split()[0])
        got[name].append(rows)
        print(name, json.dumps(rows), flush=True)
shutil.rmtree(base, ignore_errors=True)
keys = list(next(rows[0] for rows in got.values() if rows))
print("| | " + " | ".join(got) + " |\n|---|" + "---:|" * len(got))
for key in keys:
    cells = []
    for rows in got.values():
        values = [r[key] for r in rows]
        if not values:
            cells.append("")
        elif isinstance(values[0], list):
            cells.append(f"{statistics.median(v[0] for v in values):.2f} ({statistics.median(v[1] for v in values):.2f})")
        else:
            cells.append(f"{statistics.median(values):.0f}")
    print(f"| {key} | " + " | ".join(cells) + " |")
