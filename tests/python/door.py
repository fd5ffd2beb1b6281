"""What the tests of the Python package share: running a trainer of theirs under `kintsugi run`, with the package of the build."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "multiproc"))
from harness import Failure, Skip, beside, main, same_training  # noqa: E402,F401

ROOT = HERE.parent.parent


class Door:
    """BIN_DIR PACKAGE_FOLDER PYTHON: where the programs, the package and its interpreter are. KINTSUGI_TEST_PYTHON names another
    interpreter of the same version, with another torch (./tools/test --torch). `preload`: modules that are imported once in a run,
    whose ranks are forked then: most of what a test with torch takes is imports. Other tests start each process anew. `fakes`: the
    folder with libkintsugi_fake_*.so: there is a device then, a fake one."""

    def __init__(self, arguments, preload="", fakes=""):
        self.fakes = fakes
        self.bin, self.package = Path(arguments[0]).resolve(), Path(arguments[1]).resolve()
        self.tools = str(Path(arguments[2]).absolute())
        self.python = os.environ.get("KINTSUGI_TEST_PYTHON") or self.tools
        self.references = {}
        self._preload = ("--preload", preload) if preload else ()

    def environment(self):
        return {**os.environ, "PYTHONPATH": str(self.package), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                "KINTSUGI_TORCH_CACHE": str(self.package / "torch-cache"), **self._of_device()}

    def _of_device(self):
        if not self.fakes:
            return {}
        gpu, kernels = (str(Path(self.fakes).resolve() / f"libkintsugi_fake_{name}.so") for name in ("gpu", "kernels"))
        return {"FAKE_CUDA_GUARDED": "1", "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo", "KINTSUGI_CUDA_LIBRARY": gpu, "KINTSUGI_NCCL_LIBRARY": gpu,
                "KINTSUGI_KERNELS_LIBRARY": kernels}  # fmt: skip

    def script(self, path, *words):
        """A program that names no device: where there is one, all that it makes lies on it."""
        return [*([str(HERE / "on_device.py"), "--everywhere"] if self.fakes else []), path, *words]

    def names_cuda(self, script, *words):
        """A program that names the device itself."""
        return [str(HERE / "on_device.py"), *(["--as-cuda"] if self.fakes else []), script, *words]

    def command(self, arguments, program, nproc=4):
        # On a machine that is busier than it has cores a rank that imports torch may not run for a second: no fault here.
        patient = () if "--silence" in arguments else ("--silence", "8", "--hang-least", "20")
        return ["sh", "-c", 'LAUNCHER=$$ exec "$@"', "sh", str(self.bin / "kintsugi"), "run", "--nproc", str(nproc), *patient, *self._preload, *arguments, "--json", "-", "--",
                self.python, *program]

    def run(self, arguments, program, nproc=4, expect=0, timeout=600):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            done = subprocess.run(self.command(arguments, program, nproc), cwd=folder, capture_output=True, text=True, timeout=timeout,
                                  env=self.environment())
        if done.returncode != expect:
            raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-8000:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def plain(self, program, nproc=2, **environment):
        """Plain torch, over Gloo (plain.py). What it printed."""
        done = subprocess.run([self.python, "-W", "ignore", str(HERE / "plain.py"), "--ranks", str(nproc), *program],
                              capture_output=True, text=True, timeout=300, env={**self.environment(), **environment}, check=False)
        if done.returncode != 0:
            raise Failure(done.stderr[-6000:])
        return done.stdout

    def alone(self, script, path=None, arguments=()):
        """A script of checks that needs no run. `path`: where its modules are, if not in the package folder alone."""
        def test(_):
            done = subprocess.run([self.python, "-W", "ignore", str(HERE / script), *arguments], capture_output=True, text=True, timeout=600,
                                  env={**self.environment(), **({"PYTHONPATH": path} if path else {})})
            if done.returncode != 0:
                raise Failure(done.stdout[-2000:] + done.stderr[-4000:])
        return test

    def typed(self, *what):
        """mypy --strict has nothing to say about files, or a package after -p; each with what it imports of ours."""
        # With another torch by the same mypy; what had to be excused may be in order there.
        other = self.python != self.tools
        cache = self.package / f"mypy-cache{'-other' if other else ''}"
        options = (f"--python-executable={self.python}", "--no-warn-unused-ignores") if other else ()

        def test(_):
            done = subprocess.run([self.tools, "-m", "mypy", "--strict", f"--cache-dir={cache}", *options, *what],
                                  capture_output=True, text=True, timeout=300, env=self.environment(), cwd=self.package)
            if "No module named mypy" in done.stderr:
                raise Skip("mypy is not installed in build/python")
            if done.returncode != 0:
                raise Failure(done.stdout[-4000:] + done.stderr[-1000:])
        return test

    def same(self, program, arguments=(), more=(), nproc=4, paths=None, words=(), reasons=()):
        """A disturbed run ends with the bits, losses and samples of the undisturbed one. `words`: somewhere in what was written;
        `reasons`: how the record of an incident's reasons begin, one each."""
        def test(_):
            key = (tuple(program), nproc)
            if key not in self.references:
                self.references[key], log = self.run((), program, nproc)
                if self.references[key]["incidents"]:
                    raise Failure(f"the undisturbed run had incidents\n{log[-4000:]}")
            summary, log = self.run(arguments, [*program, *more], nproc)
            difference = same_training(self.references[key], summary)
            if difference:
                raise Failure(f"{difference}\n{json.dumps(summary['incidents'])[:1500]}\n{log[-4000:]}")
            found = [incident["path"] for incident in summary["incidents"]]
            if paths is not None and found not in paths:
                raise Failure(f"repaired by {found}, expected one of {paths}\n{log[-4000:]}")
            said = [reason["reason"] for incident in summary["incidents"] for reason in incident["reasons"]]
            for beginning in reasons:
                if not any(reason.startswith(beginning) for reason in said):
                    raise Failure(f"'{beginning}' is no reason in the record: {said}")
            for word in words:
                if word not in json.dumps(summary) + log:
                    raise Failure(f"'{word}' is nowhere in the report\n{log[-4000:]}")
        return test


