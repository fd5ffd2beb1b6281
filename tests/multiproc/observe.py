"""Who looks on at a run: metrics while it is struck, of every node; readers that are slow, many or mistaken cost it nothing."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from harness import SLOWNESS, SMALL, Failure, must_be_same, only_incident, reference, script
from live_run import LiveRun, wait_until
from takeovers import LONG

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's own, where another interpreter runs this
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
    from prometheus_client.parser import text_string_to_metric_families as older_text
except ImportError:
    sys.exit("python3-prometheus-client is not installed: ./tools/setup")

TRAINER = ["--steps", "60", *SMALL]
SLOW = [*TRAINER, "--step-delay-us", "40000"]
NAMES = {"open": "application/openmetrics-text; version=1.0.0", "older": "text/plain"}


def url_of(run, what="metrics"):
    """Where it is served, as its log says."""
    found = wait_until(lambda: re.search(rf"event={what} url=(\S+)", run.log()), f"the place of {what} in the log")
    return found.group(1)


def get(url, accept="", timeout=20):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=timeout) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


class Metrics:
    """What a scrape says, checked by the parser of Prometheus' own Python library."""

    def __init__(self, url):
        kind, text = get(url, NAMES["open"])
        if not kind.startswith("application/openmetrics-text"):
            raise Failure(f"asked for OpenMetrics, got {kind}")
        try:
            self.families = {family.name: family for family in open_metrics(text)}
        except ValueError as error:
            raise Failure(f"not OpenMetrics: {error}\n{text}") from None

    def samples(self, name):
        return [sample for family in self.families.values() for sample in family.samples if sample.name == name]

    def value(self, name, **labels):
        found = [sample.value for sample in self.samples(name) if labels.items() <= sample.labels.items()]
        return sum(found) if found else None

    def must_say(self, name, expected, **labels):
        if self.value(name, **labels) != expected:
            raise Failure(f"{name} {labels}: {self.value(name, **labels)}, expected {expected}")


def scrapes_follow_a_struck_run(runner):
    """The figures are those that the status and the summary tell."""
    with LiveRun(runner, ["--metrics", "0", "--save-every", "20", "--no-adopt", "--inject", "kill:2@15:forward", "--inject",
                          "throw:1@30:backward"], SLOW) as run:
        url = url_of(run)
        before = Metrics(url)
        run.wait_status(lambda s: s["incidents"] == 2 and s["step"] > 45, "both incidents")
        now = Metrics(url)
        status = run.status()
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    for family, unit in [("kintsugi_step_seconds", "seconds"), ("kintsugi_goodput_ratio", "ratio"),
                         ("kintsugi_streamed_bytes", "bytes"), ("kintsugi_recovery_seconds", "seconds")]:
        if now.families[family].unit != unit or not now.families[family].documentation:
            raise Failure(f"{family}: unit {now.families[family].unit}")
    for incident in summary["incidents"]:
        now.must_say("kintsugi_incidents_total", 1, signal=incident["signal"], rung=incident["path"])
    now.must_say("kintsugi_incidents_total", 2)
    now.must_say("kintsugi_incident_seconds_count", 2)
    now.must_say("kintsugi_streamed_bytes_total", sum(incident["bytes_streamed"] for incident in summary["incidents"]))
    now.must_say("kintsugi_lost_steps_total", sum(incident["steps_lost"] for incident in summary["incidents"]))
    now.must_say("kintsugi_ranks", 4, state="ready")
    now.must_say("kintsugi_phase", 1, phase="RUNNING")
    now.must_say("kintsugi_phase", 1)
    now.must_say("kintsugi_saves_total", 2, outcome="made")
    now.must_say("kintsugi_checkpoint_step", 40)
    now.must_say("kintsugi_leading", 1)
    down = sum(incident["down_ms"] for incident in summary["incidents"]) / 1000
    if abs(now.value("kintsugi_incident_seconds_sum") - down) > 0.01 or now.value("kintsugi_recovery_seconds_total") > down + 0.01:
        raise Failure(f"down {down} s by the summary: {now.families['kintsugi_incident_seconds'].samples[-2:]}, "
                      f"{now.families['kintsugi_recovery_seconds'].samples}")
    spent = {sample.labels["on"]: sample.value for sample in now.samples("kintsugi_spent_seconds")}
    if not 0 < spent["useful"] <= sum(spent.values()) <= status["time"]["total_s"]:
        raise Failure(f"{spent}, by the status {status['time']}")
    if abs(spent["useful"] / sum(spent.values()) - now.value("kintsugi_goodput_ratio")) > 1e-6:
        raise Failure(f"goodput {now.value('kintsugi_goodput_ratio')} of {spent}")
    for name in ("kintsugi_steps_total", "kintsugi_step_seconds_count", "kintsugi_step"):
        if not (before.value(name) or 0) < now.value(name) <= 60:
            raise Failure(f"{name}: {before.value(name)}, then {now.value(name)}")


