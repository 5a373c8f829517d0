"""What the Python scripts share: `python3 SCRIPT DIR` runs every function named test_* in a new directory below DIR and prints
one line per test; exit code 1 if one fails. They use what programs use, and must pass on ext4 as on Stria."""

import os
import sys
import traceback


def main(namespace):
    base = os.path.abspath(sys.argv[1])
    failed = 0
    for name, test in list(namespace.items()):
        if not name.startswith("test_"):
            continue
        directory = os.path.join(base, name)
        os.mkdir(directory)
        os.chdir(directory)
        try:
            test()
            print(f"ok {name}")
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}")
        os.chdir(base)
    sys.exit(1 if failed else 0)


def expect(error, call, *args, **named):
    """The call must fail with this errno."""
    try:
        call(*args, **named)
    except OSError as e:
        assert e.errno == error, f"{e}, expected {os.strerror(error)}"
        return
    raise AssertionError(f"succeeded, expected {os.strerror(error)}")
