"""Runs over several hosts whose controller dies, is cut off or sleeps: another launcher takes over."""
import json
import os
import re
import signal
import sys
import time
from types import SimpleNamespace

import sockets
from chaos_runs import SeveralLaunchers
from harness import SMALL, Failure, must_be_same, named, reference, script
from live_run import wait_until
from network import Network
from nodes import NodesRun, must_end_alike

LONG = ["--steps", "60", "--step-delay-us", "100000", *SMALL]


def wait_leader(run, after=1):
    """Who leads with a term after that one, and the term: the lowest node has the first turn, but on a busy machine the next
    one's may come before it has spoken."""
    def look():
        found = [(int(term), int(node)) for number in run.launchers
                 for node, term in re.findall(r"event=leads node=(\d+) term=(\d+)", run.log(number))]
        term, node = max(found, default=(0, None))
        return (node, term) if term > after else None
    return wait_until(look, lambda: f"a leader after term {after}\n{run.logs()}")


def lose_leader(run, *at_once):
    """Node 0 is lost with its ranks, and these processes with it; it is started anew once another leads: the run's summary, and that one's term."""
    for pid in (run.launcher(0), *at_once):
        os.kill(pid, signal.SIGKILL)
    leader, term = wait_leader(run)
    run.start(0)
    return run.finish(leader=leader), term


def the_controllers_launcher_is_killed(runner):
    """Its ranks die with it. The others elect one of them; a launcher started anew for node 0 joins it."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=LONG)
        run.wait_step(4)
        summary, _ = lose_leader(run)
        must_end_alike(runner, run, summary, LONG, 6)
        if [i["path"] for i in summary["incidents"]] != ["respawn"]:
            raise Failure(f"{summary['incidents']}\n{run.logs()}")


def the_leader_is_lost_with_the_only_copies_of_its_shards(runner):
    """Every shard once, and no checkpoint: those that kept snapshots of its ranks tell the next leader."""
    alone = [*LONG, "--replicas", "1"]
    with Network(3) as net:
        run = NodesRun(runner, net, 3, nproc=1, run_args=["--save-every", "0", "--snapshot-every", "3"], trainer_args=alone)
        run.wait_step(10)
        summary, _ = lose_leader(run)
        must_end_alike(runner, run, summary, alone, 3)
        incident = summary["incidents"][0]
        if incident["path"] != "reload" or incident["step"] < 3 or "in-memory snapshot" not in json.dumps(incident):
            raise Failure(f"{summary['incidents']}\n{run.logs()}")


def stop_between_updates(run, rank):
    """SIGSTOP to a rank that stands at the step where all others come to wait for it: one that is stopped between the gate and the
    end of its update holds no step that the others still have. Its process."""
    for _ in range(20):
        pid = run.wait_step(4)["ranks"][rank]["pid"]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.3)
        gates = [seen.get("gate") or {} for seen in run.status()["ranks"]]
        if all((gate.get("state"), gate.get("step")) == ("committed", gates[rank].get("step")) for gate in gates):
            return pid
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
    raise Failure(f"rank {rank} was never met between two updates: {gates}")


def the_leaders_launcher_and_a_rank_at_once(runner):
    """Ranks 0 and 3 hold one shard. Rank 0 dies with the leader's launcher; what rank 3 left, its own launcher holds."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=LONG)
        pid = stop_between_updates(run, 3)
        summary, _ = lose_leader(run, pid)
        must_end_alike(runner, run, summary, LONG, 6)


def the_leader_is_cut_off(runner):
    """Alone it has no majority and decides nothing. The others go on; when the road heals it steps down."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=LONG)
        run.wait_step(4)
        net.isolate(0)
        leader, _ = wait_leader(run)
        net.heal()
        run.wait_log(0, "steps_down")
        summary = run.finish(leader=leader)
        must_be_same(reference(runner.bin, LONG, nproc=6), summary, run.logs())


def a_leader_cut_off_for_good_saves_and_leaves(runner):
    """Nobody tells it whether the others live: however long they are away, it has no majority."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, run_args=["--node-wait", "3", "--replicas", "3"], trainer_args=LONG)
        run.wait_step(4)
        for node in (1, 2):
            net.cut(0, node)
        process = run.launchers[0][0]
        if process.wait(60) != 75 or "without a majority" not in run.log(0):
            raise Failure(f"node 0: exit code {process.returncode}\n{run.logs()}")
        net.heal()
        run.finish(expect=75, nodes=[1, 2])
        if "without a majority" in run.log(1) + run.log(2):
            raise Failure(run.logs())


