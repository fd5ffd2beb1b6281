"""How long a torch trainer stands still after a fault, and what kintsugi.torch costs where there is none.

  torch_bench.py BIN_DIR PACKAGE_FOLDER [--json [FILE|-]] [--how ddp,fsdp,hsdp,tp,zero] [--faults N] [--kills N] [--mib N]
           [--no-peer | --peer torchrun|torchft|nvrx]... [--runs N] [--only costs|exceptions|kills|groups]...

Times of recovery are those of the run's own record (`down_ms`: from the fault until all ranks step again). Peers are measured in the same
run: torchrun with a restart (the baseline), torchft after a kill, NVIDIA's resiliency extension (nvrx) with its launcher after a kill and
in-process after an exception. torchrun is torch's own; the others come from PyPI into build/peers (./tools/setup --peers), and what is not
there is left out. A figure is {"id", "value", "unit", "baseline", "ratio", "budget", "ok", "runs"}; a peer's has its version and settings
as "note", and "survivors_ms" until the ranks that were not struck stepped again. Where it never came back "value" is null and "failed" says why.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch_bench_peers as peers

HERE = Path(__file__).resolve().parent
GPT = HERE.parent.parent / "integrations/examples/torch_gpt/train.py"
BUDGETS_MS = {"ddp": 100, "zero": 100, "fsdp": 200, "hsdp": 200, "tp": 200}
SPARE_BUDGETS_MS = {"ddp": 300}  # others: 600
# Until a spare or the warm process has imported torch: on a machine that is busier than it has cores that takes its time. Below the
# limit of the look-out for hangs.
PATIENCE_S = 15


class Bench:
    def __init__(self, options):
        self.options = options
        self.figures = []
        self.host = {"cores": os.cpu_count(), "load_begin": os.getloadavg()[0]}
        self.environment = {**os.environ, "PYTHONPATH": str(Path(options.package).resolve()), "OMP_NUM_THREADS": "1",
                            "KINTSUGI_TORCH_CACHE": str(Path(options.package).resolve() / "torch-cache"), "PYTHONWARNINGS": "ignore"}

    def add(self, name, runs, unit, baseline=None, budget=None, bound=None, **more):
        """`bound`: what the budget is held against, where that is not the value."""
        value = statistics.median(runs)
        held = value if bound is None else bound
        ok = budget is None or held <= budget
        figure = {"id": name, "value": value, "unit": unit, "baseline": baseline, "ratio": value / baseline if baseline else None,
                  "budget": budget, "ok": ok, "runs": [round(run, 3) for run in runs], **more}
        self.figures.append(figure)
        beside = f", beside {baseline:.1f} {unit}" if baseline else ""
        print(f"{'ok  ' if ok else 'OVER'} {name}: {value:.1f} {unit}{beside}{f', budget {budget:g}' if budget is not None else ''}",
              file=sys.stderr, flush=True)

    def kintsugi(self, nproc, program, *options, wait_s=0):
        """The run's record, and what the ranks printed."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-bench-") as folder:
            done = subprocess.run([Path(self.options.bin).resolve() / "kintsugi", "run", "--nproc", str(nproc), "--join-timeout", "400",
                                   "--hang-least", "20", *options, "--json", "-", "--", sys.executable, *program],
                                  cwd=folder, capture_output=True, text=True, timeout=1500,
                                  env={**self.environment, "KINTSUGI_BENCH_WAIT": str(wait_s)})
        if done.returncode != 0:
            sys.exit(f"{program} ended with {done.returncode}\n{done.stderr[-4000:]}")
        return json.loads(done.stdout), done.stderr

    def measured(self, nproc, *what):
        """`what`: words for the rank, and behind "--" for the launcher."""
        words = list(what)
        options = words[words.index("--") + 1:] if "--" in words else []
        _, said = self.kintsugi(nproc, [str(HERE / "torch_bench_rank.py"), *words[:len(words) - len(options) - bool(options)]], *options)
        return json.loads(re.search(r"measured (\{.*\})", said)[1])

    def exceptions(self, how, baseline):
        count = self.options.faults
        faults = [word for i in range(count) for word in ("--inject", f"throw:{i % 4}@{5 + 4 * i}:backward")]
        record, _ = self.kintsugi(4, [str(GPT), "--parallel", how, "--steps", str(8 + 4 * count)], *faults)
        runs = [incident["down_ms"] for incident in record["incidents"] if incident["path"] == "retry"]
        if len(runs) != count:
            sys.exit(f"{how}: {[incident['path'] for incident in record['incidents']]} for {count} exceptions")
        self.add(f"exception/{how}/all stepping", runs, "ms", baseline, BUDGETS_MS[how])

    def kill(self, how, baseline):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch, torch.distributed.tensor, torch.distributed.fsdp, torch._dynamo"],
                       check=True, env=self.environment)
        importing = (time.perf_counter() - begun) * 1000
        program = [str(HERE / "torch_bench_newcomer.py"), str(GPT), "--parallel", how, "--steps", "12"]
        record, said = self.kintsugi(4, program, "--inject", "kill:2@6:backward")
        newcomer = json.loads(re.search(r"newcomer (\{.*\})", said)[1])
        self.add(f"kill/{how}/all stepping, cold", [incident["down_ms"] for incident in record["incidents"]], "ms", baseline,
                 importing + 500, importing_ms=importing)
        # Beside load a process gets its share of the processors, whatever it does: this is what is ours.
        self.add(f"kill/{how}/the newcomer's processor time, imports of torch left out", [newcomer["own"]], "ms", newcomer["imports"], 500)

    def kill_expected(self, how, baseline):
        """With somebody who has imported torch already: a spare that waits, or the process that replacements are forked from."""
        alone = ("--snapshot-every", "2") if how == "fsdp" else ()  # its shards have no second copy
        for options, path, budget in ((("--spares", "1"), "spare", SPARE_BUDGETS_MS.get(how, 600)), (("--warm",), "respawn", 1000)):
            runs = []
            for _ in range(self.options.kills):
                program = [str(HERE / "torch_bench_newcomer.py"), str(GPT), "--parallel", how, "--steps", "12"]
                record, said = self.kintsugi(4, program, "--no-adopt", *alone, *options, "--inject", "kill:2@8:backward", wait_s=PATIENCE_S)
                found = [incident["path"] for incident in record["incidents"]]
                if found not in ([path], ["reload"] if alone else [path]) or (path == "respawn" and "how=forked" not in said):
                    print(f"     {how} {' '.join(options)}: {found}, nobody was ready: not counted", file=sys.stderr)
                    continue
                runs += [incident["down_ms"] for incident in record["incidents"]]
            if runs:
                self.add(f"kill/{how}/all stepping, {' '.join(options)}", runs, "ms", baseline, budget)

    def groups(self):
        found = self.measured(4, "blocked")
        self.add("a survivor out of a blocked all-reduce, the slowest of 20 aborts", [found["kintsugi"]], "ms", found["gloo"], 100,
                 baseline_is="Gloo's own timeout, 2 s here: its abort wakes nobody", median_ms=found["median"])
        for count, budget in ((1, None), (16, 50), (128, 300)):
            throws = [word for i in range(5) for word in ("--inject", f"throw:{i % 4}@{3 + 2 * i}:backward")]
            found = self.measured(4, "swap", str(count), "--", *throws)
            self.add(f"swap of {count} groups of 4 ranks", [found["swap"]], "ms", found["gloo"], budget,
                     baseline_is="as many groups of Gloo's made by torch, over a TCPStore", compared_ms=found["compared"])

    def peers(self, fault):
        """The peers that were asked for, and have an answer to the fault; torchrun's median, the baseline."""
        baseline = None
        for name in [] if self.options.no_peer else self.options.peer or peers.NAMES:
            if reason := peers.missing(name):
                print(f"     {reason}", file=sys.stderr, flush=True)
                continue
            for peer in peers.peers(name, fault):
                value = self.peer(peer)
                baseline = value if name == "torchrun" else baseline
        return baseline

    def peer(self, peer):
        runs, survivors, failures = [], [], []
        for _ in range(self.options.runs):
            try:
                took, others = peer.measure(self.environment)
            except peers.Failed as failure:
                failures.append(str(failure).splitlines()[0])
                print(f"     {peer.figure}: {failure}", file=sys.stderr, flush=True)
                continue
            runs.append(took)
            survivors.append(others)
        more = {"note": peer.note, **({"failed": failures} if failures else {})}
        if runs:
            self.add(peer.figure, runs, "ms", survivors_ms=statistics.median(survivors), **more)
            return statistics.median(runs)
        self.figures.append({"id": peer.figure, "value": None, "unit": "ms", "baseline": None, "ratio": None, "budget": None, "ok": True,
                             "runs": [], **more})
        return None

    def costs(self):
        two = self.measured(2, "collectives")
        self.add("all-reduce of 4 bytes, 2 ranks", [two["kintsugi"]], "us", two["gloo"])
        alone = two["kintsugi alone"] - two["gloo alone"]
        self.add("the outer group's cost per collective (world of one), processor time", [two["kintsugi alone"]], "us", two["gloo alone"], 5, alone,
                 difference=alone)
        found = self.measured(2, "gate")
        extra = found["step"] - found["plain step"]
        self.add("optimizer.step() as the gate, with the control plane's barrier", [found["step"]], "us", found["plain step"], None, extra,
                 difference=extra)
        found = self.measured(2, "hooks")
        extra = found["step"] - found["plain step"]
        self.add("hooks of optimizer.step(), CPU time of its thread", [found["step"]], "us", found["plain step"], 1000, extra, difference=extra)
        for part in ("objects", "gate"):
            self.add(f"of these: {part}", [found[part]], "us")
        self.add("behind it: objects at the step's end", [found["objects at the end"]], "us")
        self.add("the hooks alone", [found["hooks alone"]], "us", None, 20)
        found = self.measured(2, "loops")
        extra = found["loop"] - found["plain loop"]
        self.add("a step in a loop of the script's own, CPU time of its thread", [found["loop"]], "us", found["plain loop"], 1000, extra, difference=extra)
        self.add("run.do of nothing, 2 ranks", [found["do"]], "us", found["barrier"], 1000)
        found = self.measured(1, "register", str(self.options.mib))
        self.add(f"register of {self.options.mib} MiB", [found["register"]], "ms", found["memcpy into fresh memory"],
                 1.5 * found["memcpy into fresh memory"], memcpy_ms=found["memcpy"])

    def finish(self, target):
        self.host["load_end"] = os.getloadavg()[0]
        document = json.dumps({"name": "torch", "host": self.host, "figures": self.figures}, indent=1)
        if target == "-":
            print(document)
        elif target:
            Path(target).write_text(document + "\n")
        return 0 if all(figure["ok"] for figure in self.figures) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("package")
    parser.add_argument("--json", nargs="?", const="-", default="")
    parser.add_argument("--how", default="ddp,fsdp,hsdp,tp")
    parser.add_argument("--faults", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--no-peer", action="store_true", help="leaves all peers out")
    parser.add_argument("--peer", action="append", choices=peers.NAMES, help="repeatable; default: all")
    parser.add_argument("--runs", type=int, default=3, help="runs of each peer")
    parser.add_argument("--kills", type=int, default=1, help="runs of each kind with a spare, and with --warm")
    parser.add_argument("--only", action="append", choices=["costs", "groups", "exceptions", "kills"], help="repeatable; default: all")
    options = parser.parse_args()
    bench = Bench(options)
    parts = options.only or ["costs", "groups", "exceptions", "kills"]
    if "costs" in parts:
        bench.costs()
    if "groups" in parts:
        bench.groups()
    if "exceptions" in parts:
        baseline = bench.peers("exception")
        for how in options.how.split(","):
            bench.exceptions(how, baseline)
    if "kills" in parts:
        baseline = bench.peers("kill")
        for how in options.how.split(","):
            bench.kill_expected(how, baseline)
        bench.kill(options.how.split(",")[0], baseline)
    return bench.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
