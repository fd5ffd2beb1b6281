"""`pip install .` in fresh environments, with pip's own isolation: one with numpy alone, one that has torch.

  pip_test.py BUILD_PYTHON      its torch is what the second environment has
Exit code 77 where pip can reach none of what it builds with.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/multiproc"))
from harness import Failure, same_training  # noqa: E402

LINE = ROOT / "tests/python/line.py"
GPT = ROOT / "integrations/examples/torch_gpt/train.py"


class Environment:
    """A fresh one, with `kintsugi` installed from the sources."""

    def __init__(self, folder, neighbour=None, packages=()):
        self.folder = Path(folder)
        self.python = self.folder / "bin/python"
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(folder)], check=True, timeout=300)
        self.site = next((self.folder / "lib").glob("python*/site-packages"))
        if neighbour:
            (self.site / "neighbour.pth").write_text(neighbour + "\n")
        self.cache = self.folder / "torch-cache"
        done = self.call([self.folder / "bin/pip", "install", "--quiet", str(ROOT), *packages], timeout=3000)
        if done.returncode != 0:
            nothing = "No matching distribution found for " in done.stderr and "kintsugi" not in done.stderr.splitlines()[-1]
            raise LookupError(done.stderr[-3000:]) if nothing else Failure(done.stderr[-5000:])

    def call(self, words, timeout=600, **more):
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
        environment |= {"KINTSUGI_TORCH_CACHE": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1", **more}
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout, env=environment,
                              cwd=self.folder)

    def train(self, program, *options, nproc=2):
        done = self.call([self.folder / "bin/kintsugi", "run", "--nproc", nproc, "--json", "-", *options, "--", self.python,
                          *program])
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode}\n{done.stderr[-5000:]}")
        return json.loads(done.stdout)

    def survives(self, program, *faults):
        undisturbed = self.train(program)
        disturbed = self.train(program, *(word for fault in faults for word in ("--inject", fault)))
        difference = same_training(undisturbed, disturbed)
        if difference or len(disturbed["incidents"]) != len(faults):
            raise Failure(f"{difference}, {len(disturbed['incidents'])} incidents")


def numpy_alone(folder):
    fresh = Environment(folder, packages=["numpy"])
    files = {str(path.relative_to(fresh.site / "kintsugi")) for path in (fresh.site / "kintsugi").rglob("*") if path.is_file()}
    for needed in ("py.typed", "_core.pyi", "bin/kintsugi", "torch/group.cc"):
        if needed not in files:
            raise Failure(f"{needed} is not in the wheel: {sorted(files)}")
    libraries = [name for name in files if name.startswith("libkintsugi")]
    if len(libraries) != 1 or any(name.startswith("torch/built/") for name in files):
        raise Failure(f"libraries in the wheel: {sorted(name for name in files if '.so' in name)}")
    fresh.survives([LINE], "kill:1@5:gate", "throw:0@9:update")


def beside_torch(folder, build_python):
    torch = Path(build_python).absolute().parent.parent
    fresh = Environment(folder, neighbour=str(next((torch / "lib").glob("python*/site-packages"))))
    # Installed with the rest, so that nothing is built at first use.
    fresh.survives([GPT, "--steps", "6"], "kill:1@3:backward")
    if fresh.cache.exists():
        raise Failure(f"the extension for torch was built again: {sorted(fresh.cache.rglob('*'))}")
    # As where torch came after us.
    shutil.rmtree(fresh.site / "kintsugi/torch/built")
    load = [fresh.python, "-W", "ignore", "-c", "import kintsugi.torch._build as build; build.load()"]
    refused = fresh.call(load, CXX="no-such-compiler")
    if refused.returncode == 0 or "there is no 'no-such-compiler'" not in refused.stderr.splitlines()[-1]:
        raise Failure(refused.stderr[-2000:])
    for word in ("building the extension for torch", ""):  # once
        done = fresh.call(load)
        if done.returncode != 0 or (word not in done.stderr if word else done.stderr):
            raise Failure(done.stderr[-2000:])


def main():
    failed = 0
    for name, test in (("pip install . beside numpy alone", numpy_alone),
                       ("pip install . beside torch", lambda folder: beside_torch(folder, sys.argv[1]))):
        if test is not numpy_alone and not Path(sys.argv[1]).exists():
            print(f"SKIPPED: {name}: no build/python")
            continue
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            try:
                test(folder)
                print(f"ok      {name}", flush=True)
            except LookupError as error:
                print(f"SKIPPED: {name}: pip finds none of what it builds with\n{error}")
                return 77
            except (Failure, subprocess.SubprocessError, OSError) as error:
                failed += 1
                print(f"FAILED  {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
