"""How a run ends: what its processes do once all loops are over, programs that fail before their loop, SIGTERM to all of its
processes, faults that never strike. The exit code, the last line, the summary and the report agree."""
import json
import os
import signal
import socket
import subprocess
import sys

from harness import SLOWNESS, Failure, script
from live_run import LiveRun, wait_until
from saves import SLOW, must_go_on

STEPS = ["--samples", "0", "--steps", "6"]
TRACEBACK = r"""Traceback (most recent call last):
  File "train.py", line 9, in <module>
    save(model)
OSError: [Errno 28] No space left on device"""


def wrapped(runner, after, before="", steps=STEPS):
    """byte_lm in a shell that does more: before the loop and once it is over."""
    return ["sh", "-c", f"{before}\n{runner.byte_lm} {' '.join(steps)} || exit $?\n{after}"]


def run(runner, program, expect, words=(), options=(), nproc=2, timeout=100):
    report = runner.folder / f"report-{len(list(runner.folder.iterdir()))}"
    done = runner.tool(["run", "--nproc", str(nproc), "--json", "-", "--report", str(report), *options, "--", *program], timeout)
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    if done.returncode != expect:
        raise Failure(f"code {done.returncode}, expected {expect}\n{done.stderr[-4000:]}")
    summary = json.loads(done.stdout)
    for told in (summary, json.loads((report / "record.json").read_text())):
        if told["exit"] != expect:
            raise Failure(f"told as exit {told['exit']}: {told['reason']}")
        if expect and told["reason"] not in last:
            raise Failure(f"the last line is '{last}', the reason that is told '{told['reason']}'")
    for word in words:
        if word not in last:
            raise Failure(f"no '{word}' in the last line: {last}\n{done.stderr[-3000:]}")
    if runner.orphans():
        raise Failure(f"left running: {runner.orphans()}")
    return summary, done.stderr


# ---- behind the loops ------------------------------------------------------------------------------------------------

def fails_after(runner):
    """Its last words are a traceback's, whatever is printed behind them."""
    after = f"""[ $RANK = 1 ] || exit 0
printf '\\r 10%%|# | 1/10\\r 20%%|## | 2/10' >&2; printf '%s\\n' '{TRACEBACK}' >&2; printf 'a warning of something else\\n' >&2
exit 4"""
    summary, log = run(runner, wrapped(runner, after), 1, ["rank 1 exited with code 4", "OSError: [Errno 28] No space left on device"])
    if summary["steps"] != 6 or summary["incidents"]:
        raise Failure(f"the training was whole: {summary}")
    if "/index.html" in log or "OSError" not in (sorted(runner.folder.glob("report-*"))[0] / "index.html").read_text():
        raise Failure("the page does not say why")


def killed_after(runner):
    run(runner, wrapped(runner, "[ $RANK = 0 ] && kill -9 $$; exit 0"), 1, ["rank 0 killed by SIGKILL", "all loops were over"])


def waits_for_all(runner):
    """Longer than any limit of its own."""
    run(runner, wrapped(runner, "[ $RANK = 1 ] || exit 0; sleep 12; echo whole > model"), 0)
    if (runner.folder / "model").read_text() != "whole\n":
        raise Failure("the model was not written")


def others_have_the_grace(runner):
    """The others may wait for the one that failed, in a collective."""
    run(runner, wrapped(runner, "[ $RANK = 1 ] && exit 4; sleep 600"), 1, ["rank 1 exited with code 4"], ["--grace", "1"])


def stopped_behind_the_loops(runner):
    command = [runner.kintsugi, "run", "--nproc", "2", "--run-dir", str(runner.folder / "run-0"), "--json", "-", "--grace", "2",
               "--", *wrapped(runner, "[ $RANK = 1 ] && exit 0; sleep 600")]
    with LiveRun(runner, command=command) as live:
        live.wait_log("event=loops_over")
        live.signal(signal.SIGTERM)
        summary, log = live.finish(expect=1)
    if "rank 0 had not left" not in log.splitlines()[-1] or summary["exit"] != 1:
        raise Failure(f"{summary['reason']}\n{log[-1500:]}")


def ended_at_once_behind_the_loops(runner):
    command = [runner.kintsugi, "run", "--nproc", "2", "--run-dir", str(runner.folder / "run-0"), "--grace", "600", "--",
               *wrapped(runner, "sleep 600")]
    with LiveRun(runner, command=command) as live:
        live.wait_log("event=loops_over")
        live.signal(signal.SIGTERM)
        live.wait_log("stop_requested")
        live.signal(signal.SIGINT)
        live.finish(expect=1)


