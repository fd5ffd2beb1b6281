"""What an operator has at hand: logs as JSON and in files, files of ranks, `list`, `status --watch`, `report --open`, `doctor`, `run --help`."""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import termios
from pathlib import Path

from harness import Failure, must_be_same, reference, script
from live_run import LiveRun, wait_until

ROOT = Path(__file__).resolve().parents[2]

TRAINER = ["--steps", "20"]
SLOW = ["--steps", "400", "--step-delay-us", "20000"]


def talking(runner, run_args, trainer_args=TRAINER, nproc=2):
    """`kintsugi run` around ranks that say who they are before they train."""
    return [runner.kintsugi, "run", "--nproc", str(nproc), "--save-dir", "", *run_args, "--", "sh", "-c",
            'echo "hello of $RANK, life $KINTSUGI_INCARNATION"; echo "warned by $RANK" >&2; exec "$@"', "sh", runner.byte_lm,
            "--samples", "0", *trainer_args]


def must(condition, what):
    if not condition:
        raise Failure(what)


def end_of(runner, command, expect=0, **options):
    done = runner.tool(command[1:], timeout=120, **options)
    if done.returncode != expect:
        raise Failure(f"exit code {done.returncode}, expected {expect}\n{done.stderr[-4000:]}")
    must(not runner.orphans(), f"left running: {runner.orphans()}")
    return done


# ---- logs ----------------------------------------------------------------------------------------------------------

def every_line_is_json_and_says_whose(runner):
    done = end_of(runner, talking(runner, ["--log-format", "json", "--job", "a\"b", "--json", "s.json", "--inject",
                                           "kill:1@5:forward"]))
    lines = [json.loads(line) for text in (done.stdout, done.stderr) for line in text.splitlines()]
    for line in lines:
        must(line["job"] == 'a"b' and line["node"] == "0" and re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", line["time"]), f"{line}")
    said = [line for line in lines if "line" in line]
    expected = {(rank, life) for rank, life in [(0, 1), (1, 1), (1, 2)]}
    found = {(line["rank"], int(line["line"].split()[-1])) for line in said if line["line"].startswith("hello")}
    must(found == expected, f"{found} said hello, not {expected}: {said}")
    must({line["stream"] for line in said} == {"stdout", "stderr"}, f"{said}")
    exited = [line for line in lines if line.get("event") == "exited" and "SIGKILL" in line["cause"]]
    must(len(exited) == 1 and exited[0]["rank"] == 1 and exited[0]["gen"] >= 1 and exited[0]["level"] == "info", f"{exited}")
    incident = [line for line in lines if line.get("event") == "incident"]
    must(len(incident) == 1 and incident[0]["id"] == 1 and incident[0]["gen"] > exited[0]["gen"], f"{incident} {exited}")


def a_log_file_has_what_quiet_does_not_show(runner):
    command = talking(runner, ["--quiet", "--log-file", "logs/run.log", "--output-dir", "out"])
    end_of(runner, command)
    done = end_of(runner, command)
    must(not done.stdout and not done.stderr, f"shown: {done.stdout} {done.stderr}")
    log = (runner.folder / "logs/run.log").read_text()
    must(log.count("event=spawned rank=0") == 2 and log.count("event=run_ended exit=0") == 2, f"appended to:\n{log}")
    for line in log.splitlines():
        must(re.match(r"\S+ (info|warning) node=0 job=\S+ event=\w+", line), line)
    must((runner.folder / "out/rank-0.log").read_text().count("hello of 0") == 2, "the ranks' files")


def ranks_have_files_over_their_lives(runner):
    done = end_of(runner, talking(runner, ["--output-dir", "out", "--inject", "kill:1@5:forward", "--json", "s.json"]))
    must("[rank 0] hello of 0, life 1" in done.stdout, "what is kept is shown, too")
    mark = r"--- kintsugi: rank 1, life {}"
    text = (runner.folder / "out/rank-1.log").read_text()
    must(re.fullmatch(
        mark.format(1) + r", process \d+ began at \S+ \(job \S+\)\n((hello of 1, life 1|warned by 1)\n){2}" +
        r"(.*\n)*?" + mark.format(1) + r" killed by SIGKILL\n" +
        mark.format(2) + r", process \d+ began at \S+ \(job \S+\)\n((hello of 1, life 2|warned by 1)\n){2}" +
        r"(.*\n)*?" + mark.format(2) + r" exited with code 0\n", text), text)
    must(sorted(os.listdir(runner.folder / "out")) == ["rank-0.log", "rank-1.log"], os.listdir(runner.folder / "out"))


def places_that_cannot_be_written_are_told_at_the_start(runner):
    (runner.folder / "file").write_text("")
    for options, code in ((["--log-file", "/proc/none/run.log"], 3), (["--output-dir", "/proc/out"], 3),
                          (["--output-dir", "file"], 3), (["--log-format", "xml"], 2), (["--log-level", "loud"], 2),
                          (["--log-files", "3"], 2)):
        done = end_of(runner, talking(runner, options), expect=code)
        must(options[0] in done.stderr and (code == 2 or options[1] in done.stderr), f"{options}: {done.stderr}")


def a_full_disk_costs_lines_and_not_the_run(runner):
    (runner.folder / "out").mkdir()
    for name in ("out/rank-0.log", "run.log"):
        (runner.folder / name).symlink_to("/dev/full")
    done = end_of(runner, talking(runner, ["--output-dir", "out", "--log-file", "run.log", "--json", "s.json"]))
    must(done.stderr.count("event=output_lost") == 1 and "rank-0.log" in done.stderr, done.stderr)
    must(done.stderr.count("event=log_file_lost") == 1 and "No space left" in done.stderr, done.stderr)
    must("hello of 1" in (runner.folder / "out/rank-1.log").read_text(), "the other rank's file")
    must_be_same(reference(runner.bin, TRAINER, nproc=2), json.loads((runner.folder / "s.json").read_text()))


def time_spent_saving_has_its_share(runner):
    summary, _ = runner.run(["--save-every", "2"], TRAINER, nproc=2)
    time_spent = summary["time"]
    parts = sum(time_spent[name] for name in ("starting_s", "down_s", "redone_s", "saving_s", "paused_s", "useful_s"))
    must(time_spent["saving_s"] > 0 and abs(parts - time_spent["total_s"]) < 1e-6, f"{time_spent}")
    undisturbed = reference(runner.bin, TRAINER, nproc=2)["time"]
    must(undisturbed["saving_s"] == 0, f"{undisturbed}")


# ---- runs ----------------------------------------------------------------------------------------------------------

class Desk:
    """Runs of their own on this host: a base for folders that no other test looks into."""

    def __init__(self, runner):
        self.runner = runner
        self.base = runner.folder / "runtime"
        self.base.mkdir(mode=0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.base)}

    def start(self, trainer_args=SLOW):
        number = len(self.runner.live)
        command = ["env", f"XDG_RUNTIME_DIR={self.base}", *self.runner.command(
            ["--run-dir", str(self.runner.folder / f"run-{number}"), "--save-dir", "", "--job", f"job-{number}"],
            trainer_args, 2)]
        return LiveRun(self.runner, command=command)

    def tool(self, args):
        return self.runner.tool(args, env=self.environment)

    def list(self):
        """Those of this desk: runs of other tests are on this host, too."""
        done = self.tool(["list", "--json"])
        must(done.returncode == 0, done.stderr)
        return {run["job"]: run for run in json.loads(done.stdout) if run["run_dir"].startswith(str(self.runner.folder))}


