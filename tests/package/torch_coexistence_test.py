#!/usr/bin/env python3
"""libkintsugi.so and torch live in one process, whichever is loaded first; torch brings its own protobuf and Gloo.

    torch_coexistence_test.py LIBRARY [PYTHON]

PYTHON is an interpreter that has torch (./tools/setup --python makes build/python); without one the test is skipped
(exit 77). Each case is a process of its own: load both, compute, run one collective of torch's Gloo group.
"""

import subprocess
import sys
from pathlib import Path

SKIPPED = 77

CASE = r"""
import ctypes, sys, warnings
warnings.simplefilter("ignore")
library_path, order, scope = sys.argv[1:]

def load_library():
    mode = ctypes.RTLD_GLOBAL if scope == "global" else ctypes.RTLD_LOCAL
    library = ctypes.CDLL(library_path, mode)
    library.kintsugi_version.restype = ctypes.c_char_p
    return library

library = load_library() if order == "library first" else None
import torch
import torch.distributed as distributed
library = library or load_library()

store = distributed.HashStore()
distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
values = torch.arange(4.0)
distributed.all_reduce(values)
product = (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()
distributed.destroy_process_group()
assert values.tolist() == [0.0, 1.0, 2.0, 3.0], values
assert product == 512.0, product
print("kintsugi", library.kintsugi_version().decode(), "torch", torch.__version__)
"""

# A library in the global scope lends its dependencies' symbols to everything loaded later: torch would then run parts of
# Debian's Gloo in place of its own. Once libkintsugi.so links Gloo, this one combination is refused by documentation
# (README.md), so it is only tried while there is nothing to mix up.
UNSAFE = ("library first", "global")


def links_gloo(library):
    dynamic = subprocess.run(["readelf", "--dynamic", library], capture_output=True, text=True, check=True).stdout
    return "libgloo" in dynamic


def main():
    library = sys.argv[1]
    python = sys.argv[2] if len(sys.argv) > 2 and Path(sys.argv[2]).exists() else sys.executable
    probe = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch') is not None)"],
                           capture_output=True, text=True, check=False)
    if probe.stdout.strip() != "True":
        print(f"SKIPPED: {python} has no torch; ./tools/setup --python installs it into build/python")
        return SKIPPED
    failures = 0
    for scope in ("local", "global"):
        for order in ("library first", "torch first"):
            if (order, scope) == UNSAFE and links_gloo(library):
                print(f"{order}, {scope} scope: not supported while libkintsugi.so links Gloo")
                continue
            done = subprocess.run([python, "-c", CASE, library, order, scope], capture_output=True, text=True,
                                  check=False, timeout=120)
            verdict = "ok" if done.returncode == 0 else f"FAILED with {done.returncode}"
            print(f"{order}, {scope} scope: {verdict} {done.stdout.strip()}")
            if done.returncode != 0:
                failures += 1
                print(done.stderr[-2000:])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
