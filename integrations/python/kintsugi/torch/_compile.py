"""Compiles the extension against the headers of a torch. That torch need not be the one that runs, nor run at all: a wheel holds extensions
for several. So only the standard library is imported here."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_FOLDER = Path(__file__).parent
_SOURCES = ("ddp_layout.cc", "device_work.cc", "farewell.cc", "group.cc", "guarded_work.cc", "inner_group.cc", "nccl_functions.cc", "nccl_generation.cc", "nccl_inner.cc", "nccl_ordered.cc", "rendezvous.cc", "sockets.cc", "tensors.cc", "torch_inner.cc", "module.cc")
_HEADERS = ("ddp_layout.h", "device_work.h", "farewell.h", "group.h", "guarded_work.h", "inner_group.h", "mark_calls.h", "nccl_functions.h", "nccl_generation.h", "nccl_inner.h", "rendezvous.h", "sockets.h", "tensors.h", "torch_inner.h")
RELEASES = ("2.11", "2.13", "2.14", "2.15")  # whose Backend the sources were read against


class Missing(Exception):
    """What compiling needs is not there; the text says what installs it."""


class Failed(Exception):
    """The compiler or the linker had something to say."""


def tag(version: str, abi: int = 1) -> str:
    """Names what an extension is bound to: torch, Python, processor and sources; where these lie is no part of it. `version`: torch's;
    `abi`: its _GLIBCXX_USE_CXX11_ABI."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_HEADERS):
        digest.update((_FOLDER / name).read_bytes())
    digest.update(" ".join(_flags(abi)).encode())
    return f"torch-{version}-{sys.implementation.cache_tag}-{platform.machine()}-{digest.hexdigest()[:12]}"


def compile_extension(torch: Path, library: Path, abi: int = 1) -> None:
    """Makes `library`, at once or not at all; objects stay beside it. `torch`: the folder with torch's `include` and `lib`.
    Raises Missing and Failed."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(compiler[0]):
        raise Missing(f"kintsugi.torch needs a C++20 compiler once, and there is no '{compiler[0]}': install g++ or set CXX")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise Missing("kintsugi.torch needs Python's headers once: install python3-dev")
    include = torch / "include"
    includes = [f"-isystem{include}", f"-isystem{include}/torch/csrc/api/include", f"-isystem{sysconfig.get_path('include')}", f"-I{_FOLDER}"]
    # Checks of torch's name the file they stand in; what is made here names no folder of this machine.
    names = [f"-ffile-prefix-map={torch}=torch", f"-ffile-prefix-map={_FOLDER}=kintsugi/torch"]
    objects = [str(library.parent / f"{source}.o") for source in _SOURCES]

    def compile_one(source: str, compiled: str) -> subprocess.CompletedProcess[str]:
        words = [*compiler, *_flags(abi), *names, *includes, "-c", str(_FOLDER / source), "-o", compiled]
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    # Each needs memory, and a processor: no more at a time than there are of these.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as several:
        done = list(several.map(compile_one, _SOURCES, objects))
    failed = [(source, one.stdout) for source, one in zip(_SOURCES, done) if one.returncode]
    if failed:
        raise Failed(f"compiling {failed[0][0]}:\n{failed[0][1][-3000:]}")
    made = library.with_suffix(".new")
    linked = subprocess.run(
        [*compiler, "-shared", "-o", str(made), *objects, f"-L{torch / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if linked.returncode:
        raise Failed(f"linking:\n{linked.stderr[-3000:]}")
    made.rename(library)


def _flags(abi: int) -> list[str]:
    return ["-O1", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-DTORCH_EXTENSION_NAME=_groups"]
