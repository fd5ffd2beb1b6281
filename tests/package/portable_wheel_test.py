"""The wheel of ./tools/package --wheel, in a root of Debian 12 that has python3-venv and nothing else: no compiler, none of our libraries.

  portable_wheel_test.py BUILD_PYTHON [--wheel FILE] [--root FOLDER]
      BUILD_PYTHON   its torch is what the root's environment finds
      --wheel        one that was made before
      --root         a copy of this root, which mmdebstrap --include=python3-venv made before
Exit code 77 where no such root can be made (mmdebstrap is missing, no root rights, no mirror).
"""
import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from deb_test import PROGRAM, ROOT, Failure, call, expect, fresh_root

SIZE_MOST = 40 * 2**20
TUTORIAL = (ROOT / "integrations/python/TUTORIAL.md").read_text()
HOME = "/opt/venv"
PLAIN = re.search(r"^```python\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)[1]
TO_SURVIVE = re.search(r"^```diff\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)[1]


class Bare:
    """The root, entered: its commands see nothing of this system."""

    def __init__(self, folder, site):
        self.folder = Path(folder)
        self._mounts = [("-t", "proc", "proc", "proc"), ("-t", "tmpfs", "tmpfs", "dev/shm"), ("-o", "bind,ro", str(site), "opt/neighbour")]

    def __enter__(self):
        for kind, what, device, place in self._mounts:
            (self.folder / place).mkdir(parents=True, exist_ok=True)
            call("mount", kind, what, device, self.folder / place)
        # As every system has it: torchrun looks for both.
        (self.folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
        return self

    def __exit__(self, *_):
        for *_, place in self._mounts:
            call("umount", "-l", self.folder / place)

    def try_it(self, *words, **variables):
        plain = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", **variables}
        return subprocess.run(["chroot", str(self.folder), *map(str, words)], capture_output=True, text=True, timeout=900, env=plain, check=False)

    def does(self, *words, **variables):
        done = self.try_it(*words, **variables)
        if done.returncode != 0:
            raise Failure(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout + done.stderr

    def python(self, text, **variables):
        return self.try_it(f"{HOME}/bin/python", "-W", "ignore", "-c", text, **variables)


def look_inside(wheel):
    tag = re.fullmatch(r"kintsugi-[\d.]+-cp311-cp311-manylinux_2_\d+_x86_64\.whl", wheel.name)
    if not tag:
        raise Failure(f"{wheel.name} says that it is of this system alone")
    if wheel.stat().st_size > SIZE_MOST:
        raise Failure(f"{wheel.stat().st_size} bytes, {SIZE_MOST} at most")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        said = archive.read(next(name for name in names if name.endswith("/licenses/INSIDE"))).decode()
        for name in names:
            library = name.removeprefix("kintsugi.libs/")
            if library != name and library not in said:
                raise Failure(f"{library} is inside, and of no licence that is listed:\n{said}")
            if f"{ROOT}/".encode() in archive.read(name):
                raise Failure(f"{name} names the folder of its build")
        for listed in re.findall(r"^(\S+\.txt): ", said, re.MULTILINE):
            if not any(name.endswith(f"/licenses/{listed}") for name in names):
                raise Failure(f"{listed} is listed, and not there")
    for part in ("bin/byte_lm", "include/kintsugi/kintsugi.h", *(f"torch/built/torch-{release}.0-" for release in ("2.11", "2.13", "2.15"))):
        if not any(name.startswith(f"kintsugi/{part}") for name in names):
            raise Failure(f"kintsugi/{part} is not in the wheel")
    print(f"-- {wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB, {len(names)} files, licences of all libraries")


def torch_in(bare):
    """torch lies where pip would have put it; the extension for it is there, and no other is made."""
    (bare.folder / f"{HOME[1:]}/lib/python3.11/site-packages/neighbour.pth").write_text("/opt/neighbour\n")
    work = bare.folder / "opt/work"
    work.mkdir()
    (work / "plain.py").write_text(PLAIN)
    shutil.copy(work / "plain.py", work / "survives.py")
    subprocess.run(["git", "apply", "-p0", "-"], input=TO_SURVIVE.replace("--- plain.py", "--- survives.py", 1), text=True, cwd=work, check=True)
    parameters = {}
    patient = ("--silence", "8", "--hang-least", "20")
    struck = [f"{HOME}/bin/kintsugi", "run", "--nproc", "2", *patient, "--save-dir", "", "--inject-must-strike", "--inject", "kill:1@20:backward", "--inject",
              "throw:0@40:update", "--", "/opt/work/survives.py"]  # fmt: skip
    for name, command in (("plain", [f"{HOME}/bin/python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "/opt/work/plain.py"]), ("struck", struck)):
        said = bare.does(*command)
        parameters[name] = re.findall(r"\bparameters: (\S+)$", said, re.MULTILINE)
        if "building the extension" in said:
            raise Failure(f"built again:\n{said}")
    if len(parameters["plain"]) != 1 or parameters["plain"] != parameters["struck"]:
        raise Failure(f"the tutorial's script ends with {parameters}")
    print("-- the tutorial's script, struck twice: the plain script's parameters")
    expect("init", bare.does(f"{HOME}/bin/kintsugi", "init", "/opt/work/plain.py"), "+run = kintsugi.torch.join()", "run.register(model=model")


def another_torch(bare):
    """One that the wheel has nothing for, and no compiler: the sentence that says what is needed."""
    built = bare.folder / f"{HOME[1:]}/lib/python3.11/site-packages/kintsugi/torch/built"
    mine = next(built.glob("torch-2.13.0-*"))
    mine.rename(built.parent / "aside")
    done = bare.python("import kintsugi.torch._build as build; build.load()")
    (built.parent / "aside").rename(mine)
    if done.returncode == 0:
        raise Failure("there is a compiler in the root, or the extension of another version was taken")
    expect("a torch that it has nothing for", done.stderr.splitlines()[-1], "there is no 'c++': install g++", "torch 2.11.0, 2.15.0 need neither")


def in_c(bare):
    """A program in C, built here against the installed wheel, runs there."""
    if not shutil.which("gcc"):
        print("-- a program in C: left out, this system has no gcc")
        return
    package = f"{HOME}/lib/python3.11/site-packages/kintsugi"
    there = bare.folder / package[1:]
    library = next(there.glob("libkintsugi.so.*"))
    (bare.folder / "opt/program.c").write_text(PROGRAM)
    call("gcc", "-std=c99", "-Wall", "-Werror", f"-I{there}/include", bare.folder / "opt/program.c", library, f"-Wl,-rpath,{package}", "-o",
         bare.folder / "opt/program")
    expect("a program in C", bare.does("/opt/program"), "0.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build_python", type=Path)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--root", type=Path)
    options = parser.parse_args()
    site = next((options.build_python.absolute().parent.parent / "lib").glob("python3.11/site-packages"), None)
    if site is None or not (site / "torch").exists():
        print("SKIPPED: there is no torch for Python 3.11 in build/python; ./tools/setup --python installs it")
        return 77
    with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as scratch:
        there = f"{scratch}/root"
        try:
            if options.root and os.geteuid() == 0:
                call("cp", "-a", options.root, there)
            else:
                fresh_root(there, "python3-venv")
        except LookupError as reason:
            print(f"SKIPPED: {reason}")
            return 77
        wheel = options.wheel or Path(call(ROOT / "tools/package", "--wheel", "--out", f"{scratch}/wheel").split()[-1])
        look_inside(wheel)
        shutil.copy(wheel, f"{there}/opt")
        with Bare(there, site) as bare:
            for command in ("c++", "gcc", "cc"):
                if bare.try_it("sh", "-c", f"command -v {command}").returncode == 0:
                    raise Failure(f"the root has {command}")
            bare.does("python3", "-m", "venv", HOME)
            bare.does(f"{HOME}/bin/pip", "install", "--no-index", f"/opt/{wheel.name}")
            expect("the command", bare.does(f"{HOME}/bin/kintsugi", "--version"), "kintsugi 0.", "control protocol")
            expect("the demonstration", bare.does(f"{HOME}/bin/kintsugi", "demo", "--steps", "60", "--silence", "8", "--hang-least", "20"), "IDENTICAL")
            torch_in(bare)
            another_torch(bare)
            in_c(bare)
            if (bare.folder / "root/.cache/kintsugi").exists() and any((bare.folder / "root/.cache/kintsugi").rglob("*.so")):
                raise Failure("an extension was built in the root")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
