"""The extension for torch, built against the torch that is installed: its C++ interface belongs to a version.

A portable wheel has it for several releases of torch, `pip install .` builds it where it finds torch. Otherwise the first use does: once per
version of torch, of Python and of the sources, kept in KINTSUGI_TORCH_CACHE or ~/.cache/kintsugi. Several ranks that need it at once wait
for the first.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .._errors import Error
from ..abi import Code
from ._compile import RELEASES, Failed, Missing, compile_extension, tag

_BUILT = Path(__file__).parent / "built"


def load() -> Any:
    """The module, built where it is not yet."""
    # A release has one C++ interface, whatever devices its builds are for ("2.13.0+cpu").
    release = torch.__version__.split("+")[0]
    if not release.startswith(tuple(known + "." for known in RELEASES)):
        raise Error(f"torch {torch.__version__} is not supported: {', '.join(RELEASES)} are", Code.FAILED_PRECONDITION)
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    for version in (torch.__version__, release):
        installed = _BUILT / tag(version, abi) / "_groups.so"
        if installed.exists():
            return _import(installed)
    base = os.environ.get("KINTSUGI_TORCH_CACHE") or os.path.expanduser("~/.cache/kintsugi")
    library = Path(base) / tag(torch.__version__, abi) / "_groups.so"
    if not library.exists():
        _build(library, abi)
    return _import(library)


def keep_newest() -> None:
    """For a wheel, whose build folder outlives a build: the extension for this torch and these sources is made, others are removed."""
    mine = Path(load().__file__).parent
    for other in mine.parent.iterdir():
        if other != mine and other.is_dir():
            shutil.rmtree(other)


def _build(library: Path, abi: int) -> None:
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"kintsugi.torch is built once, and there is no room for it: {error}; name a folder in KINTSUGI_TORCH_CACHE",
                    Code.NOT_FOUND) from error  # fmt: skip
    with open(library.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            return
        print(f"kintsugi: building the extension for torch {torch.__version__} (once, about a minute)", file=sys.stderr)
        try:
            compile_extension(Path(torch.__file__).parent, library, abi)
        except Missing as missing:
            raise Error(f"{missing}{_or_another_torch()}", Code.NOT_FOUND) from None
        except Failed as failed:
            raise Error(f"the extension for torch {torch.__version__} could not be built: {failed}", Code.INTERNAL) from None


def _or_another_torch() -> str:
    """A wheel that came with extensions names those who need no compiler."""
    built = sorted(folder.name.split("-")[1] for folder in _BUILT.glob("torch-*"))
    return f"; torch {', '.join(built)} need neither, the extension for torch {torch.__version__} is not in the wheel" if built else ""


def _import(library: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_groups", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
