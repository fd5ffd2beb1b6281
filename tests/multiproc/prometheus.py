"""Debian's own Prometheus scrapes a run that is struck, and promtool judges the text (./tools/test --oracles)."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from harness import Failure, Skip, must_be_same, reference, script
from live_run import LiveRun, wait_until
from observe import NAMES, get, url_of

TRAINER = ["--steps", "100"]
SLOW = [*TRAINER, "--step-delay-us", "50000"]


BUILD = Path(__file__).resolve().parents[2] / "build"


def program(name):
    """Unpacked by ./tools/setup, or the system's own."""
    found = shutil.which(name, path=f"{BUILD}/prometheus/usr/bin:{os.environ['PATH']}")
    if not found:
        raise Skip(f"there is no {name}: ./tools/setup --oracles brings it")
    return found


def promtool_finds_no_fault(runner):
    promtool = program("promtool")
    with LiveRun(runner, ["--metrics", "0", "--save-every", "10", "--inject", "kill:2@5:forward", "--inject", "throw:1@9:backward"],
                 SLOW) as run:
        run.wait_step(12)
        # It knows the older text only; OpenMetrics is what the server below asks for.
        text = get(url_of(run), NAMES["older"])[1]
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or done.stdout or done.stderr:
            raise Failure(f"promtool: {done.returncode} {done.stdout}{done.stderr}")
        run.signal(signal.SIGTERM)
        run.finish(expect=75)


class Server:
    """Prometheus, which scrapes the targets twice a second and looks at the rules as often."""

    def __init__(self, prometheus, folder, targets, rules=None, evaluation="500ms"):
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "500ms", "evaluation_interval": evaluation}, "rule_files": [str(rules)] if rules else [],
            "scrape_configs": [{"job_name": "kintsugi", "static_configs": [{"targets": targets}]}]}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = open(folder / "prometheus.err", "w+b")
        self.process = subprocess.Popen([prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                                         f"--web.listen-address=127.0.0.1:{self.port}"], cwd=folder, stdout=self.log, stderr=self.log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def ask(self, query):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": query}),
                                        timeout=10) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    def value(self, query):
        found = self.ask(query)
        return float(found[0]["value"][1]) if found else None

    def wait(self, condition, what):
        with open(self.log.name) as log:
            wait_until(condition, lambda: f"{what() if callable(what) else what}\n{log.read()[-3000:]}")


def prometheus_sees_the_incidents(runner):
    """Scraped twice a second; what the server has stored at the end is what the summary says."""
    prometheus = program("prometheus")
    with LiveRun(runner, ["--metrics", "0", "--save-every", "30", "--inject", "kill:2@20:forward", "--inject", "throw:1@50:backward"],
                 SLOW) as run:
        with Server(prometheus, runner.folder, [urllib.parse.urlparse(url_of(run)).netloc]) as server:
            server.wait(lambda: server.value("up") == 1, "a good scrape")
            server.wait(lambda: server.value("sum(kintsugi_incidents_total)") == 2, "both incidents in the server")
            seen = {(found["metric"]["signal"], found["metric"]["rung"]) for found in server.ask("kintsugi_incidents_total")}
            goodput = server.value("kintsugi_goodput_ratio")
            p99 = server.value("histogram_quantile(0.99, sum by (le) (kintsugi_step_seconds_bucket))")
            kinds = get(f"http://127.0.0.1:{server.port}/api/v1/metadata?metric=kintsugi_recovery_seconds")[1]
            summary, run_log = run.finish()
            server.wait(lambda: server.value("up") == 0, "that the run is gone")
    must_be_same(reference(runner.bin, TRAINER), summary, run_log)
    if seen != {(incident["signal"], incident["path"]) for incident in summary["incidents"]}:
        raise Failure(f"{seen}, in the summary {summary['incidents']}")
    if not 0 < goodput < 1 or not 0.05 <= p99 < 25:
        raise Failure(f"goodput {goodput}, p99 {p99} s of steps that take 50 ms at least")
    if '"unit":"seconds"' not in kinds or '"type":"counter"' not in kinds:
        raise Failure(f"what the server knows of the metric: {kinds}")


ALERTS = Path(__file__).resolve().parents[2] / "tools/observe/alerts.yml"


def rules_call_for_what_they_say(runner):
    """On series of hours (alerts_cases.yml), by promtool."""
    cases = runner.folder / "cases.yml"
    cases.write_text(Path(__file__).with_name("alerts_cases.yml").read_text().replace("ALERTS", str(ALERTS)))
    done = subprocess.run([program("promtool"), "test", "rules", str(cases)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"promtool: {done.returncode} {done.stdout}{done.stderr}")
    named = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    called = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", cases.read_text()))
    if named != called:
        raise Failure(f"alerts that no case calls for, or cases of none: {named ^ called}")


def ends_are_told_apart(runner):
    """A real Prometheus with the rules as they are shipped: a run that ends well, one that is stopped, one that fails, one whose launcher
    is killed."""
    prometheus = program("prometheus")
    linger = ["--metrics", "0", "--metrics-linger", "60"]
    long = ["--steps", "400", "--step-delay-us", "50000"]  # well ends by itself, the others do not come so far
    with LiveRun(runner, [*linger, "--job", "well", "--save-dir", str(runner.folder / "well")], long) as well, LiveRun(runner, [*linger, "--job", "stopped", "--save-dir", str(runner.folder / "stopped")], long) as stopped, \
            LiveRun(runner, [*linger, "--job", "failed", "--save-dir", "", "--max-respawns", "0"], long) as failed, \
            LiveRun(runner, [*linger, "--job", "gone", "--save-dir", str(runner.folder / "gone")], long) as gone:
        targets = [urllib.parse.urlparse(url_of(run)).netloc for run in (well, stopped, failed, gone)]
        with Server(prometheus, runner.folder, targets, rules=ALERTS, evaluation="3s") as server:  # an end is scraped once, 500 ms before it is gone
            server.wait(lambda: server.value("count(kintsugi:run:step > 0)") == 4, "all four")
            stopped.signal(signal.SIGTERM)
            failed.signal_rank(1, signal.SIGKILL)
            gone.signal(signal.SIGKILL)
            for run, code in ((well, 0), (stopped, 75), (failed, 1)):
                run.wait(code)

            def called():
                return {(found["metric"]["run"], found["metric"]["alertname"]) for found in server.ask('ALERTS{alertname=~"KintsugiRun.*"}')}
            server.wait(lambda: called() == {("well", "KintsugiRunSucceeded"), ("stopped", "KintsugiRunToBeResumed"),
                                             ("failed", "KintsugiRunFailed"), ("gone", "KintsugiRunGone")}, called)


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("promtool finds no fault with the text", promtool_finds_no_fault),
        ("Prometheus sees the incidents", prometheus_sees_the_incidents),
        ("the alerts call for what they say", rules_call_for_what_they_say),
        ("ends are told apart after the launcher is gone", ends_are_told_apart),
    ]))
