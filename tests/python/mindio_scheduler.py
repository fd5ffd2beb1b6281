"""A scheduler as a client of mindio_ttp.controller_ttp sees one: hosts the controller, is told of faults, answers.

  mindio_scheduler.py PORT WORLD OUT_FOLDER PLAN      PLAN: answer (to every incident), silent, bad (an offer that was not made),
                                                      dump, recover (chosen where a retry was offered), pause, save, switch (rank 2 hot), unswitch (called off once
                                                      it was offered), pauses (one, and another as it ends); "pause:NAME": once OUT_FOLDER has a file of that name
                                                      downgrade (wherever it is offered), regrow (upgrade after it), once (downgrade, dump the next
                                                      time); "downgrade:arf": a controller with ARF, too; "answer:late": it hears 0.3 s late that
                                                      an incident is over
"""
import asyncio
import sys
import threading
import time
from pathlib import Path

from mindio_ttp import controller_ttp as c
from mindio_ttp.controller_ttp.ttp_logger import LOGGER

port, world, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
plan, _, sign = sys.argv[4].partition(":")
trace = open(f"{out}/trace.scheduler", "a", buffering=1, encoding="utf-8")
asked = []  # when the pause was
DOWN, UP = '{"scale-in-strategy": "DP"}', '{"scale-out-strategy": "DP"}'
said = []
silent = plan in ("silent", "zit")


def say(*what):
    trace.write(" ".join(repr(x) if not isinstance(x, str) or i else x for i, x in enumerate(what)) + "\n")


def later(function, *given):
    """A scheduler answers from a thread of its own."""
    def call():
        code = function(*given)
        if code != 0:
            say(f"{function.__name__} ->", code)

    threading.Thread(target=call, daemon=True).start()


def report_fault_ranks(ranks, codes):
    say("report_fault_ranks", ranks, codes)
    if silent:
        return
    if not report_fault_ranks.stopped:
        report_fault_ranks.stopped = True
        later(c.tft_notify_controller_stop_train, ranks)


report_fault_ranks.stopped = False


def report_stop_complete(code, message, ranks):
    say("report_stop_complete", code, message, ranks)
    paused = "pause" in message
    if plan == "pauses" and paused:
        again = len(asked) == 1
        later(lambda: c.tft_notify_controller_change_strategy("continue") or again and pause() or 0)
        return
    if plan == "pause" and paused and code == 0:
        with open(f"{out}/pause", "w", encoding="utf-8") as file:
            file.write(str(time.monotonic() - asked[0]))
        time.sleep(0.3)
        # How far clients that write their losses have come by now.
        stood = {path.name: len(path.read_text().splitlines()) for path in sorted(Path(out).glob("losses.*"))}
        if stood:
            say("stood", stood)
        later(c.tft_notify_controller_change_strategy, "continue")
    elif not silent and not paused:
        later(c.tft_notify_controller_on_global_rank, ranks)


def report_strategies(ranks, strategies):
    say("report_strategies", ranks, strategies)
    if plan == "unswitch":
        later(c.tft_notify_controller_prepare_action, "stop switch")
        return
    if "downgrade" in strategies and plan in ("downgrade", "regrow", "once") and not (plan == "once" and DOWN in said):
        said.append(DOWN)
        later(c.tft_notify_controller_change_strategy, "downgrade", DOWN)
        return
    chosen = {"bad": "downgrade", "dump": "dump", "recover": "recover"}.get(plan, "retry" if "retry" in strategies else [
        strategy for strategy in strategies if strategy not in ("downgrade", "upgrade")][-1])
    if not silent:
        later(c.tft_notify_controller_change_strategy, chosen)


def report_result(code, message, ranks, strategy):
    say("report_result", code, message, ranks, strategy)
    report_fault_ranks.stopped = code == 201
    if plan == "regrow" and (code, strategy) == (0, "downgrade"):
        later(c.tft_notify_controller_change_strategy, "upgrade", UP)
    if code == 406:
        later(c.tft_notify_controller_change_strategy, "dump")


def pause():
    asked.append(time.monotonic())
    code = c.tft_notify_controller_stop_train({}, "pause", 30)
    say("stop_train ->", code)
    return code


def tell_of_pause():
    """Clients that wait for it go on."""
    from mindio_ttp._kintsugi.session import SESSION
    if not Path(out, "asked").exists() and SESSION.master.pauses.asked:
        Path(out, "asked").touch()


def hear_ends_late():
    """What ranks report meanwhile is of the next incident."""
    from mindio_ttp._kintsugi.events import Events
    original = Events._on_mended

    async def on_mended(*given):
        await asyncio.sleep(0.3)
        await original(*given)

    Events._on_mended = on_mended


if sign == "late":
    hear_ends_late()
for function in (report_fault_ranks, report_stop_complete, report_strategies, report_result):
    assert c.tft_register_mindx_callback(function.__name__, function) == 0
zit = plan in ("downgrade", "regrow", "once", "zit")
c.tft_init_controller(-1, world, False, not zit or sign == "arf", zit)
c.tft_start_controller("127.0.0.1", port, False, "")
LOGGER.info("the scheduler waits")
while not c.tft_query_high_availability_switch():
    time.sleep(0.01)
if plan in ("switch", "unswitch"):
    say("prepare_action ->", c.tft_notify_controller_prepare_action("hot switch", {2: 1}))
    Path(out, "prepared").touch()
if plan in ("pause", "pauses", "save"):
    if not sign:
        time.sleep(1.5)
    while sign and not Path(out, sign).exists():
        time.sleep(0.01)
    if plan != "save":
        pause()
    else:
        say("dump ->", c.tft_notify_controller_dump())
while c.tft_query_high_availability_switch():
    time.sleep(0.05)
    if plan in ("switch", "unswitch", "pause"):
        tell_of_pause()
time.sleep(0.2)
c.tft_destroy_controller()
