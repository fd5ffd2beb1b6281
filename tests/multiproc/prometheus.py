"""Debian's own Prometheus scrapes a run that is struck, and promtool judges the text (./tools/test --oracles)."""
import json
import os
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


def prometheus_sees_the_incidents(runner):
    """Scraped twice a second; what the server has stored at the end is what the summary says."""
    prometheus = program("prometheus")
    with LiveRun(runner, ["--metrics", "0", "--save-every", "30", "--inject", "kill:2@20:forward", "--inject", "throw:1@50:backward"],
                 SLOW) as run:
        target = urllib.parse.urlparse(url_of(run)).netloc
        config = runner.folder / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 500ms}}\n"
                          f"scrape_configs: [{{job_name: kintsugi, static_configs: [{{targets: ['{target}']}}]}}]\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = open(runner.folder / "prometheus.err", "w+b")
        server = subprocess.Popen([prometheus, f"--config.file={config}", f"--storage.tsdb.path={runner.folder}/tsdb",
                                   f"--web.listen-address=127.0.0.1:{port}"], cwd=runner.folder, stdout=log, stderr=log)
        try:
            def ask(query):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?" +
                                                urllib.parse.urlencode({"query": query}), timeout=10) as answer:
                        return json.load(answer)["data"]["result"]
                except OSError:
                    return []

            def value(query):
                found = ask(query)
                return float(found[0]["value"][1]) if found else None
            wait_until(lambda: value("up") == 1, lambda: f"a good scrape\n{open(log.name).read()[-3000:]}")
            wait_until(lambda: value("sum(kintsugi_incidents_total)") == 2, "both incidents in the server")
            seen = {(found["metric"]["signal"], found["metric"]["rung"]) for found in ask("kintsugi_incidents_total")}
            goodput = value("kintsugi_goodput_ratio")
            p99 = value("histogram_quantile(0.99, sum by (le) (kintsugi_step_seconds_bucket))")
            kinds = get(f"http://127.0.0.1:{port}/api/v1/metadata?metric=kintsugi_recovery_seconds")[1]
            summary, run_log = run.finish()
            wait_until(lambda: value("up") == 0, "that the run is gone")
        finally:
            server.terminate()
            server.wait()
            log.close()
    must_be_same(reference(runner.bin, TRAINER), summary, run_log)
    if seen != {(incident["signal"], incident["path"]) for incident in summary["incidents"]}:
        raise Failure(f"{seen}, in the summary {summary['incidents']}")
    if not 0 < goodput < 1 or not 0.05 <= p99 < 25:
        raise Failure(f"goodput {goodput}, p99 {p99} s of steps that take 50 ms at least")
    if '"unit":"seconds"' not in kinds or '"type":"counter"' not in kinds:
        raise Failure(f"what the server knows of the metric: {kinds}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("promtool finds no fault with the text", promtool_finds_no_fault),
        ("Prometheus sees the incidents", prometheus_sees_the_incidents),
    ]))
