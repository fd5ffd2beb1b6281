"""Nothing outside stops or ends a run: a mistyped request, a reader that has stopped, a terminal that hangs up, a disk
that does not answer, folders of others."""
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

from harness import SMALL, Failure, Skip, must_be_same, only_incident, reference, script
from live_run import LiveRun, wait_until

STEPS = ["--steps", "40", "--step-delay-us", "40000", *SMALL]
LONG = ["--steps", "2000", "--step-delay-us", "20000", *SMALL]

# None of these is a request.
MISTYPED = [b'{"command":5}', b'{"command":"inject","spec":5}', b'{"command":"inject","spec":{"a":[]}}', b'{"command":null}',
            b'{"command":["status"]}', b'[]', b'5', b'"status"', b'null', b'{}', b'{"command":"\xff\xfe"}',
            b'{"command":"inject","spec":"kill\xc3"}', b'\xff', b'[' * 9000 + b']' * 9000]


def say(door, line):
    """What is answered to one line."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(str(door))
        peer.sendall(line + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = peer.recv(1 << 16)
            if not piece:
                raise Failure(f"no answer to {line[:60]}, only {answer}")
            answer += piece
    return json.loads(answer)


# ---- requests ------------------------------------------------------------------------------------------------------

def mistyped_requests(runner):
    """On the control socket, and from the command line."""
    with LiveRun(runner, [], STEPS) as run:
        run.wait_step(3)
        for line in MISTYPED:
            answer = say(run.run_dir / "control.sock", line)
            if answer.get("ok") or not ("error" in answer or "transport_error" in answer):
                raise Failure(f"{line[:60]} is answered with {answer}")
        done = subprocess.run([runner.kintsugi.encode(), b"inject", b"--run", str(run.run_dir).encode(), b"kill:\xff\xfe@3"],
                              cwd=runner.folder, capture_output=True, timeout=60)
        if done.returncode != 2 or not done.stderr:
            raise Failure(f"inject of no UTF-8: code {done.returncode}, {done.stderr}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, STEPS), summary, log)
    if summary["incidents"]:
        raise Failure(f"requests made incidents: {summary['incidents']}")


def a_door_with_too_many_callers(runner):
    """A launcher that does not come to answer, its door full: a command waits for its turn, and says so."""
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(3)
        run.signal(signal.SIGSTOP)
        callers = []
        try:
            while True:
                callers.append(socket.socket(socket.AF_UNIX))
                callers[-1].setblocking(False)
                callers[-1].connect(str(run.run_dir / "control.sock"))
        except BlockingIOError:
            pass  # that one is beyond what the door holds
        command = subprocess.Popen([runner.kintsugi, "inject", "--run", str(run.run_dir), "throw:1@1000000"], cwd=runner.folder,
                                   stderr=open(runner.folder / "inject.err", "w"))
        wait_until(lambda: "trying again, 30 s at most" in (runner.folder / "inject.err").read_text() or command.poll() is not None,
                   "the command says that it waits")
        for caller in callers:
            caller.close()
        run.signal(signal.SIGCONT)
        if command.wait(60) != 0:
            raise Failure(f"code {command.returncode}: {(runner.folder / 'inject.err').read_text()}")
        run.signal(signal.SIGTERM)
        run.wait(75)


def mistyped_requests_to_a_node(runner):
    secret = runner.folder / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    def line(node):
        return runner.command(["--nnodes", "2", "--node-rank", str(node), "--rendezvous", f"127.0.0.1:{port}",
                               "--secret-file", str(secret), "--run-dir", str(runner.folder / f"run-{len(runner.live)}")],
                              STEPS, 2)
    with LiveRun(runner, command=line(0)) as first, LiveRun(runner, command=line(1)) as second:
        first.wait_step(3)
        for run in (first, second):
            for request in MISTYPED:
                answer = say(run.run_dir / "control.sock", request)
                if answer.get("ok"):
                    raise Failure(f"{request[:60]} is answered with {answer}")
        second.wait(0)
        summary, log = first.finish()
    must_be_same(reference(runner.bin, STEPS), summary, log)


# ---- output --------------------------------------------------------------------------------------------------------

class Unread:
    """A pipe of one page that somebody holds and nobody reads."""

    def __enter__(self):
        self.read, self.write = os.pipe()
        fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, 4096)
        return self

    def fill(self):
        """Nothing more goes in."""
        flags = fcntl.fcntl(self.write, fcntl.F_GETFL)
        fcntl.fcntl(self.write, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        try:
            while True:
                os.write(self.write, b"x" * 512)
        except BlockingIOError:
            pass
        fcntl.fcntl(self.write, fcntl.F_SETFL, flags)

    def __exit__(self, *_):
        os.close(self.read)
        os.close(self.write)


class UnreadTerminal(Unread):
    """A terminal whose other end somebody holds and nobody reads, as after Ctrl-S."""

    def __enter__(self):
        self.read, self.write = pty.openpty()
        return self


class Silenced(LiveRun):
    """A run whose error output is this descriptor, as is its standard output without --json."""

    def __init__(self, runner, error_output, run_args, trainer_args, **options):
        self.error_output = error_output
        self.options = options
        super().__init__(runner, command=["true"])
        self.process.wait()
        summary = runner.folder / "summary.json"
        line = [runner.kintsugi, "run", "--nproc", "4", "--json", str(summary), "--run-dir", str(self.run_dir), "--log-level",
                "debug", "--save-dir", str(runner.folder / "checkpoints"), *run_args, "--", runner.byte_lm, "--samples", "0",
                *trainer_args]
        self.process = subprocess.Popen(line, cwd=runner.folder, stdout=error_output, stderr=error_output,
                                        start_new_session=True, **options)
        self.pid = self.process.pid
        self.summary = summary

    def finish(self, expect=0, seconds=120):
        self.wait(expect, seconds)
        if self.runner.orphans():
            raise Failure(f"left running: {self.runner.orphans()}")
        return json.loads(self.summary.read_text()), ""


def nobody_reads(output):
    """The run repairs, answers, hears SIGTERM, saves and ends."""
    def test(runner):
        with output() as unread:
            unread.fill()
            with Silenced(runner, unread.write, [], LONG) as run:
                run.wait_step(5)
                run.signal_rank(1, signal.SIGKILL)
                run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the repair")
                run.signal(signal.SIGTERM)
                summary, _ = run.finish(expect=75)
        only_incident(summary)
        if not any((runner.folder / "checkpoints").glob("step_*")):
            raise Failure("nothing was saved")
    return test


def the_reader_goes_away(runner):
    """2>&1 | head -1"""
    read, write = os.pipe()
    with Silenced(runner, write, ["--inject", "kill:2@12:forward"], STEPS) as run:
        os.close(write)
        os.read(read, 10)
        os.close(read)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, STEPS), summary, log)
    only_incident(summary)


def the_terminal_hangs_up(runner):
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(5)
        run.signal(signal.SIGHUP)
        run.finish(expect=75)


def nohup(runner):
    read, write = os.pipe()
    os.close(read)
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Silenced(runner, write, [], STEPS, preexec_fn=ignore) as run:
        os.close(write)
        run.wait_step(5)
        run.signal(signal.SIGHUP)
        summary, log = run.finish()
    must_be_same(reference(runner.bin, STEPS), summary, log)


# ---- a disk that does not answer -------------------------------------------------------------------------------------

FREEZE, THAW = 0xC0045877, 0xC0045878


class FrozenDisk:
    """A file system of its own that can be frozen: what writes then waits in the kernel, and no signal ends that."""

    def __init__(self, runner):
        self.place = runner.folder / "disk"
        self.image = runner.folder / "disk.img"
        self.folder = None

    def __enter__(self):
        self.place.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(64 << 20)
        try:
            made = subprocess.run(["mkfs.ext4", "-q", "-F", self.image], capture_output=True)
            mounted = made.returncode == 0 and subprocess.run(["mount", "-o", "loop", self.image, self.place],
                                                              capture_output=True).returncode == 0
        except FileNotFoundError:
            mounted = False
        if not mounted:
            raise Skip("no file system can be made and mounted here")
        self.folder = os.open(self.place, os.O_RDONLY)
        return self

    def freeze(self):
        fcntl.ioctl(self.folder, FREEZE, 0)

    def thaw(self):
        try:
            fcntl.ioctl(self.folder, THAW, 0)
        except OSError:
            pass  # it was not frozen

    def __exit__(self, *_):
        self.thaw()
        os.close(self.folder)
        wait_until(lambda: subprocess.run(["umount", self.place], capture_output=True).returncode == 0, "the unmounting", 30)


def the_disk_does_not_answer(runner):
    """SIGTERM, and the save never returns: the grace period bounds it, and what is left of it all is said."""
    with FrozenDisk(runner) as disk:
        with LiveRun(runner, ["--save-dir", str(disk.place / "checkpoints"), "--grace", "4", "--report",
                              str(runner.folder / "report")], LONG) as run:
            run.wait_step(5)
            disk.freeze()
            run.signal(signal.SIGTERM)
            # Its limit is 4 s of grace and 2 s for processes that do not die; the rest is this machine's.
            run.wait(1, seconds=40)
            log = run.log()
            disk.thaw()
            wait_until(lambda: not runner.orphans(), "the end of the processes that hung in the kernel", 30)
    for words in ("the grace period of 4000 ms was over", "there is no checkpoint"):
        if words not in log:
            raise Failure(f"not said: {words}\n{log[-3000:]}")


# ---- folders -------------------------------------------------------------------------------------------------------

def run_folders_in_two_pid_namespaces(runner):
    """Two runs whose launchers have the same process number and share /tmp: each has its folder, and neither removes
    the other's, nor does a start that is refused."""
    if os.geteuid() != 0:
        raise Skip("a pid namespace needs root")
    base = runner.folder / "runtime"
    (base / "kintsugi").mkdir(parents=True, mode=0o700)
    (base / "kintsugi").chmod(0o700)
    foreign = base / "kintsugi" / "run-1"  # none of ours: there is no lock in it
    foreign.mkdir()
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(base)}
    def line(number, *program):
        return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", runner.kintsugi, "run", "--nproc", "2",
                "--save-dir", str(runner.folder / f"checkpoints-{number}"), *program]
    def folders():
        return [entry for entry in (base / "kintsugi").iterdir() if entry != foreign and entry.name.startswith("run-")]
    runs = []
    try:
        for number in range(2):
            runs.append(subprocess.Popen(line(number, "--", runner.byte_lm, "--samples", "0", *LONG), cwd=runner.folder,
                                         env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_until(lambda: len([folder for folder in folders() if (folder / "control.sock").exists()]) == 2,
                   lambda: f"two folders, found {folders()}")
        refused = subprocess.run(line(3, "--silence", "0.01", "--", runner.byte_lm), cwd=runner.folder, env=environment,
                                 capture_output=True, timeout=60)
        done = subprocess.run(line(4, "--", runner.byte_lm, "--samples", "0", "--steps", "3"), cwd=runner.folder,
                              env=environment, capture_output=True, timeout=120)
        if refused.returncode == 0 or done.returncode != 0:
            raise Failure(f"{refused.returncode} {refused.stderr} {done.returncode} {done.stderr[-2000:]}")
        if len(folders()) != 2 or not foreign.exists():
            raise Failure(f"left: {list((base / 'kintsugi').iterdir())}")
        for folder in folders():
            status = runner.tool(["status", "--run", str(folder), "--json"])
            if status.returncode != 0 or not json.loads(status.stdout)["ok"]:
                raise Failure(f"{folder} does not answer: {status.stderr}")
    finally:
        for run in runs:
            run.kill()
            run.wait()
    # Both were killed: the next one clears away what they left, and not what is nobody's.
    wait_until(lambda: not runner.orphans(), "the end of the ranks")
    done = subprocess.run(line(5, "--journal-mib", "0", "--", runner.byte_lm, "--samples", "0", "--steps", "3"),
                          cwd=runner.folder, env=environment, capture_output=True, timeout=120)
    left = [folder for folder in folders() if not (folder / "journal.bin").exists() and not any(folder.glob("*journal*"))]
    if done.returncode != 0 or left or not foreign.exists():
        raise Failure(f"{done.returncode} {done.stderr[-2000:]}, left {left}")


def one_run_saves_into_a_directory(runner):
    """The second is told whose it is; when that one is gone, killed even, the next one has it at once."""
    place = ["--save-dir", str(runner.folder / "checkpoints")]
    with LiveRun(runner, place, LONG) as run:
        run.wait_step(3)
        owner = json.loads((runner.folder / "checkpoints" / "owner.json").read_text())
        second = runner.tool(["run", "--nproc", "2", *place, "--", runner.byte_lm, "--samples", "0", "--steps", "3"])
        for words in (owner["owner"], f"process {run.pid}", owner["host"], str(runner.folder / "checkpoints")):
            if words not in second.stderr:
                raise Failure(f"the second is not told of '{words}': {second.stderr[-2000:]}")
        if second.returncode != 3 or "spawned" in second.stderr:
            raise Failure(f"the second began: code {second.returncode}, {second.stderr[-2000:]}")
        run.wait_step(10)
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_until(lambda: not runner.orphans(), "the end of the ranks")
    third = runner.tool(["run", "--nproc", "4", *place, "--save-every", "2", "--", runner.byte_lm, "--samples", "0",
                         "--steps", "4"])
    if third.returncode != 0:
        raise Failure(f"the third: code {third.returncode}, {third.stderr[-2000:]}")
    if (runner.folder / "checkpoints" / "owner.json").exists():
        raise Failure("the directory was not given back")


# ---- processes -----------------------------------------------------------------------------------------------------

def guards():
    """Process ids of helpers by the launcher that they guard."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:].split()
        if name == "kintsugi-guard" and rest[0] != "Z":
            found[int(rest[1])] = int(entry.name)
    return found


def a_killed_guard_is_replaced(runner):
    with LiveRun(runner, [], LONG) as run:
        run.wait_step(3)
        guard = guards()[run.pid]
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: guards().get(run.pid, guard) != guard, "another guard")
        run.wait_log("event=guard_replaced")
        # It knows whom to end.
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_until(lambda: not runner.orphans(), "the end of the ranks", 20)


def a_rank_behind_a_wrapper(runner):
    """The wrapper dies, and the rank, in a session of its own, does not: it is gone before its successor starts."""
    wrapped = ["--", "setsid", "-w", runner.byte_lm, "--samples", "0", *STEPS]
    command = [runner.kintsugi, "run", "--nproc", "4", "--json", "-", "--run-dir", str(runner.folder / "run-0"),
               "--save-dir", str(runner.folder / "checkpoints"), *wrapped]
    with LiveRun(runner, command=command) as run:
        status = run.wait_step(5)
        wait_until(lambda: run.log().count("event=spawned") == 4, "the four processes in the log")
        wrappers = {line.split("rank=")[1].split()[0]: int(line.split("pid=")[1].split()[0])
                    for line in run.log().splitlines() if "event=spawned" in line}
        rank = status["ranks"][2]["pid"]
        if wrappers["2"] == rank:
            raise Skip("setsid runs its program in its own process here")
        started = run.log().count("event=spawned rank=2 ")
        os.kill(wrappers["2"], signal.SIGKILL)
        wait_until(lambda: run.log().count("event=spawned rank=2 ") > started, "the successor")
        if os.path.exists(f"/proc/{rank}"):
            raise Failure(f"the rank, {rank}, outlives its successor's start:\n{run.log()[-3000:]}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, STEPS), summary, log)


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("mistyped requests", mistyped_requests),
        ("a door with too many callers", a_door_with_too_many_callers),
        ("mistyped requests to nodes", mistyped_requests_to_a_node),
        ("nobody reads what is printed", nobody_reads(Unread)),
        ("nobody reads a terminal", nobody_reads(UnreadTerminal)),
        ("the reader goes away", the_reader_goes_away),
        ("the terminal hangs up: saved", the_terminal_hangs_up),
        ("the terminal hangs up under nohup: nothing happens", nohup),
        ("SIGTERM, and the disk does not answer", the_disk_does_not_answer),
        ("run folders in two pid namespaces", run_folders_in_two_pid_namespaces),
        ("one run saves into a directory, the second is told", one_run_saves_into_a_directory),
        ("a killed guard is replaced", a_killed_guard_is_replaced),
        ("a rank behind a wrapper ends before its successor starts", a_rank_behind_a_wrapper),
    ]))
