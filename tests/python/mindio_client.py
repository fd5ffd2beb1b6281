"""A client of mindio_ttp, written from its reference: four ranks, one optimizer type or two, two copies of each part of its state.

Its model is a number for each part (mindio_parts.py), its collectives go through a hub of the test's (mindio_hub.py), its device is a flag
that the stop handler sets. Every callback writes a line: what it was, on whom, with which arguments.

  mindio_client.py RANK WORLD PORT HUB_PORT STEPS OUT_FOLDER [--fault KIND:RANK@STEP:PHASE]... [options]      STEP 0: any
"""
import argparse
import asyncio
import concurrent.futures
import ctypes
import json
import os
import signal
import sys
import threading
import time

from mindio_hub import Hub
from mindio_parts import parts_of, write
from mindio_ttp import framework_ttp as ttp
from mindio_ttp.framework_ttp.ttp_decorator import tft_get_repair_type

TEXTS = {
    "uce-high": "UCE ERROR, device error type 507054",
    "uce-low": "UCE ERROR, device error type 507054",
    "hccl": "HCCL OP RETRY FAILED",
    "link": "SUSPECT REMOTE ERROR",
    "runtime": "the loss is not a number",
    "precision": "PRECISION ERROR, load ckpt",
    "corrupt": "HBM MULTI BIT ECC time us=1",
    "corrupt-low": "HBM MULTI BIT ECC time us=1",
}