def what_is_over_is_removed(desk, live):
    """By its job or folder; one that lives is refused. A stale one like job-1 beside it stands in for job-1."""
    done = desk.tool(["rm", "job-0", "nowhere"])
    must(done.returncode == 1 and "is the folder of a run that lives" in done.stderr and "'nowhere' is no run" in done.stderr, f"{done}")
    gone = next(run for run in (desk.base / "kintsugi").iterdir() if '"job-1"' in (run / "run.json").read_text())
    for name in ("run-7-copied", "run-8-copied"):
        shutil.copytree(gone, gone.parent / name)
        (gone.parent / name / "run.json").write_text(json.dumps({"job": name}))
    done = desk.tool(["rm", "run-7-copied"])
    must(done.returncode == 0 and done.stdout.startswith("removed ") and not (gone.parent / "run-7-copied").exists(), f"{done}")
    # As a user of whom nothing else is on this host.
    if subprocess.run(["unshare", "--user", "--map-user=4711", "true"], capture_output=True).returncode == 0:
        pruned = subprocess.run(["unshare", "--user", "--map-user=4711", desk.runner.kintsugi, "list", "--prune"], env=desk.environment,
                                capture_output=True, text=True, timeout=60)
        must(pruned.returncode == 0 and pruned.stdout.count("removed ") == 2 and not gone.exists(), f"{pruned}")
        must(set(desk.list()) == {"job-0"}, "the live one stays")
        live.status()