def older_readers_get_the_older_text(runner):
    with LiveRun(runner, ["--metrics", "127.0.0.1:0", "--inject", "throw:1@5:backward"], SLOW) as run:
        run.wait_step(8)
        url = url_of(run)
        kind, text = get(url, NAMES["older"])
        families = {family.name: family for family in older_text(text)}
        if not kind.startswith("text/plain; version=0.0.4") or "# EOF" in text or "# UNIT" in text:
            raise Failure(f"{kind}\n{text}")
        untyped = [name for name, family in families.items() if family.type == "unknown" or not family.documentation]
        if untyped or families["kintsugi_incidents"].type != "counter":
            raise Failure(f"without type or help: {untyped}")
        for path, code in [("/metrics/x", 404), ("/../etc/passwd", 404)]:
            try:
                get(url.replace("/metrics", path))
                raise Failure(f"{path} was answered")
            except urllib.error.HTTPError as error:
                if error.code != code:
                    raise Failure(f"{path}: {error.code}") from None
        run.signal(signal.SIGTERM)
        run.finish(expect=75)


def readers_that_do_not_read_delay_nothing(runner):
    """Thirty connections that ask again and again and never read, and a hundred that say nothing."""
    with LiveRun(runner, ["--metrics", "0", "--inject", "kill:2@20:forward"], SLOW) as run:
        place = re.search(r"//([\d.]+):(\d+)/", url_of(run)).groups()
        doors = []
        for number in range(130):
            door = socket.create_connection((place[0], int(place[1])))
            door.setblocking(False)
            doors.append(door)
        request = f"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: {NAMES['open']}\r\n\r\n".encode() * 50

        def pester(_):
            for door in doors[:30]:
                try:
                    door.send(request)
                except OSError:
                    pass  # it gave way to another one, or its questions fill the road
            return False
        run.wait_status(lambda s: pester(s) or s["step"] > 40, "step 41")
        Metrics(url_of(run))  # one who reads is answered meanwhile
        summary, log = run.finish()
        for door in doors:
            door.close()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    only_incident(summary)


def several_launchers(runner, nodes, trainer):
    """Starts the launcher of a node, all on this host, with metrics."""
    secret = runner.folder / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def start(node, *options):
        run_dir = runner.folder / f"node-{node}-{len(runner.live)}"
        line = runner.command(["--nnodes", nodes, "--node-rank", str(node), "--rendezvous", f"127.0.0.1:{port}", "--node-address",
                               "127.0.0.1", "--secret-file", str(secret), "--metrics", "0", "--run-dir", str(run_dir), *options], trainer, 2)
        run = LiveRun(runner, command=line)
        run.run_dir = run_dir
        return run
    return start


def kill(run):
    os.kill(run.pid, signal.SIGKILL)
    run.process.wait()


def every_node_says_what_it_knows(runner):
    """Three launchers on this host. The run's figures come from the one that leads, also after it was killed."""
    start = several_launchers(runner, "3", LONG)
    runs = [start(node) for node in range(3)]
    runs[0].wait_step(4)
    seen = [Metrics(url_of(run)) for run in runs]
    for node, metrics in enumerate(seen):
        metrics.must_say("kintsugi_leading", 1 if node == 0 else 0)
        metrics.must_say("kintsugi_hears_leader", 1)
        metrics.must_say("kintsugi_node_processes", 2)
        metrics.must_say("kintsugi_info", 1, node=str(node))
        metrics.must_say("kintsugi_ranks", 6 if node == 0 else None)
    kill(runs[0])
    leader = wait_until(lambda: next((run for run in runs[1:] if Metrics(url_of(run)).value("kintsugi_leading") == 1), None),
                        "another leader")
    again = start(0)
    leader.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the incident's end")
    wait_until(lambda: Metrics(url_of(leader)).value("kintsugi_incidents_total") == 1, "the incident's figure")
    metrics = Metrics(url_of(leader))
    if metrics.value("kintsugi_controller_term") < 2 or metrics.value("kintsugi_ranks", state="ready") != 6:
        raise Failure(f"{metrics.families['kintsugi_controller_term']}")
    Metrics(url_of(again)).must_say("kintsugi_leading", 0)
    summary, _ = leader.finish()
    for run in (*runs[1:], again):
        run.wait(0)
    if summary["steps"] != int(LONG[1]):
        raise Failure(f"{summary['steps']} steps")


