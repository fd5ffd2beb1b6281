"""What people and programs are told of a run: notices, by a command and to an address; and runs that end and are begun again."""
import http.server
import json
import os
import re
import signal
import socket
import sys
import threading

from harness import SMALL, Failure, must_be_same, reference, script
from leaving import full_disk
from live_run import LiveRun, wait_until
from observe import SLOW, TRAINER, Metrics, kill, several_launchers, url_of

LONGER = [*TRAINER, "--step-delay-us", "80000"]
NO_SPARE = ["--max-respawns", "0"]


class Receiver:
    """A web server that keeps what is posted to it; `status`: what it answers, one for each request."""

    def __init__(self, status=()):
        received, answers = [], list(status)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(answers.pop(0) if answers else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass
        self.received = received
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/incidents?of=run"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def notices_are_what_the_summary_says(runner):
    """To a command and to an address that answers 503 at first; the last incident is the one that ends the run."""
    told = runner.folder / "told"
    with Receiver([503]) as receiver:
        summary, log = runner.run(["--max-respawns", "1", "--inject", "throw:1@5:backward", "--inject", "kill:2@20:forward",
                                   "--inject", "kill:2@40:forward", "--webhook", receiver.url,
                                   "--on-incident", f"cat >> {told}; echo said"], SLOW, expect=75)
    lines = [json.loads(line) for line in told.read_text().splitlines()]
    posted = [notice for path, notice in receiver.received if path == "/incidents?of=run"]
    if posted[:1] != posted[1:2]:
        raise Failure(f"not tried again: {len(posted)} posts")
    if lines != posted[1:]:
        raise Failure(f"the command was told {lines}, the address {posted[1:]}")
    *lines, end = lines
    if end["event"] != "run_ended" or end["exit"] != 75 or end["says"] not in log or "--resume auto" not in end["do"]:
        raise Failure(f"the last notice: {end}")
    for notice in (*lines, end):
        if (notice["host"], notice["address"], notice["node"]) != (socket.gethostname(), "127.0.0.1", "0") or not notice["do"] \
                or not notice["run"].startswith(notice["job"] + "/") or not re.fullmatch(r"\d{4}(-\d\d){2}T[\d:]{8}Z", notice["time"]):
            raise Failure(f"{notice}")
    # The last one was told before the end, until which it counts as down.
    last = {"down_ms": min(summary["incidents"][-1]["down_ms"], lines[-1]["down_ms"])}
    expected = [*summary["incidents"][:-1], {**summary["incidents"][-1], **last}]
    told_of = [{name: notice[name] for name in incident} for notice, incident in zip(lines, expected)]
    if told_of != expected or {notice["event"] for notice in lines} != {"incident"}:
        raise Failure(f"{json.dumps(lines)[:3000]}\nby the summary {json.dumps(summary['incidents'])[:3000]}")
    if len(lines) != 3 or f"job={lines[0]['job']}" not in log or "said=said" not in log:
        raise Failure(f"{len(lines)} notices\n{log[-3000:]}")


class Told:
    """What a command of --on-incident was told."""

    def __init__(self, folder):
        self.file = folder / "told"
        self.option = ["--on-incident", f"cat >> {self.file}"]

    def notices(self, event=None):
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [notice for notice in map(json.loads, lines) if event in (None, notice["event"])]

    def wait(self, event, number=1):
        return wait_until(lambda: len(self.notices(event)) >= number and self.notices(event), lambda: f"{event}: {self.notices()}")


def a_failed_save_is_told_of(runner):
    """Also one that fails at the very end."""
    told = Told(runner.folder)
    with full_disk(runner.folder / "small") as small:
        summary, _ = runner.run([*told.option, "--page", "127.0.0.1:0", "--save-dir", str(small), "--save-every", "30"], SLOW)
    failed = told.notices("save_failed")
    if [notice["failed"] for notice in failed] != [1, 2] or summary["saves"]["failed"] != 2:
        raise Failure(f"{failed}, in the summary {summary['saves']}")
    if "free space" not in failed[0]["why"] or failed[0]["last_good_step"] is not None or "kintsugi save" not in failed[0]["do"] or \
            not re.fullmatch(r"http://127.0.0.1:\d+/", failed[0]["link"]):
        raise Failure(f"{failed[0]}")
    if [(notice["exit"], notice["do"]) for notice in told.notices("run_ended")] != [(0, "nothing")]:
        raise Failure(f"{told.notices('run_ended')}")


def what_is_lost_of_nodes_is_told(runner):
    """A spare node, the only one, then a node: to the metrics and to the one that is told, once, by the leader alone."""
    told = [Told(runner.folder / f"told-{node}") for node in range(4)]
    for one in told:
        one.file.parent.mkdir()
    start = several_launchers(runner, "3:4", ["--steps", "4000", "--step-delay-us", "100000", *SMALL])
    runs = [start(node, "--node-wait", "4", *told[node].option) for node in range(4)]
    runs[0].wait_status(lambda s: s["spare_nodes"] == [3] and s["step"] > 5, "the spare node")
    url = url_of(runs[0])
    Metrics(url).must_say("kintsugi_spare_nodes", 1)
    Metrics(url).must_say("kintsugi_node_away", None)
    kill(runs[3])
    used_up = told[0].wait("spares_used_up")[0]
    kill(runs[2])
    told[0].wait("node_lost", 2)
    lost = {notice["node"]: notice for notice in told[0].notices("node_lost")}
    if set(lost) != {"2", "3"} or used_up["of"] != "nodes":
        raise Failure(f"{lost}, {used_up}")
    if lost["2"]["host"] != socket.gethostname() or lost["2"]["address"] != "127.0.0.1" or "--node-rank 2" not in lost["2"]["do"]:
        raise Failure(f"{lost['2']}")
    Metrics(url).must_say("kintsugi_node_away", 1, node="2", host=socket.gethostname(), address="127.0.0.1")
    Metrics(url).must_say("kintsugi_spare_nodes", 0)
    for run in runs[:2]:  # nobody is there who could have its ranks
        run.wait(75)
    if [notice["exit"] for notice in told[0].notices("run_ended")] != [75] or told[1].notices():
        raise Failure(f"node 0 told {told[0].notices('run_ended')}, node 1 {told[1].notices()}")


def the_end_that_restarts_follow_is_told_as_such(runner):
    told = Told(runner.folder)
    with LiveRun(runner, ["--restarts", "1", *NO_SPARE, *told.option], LONGER) as run:
        lose_a_rank(run, 8, 1)
        run.finish()
    first, last = told.notices("run_ended")
    if (first["exit"], first["again_after_s"]) != (75, 1) or last["exit"] != 0 or "again_after_s" in last or first["run"] == last["run"]:
        raise Failure(f"{first}\n{last}")
    runner.run([*told.option, "--resume", str(runner.folder / "nowhere")], TRAINER, expect=2)
    never = told.notices("run_ended")[-1]
    if never["exit"] != 2 or "nowhere" not in never["says"]:
        raise Failure(f"one that never began: {never}")


def receivers_that_do_not_receive_delay_nothing(runner):
    """A command that never ends, and an address that never answers. At the end both are left behind."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        summary, log = runner.run(["--inject", "throw:1@5:backward", "--inject", "kill:2@20:forward", "--webhook",
                                   f"http://127.0.0.1:{deaf.getsockname()[1]}/", "--on-incident", "exec sleep 1000"], TRAINER)
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    if len(summary["incidents"]) != 2:
        raise Failure(f"{summary['incidents']}")
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and sleeps_here(pid, runner.folder)]
    if left:
        raise Failure(f"left running: {left}")


def sleeps_here(pid, folder):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read() == b"sleep\x001000\x00" and os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False


def a_command_that_fails_is_told_of(runner):
    _, log = runner.run(["--inject", "throw:1@5:backward", "--on-incident", "echo broken >&2; exit 3"], ["--steps", "10"])
    if "event=notice_lost" not in log or "exited with code 3" not in log or "broken" not in log:
        raise Failure(f"{log[-3000:]}")


def lose_a_rank(run, step, start):
    """For good: the run saves and ends. Then the log says what follows."""
    if start > 1:
        run.wait_log(f"event=restart start={start} ")
    run.wait_step(step)
    run.signal_rank(2, signal.SIGKILL)


def a_run_is_begun_again(runner):
    """Twice it ends with 75, and is followed by another start, the last of which ends with the undisturbed bits."""
    report = runner.folder / "report"
    with LiveRun(runner, ["--restarts", "3", "--report", str(report), *NO_SPARE], LONGER) as run:
        lose_a_rank(run, 8, 1)
        lose_a_rank(run, 24, 2)
        summary, log = run.finish()
    expected = reference(runner.bin, TRAINER)
    if summary["final_digest"] != expected["final_digest"]:
        raise Failure(f"final digest {summary['final_digest']}, undisturbed {expected['final_digest']}\n{log[-4000:]}")
    if log.count("event=restart ") != 2 or "start=2 after_s=1" not in log or "start=3 after_s=2" not in log:
        raise Failure(f"{log[-4000:]}")
    parts = [json.loads((report / part / "summary.json").read_text()) for part in ("start-1", "start-2", ".")]
    if [part["exit"] for part in parts] != [75, 75, 0] or sum((part["losses"] for part in parts), []) != expected["losses"]:
        raise Failure(f"exits {[part['exit'] for part in parts]}, steps {[part['steps'] for part in parts]}")


def a_run_that_was_asked_to_end_is_not_begun_again(runner):
    for how in ("signal", "request"):
        with LiveRun(runner, ["--restarts", "3"], SLOW) as run:
            run.wait_step(5)
            if how == "signal":
                run.signal(signal.SIGTERM)
            else:
                run.ask("stop")
            _, log = run.finish(expect=75)
        if "event=restart " in log or 'event=no_restart why="it was asked to end"' not in log:
            raise Failure(f"{how}: {log[-3000:]}")


def restarts_end_with_a_reason(runner):
    _, log = runner.run(["--restarts", "1"], ["--no-such-option"], expect=3)
    if "event=restart " in log:
        raise Failure(f"a program that does not begin was begun again\n{log[-3000:]}")
    with LiveRun(runner, ["--restarts", "1", *NO_SPARE], LONGER) as run:
        lose_a_rank(run, 5, 1)
        lose_a_rank(run, 15, 2)
        _, log = run.finish(expect=75)
    if "event=no_restart" not in log or "as often as --restarts allows" not in log or "resume" not in log.splitlines()[-1]:
        raise Failure(f"{log[-3000:]}")
    done = runner.tool(["run", "--restarts", "1", "--save-dir", "", "--", runner.byte_lm])
    if done.returncode != 2 or "--save-dir" not in done.stderr:
        raise Failure(f"code {done.returncode}\n{done.stderr}")


def a_pause_ends_with_a_signal(runner):
    with LiveRun(runner, ["--restarts", "9", *NO_SPARE], LONGER) as run:
        lose_a_rank(run, 5, 1)
        lose_a_rank(run, 15, 2)
        run.wait_log("start=3 after_s=2")
        run.signal(signal.SIGTERM)
        run.wait(75)
        log = run.log()
    if 'event=no_restart why="it was asked to end"' not in log:
        raise Failure(f"{log[-3000:]}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("notices are what the summary says", notices_are_what_the_summary_says),
        ("a failed save is told of", a_failed_save_is_told_of),
        ("what is lost of nodes is told", what_is_lost_of_nodes_is_told),
        ("the end that restarts follow is told as such", the_end_that_restarts_follow_is_told_as_such),
        ("receivers that do not receive delay nothing", receivers_that_do_not_receive_delay_nothing),
        ("a command that fails is told of", a_command_that_fails_is_told_of),
        ("a run that was saved is begun again, to the same bits", a_run_is_begun_again),
        ("a run that was asked to end is not begun again", a_run_that_was_asked_to_end_is_not_begun_again),
        ("restarts end with a reason", restarts_end_with_a_reason),
        ("the pause before a start ends with a signal", a_pause_ends_with_a_signal),
    ]))
