"""Runs on a Ray cluster: Ray places the launchers and starts lost ones again, Kintsugi repairs the ranks.

    import ray, kintsugi.ray

    ray.init()
    result = kintsugi.ray.run(["python", "train.py"], nodes=4, nproc=8, resources={"GPU": 8}, restarts=3,
                              options=["--save-dir", "/shared/saves", "--save-every", "100"])

One launcher an actor, one actor a node, in a placement group. A rank that is lost is replaced in memory. A node that is lost is
waited for (`--node-wait`); Ray starts its launcher again on another node of the cluster, if one is free, and its ranks get their
state from replicas. Where the first node is lost, or too much at once, the run saves and ends with 75: then all launchers begin
again from there, `restarts` times. The package has to be installed on every node.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _command
from ._errors import Error
from .abi import Code

RESUMABLE = 75  # the exit code of a run that has saved and wants to be started again
_SECRET_BYTES = 32
_PAUSE_MAX = 60.0  # seconds between two starts
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    exit_code: int  # 0 success, 1 the run failed, 2 wrong usage, 3 it could not start, 75 saved and to be resumed
    summary: dict[str, Any] | None  # as `kintsugi run --json` writes it; None where no launcher led to the end
    starts: int


@dataclass(frozen=True)
class _Start:
    """What every launcher of one start is told."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    environment: dict[str, str]
    nodes: int
    nproc: int
    host: str
    port: int
    secret: bytes
    job: str


def run(
    command: Sequence[str],
    *,
    nodes: int = 1,
    nproc: int = 1,
    resources: Mapping[str, float] | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    restarts: int = 0,
    node_restarts: int = 10,
    placement_seconds: float = 300,
) -> Result:
    """Trains on `nodes` nodes with `nproc` ranks each, and returns when the run has ended.

    command: the program and its arguments. resources: what each node must have free, {"CPU": nproc} unless said. options: words
    for `kintsugi run`. environment: variables of the ranks. restarts: new starts after an end with 75; they go on from
    `--save-dir`, which all nodes must share. node_restarts: how often Ray may start one node's launcher again.

    Errors: Error where Ray is missing or not connected, where an argument makes no sense, and where the cluster has not so many
    nodes free within `placement_seconds`.
    """
    _check(command, nodes, nproc, options)
    ray = _connected()
    bundle = dict(resources or {"CPU": float(nproc)})
    group = _placed(ray, bundle, nodes, placement_seconds)
    try:
        for start in range(restarts + 1):
            words = tuple(options)
            if start > 0:
                time.sleep(min(2.0 ** (start - 1), _PAUSE_MAX))
                words = _resumed(words)
                print(f"kintsugi: start {start + 1} of at most {restarts + 1}: the run goes on from what was saved", file=sys.stderr)
            code, summary = _Attempt(ray, group, bundle, nodes, node_restarts).run(tuple(command), words, dict(environment or {}), nproc)
            if code != RESUMABLE:
                break
        return Result(code, summary, start + 1)
    finally:
        ray.util.remove_placement_group(group)


def _check(command: Sequence[str], nodes: int, nproc: int, options: Sequence[str]) -> None:
    if isinstance(command, str) or not command:
        raise Error(f"command is {command!r}: give the program and its arguments as a list", Code.INVALID_ARGUMENT)
    if nodes < 1 or nproc < 1:
        raise Error(f"nodes={nodes}, nproc={nproc}: each is at least 1", Code.INVALID_ARGUMENT)
    ours = {"--nnodes", "--nproc", "--node-rank", "--rendezvous", "--secret-file", "--job", "--json", "--engine", "--node-address"}
    for word in options:
        if word.split("=")[0] in ours:
            raise Error(f"options hold {word}, which kintsugi.ray says by itself", Code.INVALID_ARGUMENT)


def _connected() -> Any:
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise Error(f"Ray cannot be imported: {error}; pip install ray", Code.FAILED_PRECONDITION) from error
    if not ray.is_initialized():
        raise Error("Ray is not connected: call ray.init() first", Code.FAILED_PRECONDITION)
    return ray