def a_leader_that_slept_is_refused(runner):
    """The classic stale leader: stopped, replaced, woken."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=LONG)
        run.wait_step(4)
        os.kill(run.launcher(0), signal.SIGSTOP)
        leader, _ = wait_leader(run)
        time.sleep(2)
        os.kill(run.launcher(0), signal.SIGCONT)
        run.wait_log(0, "steps_down")
        summary = run.finish(leader=leader)
        must_be_same(reference(runner.bin, LONG, nproc=6), summary, run.logs())


def two_leaders_one_after_the_other(runner):
    """The second one's successor may be the first, started anew."""
    with Network(4) as net:
        run = NodesRun(runner, net, 4, nproc=1, trainer_args=LONG)
        leader, term = 0, 1
        for step in (4, 14):
            run.wait_step(step, leader)
            killed = leader
            os.kill(run.launcher(killed), signal.SIGKILL)
            leader, term = wait_leader(run, term)
            run.start(killed)
        summary = run.finish(leader=leader)
        must_end_alike(runner, run, summary, LONG, 4)
        # What the first one counted is not forgotten.
        ids, spent = [incident["id"] for incident in summary["incidents"]], summary["time"]
        if not ids or max(ids) < 2 or spent["useful_s"] < 10 * 0.1 or spent["down_s"] <= 0:
            raise Failure(f"incidents {ids}, {spent}\n{run.logs()}")


def the_story_has_what_every_leader_saw(runner):
    """Ids and numbers are the run's, and the journals of all leaders are told as one."""
    report = runner.folder / "report"
    with Network(3) as net:
        run = NodesRun(runner, net, 3, run_args=["--report", str(report), "--inject", "throw:5@6:backward"], trainer_args=LONG)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING" and s["step"] >= 12, "the first incident")
        summary, term = lose_leader(run)
        must_end_alike(runner, run, summary, LONG, 6)
        told = [(incident["id"], incident["term"], incident["fault"]) for incident in summary["incidents"]]
        ids = [number for number, _, _ in told]
        if "incidents_before" in summary or ids != list(range(1, 1 + len(ids))) or len(ids) < 2 or told[0][1:] != (1, "throw"):
            raise Failure(f"{summary.get('incidents_before')} before, then {told}\n{run.logs()}")
        first, second = summary["incidents"][:2]
        if second["term"] != term or first["path"] != "retry" or not first["resumed_ms"] or not first["reasons"]:
            raise Failure(f"{first}\n{second}")
        # All of it is one run: what its leaders counted is a share of the whole.
        spent = summary["time"]
        if abs(spent["total_s"] - sum(spent[f"{what}_s"] for what in ("starting", "down", "redone", "saving", "paused", "useful"))) > 0.01:
            raise Failure(f"{spent}")
    page, record = (report / "index.html").read_text(), json.loads((report / "record.json").read_text())
    if "under leaders before" in page or not 0 < record["incidents"][0]["fault_ns"] < record["incidents"][1]["fault_ns"] < record["end_ns"]:
        raise Failure(f"{[i['fault_ns'] for i in record['incidents']]} of {record['end_ns']}")
    # Those that outlived the leader lived all along, and steps that it saw are there.
    lives = {rank: sorted((life for life in record["lifetimes"] if life["rank"] == rank), key=lambda life: life["start_ns"])
             for rank in range(6)}
    begun, gone = [lives[rank][0]["start_ns"] for rank in range(6)], record["incidents"][1]["fault_ns"]
    if max(begun) >= record["incidents"][0]["fault_ns"] or [len(lives[rank]) for rank in range(2, 6)] != [1] * 4 or len(lives[0]) < 2:
        raise Failure(f"{record['lifetimes']}")
    if not any(span["end_ns"] < gone and span["rank"] == 4 for span in record["step_spans"]):
        raise Failure(f"{record['step_spans'][:5]}, and the leader was lost at {gone}")
    if record["struck"] != ["throw:5@6:backward"]:
        raise Failure(record["struck"])
    done = runner.tool(["replay", "--report", str(report)])
    for said in ("the leader of term 1", f"the leader of term {term}", "incident 1: ", "incident 2: "):
        if said not in done.stdout:
            raise Failure(f"no '{said}' in\n{done.stdout}{done.stderr}")
    if done.returncode != 0 or done.stdout.count("every decision reproduced") < 2:
        raise Failure(f"code {done.returncode}\n{done.stdout}{done.stderr}")
    for number, of in ((1, 1), (2, term)):
        one = runner.tool(["replay", "--report", str(report), "--incident", str(number)])
        if one.returncode != 0 or f"incident {number}: " not in one.stdout or f"incident {3 - number}: " in one.stdout:
            raise Failure(f"incident {number}, of term {of}\n{one.stdout}{one.stderr}")


