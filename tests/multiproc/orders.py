"""What an operator orders: a pause and its end, a save within it, a new process for a rank; by command and through the page."""
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from harness import SMALL, Failure, must_be_same, reference, script
from live_run import LiveRun
from observe import Metrics, url_of

TRAINER = ["--steps", "40", *SMALL]
SLOW = [*TRAINER, "--step-delay-us", "100000"]  # long enough for what is ordered while it goes, on a machine with other work
TOKEN = "f00dfacef00dfacef00dface"


def must(condition, what):
    if not condition:
        raise Failure(what)


def order(run, *words, code=0):
    done = run.runner.tool([words[0], "--run", str(run.run_dir), *words[1:]])
    must(done.returncode == code, f"kintsugi {words}: code {done.returncode}\n{done.stdout}{done.stderr}{run.log()[-3000:]}")
    return done.stdout if code == 0 else done.stderr


def stands(run):
    status = run.status()
    return status["pause"]["at_step"] if status else None


def shares_add_up(summary):
    spent = summary["time"]
    parts = sum(spent[name] for name in ("starting_s", "down_s", "redone_s", "saving_s", "paused_s", "useful_s"))
    must(abs(parts - spent["total_s"]) < 1e-6, f"{spent}")
    return spent


def a_paused_run_stands_is_saved_and_mended_and_goes_on(runner):
    with LiveRun(runner, ["--metrics", "0"], SLOW) as run:
        run.wait_step(3)
        must("not paused" in order(run, "continue", code=2), "a run that trains cannot be continued")
        step = int(re.fullmatch(r"paused after step (\d+)\n", order(run, "pause")).group(1))
        before = Metrics(url_of(run)).value("kintsugi_spent_seconds", on="paused")
        time.sleep(0.5)
        # The next one is begun, and not worked at.
        status = run.wait_status(lambda s: all(rank["step"] == step + 1 for rank in s["ranks"]), "ranks at the boundary")
        must(status["pause"] == {"asked": True, "at_step": step} and status["step"] == step, f"{status}")
        must("paused" in order(run, "status"), "kintsugi status does not say so")
        after = Metrics(url_of(run)).value("kintsugi_spent_seconds", on="paused")
        must(after - before > 0.4, f"paused for {before} s, then for {after} s")
        must(f"continued after step {step}" in order(run, "continue"), "the end of the pause")
        run.wait_step(step + 3)
        seen = Metrics(url_of(run))
        stepping, useful = seen.value("kintsugi_step_seconds_sum"), seen.value("kintsugi_spent_seconds", on="useful")
        must(0 < stepping <= useful, f"steps took {stepping} s of {useful} s: the pause was taken for a step")
        step = int(re.fullmatch(r"paused after step (\d+)\n", order(run, "pause")).group(1))
        must(f"saved step {step} " in order(run, "save"), "a save in a pause is of where the run stands")
        must(stands(run) == step, "the pause is over after a save")
        time.sleep(2)
        run.signal_rank(2, signal.SIGKILL)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING" and s["pause"]["at_step"], "a pause after the repair")
        # Where its ranks have gone past the step that they were to stand at, they are told a later one.
        must(step <= stands(run) <= step + 5, f"paused at {stands(run)} after {step}")
        must("no rank 4" in order(run, "replace", "4", code=2), "a rank that is not there")
        at, said = stands(run), order(run, "continue")
        must(said == f"continued after step {at}\n", f"the end of the second one, at {at}: {said}{run.log()}")
        must(re.match(r'replaced rank 1 \("(adopt|respawn)"\), all ranks', order(run, "replace", "1")), "a new process")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    must([(i["signal"], i["ranks"]) for i in summary["incidents"]] == [("process_exit", [2]), ("operator", [1])],
         f"{summary['incidents']}")
    spent = shares_add_up(summary)
    must(spent["paused_s"] > 2 and spent["redone_s"] < 2, f"a pause is no lost time of a fault: {spent}")


def who_may_not_be_replaced_is_not(runner):
    with LiveRun(runner, ["--max-respawns", "0"], SLOW, nproc=2) as run:
        run.wait_step(3)
        must("respawn" in order(run, "replace", "1", code=2), "no respawn is left")
        summary, _ = run.finish()
    must(not summary["incidents"], f"{summary['incidents']}")
    with LiveRun(runner, [], [*SLOW, "--tp", "2"], nproc=2) as run:
        run.wait_step(3)
        must("no other rank holds" in order(run, "replace", "1", code=2), "its half of the model")
        summary, _ = run.finish()
    must(not summary["incidents"], f"{summary['incidents']}")


def the_partner_of_a_rank_that_is_replaced_is_lost_too(runner):
    """Before the new process has the state. Where no launcher keeps it, the run was saved before the old one went."""
    for args, path in [(["--no-adopt"], "reload"), ([], "adopt")]:
        with LiveRun(runner, args, SLOW, nproc=2) as run:
            run.wait_step(3)
            done = threading.Thread(target=order, args=(run, "replace", "1"), daemon=True)
            done.start()
            run.wait_log("spawned rank=1 incarnation=2 ")
            status = run.status()
            os.kill(status["ranks"][0]["pid"], signal.SIGKILL)
            done.join()
            summary, log = run.finish()
        must_be_same(reference(runner.bin, TRAINER, nproc=2), summary, log)
        incident = summary["incidents"][0]
        must(incident["signal"] == "operator" and incident["path"] in (path, "respawn"), f"{summary['incidents']}\n{log[-3000:]}")
        must(summary["time"]["redone_s"] < 0.2, f"steps were done again: {summary['time']}")
        shutil.rmtree(runner.folder / "checkpoints", ignore_errors=True)


