"""`kintsugi run` itself: what it leaves behind when it is killed, what it says when it cannot start or is used wrongly."""
import contextlib
import json
import os
import re
import signal
import socket
import stat
import sys
from pathlib import Path

from harness import Failure, Skip, script
from live_run import LiveRun, wait_until
from sockets import connections, listening_ports

TRAINER = ["--steps", "6"]
SLOW = ["--steps", "200", "--step-delay-us", "50000"]


def run_of(runner, options, program, expect, words, nproc=2, timeout=60, **more):
    """`kintsugi run OPTIONS -- PROGRAM` must end with the code and say the words."""
    done = runner.tool(["run", "--nproc", str(nproc), *options, "--", *program], timeout, **more)
    if done.returncode != expect:
        raise Failure(f"code {done.returncode}, expected {expect}\n{done.stderr[-3000:]}")
    for word in words:
        if word not in done.stderr:
            raise Failure(f"no '{word}' in:\n{done.stderr[-3000:]}")
    if runner.orphans():
        raise Failure(f"left running: {runner.orphans()}")
    return done


# ---- what is left behind -------------------------------------------------------------------------------------------

def processes_in(folder):
    """Pids of all processes that stand in the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.readlink(entry / "cwd") == str(folder.resolve()) and "State:\tZ" not in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def launcher_killed(runner):
    shared = set(os.listdir("/dev/shm"))
    with LiveRun(runner, [], SLOW) as run:
        run.wait_step(2)
        # byte_lm has no children of its own: one more process in the same group and folder stands for them.
        pids = [rank["pid"] for rank in run.status()["ranks"]]
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_until(lambda: not processes_in(runner.folder), f"the end of {pids} and all else of the run", 10)
    if set(os.listdir("/dev/shm")) - shared:
        raise Failure(f"left in /dev/shm: {set(os.listdir('/dev/shm')) - shared}")


def grandchildren_go_too(runner):
    script_of_worker = "sleep 1000 & setsid sleep 1000 & wait"
    command = [runner.kintsugi, "run", "--nproc", "2", "--run-dir", str(runner.folder / "run-0"), "--", "sh", "-c",
               script_of_worker]
    with LiveRun(runner, command=command) as run:
        # The launcher, its guard, and per rank a shell and two sleepers.
        wait_until(lambda: len(processes_in(runner.folder)) >= 7, "all processes")
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_until(lambda: not processes_in(runner.folder), "the end of the grandchildren", 10)


def run_folder_is_removed(runner):
    base = runner.folder / "runtime"
    base.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(base)}
    stale = base / "kintsugi" / "run-999999999-abcdef"  # of a launcher that was killed: nobody holds its lock
    stale.mkdir(parents=True, mode=0o700)
    (stale / "lock").touch()
    (base / "kintsugi").chmod(0o700)
    run_of(runner, [], [runner.byte_lm, "--samples", "0", *TRAINER], 0, [f"run_dir={base}"], env=environment)
    left = list((base / "kintsugi").iterdir())
    if left:
        raise Failure(f"left: {left}")


# ---- programs that do not start ------------------------------------------------------------------------------------

def program_missing(runner):
    run_of(runner, [], ["./no-such-program"], 3, ["no-such-program"])


def program_not_executable(runner):
    file = runner.folder / "plain.txt"
    file.write_text("text\n")
    run_of(runner, [], [str(file)], 3, ["plain.txt", "xecutable"])


def program_ends_at_once(runner):
    run_of(runner, [], ["true"], 3, ["before it was ready"])


def program_never_joins(runner):
    run_of(runner, ["--join-timeout", "1"], ["sleep", "600"], 3, ["was not ready within 1 s"])


def data_unreadable(runner):
    run_of(runner, [], [runner.byte_lm, "--data", "/no/such/text"], 3, ["/no/such/text"])
    run_of(runner, [], [runner.byte_lm, "--data", "/proc/self/mem"], 3, ["/proc/self/mem"])


def replicas_differ(runner):
    run_of(runner, [], ["sh", "-c", f"exec {runner.byte_lm} --seed $RANK --samples 0 --steps 3"], 3,
           ["replicas must start equal"])


# ---- wrong usage ---------------------------------------------------------------------------------------------------

def usage(options, words, nproc=2, expect=2):
    def test(runner):
        run_of(runner, options, [runner.byte_lm, *TRAINER], expect, words, nproc)
    return test


def no_program(runner):
    done = runner.tool(["run", "--nproc", "2"])
    if done.returncode != 2:
        raise Failure(f"code {done.returncode}: {done.stderr}")


def port_in_use(runner):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run_of(runner, ["--port", str(port)], [runner.byte_lm, *TRAINER], 3, [str(port), "in use"])


def foreign_address(runner):
    run_of(runner, ["--bind", "192.0.2.1"], [runner.byte_lm, *TRAINER], 2, ["192.0.2.1"])


def places_that_cannot_be_written(runner):
    """Found before the run, not after it."""
    (runner.folder / "a-file").write_text("")
    for options in (["--save-dir", "/proc/checkpoints"], ["--save-dir", str(runner.folder / "a-file")],
                    ["--report", "/proc/report"], ["--json", "/proc/summary.json"],
                    ["--json", str(runner.folder / "no-such-folder" / "summary.json")]):
        done = run_of(runner, options, [runner.byte_lm, *TRAINER], 3, [options[1]])
        if "spawned" in done.stderr:
            raise Failure(f"{options}: ranks were started first")


def unsaved_where_nobody_asked(runner):
    """The default folder cannot be made: a warning, since nobody named it. Nor is one left that nothing was saved in."""
    run_of(runner, ["--log-level", "warning"], [runner.byte_lm, *TRAINER], 0, ["event=no_saves"], cwd="/proc")
    done = run_of(runner, ["--log-level", "warning"], [runner.byte_lm, *TRAINER], 0, [])
    if "event=" in done.stderr or (runner.folder / "kintsugi-checkpoints").exists():
        raise Failure(f"{done.stderr}")


def threads_of_the_user(runner):
    say = ["sh", "-c", "echo omp=$OMP_NUM_THREADS blas=$OPENBLAS_NUM_THREADS; exit 7"]
    bare = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    for more, said in (({}, "omp=1 blas=1"), ({"OMP_NUM_THREADS": "3"}, "omp=3 blas=1"),
                       ({"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "5"}, "omp=2 blas=5")):
        done = run_of(runner, [], say, 3, [], env={**bare, **more})
        if said not in done.stdout:
            raise Failure(f"{more}: {done.stdout}")


def any_number_of_ranks(runner):
    """Without --replicas the program keeps as few copies as fit, two or more."""
    done = run_of(runner, ["--json", "-", "--inject", "kill:2@3:update"], [runner.byte_lm, *TRAINER], 0, [], nproc=3)
    if json.loads(done.stdout)["incidents"][0]["path"] != "respawn":
        raise Failure(f"{done.stdout}")


def ports_in_a_range(runner):
    """The controller and every connection between ranks, also of those that are made anew."""
    for first in range(23000, 32000, 64):
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first, first + 64):
                    taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
                break
            except OSError:
                continue
    options = ["--ports", f"{first}-{first + 63}", "--inject", "kill:1@4:update"]
    with LiveRun(runner, options, SLOW) as run:
        status = run.wait_step(6)
        pids = [rank["pid"] for rank in status["ranks"]]
        if not first <= int(status["address"].rsplit(":", 1)[1]) < first + 64:
            raise Failure(f"the controller listens at {status['address']}")
        for pid in pids:
            for _, *ports in connections(pid):
                if not any(first <= port < first + 64 for port in ports) and \
                        not set(ports) & set(listening_ports(run.pid)):
                    raise Failure(f"process {pid} has a connection {ports} outside {first}-{first + 63}")
        run.signal(signal.SIGTERM)
        run.finish(expect=75)


# ---- what it writes ------------------------------------------------------------------------------------------------

def json_stands_alone(runner):
    for option in (["--json", "-"], ["--json"]):
        done = run_of(runner, option, [runner.byte_lm, *TRAINER], 0, ["sample:"])
        lines = done.stdout.splitlines()
        if len(lines) != 1 or json.loads(lines[0])["exit"] != 0:
            raise Failure(f"{option}: standard output holds {done.stdout[:500]}")


def json_into_a_pipe(runner):
    """What is no file is written to where it is: a device must not become a file."""
    pipe = runner.folder / "pipe"
    os.mkfifo(pipe)
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as reader:  # a reader from the start
        run_of(runner, ["--json", str(pipe)], [runner.byte_lm, *TRAINER], 0, [])
        if json.loads(reader.read(1 << 20))["exit"] != 0 or not pipe.is_fifo():
            raise Failure("the pipe got no summary, or is no pipe any more")


def lines_of_the_log(runner):
    """The time of day with its zone, node and job on each; an incident has one line at warning, and times are summed up."""
    done = run_of(runner, ["--log-level", "warning", "--json", "-", "--inject", "kill:1@3:update"],
                  [runner.byte_lm, *TRAINER], 0, [])
    lines = [line for line in done.stderr.splitlines() if "event=" in line]
    if len(lines) != 1 or not re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d warning node=0 job=\S+ event=incident id=1 "
            r'cause="[^"]*SIGKILL[^"]*" ranks=1 rung=\w+ down_ms=\d+ steps_lost=\d+ gen=\d+', lines[0]):
        raise Failure("\n".join(lines))
    summary = json.loads(done.stdout)
    time, incident = summary["time"], summary["incidents"][0]
    if not 0 < summary["goodput"] < 1 or not 0 < time["down_s"] < time["total_s"]:
        raise Failure(f"{summary['goodput']} {time}")
    parts = time["starting_s"] + time["down_s"] + time["redone_s"] + time["saving_s"] + time["paused_s"] + time["useful_s"]
    if abs(parts - time["total_s"]) > 1e-6 or f"down_ms={incident['down_ms']:.0f} " not in lines[0]:
        raise Failure(f"{time} {incident['down_ms']} {lines[0]}")


def report_is_written(runner):
    run_of(runner, ["--report", "report", "--inject", "kill:1@3"], [runner.byte_lm, *TRAINER], 0, [])
    report = runner.folder / "report"
    for name in ("summary.json", "trace.json", "record.json", "index.html"):
        if not (report / name).stat().st_size:
            raise Failure(f"{name} is empty")
    if json.loads((report / "summary.json").read_text())["incidents"][0]["path"] != "adopt":
        raise Failure("the summary does not tell the incident")
    json.loads((report / "trace.json").read_text())


def json_of_a_failed_start(runner):
    done = run_of(runner, ["--json", "-"], ["true"], 3, [])
    summary = json.loads(done.stdout)
    if summary["exit"] != 3 or summary["losses"] or summary["incidents"]:
        raise Failure(f"{summary}")


# ---- talking to it -------------------------------------------------------------------------------------------------

def status_of_no_run(runner):
    for command in (["status"], ["save"], ["stop"], ["inject", "kill:0@3"]):
        done = runner.tool([command[0], "--run", str(runner.folder / "nowhere"), *command[1:]])
        if done.returncode == 0 or "nowhere" not in done.stderr:
            raise Failure(f"{command}: code {done.returncode}: {done.stderr}")


def status_tells(runner):
    with LiveRun(runner, [], SLOW) as run:
        status = run.wait_step(3)
        host, port = status["address"].rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=5).close()
        text = runner.tool(["status", "--run", str(run.run_dir)])
        if "phase RUNNING" not in text.stdout or text.stdout.count("rank ") < 4:
            raise Failure(text.stdout)
        mode = stat.S_IMODE((run.run_dir / "control.sock").stat().st_mode)
        if mode & 0o077 or stat.S_IMODE(run.run_dir.stat().st_mode) & 0o077:
            raise Failure(f"others may open the control socket: mode {mode:o}")
        second = runner.tool(["run", "--nproc", "2", "--run-dir", str(run.run_dir), "--", "true"])
        if second.returncode not in (2, 3) or str(run.run_dir) not in second.stderr:
            raise Failure(f"a second run took the folder: {second.returncode} {second.stderr}")
        run.signal(signal.SIGTERM)
        run.finish(expect=75)


def other_users_are_kept_out(runner):
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    with LiveRun(runner, [], SLOW) as run:
        run.wait_step(2)
        runner.folder.chmod(0o755)
        done = runner.tool(["status", "--run", str(run.run_dir)], user=65534, group=65534, extra_groups=[])
        if done.returncode == 0 or not done.stderr:
            raise Failure(f"another user got: {done.stdout}")
        # Even where the folder is open to all, the caller's user decides.
        run.run_dir.chmod(0o777)
        (run.run_dir / "control.sock").chmod(0o777)
        done = runner.tool(["status", "--run", str(run.run_dir)], user=65534, group=65534, extra_groups=[])
        if done.returncode == 0:
            raise Failure(f"another user got: {done.stdout}")
        run.run_dir.chmod(0o700)
        if run.wait_step(3)["incidents"]:
            raise Failure("the other user disturbed the run")
        run.signal(signal.SIGTERM)
        run.finish(expect=75)


if __name__ == "__main__":
    GRAMMAR = ["KIND:RANK@STEP", "kill:"]
    sys.exit(script(__doc__, [
        ("the launcher is killed: nothing is left", launcher_killed),
        ("the launcher is killed: grandchildren neither", grandchildren_go_too),
        ("the run folder is removed, a stale one too", run_folder_is_removed),
        ("program missing", program_missing),
        ("program not executable", program_not_executable),
        ("program ends at once", program_ends_at_once),
        ("program never joins", program_never_joins),
        ("unreadable data", data_unreadable),
        ("replicas that start different", replicas_differ),
        ("no program", no_program),
        ("unknown option", usage(["--no-such-option"], ["--no-such-option"])),
        ("replicas do not divide the world, and another mistake",
         usage(["--replicas", "2", "--node-rank", "1"], ["--nnodes"], nproc=3)),
        ("no range of ports", usage(["--ports", "80-90"], ["--ports", "29500-29999"])),
        ("replicas do not divide the world", usage(["--replicas", "2"], ["--replicas 2", "--nproc 3"], nproc=3)),
        ("malformed fault: grammar and example", usage(["--inject", "kill:2"], GRAMMAR)),
        ("unknown kind of fault", usage(["--inject", "burn:1@3"], ["burn", *GRAMMAR])),
        ("unknown phase", usage(["--inject", "kill:1@3:lunch"], ["lunch"])),
        ("rank outside the world", usage(["--inject", "kill:7@3"], ["no rank 7"])),
        ("silence too short", usage(["--silence", "0.1"], ["silence limit"])),
        ("unknown log level", usage(["--log-level", "loud"], ["loud"])),
        ("negative respawns", usage(["--max-respawns", "-1"], ["--max-respawns", "less than 0"])),
        ("saves without a folder", usage(["--save-dir", "", "--save-every", "2"], ["no save directory"])),
        ("port in use", port_in_use),
        ("address of another machine", foreign_address),
        ("unwritable places are found before the run", places_that_cannot_be_written),
        ("no default folder for saves: a warning, and nothing is left", unsaved_where_nobody_asked),
        ("threads that the user set are kept", threads_of_the_user),
        ("any number of ranks has replicas that fit", any_number_of_ranks),
        ("ports within a range", ports_in_a_range),
        ("lines of the log", lines_of_the_log),
        ("JSON stands alone on standard output", json_stands_alone),
        ("JSON into a pipe leaves it a pipe", json_into_a_pipe),
        ("the report is written", report_is_written),
        ("a failed start has a summary", json_of_a_failed_start),
        ("status, save and inject of no run", status_of_no_run),
        ("status tells address and ranks; the folder is taken", status_tells),
        ("other users are kept out", other_users_are_kept_out),
    ]))
