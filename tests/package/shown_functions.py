#!/usr/bin/env python3
"""Every function that an installed header declares is one that libkintsugi.so shows: else a trainer links with the static libraries
alone.

    shown_functions.py INSTALLED

Looks at the functions of the static libraries that the shared one hides. One of them that bears the name of what a header declares, as
a member of the same class or as a free function, is a declaration without KINTSUGI_EXPORT.
"""

import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"//.*")
FRIEND = re.compile(r"\bfriend\b[^;]*;")
FUNCTION = re.compile(r"kintsugi::((?:\w+::)*)(~?\w+)(?:\[abi:\w+\])?\(")


def defined(library, *flags):
    shown = subprocess.run(["nm", "--defined-only", "--format=posix", "--quiet", *flags, str(library)], capture_output=True, text=True,
                           check=True).stdout
    fields = [line.split() for line in shown.splitlines()]
    return {field[0].split("@")[0] for field in fields if len(field) > 1 and field[1] == "T"}


def called(text):
    """The names in front of a parenthesis, those of destructors in both forms: most functions stand in no header, which is soon seen."""
    found = re.findall(r"(?<![\w.>])(~?)(\w+)\(", text)
    return {name for _, name in found} | {tilde + name for tilde, name in found}


def declared(text, names, scopes, name):
    if name not in names:
        return False
    return not scopes or re.search(rf"\b(class|struct)\s+(KINTSUGI_EXPORT\s+)?{scopes[-1]}\b[^;{{]*{{", text) is not None


def main():
    installed = pathlib.Path(sys.argv[1])
    headers = sorted((installed / "include" / "kintsugi").rglob("*.h"))
    shared = next(installed.glob("lib*/**/libkintsugi.so"))
    archives = [path for path in shared.parent.glob("libkintsugi_*.a") if path.stem != "libkintsugi_kernels_cuda"]
    texts = [FRIEND.sub("", COMMENT.sub("", header.read_text(encoding="utf-8"))) for header in headers]
    shown = defined(shared, "--dynamic")
    all_of_them = set().union(*(defined(archive) for archive in archives))
    headers = [(text, called(text)) for text in texts]
    if not texts or len(shown & all_of_them) < 100:
        print(f"FAILED: {len(texts)} headers and {len(shown & all_of_them)} functions below {installed}")
        return 1

    names = subprocess.run(["c++filt"], input="\n".join(sorted(all_of_them - shown)), capture_output=True, text=True, check=True).stdout
    hidden = []
    for function in names.splitlines():
        if match := FUNCTION.match(function):
            scopes = match.group(1).split("::")[:-1]
            if any(declared(*header, scopes, match.group(2)) for header in headers):
                hidden.append(function)
    for function in hidden:
        print(f"FAILED: an installed header declares {function}, which libkintsugi.so hides: KINTSUGI_EXPORT is missing")
    return 1 if hidden else 0


if __name__ == "__main__":
    sys.exit(main())
