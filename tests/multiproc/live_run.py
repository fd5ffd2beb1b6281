"""A run that is still going on: its status, its ranks' processes, signals to it, its end.

    with LiveRun(runner, ["--silence", "0.4"], ["--steps", "60"]) as run:
        run.wait_step(10)
        run.kill(2, signal.SIGKILL)
        summary, log = run.finish()
"""
import json
import os
import signal
import socket
import subprocess
import time

from harness import SLOWNESS, Failure

POLL_SECONDS = 0.01
WAIT_SECONDS = 60  # a safety net: nothing here takes that long unless something is wrong


def wait_until(condition, what, seconds=WAIT_SECONDS):
    """Polls until the condition gives something true, and returns it. `what`: a text, or what gives it at the end."""
    seconds *= SLOWNESS
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(POLL_SECONDS)
    raise Failure(f"waited {seconds} s in vain: {what() if callable(what) else what}")


def ask(control_socket, command, **fields):
    """One request through the control socket, without a process in between; None while nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(5)
            door.connect(str(control_socket))
            door.sendall(json.dumps({"command": command, **fields}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                piece = door.recv(1 << 16)
                if not piece:
                    return None
                answer += piece
    except OSError:
        return None
    parsed = json.loads(answer)
    return parsed if parsed.get("ok") else None


class LiveRun:
    def __init__(self, runner, run_args=(), trainer_args=(), nproc=4, command=None):
        self.runner = runner
        self.run_dir = runner.folder / f"run-{len(runner.live)}"
        self.out = open(f"{self.run_dir}.out", "w+b")
        self.err = open(f"{self.run_dir}.err", "w+b")
        line = command or runner.command(["--run-dir", str(self.run_dir), *run_args], trainer_args, nproc)
        self.process = subprocess.Popen(line, cwd=runner.folder, stdout=self.out, stderr=self.err,
                                        start_new_session=True)
        self.pid = self.process.pid
        runner.live.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.out.close()
        self.err.close()

    # ---- looking at it ---------------------------------------------------------------------------------------------

    def status(self):
        """What `kintsugi status --json` prints, or None while nobody answers. Asked for without a process in between: on
        a busy machine its start takes longer than several steps."""
        return self.ask("status")

    def ask(self, command, **fields):
        return ask(self.run_dir / "control.sock", command, **fields)

    def wait_status(self, condition, what):
        def look():
            if self.process.poll() is not None:
                raise Failure(f"the run ended (code {self.process.returncode}) before: {what}\n{self.log()[-3000:]}")
            status = self.status()
            return status if status and condition(status) else None
        return wait_until(look, what)

    def wait_step(self, step):
        return self.wait_status(lambda s: s["step"] >= step and s["phase"] == "RUNNING", f"step {step}")

    def wait_log(self, text):
        return wait_until(lambda: text in self.log(), f"'{text}' in the log")

    def log(self):
        """Its error output, without the progress lines."""
        with open(self.err.name, errors="replace") as file:
            return "".join(line for line in file if not line.startswith("step "))

    # ---- doing something to it -------------------------------------------------------------------------------------

    def signal_rank(self, rank, number):
        pid = self.status()["ranks"][rank]["pid"]
        os.kill(pid, number)
        return pid

    def strike(self, kind, *ranks, place="forward", ahead=10):
        """Orders `kind` for each of the ranks, all in the same step, some steps from now. Unlike a signal it never hits
        an update by chance, whose half-done state would leave another rung than the one looked for."""
        step = self.status()["step"] + ahead
        for rank in ranks:
            if not self.ask("inject", spec=f"{kind}:{rank}@{step}:{place}"):
                raise Failure(f"{kind} of rank {rank} could not be injected at step {step}\n{self.log()[-3000:]}")
        return step

    def signal(self, number):
        self.process.send_signal(number)

    # ---- its end ---------------------------------------------------------------------------------------------------

    def wait(self, expect, seconds=120):
        try:
            code = self.process.wait(seconds * SLOWNESS)
        except subprocess.TimeoutExpired:
            last = self.status()
            raise Failure(f"the run does not end; status {json.dumps(last)}\n{self.log()[-4000:]}") from None
        if code != expect:
            raise Failure(f"exit code {code}, expected {expect}\n{self.log()[-6000:]}")

    def finish(self, expect=0, seconds=120):
        """Waits for the end; the summary (None where there is none) and the log."""
        self.wait(expect, seconds)
        orphans = self.runner.orphans()
        if orphans:
            raise Failure(f"left running: {orphans}")
        with open(self.out.name) as file:
            text = file.read()
        return (json.loads(text) if text.strip() else None), self.log()


def stop_and_continue(pid, is_over):
    """SIGSTOP, and SIGCONT as soon as is_over()."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(is_over, "the pause's end")
    finally:
        os.kill(pid, signal.SIGCONT)
