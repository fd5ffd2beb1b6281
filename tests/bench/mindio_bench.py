"""Kintsugi's mindio_ttp beside what was measured of MindIO, with a client whose handlers move one number: seconds from a fault until all
four ranks have ended another step, and what markers cost.

  mindio_bench.py BIN_DIR PACKAGE_FOLDER [--json [FILE|-]] [--runs N] [--only flows|markers]

MindIO's figures are those of its C++ core at -O3 on another machine (baseline); figures here are of this run. A figure is
{"id", "value", "unit", "baseline", "ratio", "budget", "ok", "runs"}. Exit code 1 where a budget is exceeded.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
from mindio_world import World, free_port  # noqa: E402


class Bench:
    def __init__(self, options):
        self.options = options
        package = Path(options.package).resolve()
        self.path = f"{package}:{package}/kintsugi/compat"
        self.figures = []
        self.host = {"cores": os.cpu_count(), "load_begin": os.getloadavg()[0]}

    def add(self, name, runs, unit, baseline=None, budget=None, **more):
        value = statistics.median(runs)
        ok = budget is None or value <= budget
        self.figures.append({"id": name, "value": value, "unit": unit, "baseline": baseline, "ratio": value / baseline if baseline else None,
                             "budget": budget, "ok": ok, "runs": [round(run, 4) for run in runs], **more})
        print(f"{'ok  ' if ok else 'OVER'} {name}: {value:.3f} {unit}{f', MindIO {baseline:g}' if baseline else ''}"
              f"{f', budget {budget:g}' if budget is not None else ''}", file=sys.stderr, flush=True)

    def times(self, victim, codes, *client, **more):
        """Seconds from the fault on `victim` to each line that ranks wrote after it: (rank, seconds, what)."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-bench-") as folder:
            world = World(sys.executable, self.path, folder, steps=30, options=["--pace", "0.02", *client], **more)
            found = world.run()
            if found != codes:
                sys.exit(f"{client} ended with {found}, expected {codes}\n{world.logs()}")
            fault = next(at for at, what, _ in world.times(victim) if what == "fault")
            return [(rank, at - fault, what) for rank in range(world.world) for at, what, _ in world.times(rank) if at > fault]

    def flow(self, name, baseline, budget, fault, *client, **more):
        """Until the last of the ranks has ended a step."""
        runs, stops = [], []
        for _ in range(self.options.runs):
            after = self.times(2, [0] * 4, "--fault", fault, *client, **more)
            runs.append(max(min(at for rank, at, what in after if rank == wanted and what == "step") for wanted in range(4)))
            stops.append(min(at for _, at, what in after if what == "stop"))
        self.add(f"{name}/all stepping", runs, "s", baseline, budget)
        self.add(f"{name}/first stop", stops, "s")

    def dump(self, name, baseline, budget, fault, codes):
        begun, done = [], []
        for _ in range(self.options.runs):
            after = self.times(2, codes, "--fault", fault)
            begun.append(min(at for _, at, what in after if what == "save"))
            done.append(max(at for _, at, what in after if what == "rename"))
        self.add(f"{name}/save begins", begun, "s", baseline)
        self.add(f"{name}/published", done, "s", None, budget)

    def flows(self):
        self.flow("UCE high", 2.28, 0.3, "uce-high:2@10:forward")
        self.flow("UCE low", 2.27, 0.3, "uce-low:2@10:forward")
        self.flow("network retry", None, None, "hccl:2@10:forward")
        self.flow("ARF, a process started anew", 10.8, None, "kill:2@10:forward", "--arf", respawn=True)
        self.flow("ARF, a warm process", 10.8, 0.6, "kill:2@10:forward", "--arf", respawn=True, spare=True)
        self.dump("dump after a kill", 10.8, 0.5, "kill:2@10:forward", [2, 2, -9, 2])
        self.dump("dump after a RuntimeError", None, 0.5, "runtime:2@10:forward", [2, 2, 2, 2])
        self.pause()

    def pause(self):
        """From the scheduler's call until it is told that all ranks stand at one step."""
        runs = []
        for _ in range(self.options.runs):
            with tempfile.TemporaryDirectory(prefix="kintsugi-bench-") as folder:
                world = World(sys.executable, self.path, folder, steps=150, options=["--pace", "0.02"], scheduler="pause")
                if world.run() != [0] * 4:
                    sys.exit(world.logs())
                runs.append(float(Path(folder, "pause").read_text()))
        self.add("pause/all stand, steps of 20 ms", runs, "s")

    def markers(self):
        for gate in ("off", "on"):
            done = subprocess.run([sys.executable, "-W", "ignore", str(HERE / "mindio_bench_rank.py"), str(free_port()), "50000" if gate == "off" else "2000"],
                                  capture_output=True, text=True, timeout=300, check=False,
                                  env={**os.environ, "PYTHONPATH": self.path, "KINTSUGI_MINDIO_GATE": gate})
            if done.returncode != 0:
                sys.exit(done.stderr[-3000:])
            found = json.loads(done.stdout)
            if gate == "off":
                self.add("marker pair, processor time, without the gate's barrier", [found["processor"]["pair"]], "us", 2.34, 1.5)
                self.add("tft_pause_train, processor time, nothing set", [found["processor"]["pause"]], "us", 20.6)
            else:
                self.add("marker pair with the gate's barrier, by the clock (world of one)", [found["clock"]["pair"]], "us")

    def finish(self, target):
        self.host["load_end"] = os.getloadavg()[0]
        document = json.dumps({"name": "mindio", "host": self.host, "figures": self.figures}, indent=1)
        if target == "-":
            print(document)
        elif target:
            Path(target).write_text(document + "\n")
        return 0 if all(figure["ok"] for figure in self.figures) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("package")
    parser.add_argument("--json", nargs="?", const="-")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=("flows", "markers"))
    bench = Bench(parser.parse_args())
    if bench.options.only != "flows":
        bench.markers()
    if bench.options.only != "markers":
        bench.flows()
    sys.exit(bench.finish(bench.options.json))
