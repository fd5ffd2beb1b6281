"""Every panel of the Grafana dashboard has something to show: its own queries, asked of Debian's Prometheus, which scrapes a
struck run (./tools/test --oracles).

KINTSUGI_SHOTS=FOLDER draws the answers to FOLDER/dashboard.png, panel by panel as the dashboard lays them out; that needs
matplotlib (python3-matplotlib). Grafana itself is in no Debian package.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from harness import Failure, script
from live_run import LiveRun, wait_until
from observe import url_of
from prometheus import program

BOARD = json.loads((Path(__file__).resolve().parents[2] / "tools/observe/grafana.json").read_text())
SLOW = ["--steps", "100000", "--step-delay-us", "40000"]
SCRAPE_SECONDS = 0.5
RATE_SECONDS = 4 * SCRAPE_SECONDS  # what Grafana makes of $__rate_interval


class Server:
    """Prometheus, scraping one target."""

    def __init__(self, folder, target):
        config = folder / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: {int(SCRAPE_SECONDS * 1000)}ms}}\n"
                          f"scrape_configs: [{{job_name: kintsugi, static_configs: [{{targets: ['{target}']}}]}}]\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = open(folder / "prometheus.err", "w+b")
        self.process = subprocess.Popen([program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                                         f"--web.listen-address=127.0.0.1:{self.port}"], cwd=folder, stdout=self.log, stderr=self.log)

    def ask(self, kind, **parameters):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{kind}?" + urllib.parse.urlencode(parameters),
                                        timeout=10) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it has only begun
                return []
            raise Failure(f"{parameters}: {error.read().decode()}") from None
        except OSError:
            return []

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def asked(expression):
    """As Grafana sends it: its variables filled in."""
    filled = expression.replace("$launcher", ".*").replace("$__rate_interval", f"{int(RATE_SECONDS * 1000)}ms")
    if "$" in filled:
        raise Failure(f"a variable that nobody fills in: {filled}")
    return filled


def refused_stranger(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as door:
        door.sendall(b"GET / HTTP/1.1\r\nHost: mistaken\r\n\r\n")
        door.settimeout(10)
        try:
            door.recv(100)
        except OSError:
            pass


def strike(run):
    """Everything that a panel counts happens to it: kinds of incidents, slowness, a pause, saves, a stranger."""
    run.strike("throw", 1, place="update")
    run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the first incident")
    time.sleep(4)
    run.strike("kill", 2)
    run.wait_status(lambda s: s["incidents"] == 2 and s["phase"] == "RUNNING", "the second incident")
    time.sleep(3)
    for _ in range(3):
        refused_stranger(run.status()["address"])
    if not run.ask("pause"):
        raise Failure("no pause")
    time.sleep(3)
    run.ask("continue")
    run.wait_status(lambda s: s["ranks"][3]["late_ms"], "a slow rank")
    time.sleep(5)


def every_panel_has_something_to_show(runner):
    panels = [panel for panel in BOARD["panels"] if panel.get("targets")]
    if len(panels) != len(BOARD["panels"]) or len(panels) < 10:
        raise Failure("a panel that asks for nothing")
    options = ["--metrics", "0", "--save-every", "40", "--snapshot-every", "20", "--inject", "slow:3@5:forward,ms=120"]
    with LiveRun(runner, options, SLOW) as run:
        server = Server(runner.folder, urllib.parse.urlparse(url_of(run)).netloc)
        try:
            wait_until(lambda: server.ask("query", query="up"), lambda: f"a scrape\n{open(server.log.name).read()[-3000:]}")
            run.wait_step(10)
            begin = time.time() - 2
            strike(run)
            end = time.time()
            shown = {}
            for panel in panels:
                for number, target in enumerate(panel["targets"]):
                    if panel["type"] == "stat":
                        found = server.ask("query", query=asked(target["expr"]), time=end)
                        series = [(one["metric"], [one["value"]]) for one in found]
                    else:
                        found = server.ask("query_range", query=asked(target["expr"]), start=begin, end=end, step=SCRAPE_SECONDS)
                        series = [(one["metric"], one["values"]) for one in found]
                    shown[panel["id"], number] = [
                        (metric, [(float(at), float(value)) for at, value in values if value != "NaN"]) for metric, values in series]
            run.signal(signal.SIGTERM)
            run.finish(expect=75)
        finally:
            server.close()
    may_be_zero = {"Ranks that are not ready"}
    for panel in panels:
        for number, target in enumerate(panel["targets"]):
            values = [value for _, points in shown[panel["id"], number] for _, value in points]
            if not values or (panel["title"] not in may_be_zero and not any(values)):
                raise Failure(f"panel '{panel['title']}' shows {'nothing' if not values else 'zeros'}: {target['expr']}")
    if os.environ.get("KINTSUGI_SHOTS"):
        draw(panels, shown, begin, end, Path(os.environ["KINTSUGI_SHOTS"], "dashboard.png"))


# ---- the picture ----------------------------------------------------------------------------------------------------

def name_of(target, metric):
    return re.sub(r"\{\{(\w+)\}\}", lambda found: metric.get(found.group(1), ""), target.get("legendFormat", ""))


def in_unit(value, unit):
    if unit == "percentunit":
        return f"{100 * value:.1f} %"
    if unit == "s":
        return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"
    if unit == "Bps":
        return f"{value / 1024:.0f} KiB/s"
    return f"{value:g}"


def draw(panels, shown, begin, end, file):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update({"font.size": 8, "axes.titlesize": 9, "axes.titlelocation": "left", "axes.titleweight": "bold",
                            "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3,
                            "legend.frameon": False, "legend.fontsize": 7})
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(13, rows * 0.34), facecolor="white")
    grid = figure.add_gridspec(rows, 24, left=0.05, right=0.99, top=0.965, bottom=0.03, hspace=1.3, wspace=3.4)
    figure.text(0.05, 0.985, "The panels of grafana.json as Prometheus answers their queries; x: seconds", color="#666666")
    for panel in panels:
        place, unit = panel["gridPos"], panel["fieldConfig"]["defaults"].get("unit")
        part = figure.add_subplot(grid[place["y"]:place["y"] + place["h"] - 1, place["x"]:place["x"] + place["w"]])
        part.set_title(panel["title"])
        lines = [(name_of(target, metric), points) for number, target in enumerate(panel["targets"])
                 for metric, points in shown[panel["id"], number] if points]
        if panel["type"] == "stat":
            part.axis("off")
            target, (metric, points) = panel["targets"][0], shown[panel["id"], 0][0]
            words = name_of(target, metric) if "== 1" in target["expr"] else in_unit(points[-1][1], unit)
            part.text(0.5, 0.45, words, ha="center", va="center", fontsize=12 if len(words) > 9 else 18, color="#1f6f4a")
            continue
        for name, points in lines:
            if any(value for _, value in points):  # what stays at zero has no line in the legend either
                part.plot([at - begin for at, _ in points], [value for _, value in points], label=name, linewidth=1.4,
                          drawstyle="steps-post")
        part.set_xlim(0, end - begin)
        part.yaxis.set_major_formatter(lambda value, _, unit=unit: in_unit(value, unit))
        if panel["title"] != "Loss":
            part.set_ylim(0, 1.35 * max(value for _, points in lines for _, value in points))  # room for the legend
        part.legend(loc="upper left", ncols=4 if place["w"] > 8 else 2)
    figure.savefig(file, dpi=80)


if __name__ == "__main__":
    sys.exit(script(__doc__, [("every panel of the dashboard has something to show", every_panel_has_something_to_show)]))