class FrameworkDoor(Door):
    """And ORACLES: the folder with the frameworks (./tools/setup --oracles)."""

    def __init__(self, arguments, fakes=""):
        super().__init__(arguments[:3], fakes=fakes)
        self.frameworks = os.path.abspath(arguments[3])

    def environment(self):
        environment = super().environment()
        return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{self.frameworks}", "HF_HUB_OFFLINE": "1"}

    def has(self, module):
        return subprocess.run([self.python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"],
                              env=self.environment(), check=False).returncode == 0

    def skip_without(self, module):
        if not self.has(module):
            print(f"SKIPPED: there is no {module} in {self.frameworks}; ./tools/setup --oracles installs it")
            sys.exit(77)


def where_newer(door, test):
    """Left out with torch 2.11, whose options and types are fewer."""
    def run(folder):
        version = subprocess.run([door.python, "-W", "ignore", "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True, timeout=200)
        if version.stdout.startswith("2.11."):
            raise Skip("torch 2.11 lacks options and types of 2.13")
        test(folder)
    return run


def opened(preload="kintsugi.torch"):
    """What a test of torch takes, BIN PACKAGE PYTHON [--fakes DIR] [--soak] [--only WORD]...: its door, where there is torch, and its options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("door", nargs=3)
    parser.add_argument("--fakes", default="")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    door = Door(options.door, preload=preload, fakes=options.fakes)
    skip_without_torch(door)
    return door, options


def skip_without_torch(door):
    """Ends the process where there is no torch; elsewhere the extension for it is built here, not in a run with limits."""
    probe = subprocess.run([door.python, "-W", "ignore", "-c", "import kintsugi.torch._build as b; b.load()"],
                           capture_output=True, text=True, env=door.environment(), check=False)
    if probe.returncode == 0:
        return
    if "No module named 'torch'" in probe.stderr:
        print(f"SKIPPED: {door.python} has no torch; ./tools/setup --python installs it")
        sys.exit(77)
    print(probe.stderr[-4000:])
    sys.exit(1)
