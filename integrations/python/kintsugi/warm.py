"""`kintsugi run --warm`: one process of a host that has imported what the ranks have imported, and forks their replacements.

Run by the launcher, as `python -m kintsugi.warm [--preload MODULE]... PROGRAM [ARGUMENTS]`. It knows nothing of the run: a rank writes the names of its
modules into KINTSUGI_WARM_FD when it comes to its loop, this process imports them in that order, behind those that it is told to preload, says "ready"
on KINTSUGI_FORK_FD and waits. For each message there (runtime/process/fork_server.h) it forks a copy that has the environment and the descriptors of a
rank, and runs the program from its first line, as a new interpreter would, but that its imports are there already.

What a module does at its import it has done before: one that reads RANK then sees none. Forking a process with threads or with
a device is not safe, and is refused.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import os
import random
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import Any

_FIRST_PASSED = 3  # what a rank was passed begins here
_PR_SET_PDEATHSIG = 1
_MESSAGE_BYTES = 1 << 20
_DESCRIPTORS = 64
_RESERVED = range(_FIRST_PASSED, _FIRST_PASSED + 48)  # numbers that no module's own descriptor gets


def _threads() -> list[str]:
    """The names of this process's other threads."""
    tasks = Path("/proc/self/task")
    return [(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != str(os.getpid())]


def _why_not() -> str | None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "a module initialises CUDA when it is imported, and a process with a device cannot be forked"
    if threads := _threads():
        return (f"it has {len(threads)} more threads ({', '.join(sorted(set(threads)))}), started by a module that was imported; "
                "--spares serves such programs")  # fmt: skip
    return None


def _why_no_copy() -> str | None:
    """What shows in a copy alone: there torch says that the driver was asked before, if only how many devices there are."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    child = os.fork()
    if child == 0:
        in_vain = True
        try:
            in_vain = torch.cuda._is_in_bad_fork()
        finally:
            os._exit(in_vain)
    if os.waitpid(child, 0)[1] == 0:
        return None
    return "a module asks CUDA's driver for something when it is imported, and no copy of that process could use a device"


def _load(names: list[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 - one that the rank made by other means: the copy does so again
            continue
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch imports half of itself with its first optimizer (torch._dynamo). No backward pass: that starts threads.
        before = torch.get_rng_state()
        weight = torch.ones(2, requires_grad=True)
        weight.grad = torch.ones(2)
        torch.optim.AdamW([weight]).step()
        torch.set_rng_state(before)


class _Copy:
    """What a copy needs to become a rank."""

    def __init__(self, environment: dict[str, str], descriptors: list[int]) -> None:
        self.environment = environment
        self.output, self.errors, self.talk, *self.passed = descriptors

    def close(self) -> None:
        for fd in (self.output, self.errors, self.talk, *self.passed):
            os.close(fd)

    def become(self, launcher: int) -> None:
        """In the copy. The launcher is its parent by now, or gone."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != launcher or os.read(self.talk, 1) != b"g":
            os._exit(127)
        for number, fd in enumerate((self.output, self.errors, *self.passed), start=1):
            os.dup2(fd, number)
        self.close()
        os.closerange(_FIRST_PASSED + len(self.passed), _RESERVED.stop)
        os.environ.clear()
        os.environ.update(self.environment)
        random.seed()
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()


def _reserve(*descriptors: int) -> list[int]:
    """Standard input and the numbers of what a rank is passed become the null device; `descriptors` move above."""
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _RESERVED.stop) for fd in descriptors]
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDONLY), fcntl.F_DUPFD_CLOEXEC, _RESERVED.stop)
    os.dup2(null, 0)
    for number in _RESERVED:
        os.dup2(null, number, inheritable=False)
    return moved


def _receive(channel: socket.socket) -> _Copy | None:
    text, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _DESCRIPTORS)
    if not text:
        return None
    pairs = (entry.split("=", 1) for entry in text.decode(errors="surrogateescape").split("\0") if "=" in entry)
    return _Copy({name: value for name, value in pairs}, descriptors)


def _fork(copy: _Copy, launcher: int) -> str | None:
    """The answer to the launcher; nothing: this is the copy."""
    if why := _why_not():
        return f"refused {why}"
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            inner = os.fork()
        except OSError:
            os._exit(1)
        if inner != 0:
            os.write(tell, str(inner).encode())
            os._exit(0)
        os.close(told)
        os.setpgid(0, 0)
        # Its parent ends at once, and from then on the launcher is its parent.
        for _ in range(2000):
            if os.getppid() == launcher:
                break
            threading.Event().wait(0.001)
        os.close(tell)
        return None
    os.close(tell)
    os.waitpid(child, 0)
    pid = os.read(told, 32).decode()
    # It closes the pipe once it leads its group and the launcher is its parent.
    os.read(told, 1)
    os.close(told)
    return f"pid {pid}" if pid else "refused the system has no room for another process"


def _run(program: str, arguments: list[str]) -> None:
    """As the interpreter runs its first argument."""
    if program == "-m":
        import runpy

        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=program, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    exec(compile(Path(program).read_bytes(), program, "exec"), main.__dict__)


def _preload(names: list[str]) -> str | None:
    """Why not; by its first word the launcher knows it from other refusals, and ends the run (runtime/launcher/warm_process.cc)."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a module does
            return f"--preload {name}: {type(error).__name__}: {error}"
    return None


def _serve(channel: socket.socket, modules: int, preloaded: list[str]) -> _Copy | None:
    """Copies until the launcher goes, in which case nothing comes back; in a copy, what it is to become."""
    launcher = os.getppid()
    if lacks := _preload(preloaded):
        channel.send(f"refused {lacks}".encode()[:4000])
        return None
    _load(os.pread(modules, os.fstat(modules).st_size, 0).decode().splitlines())
    os.close(modules)
    if why := _why_not() or _why_no_copy():
        channel.send(f"refused {why}".encode())
        return None
    gc.collect()
    gc.freeze()  # what is there is not looked at again, so that copies go on sharing its pages
    channel.send(b"ready")
    while True:
        copy = _receive(channel)
        if copy is None:
            return None
        answer = _fork(copy, launcher)
        if answer is None:
            copy.become(launcher)
            return copy
        copy.close()
        channel.send(answer.encode())


def main(words: list[str]) -> Any:
    preloaded: list[str] = []
    while words[:1] == ["--preload"]:
        preloaded.append(words[1])
        words = words[2:]
    if not words or "KINTSUGI_FORK_FD" not in os.environ:
        sys.exit("kintsugi.warm is started by `kintsugi run --warm -- python PROGRAM`, and by nobody else")
    if words[0] != "-m":
        sys.path[0] = str(Path(words[0]).resolve().parent)
    # Many a module asks at its import whether there is a device. Torch then asks NVML, and leaves the driver alone. Copies have their ranks' environment.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    talk, modules = _reserve(int(os.environ.pop("KINTSUGI_FORK_FD")), int(os.environ.pop("KINTSUGI_WARM_FD")))
    with socket.socket(fileno=talk) as channel:
        copy = _serve(channel, modules, preloaded)
    if copy is None:
        return
    _run(words[0], words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