class Client:
    def __init__(self, o):
        self.o = o
        self.rank, self.world = o.rank, o.world
        self.members = list(range(o.world))  # those that take part
        self.hub = Hub(o.rank, o.hub)
        self.parts = parts_of(o.rank, o.world, o.groups == "halves", o.types)
        self.step = o.first
        self.args = None
        self.low = False
        self.rename_fails = o.rename_fails
        self.trace = open(f"{o.out}/trace.{o.rank}", "a", buffering=1, encoding="utf-8")
        self.times = open(f"{o.out}/times.{o.rank}", "a", buffering=1, encoding="utf-8")
        self.faults = [self.parse(fault) for fault in o.fault]
        self.struck = set()
        self.grads = None
        self.start_updating, self.end_updating = ttp.tft_start_updating_os, ttp.tft_end_updating_os
        if o.c_markers:
            self.mark_from_c(ctypes.CDLL(f"{os.path.dirname(os.path.dirname(ttp.__file__))}/{o.c_markers}"))

    def mark_from_c(self, library):
        """In MindSpore's way: the start from C on a thread of its own, while the main thread waits in C; the end from Python."""
        def marked(code):
            if code != 0:
                raise RuntimeError(f"FORCE STOP, the marker said {code}")

        start, end = library.MindioTtpSetOptimStatusUpdating, library.MindioTtpSetOptimStatusFinished
        if os.environ.get("MINDIO_FOR_MINDSPORE") == "1":
            pool = concurrent.futures.ThreadPoolExecutor(1)
            self.start_updating = lambda step: marked(pool.submit(start, ctypes.c_int64(step)).result())
        else:
            self.start_updating = lambda step: marked(start(ctypes.c_int64(step)))
            self.end_updating = lambda step: marked(end(ctypes.c_int64(step)))

    @staticmethod
    def parse(text):
        kind, _, place = text.partition(":")
        rank, _, place = place.partition("@")
        step, _, phase = place.partition(":")
        return kind, int(rank), int(step), phase

    def say(self, name, *what):
        self.trace.write(" ".join([name, *(repr(x) for x in what)]) + "\n")

    def note(self, name):
        self.times.write(f"{time.monotonic():.6f} {name} {self.step}\n")

    def check(self, args, ctx):
        if args is not self.args or ctx is not None:
            self.say("WRONG", "args" if args is not self.args else "ctx")

    # ---- faults ---------------------------------------------------------------------------------------------------------

    def strike(self, phase):
        for number, (kind, rank, step, where) in enumerate(self.faults):
            if rank != self.rank or step not in (0, self.step + 1) or where != phase or number in self.struck or os.path.exists(f"{self.o.out}/struck.{number}"):
                continue
            self.struck.add(number)
            open(f"{self.o.out}/struck.{number}", "w").close()
            self.note("fault")
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
                return
            if kind == "value":
                raise ValueError("the data is crooked")
            self.low = kind in ("uce-low", "corrupt-low")
            if kind in ("uce-high", "corrupt", "corrupt-low", "precision"):
                for part in self.parts:
                    part.weight = None
            raise RuntimeError(TEXTS[kind])

    # ---- handlers -------------------------------------------------------------------------------------------------------

    def stop(self, args, ctx):
        self.check(args, ctx)
        self.say("stop", tft_get_repair_type())
        self.note("stop")
        self.hub.stop()

    def clean(self, is_uce, args, ctx):
        self.check(args, ctx)
        self.say("clean", is_uce)
        self.hub.restart()
        self.strike("clean")
        if self.o.clean_fails and is_uce:
            return 1
        return 2 if is_uce and self.low else 0

    def rebuild(self, fault_ranks, args, ctx):
        self.check(args, ctx)
        self.say("rebuild_group", fault_ranks)
        self.hub.restart()
        self.strike("rebuild")

    def repair(self, step, need_rebuild, error_ranks, info, args, ctx):
        self.check(args, ctx)
        self.say("repair", step, need_rebuild, error_ranks, info)
        self.strike("repair")
        if info["repair_type"] in (5, 6):
            with open(f"{self.o.out}/periodic.{self.rank}", encoding="utf-8") as file:
                kept = json.load(file)
            for part, weight in zip(self.parts, kept["weights"]):
                part.weight = weight
            ttp.tft_report_load_ckpt_step(kept["step"])
            return None
        if self.o.send_fails == self.rank and info["repair_type"] == 0:
            return 1
        return self.exchange(step, info)

    def exchange(self, step, info):
        for kind, source, destination in zip(info["type"], info["src"], info["dst"]):
            key = f"{step}/{kind}/{source}/{destination}"
            if source == self.rank:
                self.hub.ask("repair", op="send", key=key, value=self.parts[kind].weight)
            elif destination == self.rank:
                self.parts[kind].weight = self.hub.ask("repair", op="receive", key=key)
            else:
                return 1
        return None

    def read_error(self, text):
        """MindSpeed's reads in it which checkpoint is to be loaded."""
        self.say("raised", text)
        return "PRECISION ERROR"

    def rollback(self, step, args, ctx):
        self.check(args, ctx)
        self.say("rollback", step)
        self.strike("rollback")
        self.step = step

    def downgrade_rebuild(self, dp_ranks, world_ranks, args, param):
        self.check(args, None)
        self.say("zit_downgrade_rebuild", dp_ranks, world_ranks, param)
        self.hub.restart()
        self.strike("downgrade")
        self.members = world_ranks
        self.hub.ask("rebuild", op="sum", key=f"downgrade/{world_ranks}", value=0, of=len(world_ranks))
        self.step = ttp.tft_get_repair_step()

    def upgrade_rebuild(self, ranks, args, param):
        self.check(args, None)
        self.say("zit_upgrade_rebuild", ranks, param)
        self.hub.restart()
        self.strike("upgrade")
        self.members = list(range(self.world))

    def upgrade_repair(self, step, need_rebuild, error_ranks, info, args, param):
        self.check(args, None)
        self.say("zit_upgrade_repair", step, need_rebuild, error_ranks, info, param)
        self.strike("upgrade-repair")
        self.exchange(step, info)

    def upgrade_rollback(self, step, args, param):
        self.check(args, None)
        self.say("zit_upgrade_rollback", step, param)
        self.strike("upgrade-rollback")
        self.step = step

    def save(self, step, save_info, args, ctx):
        self.check(args, ctx)
        self.say("save", step, save_info)
        self.note("save")
        if self.o.save_kill == self.rank and not os.path.exists(f"{self.o.out}/struck.save"):
            open(f"{self.o.out}/struck.save", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.o.save_waits == self.rank:
            self.o.save_waits = -1
            os.read(os.pipe()[0], 1)  # for a part that never comes, where no stop handler reaches
            self.say("woke up")
        os.makedirs(f"{self.o.out}/iter_{step:07d}_tmp", exist_ok=True)
        for entry in save_info:
            part = self.parts[entry["type"]]
            write(f"{self.o.out}/iter_{step:07d}_tmp/{part.file}", step, part.weight)

    def rename(self, step, args):
        self.check(args, None)
        self.say("rename", step)
        self.note("rename")
        if self.rename_fails > 0:
            self.rename_fails -= 1
            return False
        os.rename(f"{self.o.out}/iter_{step:07d}_tmp", f"{self.o.out}/iter_{step:07d}")
        return True

    def stream_sync(self):
        self.say("stream_sync")
        self.strike("sync")

    # ---- training -------------------------------------------------------------------------------------------------------

    def die_aside(self):
        """Once it stands aside."""
        if any(kind == "kill" and phase == "aside" for kind, _, _, phase in self.faults):
            from mindio_ttp._kintsugi.session import SESSION
            while SESSION.processor.state.reported is None and not SESSION.processor.state.waits:
                time.sleep(0.001)
            self.strike("aside")

    def await_switch(self):
        """All wait until the other process has come and a pause is asked for: then the switch comes before the end of training. The first
        one, whom the others need for the step in hand, until all have been told of it."""
        until = time.monotonic() + 30
        while time.monotonic() < until and not (os.path.exists(f"{self.o.out}/came") and os.path.exists(f"{self.o.out}/asked")):
            time.sleep(0.005)
        if self.rank == 0:
            time.sleep(1)

    def await_lock(self):
        """Where a fault is to strike once another rank's incident has begun."""
        from mindio_ttp._kintsugi.session import SESSION
        if any(fault[1:] == (self.rank, self.step + 1, "locked") and number not in self.struck for number, fault in enumerate(self.faults)):
            until = time.monotonic() + 30
            while time.monotonic() < until and SESSION.processor.state.open:
                time.sleep(0.001)

    def await_return(self):
        """Those that are left wait here for the others, so that the step at which these come back is always the same."""
        from mindio_ttp._kintsugi.session import SESSION
        open(f"{self.o.out}/holds.{self.rank}", "w", encoding="utf-8").close()
        until = time.monotonic() + 40
        while time.monotonic() < until and SESSION.processor.state.open:
            time.sleep(0.005)

    def await_hold(self):
        """Who comes back is ready only once rank 0, which always stays, waits for it: then all others have ended that step, too."""
        until = time.monotonic() + 40
        while self.o.hold >= 0 and time.monotonic() < until and not os.path.exists(f"{self.o.out}/holds.0"):
            time.sleep(0.005)

    def contribution(self):
        """This rank's to the sum of gradients, and what falls to it of those that were left out: the sum is always that of all."""
        out = [rank for rank in range(self.world) if rank not in self.members]
        mine = [self.rank, *(rank for number, rank in enumerate(out) if self.members[number % len(self.members)] == self.rank)]
        return sum((rank + 1) * (self.step + 1) for rank in mine)

    def count_pipes(self):
        """Those that this process has open, as often as its training begins."""
        folder, links = "/proc/self/fd", []
        for number in os.listdir(folder):
            try:
                links.append(os.readlink(f"{folder}/{number}"))
            except FileNotFoundError:
                pass  # that of the list itself
        with open(f"{self.o.out}/pipes.{self.rank}", "a", encoding="utf-8") as file:
            file.write(f"{sum(link.startswith('pipe:') for link in links)}\n")

    def train(self, model, optimizer, args):
        if self.reboot:
            self.reboot = False
            if self.o.hot:
                self.say("reboot", ttp.tft_get_reboot_type())
                open(f"{self.o.out}/came", "w", encoding="utf-8").close()
                self.strike("aside")
                self.o.hot = ""
            elif self.o.zit:
                self.await_hold()
                threading.Thread(target=self.die_aside, daemon=True).start()
            raise RuntimeError("ARF FINISH")
        assert args is self.config
        self.count_pipes()
        o = self.o
        if o.mindspeed:
            ttp.set_mindio_export_version("MindSpeed-LLM")
        while self.step < self.o.steps:
            self.strike("forward")
            self.await_lock()
            self.strike("locked")
            if o.hot == "wait" and self.step == 5:
                self.await_switch()
            if o.hold == self.step and len(self.members) < self.world:
                self.await_return()
            self.grads = self.hub.ask("train", op="sum", key=f"{self.step + 1}/{len(self.members)}", value=self.contribution(), of=len(self.members))
            self.strike("backward")
            self.start_updating(-1)
            self.strike("update")
            for part in self.parts:
                part.update(self.grads)
            self.end_updating(self.step + 1)
            self.step += 1
            self.note("step")
            if o.save_every and self.step % o.save_every == 0:
                with open(f"{o.out}/periodic.{self.rank}", "w", encoding="utf-8") as file:
                    json.dump({"step": self.step, "weights": [part.weight for part in self.parts]}, file)
            ttp.tft_pause_train(self.step)
            if self.o.pace:
                time.sleep(self.o.pace)
        return ",".join(str(part.weight) for part in self.parts)

    def run(self):
        o = self.o
        if o.rank == 0 and not o.scheduled:
            ttp.tft_init_controller(o.rank, o.world, False, o.arf, o.zit)
            ttp.tft_start_controller("127.0.0.1", o.port, bool(o.tls), o.tls)
        ttp.tft_init_processor(o.rank, o.world, False, bool(o.tls), o.tls, True, o.arf, o.zit)
        ttp.tft_start_processor("127.0.0.1", o.port)
        self.reboot = ttp.tft_is_reboot_node()
        ttp.tft_set_optimizer_replica(o.rank, [part.replica_info for part in self.parts])
        if not o.no_dp:
            ttp.tft_set_dp_group_info(o.rank, self.parts[0].group)
        ttp.tft_register_save_ckpt_handler(self.save)
        ttp.tft_register_rename_handler(self.rename)
        ttp.tft_register_stop_handler(self.stop)
        ttp.tft_register_clean_handler(self.clean)
        ttp.tft_register_rebuild_group_handler(self.rebuild)
        ttp.tft_register_repair_handler(self.repair)
        ttp.tft_register_rollback_handler(self.rollback)
        ttp.tft_register_stream_sync_handler(self.stream_sync)
        ttp.tft_register_zit_downgrade_rebuild_handler(self.downgrade_rebuild)
        ttp.tft_register_zit_upgrade_rebuild_handler(self.upgrade_rebuild)
        if not o.no_handler:
            ttp.tft_register_zit_upgrade_repair_handler(self.upgrade_repair)
        ttp.tft_register_zit_upgrade_rollback_handler(self.upgrade_rollback)
        ttp.tft_register_exception_handler("PRECISION ERROR", "RS_RETRY", self.read_error)
        self.config = object()
        client = self

        @ttp.tft_exception_handler
        def wrapped(*args):
            return client.train(*args)

        self.seize_args()
        self.seize_join()
        print(f"rank {o.rank} ends with {wrapped('model', 'optimizer', self.config)}", flush=True)

    def seize_join(self):
        """A fault on the way back to all ranks: before this process joins their era."""
        from mindio_ttp._kintsugi.place import Move
        from mindio_ttp._kintsugi.session import SESSION
        membership = SESSION.processor.membership
        join = membership._join

        def seize(place):
            if place.move is Move.GROW:
                self.strike("join")
            join(place)

        membership._join = seize

    def seize_args(self):
        """The list that every handler gets, as the decorator keeps it: looked at once, compared from then on."""
        from mindio_ttp._kintsugi.session import SESSION
        give = SESSION.give_args

        def seize(args):
            assert type(args) is list, args
            self.args = args
            give(args)

        SESSION.give_args = seize


def hear_reports_late():
    """In the controller's process: what a rank reports is read 0.3 s after it came, what other ranks say is not."""
    original = asyncio.StreamReader.readline

    async def readline(reader):
        line = await original(reader)
        if b'"do": "report"' in line:
            await asyncio.sleep(0.3)
        return line

    asyncio.StreamReader.readline = readline


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("rank", "world", "port", "hub", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("out")
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--arf", action="store_true")
    parser.add_argument("--zit", action="store_true")
    parser.add_argument("--hold", type=int, default=-1, help="with fewer ranks: after this step until the others come back")
    parser.add_argument("--mindspeed", action="store_true", help="says that it is MindSpeed-LLM's client")
    parser.add_argument("--no-dp", action="store_true")
    parser.add_argument("--no-handler", action="store_true")
    parser.add_argument("--groups", default="one")
    parser.add_argument("--types", type=int, default=1, help="of optimizers")
    parser.add_argument("--send-fails", type=int, default=-1, help="the rank whose repair handler says so where it is to send")
    parser.add_argument("--rename-fails", type=int, default=0, help="so often the rename handler returns False")
    parser.add_argument("--tls", default="")
    parser.add_argument("--scheduled", action="store_true")
    parser.add_argument("--c-markers", help="the library, in the package's folder")
    parser.add_argument("--clean-fails", action="store_true")
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--save-kill", type=int, default=-1)
    parser.add_argument("--save-waits", type=int, default=-1, help="the rank that waits for another saver, the first time")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hot", default="", help="wait: after step 5 for the process that comes beside rank 2's; die: that one does")
    parser.add_argument("--pace", type=float, default=0)
    parser.add_argument("--late-reports", action="store_true")
    options = parser.parse_args(sys.argv[1:])
    if options.rank < 0:  # a spare: it learns its rank when one is lost
        options.rank = int(sys.stdin.readline())
    if options.late_reports:
        hear_reports_late()
    Client(options).run()
