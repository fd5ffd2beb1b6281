"""Ranks that no launcher of ours started: those of torchrun, or of anything that sets RANK, WORLD_SIZE and MASTER_ADDR.

Rank 0 starts `kintsugi controller` beside itself, in a session of its own, and the others learn its address and the run's secret
from torch's store at MASTER_ADDR:MASTER_PORT, which is trusted as far as torch trusts it. Exceptions, hangs and damaged memory are
repaired in place. Nobody here can start a process: where one is lost, the others write a dump (`--save-dir`) and end, and
who started them, as `torchrun --max-restarts`, starts all again (`--resume auto`).

KINTSUGI_CONTROLLER_OPTIONS holds words for `kintsugi controller`, as in "--save-dir saves --resume auto --snapshot-every 100".
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from .. import _command
from .._errors import Error
from ..abi import Code

OPTIONS = "KINTSUGI_CONTROLLER_OPTIONS"
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SECRET_BYTES = 32
_stop_handlers: list[Callable[[int, Any], None]] = []
_stores: list[Any] = []  # served as long as the process lives
_controllers: list[subprocess.Popen[str]] = []  # this process's, where it is rank 0


def is_wanted() -> bool:
    """Whether something other than `kintsugi run` started this rank, and said which one it is."""
    launched = any(name in os.environ for name in ("KINTSUGI_CONTROLLER", "KINTSUGI_SPARE_FD"))
    return not launched and all(os.environ.get(name) for name in _NEEDED)


def find_controller() -> None:
    """Sets in the environment what `kintsugi run` would have set: controller, job and secret. Waits for rank 0."""
    rank, world_size = _number("RANK"), _number("WORLD_SIZE")
    store = TCPStore(
        os.environ["MASTER_ADDR"], _number("MASTER_PORT"), world_size,
        is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        timeout=timedelta(seconds=120), wait_for_workers=False, multi_tenant=True)  # fmt: skip
    _stores.append(store)
    key = f"kintsugi/{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if rank == 0:
        store.set(key, json.dumps(_start(world_size)))
    try:
        told = json.loads(store.get(key))
    except dist.DistStoreError as error:
        raise Error(f"rank 0 did not say where its controller listens: {error}", Code.DEADLINE_EXCEEDED) from error
    if "failed" in told:
        raise Error(f"rank 0 could not start a controller: {told['failed']}", Code.FAILED_PRECONDITION)
    os.environ["KINTSUGI_CONTROLLER"] = told["controller"]
    os.environ["KINTSUGI_JOB"] = told["job"]
    os.environ["KINTSUGI_SECRET_FD"] = str(_hold(bytes.fromhex(told["secret"])))


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise Error(f"{name}={os.environ[name]!r} is no number", Code.INVALID_ARGUMENT) from None


def _hold(secret: bytes) -> int:
    descriptor = os.memfd_create("kintsugi-secret", 0)
    os.write(descriptor, secret)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _start(world_size: int) -> dict[str, str]:
    """Starts the controller; what the other ranks need of it, or why there is none."""
    try:
        secret = secrets.token_bytes(_SECRET_BYTES)
        job = os.environ.get("TORCHELASTIC_RUN_ID") or "job"
        here = os.environ.get("LOCAL_WORLD_SIZE") == str(world_size)
        descriptor = _hold(secret)
        asked = shlex.split(os.environ.get(OPTIONS, ""))
        words = [_command.find(), "controller", *asked, "--world-size", str(world_size), "--port", "0", "--job", job,
                 "--secret-fd", str(descriptor)]  # fmt: skip
        # What the user may say better. Nobody here replaces one process alone, so none is waited for.
        for option, value in (("--bind", "127.0.0.1" if here else "0.0.0.0"), ("--max-respawns", "0"), ("--log-level", "warning")):
            if not any(word.split("=")[0] == option for word in asked):
                words += [option, value]
        # Its own session: who ends this rank's process group must not end the one that decides what the others do then.
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, pass_fds=[descriptor], start_new_session=True)
        os.close(descriptor)
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line.startswith("listening on "):
            raise Error(f"`{shlex.join(words)}` ended with {child.wait()}: see above", Code.FAILED_PRECONDITION)
        port = line.rsplit(":", 1)[1].strip()
    except (Error, OSError, ValueError) as error:
        return {"failed": str(error)}
    _controllers.append(child)
    # Read to its end, so that it is never blocked; and waited for, so that it is no zombie.
    threading.Thread(target=child.communicate, name="kintsugi-controller", daemon=True).start()
    return {"controller": f"{'127.0.0.1' if here else os.environ['MASTER_ADDR']}:{port}", "job": job, "secret": secret.hex()}


def save_before_leaving(trains: Callable[[], bool]) -> None:
    """SIGTERM, from torchrun when another rank has failed or from a scheduler, lets the run write its checkpoint first.

    Only where there is a folder to save in, and nobody else handles the signal. While `trains` is false it ends the process.
    """
    asked = "--save-dir" in os.environ.get(OPTIONS, "")
    if not asked or threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return

    def leave(number: int, _frame: object) -> None:
        if not trains():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for controller in _controllers:
            controller.send_signal(signal.SIGTERM)  # of the whole run: it saves, then all are told to leave

    signal.signal(signal.SIGTERM, leave)
    _stop_handlers.append(leave)


def handles_stop() -> bool:
    """Whether SIGTERM is this module's: the run saves, and then ends by itself."""
    return signal.getsignal(signal.SIGTERM) in _stop_handlers
