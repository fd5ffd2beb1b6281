"""The extension for torch, built against the torch that is installed: its C++ interface belongs to a version.

`pip install .` builds it where it finds torch. Otherwise the first use does: once per version of torch, of Python and of the
sources, kept in KINTSUGI_TORCH_CACHE or ~/.cache/kintsugi. Several ranks that need it at once wait for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .._errors import Error
from ..abi import Code

_FOLDER = Path(__file__).parent
_SOURCES = ("ddp_layout.cc", "farewell.cc", "group.cc", "guarded_work.cc", "rendezvous.cc", "sockets.cc", "tensors.cc", "module.cc")
_HEADERS = ("ddp_layout.h", "farewell.h", "group.h", "guarded_work.h", "rendezvous.h", "sockets.h", "tensors.h")
_VERSIONS = ("2.13", "2.14", "2.15")  # whose Backend the sources were read against


def load() -> Any:
    """The module, built where it is not yet."""
    version = torch.__version__.split("+")[0]
    if not version.startswith(tuple(v + "." for v in _VERSIONS)):
        raise Error(f"torch {torch.__version__} is not supported: {', '.join(_VERSIONS)} are", Code.FAILED_PRECONDITION)
    installed = _FOLDER / "built" / _tag() / "_groups.so"
    if installed.exists():
        return _import(installed)
    base = os.environ.get("KINTSUGI_TORCH_CACHE") or os.path.expanduser("~/.cache/kintsugi")
    library = Path(base) / _tag() / "_groups.so"
    if not library.exists():
        _build(library)
    return _import(library)


def keep_newest() -> None:
    """For a wheel, whose build folder outlives a build: the extension for this torch and these sources is made, others are removed."""
    mine = Path(load().__file__).parent
    for other in mine.parent.iterdir():
        if other != mine and other.is_dir():
            shutil.rmtree(other)


def _tag() -> str:
    """Names what the extension is bound to; where torch and the sources lie is no part of that."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_HEADERS):
        digest.update((_FOLDER / name).read_bytes())
    digest.update(" ".join(_flags()).encode())
    return f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{platform.machine()}-{digest.hexdigest()[:12]}"


def _flags() -> list[str]:
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return ["-O1", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
            "-DTORCH_EXTENSION_NAME=_groups"]  # fmt: skip


def _includes() -> list[str]:
    include = Path(torch.__file__).parent / "include"
    return [f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include", f"-isystem{sysconfig.get_path('include')}",
            f"-I{_FOLDER}"]  # fmt: skip


def _build(library: Path) -> None:
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
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        if not shutil.which(compiler[0]):
            raise Error(f"kintsugi.torch needs a C++20 compiler once, and there is no '{compiler[0]}': install g++ or set CXX", Code.NOT_FOUND)
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            raise Error("kintsugi.torch needs Python's headers once: install python3-dev", Code.NOT_FOUND)
        building = [
            (subprocess.Popen([*compiler, *_flags(), *_includes(), "-c", str(_FOLDER / source), "-o", str(library.parent / f"{source}.o")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), source)
            for source in _SOURCES
        ]  # fmt: skip
        failed = [(source, said) for child, source in building for said in (child.communicate()[0],) if child.returncode]
        if failed:
            raise Error(f"building {failed[0][0]} against torch {torch.__version__} failed:\n{failed[0][1][-3000:]}", Code.INTERNAL)
        libraries = Path(torch.__file__).parent / "lib"
        made = library.with_suffix(".new")
        linked = subprocess.run(
            [*compiler, "-shared", "-o", str(made), *(str(library.parent / f"{source}.o") for source in _SOURCES),
             f"-L{libraries}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if linked.returncode:
            raise Error(f"linking the extension for torch {torch.__version__} failed:\n{linked.stderr[-3000:]}", Code.INTERNAL)
        made.rename(library)


def _import(library: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_groups", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