def chaos_knows_who_leads(runner):
    """A launcher started anew follows, and passes on what it is asked: who answers is not always who leads."""
    plan = SimpleNamespace(nodes=3, nproc=1, options=[], trainer=LONG[:2], slow=LONG[2:])
    with SeveralLaunchers(runner, plan) as run:
        wait_until(lambda: (run.ask("status") or {"step": 0})["step"] >= 8, "step 8")
        run.signal(signal.SIGKILL, 0)
        run.launchers[0].wait()
        run.start(0)
        wait_until(lambda: (run.ask_node(0, "status") or {"term": 0})["term"] > 1, "node 0 follows")
        port = int(run.ask("status")["address"].rpartition(":")[2])
        if port not in sockets.listening_ports(run.launcher()):
            raise Failure(f"node {run.leader} is taken for the leader, and does not listen at {port}\n{run.log()}")


def a_pause_outlives_its_leader(runner):
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=LONG)
        run.wait_step(4)
        done = runner.tool(["pause", "--run", str(run.run_dir(1))])
        if done.returncode != 0:
            raise Failure(f"pause: code {done.returncode}: {done.stdout}{done.stderr}")
        os.kill(run.launcher(0), signal.SIGKILL)
        leader, _ = wait_leader(run)
        run.start(0)
        run.wait_status(lambda s: s["phase"] == "RUNNING" and s["pause"]["at_step"], "the pause after the takeover", leader)
        done = runner.tool(["continue", "--run", str(run.run_dir(leader))])
        if done.returncode != 0:
            raise Failure(f"continue: code {done.returncode}: {done.stdout}{done.stderr}")
        summary = run.finish(leader=leader)
        must_end_alike(runner, run, summary, LONG, 6)


def half_without_the_lowest_rank_saves_and_leaves(runner):
    """Two hosts, that of the controller gone for good: the other is exactly half. It waits, says so, saves without
    touching `latest`, and leaves; the checkpoint resumes to the same bits."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=["--node-wait", "3"], trainer_args=LONG)
        run.wait_step(4)
        os.kill(run.launcher(0), signal.SIGKILL)
        run.wait_log(1, "event=no_majority")
        run.finish(expect=75, nodes=[1], leader=1)
    must_resume_alike(runner, moved=False)


def must_resume_alike(runner, moved, nproc=4):
    if (runner.folder / "checkpoints" / "latest").exists() != moved:
        raise Failure(f"`latest` was {'not ' if moved else ''}moved")
    resumed, _ = runner.run(["--resume", str(runner.folder / "checkpoints")], LONG, nproc)
    if resumed["final_digest"] != reference(runner.bin, LONG, nproc=nproc)["final_digest"]:
        raise Failure("the resumed run has other bits")


def a_majority_is_told_to_stop_while_nobody_leads(runner):
    """The first signal is kept, and told to whom they elect."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, trainer_args=LONG)
        run.wait_step(4)
        os.kill(run.launcher(0), signal.SIGKILL)
        time.sleep(0.05)
        for node in (1, 2):
            os.kill(run.launcher(node), signal.SIGTERM)
        leader, _ = wait_leader(run)
        run.finish(expect=75, nodes=[1, 2], leader=leader)
    must_resume_alike(runner, moved=True, nproc=6)


def a_part_that_is_told_to_stop_waits_no_longer_than_it_may(runner):
    """Two hosts, the leader's gone: the other saves within its grace, however long it would wait for a majority."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, run_args=["--grace", "16", "--node-wait", "600"], trainer_args=LONG)
        run.wait_step(4)
        os.kill(run.launcher(0), signal.SIGKILL)
        run.wait_log(1, "event=controller_lost")
        os.kill(run.launcher(1), signal.SIGTERM)
        run.wait_log(1, "nobody leads now")
        run.finish(expect=75, nodes=[1], leader=1)
    must_resume_alike(runner, moved=False)


def a_launcher_killed_within_an_incident(runner):
    """The controller dies while it repairs a rank of another host."""
    with Network(3) as net:
        run = NodesRun(runner, net, 3, run_args=["--inject", "kill:5@6:update"], trainer_args=LONG)
        run.wait_log(0, "to=LOCK")
        summary, _ = lose_leader(run)
        must_end_alike(runner, run, summary, LONG, 6)


SHORT = named(the_leader_is_lost_with_the_only_copies_of_its_shards, the_story_has_what_every_leader_saw, the_leader_is_cut_off, a_leader_cut_off_for_good_saves_and_leaves, two_leaders_one_after_the_other,
              chaos_knows_who_leads, half_without_the_lowest_rank_saves_and_leaves, a_majority_is_told_to_stop_while_nobody_leads)
FULL = named(the_controllers_launcher_is_killed, the_leaders_launcher_and_a_rank_at_once, a_leader_that_slept_is_refused, a_pause_outlives_its_leader,
             a_part_that_is_told_to_stop_waits_no_longer_than_it_may, a_launcher_killed_within_an_incident)

if __name__ == "__main__":
    sys.exit(script(__doc__, SHORT, FULL))