def events(url, wanted, seconds=60):
    """What a reader of the page has, once it has all that is `wanted`: each part's newest HTML."""
    parts = {}
    with urllib.request.urlopen(url + "events", timeout=seconds) as stream:
        if stream.headers["Content-Type"] != "text/event-stream":
            raise Failure(f"{stream.headers['Content-Type']}")
        name, data = "", []
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name, data = text[7:], []
            elif text.startswith("data: "):
                data.append(text[6:])
            elif not text:
                parts[name] = "\n".join(data)
                if all(word in parts.get(part, "") for part, word in wanted):
                    return parts
    raise Failure(f"the stream ended before {wanted}: {parts}")


def the_page_grows_with_the_run(runner):
    with LiveRun(runner, ["--page", "0", "--no-adopt", "--inject", "kill:2@20:forward"], SLOW) as run:
        url = url_of(run, "page")
        kind, page = get(url)
        if not kind.startswith("text/html") or "default-src 'none'" not in page or 'src="page.js"' not in page:
            raise Failure(f"{kind}\n{page[:2000]}")
        outside = [found for found in re.findall(r'(?:src|href)="([^"]+)"', page) if not re.match(r"#|data:|page\.js$", found)]
        if outside:
            raise Failure(f"the page asks for {outside}")
        events(url, [("head", "Training"), ("ranks", "tile ready"), ("loss", "curve run"), ("time", "useful")])
        parts = events(url, [("index", "killed"), ("ledger", "rung"), ("head", "1</dd>"), ("ranks", "life 2")])
        if parts["ranks"].count("<li ") != 4 or "incident-1" not in parts["accounts"]:
            raise Failure(f"{parts['ranks']}\n{parts['accounts'][:2000]}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)


def readers_of_the_page_that_do_not_read_delay_nothing(runner):
    with LiveRun(runner, ["--page", "0", "--metrics", "0", "--inject", "kill:2@20:forward"], SLOW) as run:
        url = url_of(run, "page")
        place = re.search(r"//([\d.]+):(\d+)/", url).groups()
        doors = [socket.create_connection((place[0], int(place[1]))) for _ in range(40)]
        for door in doors:
            door.sendall(b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
        run.wait_step(30)
        if not get(url)[1].startswith("<!DOCTYPE html>"):
            raise Failure("no page beside them")
        summary, log = run.finish()
        for door in doors:
            door.close()
    must_be_same(reference(runner.bin, TRAINER), summary, log)


def the_dashboard_asks_for_what_there_is(runner):
    board = json.loads((Path(__file__).resolve().parents[2] / "tools/observe/grafana.json").read_text())
    asked = set(re.findall(r"kintsugi_\w+", json.dumps(board)))
    with LiveRun(runner, ["--metrics", "0", "--save-every", "5"], SLOW) as run:
        run.wait_step(12)
        url = url_of(run)
        # What comes only with an incident or a slow rank has a family all the same.
        said = set(re.findall(r"^# TYPE (kintsugi_\w+)", get(url)[1], re.M))
        run.signal(signal.SIGTERM)
        run.finish(expect=75)
    missing = {name for name in asked if name not in said and name.rsplit("_bucket", 1)[0] not in said}
    if missing or len(asked) < 10:
        raise Failure(f"the dashboard asks for {missing}; there is {said}")


def end_of(url):
    """What is served once the run is over; reading it is what its launcher waits for."""
    def look():
        try:
            kind_and_text = get(url, NAMES["older"])
        except OSError:
            return None  # between the run and its end
        return kind_and_text[1] if "\nkintsugi_exit_code{" in kind_and_text[1] else None
    return wait_until(look, "the end in the metrics")


def metrics_say_how_a_run_ended(runner):
    """Until that was read, or a signal comes; where nobody ever read any, the end waits for nobody."""
    forever = ["--metrics", "0", "--metrics-linger", "3600"]
    for code in (0, 75):
        with LiveRun(runner, forever, SLOW) as run:
            run.wait_step(5)
            url = url_of(run)
            Metrics(url).must_say("kintsugi_exit_code", None)
            Metrics(url).must_say("kintsugi_linger_seconds", 3600)
            if code == 75:
                run.signal(signal.SIGTERM)
            end = end_of(url)
            if not re.search(rf'\nkintsugi_exit_code{{run="[^"]+"}} {code}\n', end) or "\nkintsugi_leading 0\n" not in end or "kintsugi_step" in end:
                raise Failure(end)
            run.wait(code)
    with LiveRun(runner, forever, ["--steps", "5"]) as run:
        run.finish()
    with LiveRun(runner, forever, SLOW) as run:
        run.wait_step(5)
        Metrics(url_of(run))
        run.wait_log("event=lingers ")
        run.signal(signal.SIGTERM)
        run.wait(0)


def a_signal_between_a_run_and_its_end_is_kept(runner):
    """While its launcher waits for a reader of what the ranks printed, no step is left, and nobody lingers yet."""
    trainer = ["sh", "-c", 'yes | head -c 400000; exec "$@"', "sh", runner.byte_lm, "--samples", "0", "--steps", "5"]
    log = runner.folder / "run.log"
    process = subprocess.Popen([runner.kintsugi, "run", "--nproc", "2", "--save-dir", "", "--metrics", "0", "--metrics-linger", "3600",
                                "--log-file", str(log), "--", *trainer],
                               cwd=runner.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        url = wait_until(lambda: re.search(r"event=metrics url=(\S+)", log.read_text()) if log.exists() else None, "metrics").group(1)
        get(url)  # somebody reads metrics, so the end waits for him
        wait_until(lambda: "event=run_ended" in log.read_text(), "the run's end")
        time.sleep(0.3)  # its loop is over by then; for two seconds at most its output waits for a reader
        process.send_signal(signal.SIGTERM)
        if process.wait(60 * SLOWNESS) != 0:
            raise Failure(f"code {process.returncode}\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()


def the_alerts_ask_for_what_there_is(runner):
    """Each metric of the rules, with the labels that they go by."""
    rules = (Path(__file__).resolve().parents[2] / "tools/observe/alerts.yml").read_text()
    asked = set(re.findall(r"\bkintsugi_[a-z_]+\b(?=[ *{)]|_total)", rules))
    with LiveRun(runner, ["--metrics", "0", "--metrics-linger", "60", "--save-every", "5"], SLOW) as run:
        run.wait_step(12)
        url = url_of(run)
        text = get(url, NAMES["older"])[1]
        said = set(re.findall(r"^# TYPE (kintsugi_\w+)", text, re.M)) | set(re.findall(r"^(kintsugi_\w+_(?:count|info))\b", text, re.M))
        run.signal(signal.SIGTERM)
        said |= set(re.findall(r"^# TYPE (kintsugi_\w+)", end_of(url), re.M))
        run.wait(75)
    said.add("kintsugi_certificate_ends_seconds")  # with TLS alone, where tls.py looks at it
    if asked - said or len(asked) < 14:
        raise Failure(f"the rules ask for {asked - said}; of {asked} there is {said}")
    for metric, label, values in [("kintsugi_saves_total", "outcome", ["failed"]), ("kintsugi_spares", "state", ["wanted", "waiting"]),
                                  ("kintsugi_lost_seconds_total", "on", ["paused", "down"])]:
        for value in values:
            if f'{label}="{value}"' not in rules + 'on="down"' or not re.search(rf'^{metric}{{{label}="{value}"}} ', text, re.M):
                raise Failure(f"{metric} by {label} {value}\n{text}")


def places_that_cannot_be_are_refused(runner):
    program = ["--", runner.byte_lm, "--steps", "1"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option, code, said in [("x", 2, "--metrics 'x' is not [ADDR:]PORT"), (f"127.0.0.1:{port}", 3, str(port)),
                                   ("192.0.2.1:9400", 2, "192.0.2.1:9400")]:
            done = runner.tool(["run", "--metrics", option, *program])
            if done.returncode != code or said not in done.stderr:
                raise Failure(f"--metrics {option}: code {done.returncode}\n{done.stderr}")
    done = runner.tool(["controller", "--world-size", "1", "--metrics", "0"])
    if done.returncode != 2 or "--rendezvous" not in done.stderr:
        raise Failure(f"controller alone: code {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("metrics follow a run that is struck, and say what its summary says", scrapes_follow_a_struck_run),
        ("older readers get the older text", older_readers_get_the_older_text),
        ("readers that do not read delay nothing", readers_that_do_not_read_delay_nothing),
        ("every node says what it knows, and a new leader the run's figures", every_node_says_what_it_knows),
        ("the dashboard asks for what there is", the_dashboard_asks_for_what_there_is),
        ("the alerts ask for what there is", the_alerts_ask_for_what_there_is),
        ("metrics say how a run ended, until that was read", metrics_say_how_a_run_ended),
        ("a signal between a run and its end is kept", a_signal_between_a_run_and_its_end_is_kept),
        ("the page grows with a run that is struck", the_page_grows_with_the_run),
        ("readers of the page that do not read delay nothing", readers_of_the_page_that_do_not_read_delay_nothing),
        ("places that cannot be listened at are refused", places_that_cannot_be_are_refused),
    ]))