def _placed(ray: Any, bundle: dict[str, float], nodes: int, seconds: float) -> Any:
    group = ray.util.placement_group([bundle] * nodes, strategy="STRICT_SPREAD")
    try:
        ray.get(group.ready(), timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        ray.util.remove_placement_group(group)
        raise Error(f"the cluster had not {nodes} nodes with {bundle} free within {seconds:g} s; free now: {ray.available_resources()}", Code.DEADLINE_EXCEEDED) from None
    return group


def _resumed(words: tuple[str, ...]) -> tuple[str, ...]:
    return words if any(word.split("=")[0] == "--resume" for word in words) else ("--resume", "auto", *words)


class _Attempt:
    """One start of all launchers."""

    def __init__(self, ray: Any, group: Any, bundle: dict[str, float], nodes: int, node_restarts: int) -> None:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        more = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU")}
        actor = ray.remote(_Launcher)
        self._ray = ray
        self._launchers = [
            actor.options(
                num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), resources=more, max_restarts=node_restarts,
                max_task_retries=node_restarts, max_concurrency=2,
                scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            ).remote(index)
            for index in range(nodes)
        ]  # fmt: skip

    def run(self, command: tuple[str, ...], options: tuple[str, ...], environment: dict[str, str], nproc: int) -> tuple[int, dict[str, Any] | None]:
        ray = self._ray
        host, port = ray.get(self._launchers[0].find_place.remote())
        start = _Start(command, options, environment, len(self._launchers), nproc, host, port, secrets.token_bytes(_SECRET_BYTES),
                       f"ray-{secrets.token_hex(4)}")  # fmt: skip
        running = [launcher.run.remote(start) for launcher in self._launchers]
        codes: list[int] = []
        summary: dict[str, Any] | None = None
        try:
            for ended in running:
                try:
                    code, text = ray.get(ended)
                except ray.exceptions.RayError as error:
                    print(f"kintsugi: a launcher is gone for good: {error}", file=sys.stderr)
                    continue
                codes.append(code)
                summary = json.loads(text) if text else summary
        except KeyboardInterrupt:
            self._stop()
            raise
        finally:
            for launcher in self._launchers:
                ray.kill(launcher)
        return _together(codes), summary

    def _stop(self) -> None:
        """All save and leave."""
        stopped = [launcher.stop.remote() for launcher in self._launchers]
        self._ray.wait(stopped, num_returns=len(stopped), timeout=60)


def _together(codes: list[int]) -> int:
    """What a run ended with whose nodes ended with these: what the greater part saved counts more than who came too late."""
    if not codes:
        return 1
    if RESUMABLE in codes:
        return RESUMABLE
    return max(codes)


class _Launcher:
    """An actor: `kintsugi run` on its node."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._child: subprocess.Popen[bytes] | None = None

    def find_place(self) -> tuple[str, int]:
        """This node's address, and a port of it that is free now."""
        address = importlib.import_module("ray").util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((address, 0))
            return address, probe.getsockname()[1]

    def run(self, start: _Start) -> tuple[int, str]:
        address, _ = self.find_place()
        if self._index == 0 and address != start.host:
            raise Error(f"the first node was lost: it was {start.host}, this is {address}", Code.UNAVAILABLE)
        with tempfile.TemporaryDirectory(prefix="kintsugi-ray-") as folder:
            secret, summary = Path(folder, "secret"), Path(folder, "summary.json")
            secret.touch(mode=0o600)
            secret.write_bytes(start.secret)
            words = [_command.find(), "run", "--engine", "none", "--nproc", str(start.nproc), "--job", start.job, "--json", str(summary)]
            if start.nodes > 1:
                words += ["--nnodes", str(start.nodes), "--node-rank", str(self._index), "--rendezvous", f"{start.host}:{start.port}",
                          "--secret-file", str(secret), "--node-address", address]  # fmt: skip
            libc = ctypes.CDLL(None)
            self._child = subprocess.Popen([*words, *start.options, "--", *start.command], stdin=subprocess.DEVNULL,
                                           env={**os.environ, **start.environment},
                                           preexec_fn=lambda: libc.prctl(_DEATH_SIGNAL, signal.SIGTERM))  # fmt: skip
            code = self._child.wait()
            return code, summary.read_text() if summary.exists() else ""

    def stop(self) -> None:
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait()
