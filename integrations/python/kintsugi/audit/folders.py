"""A folder for each run that looks like the one `kintsugi audit` was started in, so that a run finds its own checkpoints and none of another's.

Small files are copied, so that none of the user's is written; large ones, and folders with very many, are linked.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

COPIED_BYTES_MOST = 1 << 20
FILES_MOST = 5000  # of all folders together; what comes later is linked whole


def mirror(source: Path, target: Path, without: Path) -> None:
    """`without`: left out, with all that is in it."""
    _fill(source.resolve(), target, without.resolve(), [FILES_MOST])


def _fill(source: Path, target: Path, without: Path, left: list[int]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(os.scandir(source), key=lambda one: (one.is_dir(follow_symlinks=False), one.name)):
        path, here = Path(entry.path), target / entry.name
        if path == without or entry.name == "__pycache__":
            continue
        left[0] -= 1
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".") and not (path / "pyvenv.cfg").exists() and left[0] > 0:
            _fill(path, here, without, left)
        elif entry.is_file() and not entry.is_symlink() and entry.stat().st_size <= COPIED_BYTES_MOST and left[0] > 0:
            shutil.copy2(path, here)
        elif entry.is_symlink() or entry.is_file() or entry.is_dir():
            here.symlink_to(os.path.realpath(path))
