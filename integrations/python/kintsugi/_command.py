"""The `kintsugi` command that lies in the package."""

import os
import shutil
import sys
from pathlib import Path

from ._errors import Error
from .abi import Code

_PACKAGED = Path(__file__).parent / "bin" / "kintsugi"


def find() -> str:
    """The command, of the package or from PATH."""
    found = str(_PACKAGED) if _PACKAGED.exists() else shutil.which("kintsugi")
    if not found:
        raise Error("the command 'kintsugi' is neither in the package nor in PATH: pip install kintsugi", Code.FAILED_PRECONDITION)
    return found


def main() -> None:
    if not _PACKAGED.exists():
        sys.exit(f"kintsugi: {_PACKAGED} is missing: this is a build tree, whose command lies in its bin folder")
    # As torchrun does: what is run by Python is run by this one, whatever PATH names.
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    os.execv(_PACKAGED, ["kintsugi", *sys.argv[1:]])