def what_helps_is_gathered(runner, desk, live):
    """Also where something is missing; the secret, which lies beside it, is not in it."""
    (live.run_dir / "secret").write_text("do not tell")
    (runner.folder / "some.log").write_text("a line\n")
    done = desk.tool(["bundle", "--run", str(live.run_dir), "--log", "some.log", "--log", "nowhere.log", "--output", "b.tar"])
    must(done.returncode == 0 and done.stdout == "b.tar\n" and "nowhere.log' is no file" in done.stderr, f"{done}")
    must((runner.folder / "b.tar").stat().st_mode & 0o777 == 0o600, "for its owner alone")
    with tarfile.open(runner.folder / "b.tar") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    must({"README.txt", "version.txt", "doctor.json", "status.json", "incidents.json", "missing.txt", "run/run.json", "run/run.journal",
          "logs/1-some.log"} == set(files), f"{sorted(files)}")
    must(json.loads(files["status.json"])["job"] == "job-0" and json.loads(files["run/run.json"])["job"] == "job-0" and
         json.loads(files["doctor.json"])["checks"] and files["logs/1-some.log"] == b"a line\n" and len(files["run/run.journal"]) > 100,
         "what is in them")
    must(not any(b"do not tell" in content for content in files.values()), "a secret is in it")
    again = desk.tool(["bundle", "--run", str(live.run_dir), "--output", "b.tar"])
    must(again.returncode == 1 and "File exists" in again.stderr, f"{again}")


def list_shows_live_silent_and_stale_runs(runner):
    desk = Desk(runner)
    must(desk.list() == {}, "nothing runs yet")
    with desk.start() as first, desk.start() as second:
        for run in (first, second):
            run.wait_step(3)
        found = desk.list()
        must(set(found) == {"job-0", "job-1"}, f"{found}")
        for run in found.values():
            must(run["state"] == "live" and run["phase"] == "RUNNING" and run["step"] >= 3 and run["ranks"] == 2 and
                 run["ranks_ready"] == 2 and run["incidents"] == 0 and run["age_s"] >= 0, f"{run}")
        must(found["job-0"]["pid"] == first.pid and found["job-0"]["run_dir"] == str(first.run_dir), f"{found}")
        table = desk.tool(["list"]).stdout.splitlines()
        must(table[0].split()[:5] == ["JOB", "NODE", "PID", "STATE", "STEP"] and
             any(line.startswith("job-1") and line.endswith(str(second.run_dir)) for line in table), f"{table}")
        # Several live: one must be named.
        done = desk.tool(["status"])
        must(done.returncode == 2 and str(first.run_dir) in done.stderr and str(second.run_dir) in done.stderr, done.stderr)
        second.signal(signal.SIGSTOP)
        run = desk.list()["job-1"]
        second.signal(signal.SIGCONT)
        must(run["state"] == "live" and not run["answers"] and run["step"] is None, f"stopped: {run}")
        second.signal(signal.SIGKILL)
        second.process.wait()
        for _ in range(2):  # looking does not remove it
            found = desk.list()
            must(found["job-1"]["state"] == "gone" and found["job-0"]["state"] == "live", f"{found}")
        what_is_over_is_removed(desk, first)
        what_helps_is_gathered(runner, desk, first)
    must("job-0" in desk.list(), "it was killed")
    with desk.start(TRAINER) as third:
        third.wait(0)
    must(desk.list() == {}, "the next run removes what is stale")


def status_means_the_only_run(runner):
    desk = Desk(runner)
    with desk.start() as run:
        run.wait_step(1)
        done = desk.tool(["status"])
        if done.returncode == 2:  # runs of other tests are on this host, too
            must(re.search(r"\d+ runs live here", done.stderr) and str(run.run_dir) in done.stderr, done.stderr)
        else:
            must(done.returncode == 0 and done.stdout.startswith("job job-0 "), f"{done}")
        must(desk.tool(["status", "--run", str(run.run_dir)]).stdout.startswith("job job-0 "), "by its name")


# ---- watching ------------------------------------------------------------------------------------------------------

def watching_a_pipe_gives_lines_until_the_end(runner):
    with LiveRun(runner, ["--inject", "kill:1@30:forward"], ["--steps", "60", "--step-delay-us", "20000"], nproc=2) as run:
        run.wait_step(1)
        done = runner.tool(["status", "--run", str(run.run_dir), "--watch", "0.1"], timeout=120)
        run.wait(0)
    must(done.returncode == 0, done.stderr)
    *lines, last = done.stdout.splitlines()
    must(last == "the run has ended" and lines, done.stdout)
    for line in lines:
        must(re.fullmatch(r"\d\d:\d\d:\d\d  job \S+  [A-Z]+  step \d+  loss [-\d.]+  ranks \d/2  incidents \d  goodput [\d.]+ %"
                          r"(  no answer for .*)?", line), line)
    must("\x1b" not in done.stdout, "plain")
    gone = runner.tool(["status", "--run", str(run.run_dir), "--watch"])
    must(gone.returncode == 1 and not gone.stdout, f"{gone}")


