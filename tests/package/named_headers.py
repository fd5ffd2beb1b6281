#!/usr/bin/env python3
"""Every header that an installed header names, in an include or in a comment, is one that an outsider has.

    named_headers.py INSTALLED

A name with folders is a path below include/kintsugi; one without is a neighbour's, or the one of the system's and of other libraries that the
package is built on, which stands between angle brackets.
"""

import pathlib
import re
import sys

NAMED = re.compile(r"(?<![\w/<.])((?:\w+/)*\w+\.(?:h|hpp|cuh))\b")
BRACKETS = re.compile(r"#include\s*<[^>]*>")
OTHERS = {"cuda.h", "nccl.h"}  # of what a header says to be like


def named(text):
    return set(NAMED.findall(BRACKETS.sub("", text)))


def unknown(folder):
    """Lines: which header names which one that is not there."""
    headers = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.h")}
    lines = []
    for place, text in sorted(headers.items()):
        beside = pathlib.PurePosixPath(place).parent
        for name in sorted(named(text) - OTHERS):
            if name.removeprefix("kintsugi/") not in headers and (beside / name).as_posix() not in headers:
                lines.append(f"FAILED: {place} names {name}, which is not installed")
    return len(headers), lines


def main():
    count, lines = unknown(pathlib.Path(sys.argv[1]) / "include" / "kintsugi")
    # What would be found if one were there.
    if not count or named('// see replica/nowhere.h, and "beside.h"\n#include <vector.h>') != {"replica/nowhere.h", "beside.h"}:
        print("FAILED: no headers, or names in comments are not found")
        return 1
    print("\n".join(lines) or f"{count} headers name none that is not installed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