def a_healthy_copy_is_not_given_up_for_one_that_has_flipped(runner):
    """Which of two is the wrong one nobody can say, so that none is given up: they are compared first, as before a save."""
    with LiveRun(runner, ["--verify-every", "1000"], SLOW, nproc=2) as run:
        run.wait_step(3)
        order(run, "save")
        run.wait_step(run.strike("flip", 0, ahead=4) + 1)
        must(order(run, "replace", "1").startswith("replaced rank 1 "), "once the copies are the same again")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, TRAINER, nproc=2), summary, log)
    must([(i["signal"], i["path"]) for i in summary["incidents"]][0] == ("digest_mismatch", "reload"), f"{summary['incidents']}")
    must([i["signal"] for i in summary["incidents"]][1:] == ["operator"], f"{summary['incidents']}")


def post(url, action, body="{}", method="POST", **headers):
    """The status and the answer, as text."""
    wanted = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{url}actions/{action}", data=body.encode() if method == "POST" else None, method=method,
                                     headers={name: value for name, value in wanted.items() if value is not None})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def the_page_takes_orders_of_who_has_the_token(runner):
    file = runner.folder / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    with LiveRun(runner, ["--page", "0", "--page-token-file", str(file)], SLOW) as run:
        run.wait_step(3)
        url = url_of(run, "page")
        for code, what in [(401, {"Authorization": None}), (403, {"Authorization": "Bearer " + "0" * 24}), (405, {"method": "GET"}),
                           (403, {"Origin": "http://elsewhere.example"}), (415, {"Content_Type": "text/plain"}),
                           (404, {"action": "stop"}), (400, {"action": "replace", "body": "[]"})]:
            got, said = post(url, what.pop("action", "pause"), **what)
            must(got == code and json.loads(said)["error"], f"{code} expected, got {got}: {said}")
        must(not run.status()["pause"]["asked"], "what was refused was done")
        must(post(url, "check") == (200, '{"ok":true}\n'), "the token")
        code, said = post(url, "pause")
        must(code == 200 and stands(run) == json.loads(said)["step"], f"{code} {said}")
        code, said = post(url, "save")
        must(code == 200 and json.loads(said)["step"] == stands(run), f"{code} {said}")
        must(post(url, "replace", '{"rank": 9}')[0] == 409, "a refusal of the run")
        code, said = post(url, "replace", '{"rank": 3}')
        must(code == 200 and json.loads(said)["incident"]["signal"] == "operator", f"{code} {said}")
        run.wait_status(lambda s: s["pause"]["at_step"], "the pause after it")
        must(post(url, "continue")[0] == 200, "the end of the pause")
        line = Path(f"/proc/{run.pid}/cmdline").read_text()
        post(url, "pause")
        run.signal(signal.SIGTERM)  # a run that stands saves and leaves as any other does
        first, log = run.finish(expect=75)
    must(TOKEN not in line and TOKEN not in log, "the token is in the log or among the arguments")
    must("event=page_token_wrong" in log and "event=page_action " in log, f"{log[-3000:]}")
    second, log = runner.run(["--resume", str(runner.folder / "checkpoints")], TRAINER)
    must(first["losses"] + second["losses"] == reference(runner.bin, TRAINER)["losses"], log[-3000:])
    shares_add_up(first)


def without_a_token_there_are_no_orders(runner):
    with LiveRun(runner, ["--page", "0"], SLOW, nproc=2) as run:
        run.wait_step(2)
        url = url_of(run, "page")
        code, said = post(url, "pause")
        must(code == 403 and "--page-token-file" in said, f"{code} {said}")
        with urllib.request.urlopen(url, timeout=20) as page:
            must("<button" not in page.read().decode(), "buttons without a token")
        run.signal(signal.SIGTERM)
        run.finish(expect=75)
    (runner.folder / "open").write_text(TOKEN)
    (runner.folder / "open").chmod(0o644)
    (runner.folder / "short").write_text("hunter2")
    (runner.folder / "short").chmod(0o600)
    for words, said in [(["--page", "0", "--page-token-file", "none"], "openssl rand"),
                        (["--page", "0", "--page-token-file", "open"], "chmod 600"),
                        (["--page", "0", "--page-token-file", "short"], "16 to 512"),
                        (["--page-token-file", "open"], "--page")]:
        done = runner.tool(["run", *words, "--", runner.byte_lm, "--steps", "1"])
        must(done.returncode == 2 and said in done.stderr and "hunter2" not in done.stderr, f"{words}: {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(script(__doc__, [
        ("a paused run stands, is saved and mended, and goes on", a_paused_run_stands_is_saved_and_mended_and_goes_on),
        ("the partner of a rank that is replaced is lost too", the_partner_of_a_rank_that_is_replaced_is_lost_too),
        ("a healthy copy is not given up for one that has flipped", a_healthy_copy_is_not_given_up_for_one_that_has_flipped),
        ("who may not be replaced is not", who_may_not_be_replaced_is_not),
        ("the page takes orders of who has the token", the_page_takes_orders_of_who_has_the_token),
        ("without a token there are no orders", without_a_token_there_are_no_orders),
    ]))
