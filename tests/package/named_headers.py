#!/usr/bin/env python3
"""Every header and every type that an installed header names, in code or in a comment, is one that an outsider has.

    named_headers.py INSTALLED

A header's name with folders is a path below include/kintsugi; one without is a neighbour's, or the one of the system's and of other libraries that
the package is built on, which stands between angle brackets. A type's name is in some installed header's code; what is declared there and
defined nowhere is an opaque handle that is on the list below, or within a class, or for its private part.
"""

import pathlib
import re
import sys

NAMED = re.compile(r"(?<![\w/<.])((?:\w+/)*\w+\.(?:h|hpp|cuh))\b")
BRACKETS = re.compile(r"#include\s*<[^>]*>")
OTHERS = {"cuda.h", "nccl.h"}  # of what a header says to be like

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
CAMEL = re.compile(r"\b(?:\w+::)*((?:[A-Z][a-z0-9]+){2,}\w*|k[A-Z]\w+)\b")
DECLARED = re.compile(r"^(?:class|struct) (\w+);", re.MULTILINE)
DEFINED = re.compile(r"\b(?:class|struct|enum|union)\s+(?:class\s+)?(?:\[\[\w+\]\]\s+)?(?:KINTSUGI_EXPORT\s+)?(\w+)(?:\s+final)?\s*(?::[^;{]*)?{")
PRIVATE = re.compile(r"^ private:.*?^};", re.MULTILINE | re.DOTALL)
# Handed from one call to another and never looked into.
OPAQUE = {"AbortableDevice", "ByteKernels", "CudaDevice"}


def named(text):
    return set(NAMED.findall(BRACKETS.sub("", text)))


def code_of(text):
    return COMMENT.sub("", text)


def unknown(headers):
    """Lines: which header names which one that is not there."""
    lines = []
    for place, text in sorted(headers.items()):
        beside = pathlib.PurePosixPath(place).parent
        for name in sorted(named(text) - OTHERS):
            if name.removeprefix("kintsugi/") not in headers and (beside / name).as_posix() not in headers:
                lines.append(f"FAILED: {place} names {name}, which is not installed")
    return lines


def strange_types(headers):
    """Lines: which header speaks of which type, or takes or gives it, that none of them has."""
    code = {place: code_of(text) for place, text in headers.items()}
    words = set(re.findall(r"\w+", " ".join(code.values())))
    defined = set(DEFINED.findall("\n".join(code.values())))
    lines = []
    for place, text in sorted(headers.items()):
        said = set(CAMEL.findall(" ".join(COMMENT.findall(text))))
        lines += [f"FAILED: {place} speaks of {name}, which no installed header has" for name in sorted(said - words)]
        shown = DECLARED.sub("", PRIVATE.sub("", code[place]))
        for name in sorted(set(DECLARED.findall(code[place])) - defined - OPAQUE):
            if re.search(rf"(?<!gloo::)\b{name}\b", shown):
                lines.append(f"FAILED: {place} takes or gives a {name}, which no installed header defines")
    return lines


def sees():
    """What would be found if it were there."""
    planted = {"a.h": "// As NoSuchThing says, or Agent::NoSuchCall.\nclass Lost;\nclass Own;\nclass Agent {\n public:\n  Lost* lost();\n private:\n  Own* own_;\n};\n"}
    return (named('// see replica/nowhere.h, and "beside.h"\n#include <vector.h>') == {"replica/nowhere.h", "beside.h"} and
            [line.split()[2:6] for line in strange_types(planted)] ==
            [["speaks", "of", "NoSuchCall,", "which"], ["speaks", "of", "NoSuchThing,", "which"], ["takes", "or", "gives", "a"]])


def main():
    folder = pathlib.Path(sys.argv[1]) / "include" / "kintsugi"
    headers = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.h")}
    if not headers or not sees():
        print("FAILED: no headers, or names that are nowhere are not found")
        return 1
    lines = unknown(headers) + strange_types(headers)
    print("\n".join(lines) or f"{len(headers)} headers name no header and no type that is not installed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
