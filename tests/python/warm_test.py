"""`kintsugi run --warm`: the replacement of a killed rank is forked from a process that has imported what the program imports.

  warm_test.py BIN_DIR PACKAGE_FOLDER PYTHON
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from door import HERE, Door, Failure, main

WARM = str(HERE / "warm.py")
PATIENT = ("--silence", "8", "--hang-factor", "0", "--step-timeout", "300")  # ranks wait in a step until the test is ready
QUIET = "import random\nSEED = random.random()\ndef noise(): return random.random()\n"
ON_DEVICE = "import torch\ntorch.cuda.is_initialized = lambda: True\n"
# As torch's is_available() and its _cuda_getDeviceCount(), where there is a device: a copy of a process that has asked the driver says so.
ASKS_DRIVER = """
    import os, torch
    copies = []
    os.register_at_fork(after_in_child=lambda: copies.append(1))
    torch.cuda._is_in_bad_fork = lambda: bool(copies)
"""
ASKS_TORCH = f"import os\nif os.environ.get('PYTORCH_NVML_BASED_CUDA_CHECK') != '1':{ASKS_DRIVER}"
THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
SAID = re.compile(r"rank (\d) life (\d) numbers \[(.*?)\] imported in (\S+) noise (\S+) input (\d+) main (\S+) path (\S+)")


class Struck:
    """A run of two ranks that wait in a step; `until` is in the log, rank 1 is killed, and they go on."""

    def __init__(self, door, noisy, until, words=(), program=(), kill=1, options=("--warm",)):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            Path(folder, "noisy.py").write_text(noisy + ("" if "def noise" in noisy else "def noise(): return 0\n"))
            Path(folder, "as_module.py").write_text(Path(WARM).read_text())
            environment = {**door.environment(), "PYTHONPATH": f"{door.package}:{folder}"}
            command = [str(door.bin / "kintsugi"), "run", "--nproc", "2", *options, "--save-dir", "", *PATIENT, "--log-file", f"{folder}/log",
                       "--json", f"{folder}/summary", "--", door.python, *(program or (WARM,)), folder, *words]
            with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) as run:
                try:
                    self.await_words(run, Path(folder, "log"), until)
                    for life in range(1, kill + 1):
                        os.kill(self.newest(folder), signal.SIGKILL)
                        self.await_words(run, Path(folder, "log"), f"event=incident id={life} ")
                    Path(folder, "go").touch()
                    self.output, _ = run.communicate(timeout=120)
                finally:
                    run.kill()
            self.log = Path(folder, "log").read_text()
            self.everything = f"{self.output[-3000:]}\n{self.log[-6000:]}"
            if run.returncode != 0:
                raise Failure(f"exit code {run.returncode}\n{self.everything}")
            self.summary = json.loads(Path(folder, "summary").read_text())
        self.said = {int(found[0]): found[1:] for found in SAID.findall(self.output)}
        if sorted(self.said) != [0, 1] or len({said[1] for said in self.said.values()}) != 1:
            raise Failure(f"{self.said}\n{self.everything}")
        if self.said[1][0] != str(1 + kill) or self.said[0][1] != "36.0, 36.0, 36.0, 36.0":
            raise Failure(f"{self.said}\n{self.everything}")

    @staticmethod
    def newest(folder):
        """The process of rank 1."""
        return int(re.findall(r"event=spawned rank=1 incarnation=\d+ pid=(\d+)", Path(folder, "log").read_text())[-1])

    @staticmethod
    def await_words(run, log, words):
        for _ in range(20_000):
            if log.exists() and words in log.read_text():
                return
            if run.poll() is not None:
                raise Failure(f"the run ended before '{words}'\n{run.stdout.read()[-4000:]}")
            time.sleep(0.01)
        raise Failure(f"no '{words}' within 200 s\n{log.read_text()[-4000:]}")


def is_forked(door):
    """It has imported nothing itself, runs as the main program, has numbers of its own at random, and state is adopted."""
    def test(_):
        struck = Struck(door, QUIET, "event=warm_ready", kill=2)
        first, second = struck.said[0], struck.said[1]
        if struck.log.count("how=forked") != 2 or struck.log.count("how=started") != 2:
            raise Failure(struck.everything)
        if float(second[2]) > 0.5 * float(first[2]) or first[3] == second[3] or second[4:] != ("0", "__main__", "True"):
            raise Failure(f"{struck.said}\n{struck.everything}")
        if [incident["path"] for incident in struck.summary["incidents"]] != ["adopt", "adopt"]:
            raise Failure(struck.everything)
    return test


def as_module(door):
    def test(_):
        struck = Struck(door, QUIET, "event=warm_ready", program=("-u", "-W", "error", "-m", "as_module"))
        if "how=forked" not in struck.log:
            raise Failure(struck.everything)
    return test


def refuses_threads(door):
    def test(_):
        struck = Struck(door, THREAD, "event=warm_refused")
        if "it has 1 more threads (python" not in struck.log or "how=forked" in struck.log:
            raise Failure(struck.everything)
    return test


def refuses_device(door, module, words):
    """A copy of a process that has a CUDA context, or has asked the driver, could not use a device."""
    def test(_):
        if subprocess.run([door.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            return
        struck = Struck(door, module, "event=warm_refused")
        if words not in struck.log or "how=forked" in struck.log:
            raise Failure(struck.everything)
    return test


def leaves_driver_alone(door):
    """Torch asks NVML then."""
    def test(_):
        if subprocess.run([door.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            return
        struck = Struck(door, ASKS_TORCH, "event=warm_ready")
        if "how=forked" not in struck.log:
            raise Failure(struck.everything)
    return test


def is_of_torch(door):
    def test(_):
        if subprocess.run([door.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            return
        struck = Struck(door, QUIET, "event=warm_ready", words=("--torch",))
        if "how=forked" not in struck.log or float(struck.said[1][2]) > 0.3 * float(struck.said[0][2]):
            raise Failure(f"{struck.said}\n{struck.everything}")
    return test


def preloaded(door):
    """All are forked, a replacement too, and are no copies of each other."""
    def test(_):
        struck = Struck(door, QUIET, "to=RUNNING", words=("--torch",), options=("--preload", "torch,noisy"))
        if struck.log.count("how=forked") != 3 or "how=started" in struck.log or struck.said[0][3] == struck.said[1][3]:
            raise Failure(struck.everything)
    return test


def refuses(door, program, words, option="--warm"):
    def test(_):
        done = subprocess.run([str(door.bin / "kintsugi"), "run", *option.split(), "--nproc", "1", "--", *program], capture_output=True, text=True,
                              timeout=60, check=False, env=door.environment())
        if done.returncode == 0 or words not in done.stderr:
            raise Failure(f"{done.returncode}\n{done.stderr[-2000:]}")
    return test


if __name__ == "__main__":
    door = Door(sys.argv[1:])
    sys.exit(main([
        ("a killed rank comes back forked, twice", is_forked(door)),
        ("a module is run as a module", as_module(door)),
        ("torch is there already, and trains after the fork", is_of_torch(door)),
        ("a module that starts a thread is told, and a new process started", refuses_threads(door)),
        ("a module that uses a device is told, and a new process started", refuses_device(door, ON_DEVICE, "a module initialises CUDA when it is imported")),
        ("a module that asks the driver is told, and a new process started", refuses_device(door, textwrap.dedent(ASKS_DRIVER), "a module asks CUDA's driver for something")),
        ("a module that asks torch whether there is a device keeps from nothing", leaves_driver_alone(door)),
        ("all ranks forked from a process that was told what to import", preloaded(door)),
        ("a module that is not there", refuses(door, [door.python, WARM], "--preload torhc: ModuleNotFoundError: No module named 'torhc'",
                                               "--preload torhc")),
        ("no program in Python", refuses(door, ["/bin/true"], "the program is not run by Python")),
        ("a program that is given as text", refuses(door, [door.python, "-c", "pass"], "'-c' is no file and no module")),
        ("types are as they say", door.typed("-m", "kintsugi.warm")),
    ], door.bin))