def no_restart_of_what_failed_behind(runner):
    _, log = run(runner, wrapped(runner, "exit 4"), 1, ["exited with code 4"], ["--restarts", "2", "--save-dir", "saves"])
    if "no_restart" not in log or "event=restart " in log:
        raise Failure(log[-2000:])


# ---- several hosts ---------------------------------------------------------------------------------------------------

class TwoNodes:
    """Two launchers, both on this host, with two ranks each."""

    def __init__(self, runner, program, options=()):
        self.runner = runner
        secret = runner.folder / "secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.nodes = []
        for node in range(2):
            line = [runner.kintsugi, "run", "--nproc", "2", "--nnodes", "2", "--node-rank", str(node), "--rendezvous",
                    f"127.0.0.1:{port}", "--secret-file", str(secret), *options, "--", *program]
            err = open(runner.folder / f"node-{node}.err", "w+b")
            self.nodes.append((subprocess.Popen(line, cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=err), err))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, err in self.nodes:
            if process.poll() is None:
                process.kill()
            process.wait()
            err.close()

    def log(self, node):
        with open(self.nodes[node][1].name, errors="replace") as file:
            return "".join(line for line in file if not line.startswith("step "))

    def must_end(self, expect, *words, nodes=(0, 1)):
        for node in nodes:
            code = self.nodes[node][0].wait(120 * SLOWNESS)
            last = self.log(node).strip().splitlines()[-1]
            if code != expect or any(word not in last for word in words):
                raise Failure(f"node {node}: code {code}, expected {expect}, last line: {last}\n{self.log(node)[-3000:]}")
        if self.runner.orphans():
            raise Failure(f"left running: {self.runner.orphans()}")


def nodes_tell_the_same(runner):
    """One host's rank fails while the other host's has more to do."""
    after = "[ $RANK = 3 ] && { echo 'no space' >&2; exit 4; }; [ $RANK = 0 ] && sleep 2 && echo whole > model; exit 0"
    with TwoNodes(runner, wrapped(runner, after)) as run:
        run.must_end(1, "rank 3 exited with code 4", "no space")
    if not (runner.folder / "model").exists():
        raise Failure("the other host's rank was not waited for")


def nodes_wait_for_all(runner):
    with TwoNodes(runner, wrapped(runner, "[ $RANK = 3 ] && sleep 12 && echo whole > model; exit 0")) as run:
        run.must_end(0)
    if not (runner.folder / "model").exists():
        raise Failure("the other host's rank was not waited for")


def a_node_is_lost_behind_the_loops(runner):
    """Nobody knows how its ranks would have left."""
    with TwoNodes(runner, wrapped(runner, "[ $RANK = 3 ] && sleep 600; exit 0"), ["--node-wait", "3"]) as run:
        wait_until(lambda: "event=loops_over" in run.log(0), "the loops' end")
        run.nodes[1][0].kill()
        run.must_end(1, "rank", "did not come back within 3 s", nodes=[0])


def the_leader_is_lost_behind_the_loops(runner):
    with TwoNodes(runner, wrapped(runner, "[ $RANK = 0 ] && sleep 600; exit 0"), ["--node-wait", "3"]) as run:
        wait_until(lambda: "event=loops_over" in run.log(0), "the loops' end")
        run.nodes[0][0].kill()
        run.must_end(1, "the leader was lost", nodes=[1])


# ---- before the loops ------------------------------------------------------------------------------------------------

def fails_before(runner):
    """At once, and not again: a mistake of the program's."""
    before = f"if [ $RANK = 1 ]; then printf '%s\\n' '{TRACEBACK}' >&2; exit 7; fi"
    _, log = run(runner, wrapped(runner, "", before), 3, ["rank 1 exited with code 7", "OSError: [Errno 28]"])
    if "Agent::Join" in log or "incarnation=2" in log:
        raise Failure(log[-3000:])


def replacement_fails(runner):
    """In a run that is under way it is a death: the ladder decides."""
    before = "[ $KINTSUGI_INCARNATION = 2 ] && exit 7"
    summary, log = run(runner, wrapped(runner, "", before), 0, (), ["--inject", "kill:1@3:forward"])
    if [incident["path"] for incident in summary["incidents"]] not in (["adopt"], ["respawn"]) or "incarnation=3" not in log:
        raise Failure(f"{summary['incidents']}\n{log[-3000:]}")


