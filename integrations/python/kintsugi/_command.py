"""The `kintsugi` command that lies in the package."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "kintsugi"
    if not program.exists():
        sys.exit(f"kintsugi: {program} is missing: this is a build tree, whose command lies in its bin folder")
    os.execv(program, ["kintsugi", *sys.argv[1:]])