class Screen:
    """A command in a terminal of its own."""

    def __init__(self, command, columns=100, rows=30, colored=False):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", "NO_COLOR": "" if colored else "1"})
            os.execv(command[0], command)
        termios.tcsetwinsize(self.terminal, (rows, columns))
        self.before = termios.tcgetattr(self.terminal)
        self.text = ""

    def read(self):
        """More of what it shows; False: it has ended."""
        if not select.select([self.terminal], [], [], 0.05)[0]:
            return True
        try:
            piece = os.read(self.terminal, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)

    def wait_for(self, words):
        def seen():
            self.read()
            return words in self.text
        wait_until(seen, lambda: f"'{words}' on the screen:\n{self.text[-3000:]}")

    def end(self):
        """Its exit code."""
        wait_until(lambda: not self.read(), lambda: f"its end:\n{self.text[-3000:]}")
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


def watching_a_terminal_redraws_and_gives_it_back(runner):
    with LiveRun(runner, [], ["--steps", "2000", "--step-delay-us", "20000"], nproc=2) as run:
        run.wait_step(1)
        screen = Screen([runner.kintsugi, "status", "--run", str(run.run_dir), "--watch", "0.1"], columns=160)
        screen.wait_for("incidents")  # The last line of a frame, which may come in pieces.
        must(screen.text.startswith("\x1b[?1049h\x1b[?25l"), repr(screen.text[:100]))
        must("RUNNING" in screen.text and "goodput" in screen.text and "ranks 2 of 2" in screen.text, screen.text[-3000:])
        run.strike("kill", 1)
        screen.wait_for("killed by SIGKILL")
        attributes = termios.tcgetattr(screen.terminal)
        os.write(screen.terminal, b"\x03")
        must(screen.end() == 0, screen.text[-2000:])
        must("\x1b[?25h\x1b[?1049l" in screen.text and screen.text.rfind("\x1b[?1049l") > screen.text.rfind("\x1b[?1049h"),
             repr(screen.text[-500:]))
        after = screen.text[screen.text.rfind("\x1b[?1049l") + 8:]
        must(re.match(r"job \S+  [A-Z]+  step \d+ ", after) and "ended" not in after, repr(after))
        must(attributes == screen.before, "the terminal's mode is never changed")
        # A second one sees the end.
        screen = Screen([runner.kintsugi, "status", "--run", str(run.run_dir), "--watch", "0.1"], columns=40, rows=8)
        screen.wait_for("RUNNING")
        run.signal(signal.SIGKILL)
        must(screen.end() == 0, screen.text[-2000:])
        must("the run has ended" in screen.text[screen.text.rfind("\x1b[?1049l"):], repr(screen.text[-500:]))


# ---- report, doctor ------------------------------------------------------------------------------------------------

def a_report_is_opened_or_its_place_said(runner):
    runner.run(["--report", "report"], TRAINER, nproc=2)
    page = str((runner.folder / "report/index.html").resolve())
    bare = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
    done = runner.tool(["report", "report", "--open"], env=bare)
    must(done.returncode == 0 and done.stdout == "report/index.html\n" and "no desktop" in done.stderr, f"{done}")
    opener = runner.folder / "bin/xdg-open"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\necho "$1" > {runner.folder}/opened\n')
    opener.chmod(0o755)
    desktop = {**bare, "DISPLAY": ":7", "PATH": f"{opener.parent}:{os.environ['PATH']}"}
    done = runner.tool(["report", "report", "--open"], env=desktop)
    must(done.returncode == 0 and not done.stderr and (runner.folder / "opened").read_text() == page + "\n", f"{done}")
    opener.write_text("#!/bin/sh\nexit 3\n")
    done = runner.tool(["report", "report", "--open"], env=desktop)
    must(done.returncode == 0 and "xdg-open ended with code 3" in done.stderr, f"{done}")
    desktop["PATH"] = str(runner.folder)
    done = runner.tool(["report", "report", "--open"], env=desktop)
    must(done.returncode == 0 and "xdg-open: No such file" in done.stderr, f"{done}")


