"""`kintsugi init train.py`: the difference that a plain torch script of a known shape needs to survive.

It reads the script and never runs it: the standard library alone is imported. Prints the difference; writes it with --write alone, and keeps
what was there as train.py.orig. Where anything is not understood, or could not be kept through a fault, it says line by line what and why,
and prints no difference: half of the lines would be worse than none.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from pathlib import Path

from .rewriting import rewritten
from .script import NotUnderstood


def main() -> None:
    """Ends the process: 0 there is a difference, 1 it was not understood, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="kintsugi init", description="The difference that a torch script needs to survive faults.")
    parser.add_argument("script", type=Path, help="it is read, and not run")
    parser.add_argument("--write", action="store_true", help="write it, and keep what was there as SCRIPT.orig")
    options = parser.parse_args()
    path: Path = options.script
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeError) as error:
        _end(2, f"{path} cannot be read: {error}")
    if "\r" in text:
        _end(1, f"{path} has line ends of DOS, beside which ours would be others: dos2unix {path}")
    try:
        result = rewritten(text)
    except NotUnderstood as found:
        for reason in found.reasons:
            print(f"{path}:{reason.line}: {reason.text}", file=sys.stderr)
        for line in found.lines:
            print(f"{path}:{line.line}: by hand, {line.text}", file=sys.stderr)
        _end(1, f"{path} was not understood, and is as it was. What each line is for: integrations/python/docs/your_loop.md")
    if options.write:
        _write(path, text, result.text)
    else:
        differences = difflib.unified_diff(text.splitlines(keepends=True), result.text.splitlines(keepends=True), str(path), str(path))
        sys.stdout.write("".join(differences))
    for note in result.notes:
        print(f"kintsugi: {note}", file=sys.stderr)


def _write(path: Path, before: str, after: str) -> None:
    kept = path.with_name(path.name + ".orig")
    try:
        with open(kept, "x", encoding="utf-8") as file:
            file.write(before)
        # Beside it first: a full disk costs nobody their script.
        new = path.with_name(path.name + ".new")
        new.write_text(after, encoding="utf-8")
        new.chmod(path.stat().st_mode)
        os.replace(new, path)
    except FileExistsError:
        _end(2, f"{kept} is there already: move it away, it may be the only copy of what was")
    except OSError as error:
        _end(2, f"{path} could not be written: {error}")
    print(f"kintsugi: written; what was there is {kept}", file=sys.stderr)


def _end(code: int, text: str) -> None:
    print(f"kintsugi: {text}", file=sys.stderr)
    sys.exit(code)
