"""What a run takes of its hosts, looked at while it goes on: files, threads, memory and ports of launchers and ranks, by the number
of ranks; what passes between two hosts (network namespaces) while nothing happens, for a repair, and for a save.

  capacity_bench.py BIN_DIR [--json [FILE]]
The state of a rank is byte_lm's own and 64 MiB more, in two replicas. No time is measured, so other load does not matter.
"""
import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "multiproc"))
from harness import Runner, Skip  # noqa: E402
from live_run import LiveRun, ask, wait_until  # noqa: E402
from network import Network  # noqa: E402
from nodes import NodesRun  # noqa: E402

MIB = 1 << 20
BALLAST = 64
SLOW = ["--steps", "100000", "--step-delay-us", "20000", "--ballast-mib", str(BALLAST), "--replicas", "2"]


def memory(pid, field):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024  # MiB
    return 0


def of_process(pid):
    return {"files": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")),
            "own_mib": round(memory(pid, "RssAnon"), 1), "shared_mib": round(memory(pid, "RssShmem"), 1)}


def listening(pid):
    """TCP ports that this process listens on, and those it is connected to, in its own network."""
    own = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:["):
            own.add(target[8:-1])
    count = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            count += words[3] == "0A" and words[9] in own
    return count


def one_host(runner, ranks):
    with LiveRun(runner, ["--save-dir", ""], SLOW, nproc=ranks) as run:
        pids = [rank["pid"] for rank in run.wait_step(20)["ranks"]]
        launcher = of_process(run.pid)
        ranks_have = [of_process(pid) for pid in pids]
        found = {"ranks": ranks, "launcher": launcher, "launcher_ports": listening(run.pid),
                 "rank": {key: max(one[key] for one in ranks_have) for key in ranks_have[0]},
                 "rank_ports": max(listening(pid) for pid in pids)}
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_until(lambda: not runner.orphans(), "all are gone")
    return found


def quiet_bytes(net, seconds):
    before = net.bytes
    time.sleep(seconds)
    return (net.bytes - before) / seconds


def two_hosts(runner, per_host):
    saves = runner.folder / "saves"
    with Network(2) as net:
        run = NodesRun(runner, net, 2, nproc=per_host, run_args=["--no-adopt", "--save-dir", str(saves), "--silence", "3"],
                       trainer_args=SLOW)
        run.wait_step(20)
        tool = lambda *words: runner.tool([*words, "--run", str(run.run_dir(0))], timeout=120)  # noqa: E731
        leader, follower = of_process(run.launcher(0)), of_process(run.launcher(1))
        tool("pause")
        quiet = quiet_bytes(net, 10)
        tool("continue")
        # A step's own: gradients, which the trainer's groups move.
        step, before = run.status()["step"], net.bytes
        later = run.wait_step(step + 50)["step"]
        of_a_step = (net.bytes - before) / (later - step)
        os.kill(run.status()["ranks"][2 * per_host - 1]["pid"], signal.SIGKILL)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the repair")
        # Of the record: hosts of one machine stream through its memory, where others do over their network.
        repair = ask(run.run_dir(0) / "control.sock", "incidents")["incidents"][0]["bytes_streamed"]
        before, step = net.bytes, run.status()["step"]
        tool("save")
        save = net.bytes - before - (run.status()["step"] - step) * of_a_step
        disk = sum(file.stat().st_size for file in saves.rglob("*") if file.is_file())
        found = {"ranks": 2 * per_host, "leader": leader, "leader_ports": listening(run.launcher(0)), "follower": follower,
                 "follower_ports": listening(run.launcher(1)), "paused_bytes_s": round(quiet), "step_mib": round(of_a_step / MIB, 2),
                 "repair_mib": round(repair / MIB, 1), "save_mib": round(max(0, save) / MIB, 1), "disk_mib": round(disk / MIB, 1)}
        for node in (0, 1):
            os.kill(run.launcher(node), signal.SIGKILL)
        wait_until(lambda: not runner.orphans(), "all are gone")
    return found


def table(rows):
    for name, row in rows:
        words = []
        for key, value in row.items():
            words.append(f"{key} " + (" ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)))
        print(f"{name}: " + "; ".join(words))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--json", nargs="?", const="-")
    options = parser.parse_args()
    rows = []
    for make, arguments in [(one_host, (ranks,)) for ranks in (2, 4, 8)] + [(two_hosts, (ranks,)) for ranks in (1, 2, 4)]:
        runner = Runner(options.bin_dir)
        try:
            rows.append((make.__name__, make(runner, *arguments)))
        except Skip as why:
            print(f"left out: {why}", file=sys.stderr)
        finally:
            runner.close()
    if options.json:
        text = json.dumps([{"what": name, **row} for name, row in rows], indent=1)
        (sys.stdout.write(text + "\n") if options.json == "-" else Path(options.json).write_text(text + "\n"))
    else:
        table(rows)


if __name__ == "__main__":
    main()