# ---- SIGTERM to all --------------------------------------------------------------------------------------------------

def group_is_stopped(runner):
    """As Slurm does it: every process of the job gets the signal, the launcher too."""
    with LiveRun(runner, ["--grace", "20"], SLOW) as live:
        live.wait_step(4)
        for rank in live.status()["ranks"]:
            os.kill(rank["pid"], signal.SIGTERM)
        live.signal(signal.SIGTERM)
        first, log = live.finish(expect=75)
    if first["incidents"]:
        raise Failure(f"nobody died of it: {first['incidents']}\n{log[-2000:]}")
    must_go_on(runner, first)


def ranks_alone_do_not_mind(runner):
    """It is the launcher's: a rank goes on."""
    with LiveRun(runner, [], SLOW) as live:
        at = live.wait_step(4)["step"]
        live.signal_rank(1, signal.SIGTERM)
        live.wait_step(at + 4)
        summary, _ = live.finish()
    if summary["incidents"]:
        raise Failure(f"{summary['incidents']}")


# ---- faults that never strike ----------------------------------------------------------------------------------------

def never_strikes(runner):
    """No such step; and where it must strike, the run does not end well."""
    options = ["--inject", "kill:1@600:backward", "--inject", "throw:0@3:forward"]
    summary, log = run(runner, wrapped(runner, ""), 0, (), options)
    if summary["not_struck"] != ["kill:1@600:backward"] or "event=not_struck injection=kill:1@600:backward" not in log:
        raise Failure(f"{summary['not_struck']}\n{log[-2000:]}")
    summary, _ = run(runner, wrapped(runner, ""), 3, ["kill:1@600:backward never struck"], [*options, "--inject-must-strike"])
    if summary["steps"] != 6:
        raise Failure(f"{summary}")
    summary, log = run(runner, wrapped(runner, ""), 0, (), ["--inject", "throw:0@3:forward", "--inject-must-strike"])
    if summary["not_struck"] or "not_struck" in log:
        raise Failure(f"{summary['not_struck']}\n{log[-2000:]}")


def an_incident_counts_from_its_own_fault(runner):
    """Two faults of one process: what was down for the second is not counted from the first."""
    with LiveRun(runner, [], [*SLOW[:-1], "200000"]) as live:
        live.wait_step(2)
        live.strike("throw", 1, ahead=2)
        live.wait_status(lambda s: s["incidents"] >= 1 and s["phase"] == "RUNNING", "the first incident's end")
        at = live.status()["step"]
        live.wait_step(at + 4)
        live.signal_rank(1, signal.SIGKILL)
        live.wait_status(lambda s: s["incidents"] >= 2 and s["phase"] == "RUNNING", "the second incident's end")
        live.signal(signal.SIGTERM)
        summary, log = live.finish(expect=75)
    first, second = summary["incidents"][:2]
    # Steps of 0.2 s lie between them: counted from the first, the second were down for more than 0.8 s longer.
    if second["detected_ms"] > first["detected_ms"] + 700:
        raise Failure(f"{first['detected_ms']}, {second['detected_ms']}\n{log[-2000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a rank that fails behind its loop makes the run fail, with its own words", fails_after),
        ("SIGKILL behind the loop too", killed_after),
        ("processes are waited for as long as they take", waits_for_all),
        ("where one has failed, the others have the grace period", others_have_the_grace),
        ("a stop behind the loops ends within the grace period", stopped_behind_the_loops),
        ("a second signal behind the loops ends at once", ended_at_once_behind_the_loops),
        ("what failed behind its loop is not begun again", no_restart_of_what_failed_behind),
        ("launchers of several hosts tell the same", nodes_tell_the_same),
        ("the processes of all hosts are waited for", nodes_wait_for_all),
        ("a host that is lost behind the loops fails the run", a_node_is_lost_behind_the_loops),
        ("so does the leader's", the_leader_is_lost_behind_the_loops),
        ("a rank that fails before its loop ends the run at once with 3", fails_before),
        ("a replacement that fails before its loop is replaced", replacement_fails),
        ("SIGTERM to every process: saved, resumed to the same bits", group_is_stopped),
        ("SIGTERM to a rank alone is left to the launcher", ranks_alone_do_not_mind),
        ("a fault that never strikes is told, and fails the run that asks for it", never_strikes),
        ("an incident counts from its own fault", an_incident_counts_from_its_own_fault),
    ]))