def doctor_tells_what_is_wrong_and_what_to_do(runner):
    secret = runner.folder / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    well = ["doctor", "--nproc", "2", "--secret-file", "secret", "--save-dir", "saves", "--free-gib", "0"]
    done = runner.tool([*well, "--json"])
    found = json.loads(done.stdout)
    checks = {check["check"]: check for check in found["checks"]}
    must(done.returncode == (0 if found["ready"] else 1), f"{done.returncode} {found}")
    must({"kernel", "ports", "files", "shared memory", "clock", "run folder", "save folder", "secret", "driver", "NCCL"}
         <= set(checks), f"{sorted(checks)}")
    must(checks["secret"]["verdict"] == "ok" and checks["save folder"]["verdict"] != "error", f"{checks}")
    must(not (runner.folder / "saves").exists(), "nothing is left behind")
    secret.chmod(0o644)
    done = runner.tool(well)
    must(done.returncode == 1 and "chmod 600 'secret'" in done.stdout and "not ready: " in done.stdout, f"{done}")
    done = runner.tool(["doctor", "--ports", "7-3"])
    must(done.returncode == 2 and "--ports" in done.stderr, f"{done}")


def mistakes_are_told_with_what_is_near(runner):
    program = ["--", "true"]
    for words, said in (
            (["statsu"], "there is no command 'statsu'; did you mean 'status'?"),
            (["ckpt", "shwo", "x"], "there is no command 'shwo'; did you mean 'show'?"),
            (["run", "--save-evry", "3", *program], "there is no option '--save-evry' of kintsugi run; did you mean '--save-every'?"),
            (["status", "--wathc"], "did you mean '--watch'?"),
            (["entirely-other"], "there is no command 'entirely-other'\n"),
            *((["run", option, "-1", *program], f"{option}: '-1' is less than 0") for option in (
                "--save-every", "--verify-every", "--grace", "--silence", "--node-wait", "--spare-after", "--tokens-per-sample",
                "--max-respawns", "--hang-least")),
            (["replace", "-2"], "rank: Value -2 not in range"),
            (["inject", "--run", "nowhere", b"uce:1@5:forward,tensors=w\xff"], "is no UTF-8"),
            (["run", "--inject", b"uce:1@5:forward,tensors=w\xff", *program], "expected UTF-8"),
            (["run", "--nnodes", "2", "--rendezvous", "[::1:29400", *program], "--rendezvous '[::1:29400' is not HOST:PORT")):
        done = subprocess.run([runner.kintsugi, *words], capture_output=True, timeout=60, cwd=runner.folder)
        must(done.returncode == 2 and said in done.stderr.decode(errors="replace"), f"{words}: {done}")


# ---- what --help shows ---------------------------------------------------------------------------------------------

def groups_of(text):
    """{name of a group: the options shown in it}"""
    groups = {}
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][^:]*:", line):
            shown = groups.setdefault(line[:-1], [])
        elif option := re.match(r"  (?:-\w,)?(--[\w-]+)", line):
            shown.append(option[1])
    return groups


def help_of_run_shows_what_people_need(runner):
    short, whole = (groups_of(end_of(runner, [runner.kintsugi, "run", word]).stdout) for word in ("--help", "--help-all"))
    must(set(short) == {"Positionals", "Options", "More, with --help-all"}, f"groups of --help: {sorted(short)}")
    needed = [option for option in short["Options"] if not option.startswith("--help")]
    must(len(needed) == 12, f"{len(needed)} options in --help: {needed}")
    must("Other" not in whole, f"in no group of tools/cli/run_help.cc: {whole.get('Other')}")
    must(whole["Options"] == short["Options"], f"{whole['Options']} {short['Options']}")
    shown = [option for group in whole.values() for option in group]
    completed = re.search(r"'kintsugi run'\) words='([^']*)'", end_of(runner, [runner.kintsugi, "completion", "bash"]).stdout)[1].split()
    must(len(shown) == len(set(shown)) and set(shown) <= set(completed) and len(shown) > 50, f"{sorted(shown)}\n{sorted(completed)}")
    table = re.findall(r'"(--[\w-]+)"', (ROOT / "tools/cli/run_help.cc").read_text())
    must(set(table) == set(shown), f"named in the table, but no option: {set(table) - set(shown)}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [(test.__name__, test) for test in (
        every_line_is_json_and_says_whose, a_log_file_has_what_quiet_does_not_show, ranks_have_files_over_their_lives,
        places_that_cannot_be_written_are_told_at_the_start, a_full_disk_costs_lines_and_not_the_run,
        time_spent_saving_has_its_share, list_shows_live_silent_and_stale_runs, status_means_the_only_run,
        watching_a_pipe_gives_lines_until_the_end, watching_a_terminal_redraws_and_gives_it_back,
        a_report_is_opened_or_its_place_said, doctor_tells_what_is_wrong_and_what_to_do, mistakes_are_told_with_what_is_near, help_of_run_shows_what_people_need)]))
