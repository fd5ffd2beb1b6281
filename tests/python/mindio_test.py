"""mindio_ttp: what its clients see. Callbacks with their arguments in their order are golden text; state after each repair is
that of the undisturbed run; wrong calls are refused in words.

  mindio_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--rewrite] [--only=WORD]...
"""
import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from door import HERE, Door, Failure, Skip, main
from mindio_parts import parts_of, saved_weight
from mindio_world import World

GOLDEN = HERE / "golden" / "mindio"
REWRITE = "--rewrite" in sys.argv


class Mindio:
    def __init__(self, door):
        self.door = door
        self.path = f"{door.package}:{door.package}/kintsugi/compat"
        self.looked = False

    def world(self, folder, environment=None, **more):
        # On a machine that is busier than it has cores a rank may not run for a second: no fault here.
        return World(self.door.python, self.path, folder, environment={"KINTSUGI_MINDIO_SILENCE": "4", **(environment or {})}, **more)

    def reference(self, options=()):
        """What ranks end with where nothing happens."""
        if not self.looked:
            self.looked = True
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder)
                codes = world.run()
                if codes != [0] * 4 or world.trace() or world.ends() != self.reference():
                    raise Failure(f"{codes} {world.trace()}, ends {world.ends()}, expected {self.reference()}\n{world.logs()}")
        return [",".join(str(saved_weight(part.number, 12)) for part in parts_of(rank, 4, "halves" in options, 2 if "--types" in options else 1))
                for rank in range(4)]

    def same_text(self, name, lines, logs):
        path = GOLDEN / f"{name}.txt"
        text = "\n".join(lines) + "\n"
        if REWRITE:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif path.read_text() != text:
            raise Failure(f"{path.name} says\n{path.read_text()}\nbut it was\n{text}\n{logs}")

    def repaired(self, golden, *options, among=None, **more):
        """All ranks go on to the undisturbed end, and their callbacks were these, or one that begins so was `among` them."""
        def test(_):
            expected = self.reference(options)
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder, options=options, **more)
                codes = world.run()
                if codes != [0] * 4 or world.ends() != expected:
                    raise Failure(f"{codes}, ends {world.ends()}, undisturbed {expected}\n{world.trace()}\n{world.logs()}")
                if golden:
                    self.same_text(golden, world.trace(), world.logs())
                if among is not None and not any(line.startswith(among) for line in world.trace()):
                    raise Failure(f"{among} is not among {world.trace()}")
        return test

    def switched(self, golden, *options, old=2, new=0, scheduler="switch", **more):
        """Rank 2's process is replaced while it trains; nobody's numbers change."""
        def test(_):
            expected = self.reference()
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder, options=["--arf", "--hot", "wait", *options], scheduler=scheduler, hot=True, **more)
                codes = world.run()
                if codes != [0, 0, new, 0] or world.codes.get("old") != old or world.ends() != expected:
                    raise Failure(f"{codes} {world.codes}, ends {world.ends()}, undisturbed {expected}\n{world.trace()}\n{world.logs()}")
                if golden:
                    self.same_text(golden, world.trace(), world.logs())
        return test

    def shrunk(self, golden, codes, *options, scheduler="downgrade", **more):
        """Those that are left go on to the undisturbed end, since they do the work of the others."""
        def test(_):
            expected = [end if code == 0 else None for end, code in zip(self.reference(options), codes)]
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder, options=["--zit", *options], scheduler=scheduler, **more)
                found = world.run()
                if found != codes or world.ends() != expected:
                    raise Failure(f"{found}, expected {codes}; ends {world.ends()}, expected {expected}\n{world.trace()}\n{world.logs()}")
                if golden:
                    self.same_text(golden, world.trace(), world.logs())
        return test

    def keeps_few_pipes(self, _):
        """Who stays through a downgrade and an upgrade has as many pipes open in each era."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            world = self.world(folder, options=["--zit", "--fault", "kill:2@5:forward", "--hold", "8"], scheduler="regrow", respawn=True)
            codes = world.run()
            for rank in (0, 1, 3):
                counts = (Path(folder) / f"pipes.{rank}").read_text().split()
                if codes != [0] * 4 or len(counts) != 3 or len(set(counts)) != 1:
                    raise Failure(f"{codes}, pipes of rank {rank} in each era: {counts}\n{world.logs()}")

    def dumped(self, golden, codes, step, *options, told=False, **more):
        """What is held is saved and published once, with the numbers of that step; then every process leaves. `told`: golden is what the
        scheduler was told, since it is by chance whether a rank's handler was still running and had to be stopped."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder, options=options, **more)
                found = world.run()
                if found != codes:
                    raise Failure(f"exit codes {found}, expected {codes}\n{world.trace()}\n{world.logs()}")
                saved = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in Path(folder).glob("iter_*/*")}
                parts = [part for rank in range(4) for part in parts_of(rank, 4, "halves" in options, 2 if "--types" in options else 1)]
                expected = {f"iter_{step:07d}/{part.file}": {"step": step, "weight": saved_weight(part.number, step)} for part in parts}
                if saved != expected or len(list(Path(folder).glob("iter_*"))) != 1:
                    raise Failure(f"{sorted(p.name for p in Path(folder).iterdir())} {saved}, expected {expected}\n{world.logs()}")
                if golden:
                    self.same_text(golden, [line for line in world.trace() if not told or line.startswith("[scheduler]")], world.logs())
        return test

    def left(self, golden, codes, *options, **more):
        """Every process leaves, and nothing is saved."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder, options=options, **more)
                found = world.run()
                if found != codes or list(Path(folder).glob("iter_*")):
                    raise Failure(f"exit codes {found}, expected {codes}\n{world.trace()}\n{world.logs()}")
                if golden:
                    self.same_text(golden, [line for line in world.trace() if line.startswith("[scheduler]")], world.logs())
        return test

    def mistakes(self, _):
        done = subprocess.run([self.door.python, "-W", "ignore", str(HERE / "mindio_mistakes.py")], capture_output=True, text=True, timeout=120,
                              check=False, env={**os.environ, "PYTHONPATH": self.path, "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode != 0 or "processes ok" not in done.stdout:
            raise Failure(done.stdout[-1000:] + done.stderr[-3000:])

    def without_python(self, _):
        """A process without Python loads the C entry points, and is told that nothing is marked there."""
        for name in ("mindspore_api/libttp_c_api.so", "framework_ttp/libttp_framework.so", "libttp.so"):
            library = self.door.package / "kintsugi" / "compat" / "mindio_ttp" / name
            done = subprocess.run([str(self.door.bin.parent / "tests" / "mindio_c_entry"), str(library)], capture_output=True, text=True, timeout=60, check=False)
            if done.returncode != 0 or done.stderr.count("no Python runs in this process") != 2:
                raise Failure(f"{name}: {done.returncode}\n{done.stderr}")

    def environment(self, _):
        """A variable that is out of range, or whose feature is not there, is named once."""
        given = {"TTP_FRAMEWORK_TYPE": "1", "TTP_RETRY_TIMES": "301", "MINDIO_WAIT_MINDX_TIME": "x", "TTP_LOG_LEVEL": "LOUD",
                 "TTP_NORMAL_ACTION_TIME_LIMIT": "10", "TTP_STOP_CLEAN_BEFORE_DUMP": "1", "TTP_ACCLINK_CHECK_PERIOD_HOURS": "24"}
        code = ("from mindio_ttp._kintsugi import settings\n"
                "s = settings.current(); assert settings.current() is s\n"
                "assert (s.retry_times, s.scheduler_wait, s.action_limit, s.log_level, s.stop_clean_before_dump) == (10, 30, 180, 'INFO', True), s\n")
        done = subprocess.run([self.door.python, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "PYTHONPATH": self.path, **given})
        if done.returncode != 0:
            raise Failure(done.stderr)
        for name in given:
            count = done.stderr.count(f"WARNING mindio_ttp[") and done.stderr.count(f"{name}=")
            if count != (0 if name == "TTP_STOP_CLEAN_BEFORE_DUMP" else 1):
                raise Failure(f"{name} is told {count} times\n{done.stderr}")

    def over_tls(self, _):
        """A run over mutual TLS; who shows a certificate of somebody else's is not let in."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as keys:
            def openssl(*arguments):
                subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=keys, timeout=60)

            for who in ("ca", "other"):
                openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{who}.key", "-out", f"{who}.pem", "-days", "2", "-subj", f"/CN={who}")
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "rank.key", "-out", "rank.csr", "-subj", "/CN=rank")
            openssl("x509", "-req", "-in", "rank.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-out", "rank.pem")
            info = f"tlsCert: {keys}/rank.pem; tlsPk: {keys}/rank.key; tlsCaPath: {keys}; tlsCaFile: ca.pem; tlsCrlPath: ; packagePath: ;"
            self.repaired("uce-high", "--fault", "uce-high:2@5:forward", "--tls", info)(None)
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                world = self.world(folder, options=["--tls", info], environment={"TTP_RETRY_TIMES": "2"})
                world.start(0)
                listens = time.monotonic() + world.limit  # the others look for it for a second alone
                while "controller of 4 ranks" not in (Path(folder) / "log.0").read_text() and time.monotonic() < listens:
                    time.sleep(0.01)
                for rank, options in ((1, ["--tls", info.replace("rank.", "other.")]), (2, [])):
                    world.options = options
                    world.start(rank)
                codes = dict(enumerate(world.wait_for(3, ends=(1, 2))))
                if codes != {0: "hangs", 1: 2, 2: 2} or world.logs().count("TLS must be on or off on both sides") != 2:
                    raise Failure(f"{codes}\n{world.logs()}")

    def group_names(self, _):
        """From the start, and after an incident, the same on a rank that has made many groups and on one that has made none of the others."""
        code = """
import torch.distributed.distributed_c10d as d
from mindio_ttp._kintsugi.group_names import GroupNames
survivor, newcomer = GroupNames(), GroupNames()
survivor.install(); newcomer._original = survivor._original
begun = [d._process_group_name([0, 2], True)]
for other in range(3):  # groups that a newcomer leaves out, made and named by torch
    d._world.pg_names[other] = d._process_group_name([0, 2], False)
assert list(d._world.pg_names.values()) == ["0", "1", "2"], d._world.pg_names
begun += [d._process_group_name([0, 2], True), d._process_group_name([0, 1], True)]
d._world.pg_names.clear()
assert begun == [newcomer.name([0, 2], True), newcomer.name([0, 2], True), newcomer.name([0, 1], True)], begun
def made(names):
    names.begin(3)
    return [names.name([0, 2], True), names.name([0, 2], True), names.name([0, 1], True), names.name([0, 1, 2, 3], False), names.name([0, 1, 2, 3], False)]
first = made(survivor)
d._world.pg_names["x"] = "x"; d._world.group_count += 5
assert made(newcomer) == first and len(set(first + begun)) == 8, (first, begun)
survivor.begin(4)
assert survivor.name([0, 2], True) not in first and all(isinstance(name, str) and name.endswith("_3") for name in first), first
"""
        done = subprocess.run([self.door.python, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "PYTHONPATH": self.path})
        if "No module named 'torch'" in done.stderr:
            raise Skip("torch is not installed in build/python")
        if done.returncode != 0:
            raise Failure(done.stderr)

    def left_behind(self, _):
        """A handler that waits is left once it is to stop, and goes no further where it wakes up; one that computes or writes is not."""
        code = """
import os, threading, time
from mindio_ttp._kintsugi.apart import Apart
from mindio_ttp._kintsugi.callbacks import CallbackFailed
assert Apart(lambda: time.sleep(1.5) or 7).result(lambda: False) == 7
def broken(): raise CallbackFailed("no")
def computes():
    until = time.thread_time() + 1.5
    while time.thread_time() < until: pass
    return 8
def writes():
    with open(os.devnull, "w", buffering=1) as file:
        for _ in range(30): file.write("x\\n"); time.sleep(0.05)
    return 9
assert (Apart(computes).result(lambda: True), Apart(writes).result(lambda: True)) == (8, 9)
read, write = os.pipe()
woke = []
def waits(): os.read(read, 1); woke.append(1); time.sleep(0.01); woke.append(2)
for work in (broken, waits):
    try: Apart(work).result(lambda: True)
    except CallbackFailed as error: said = str(error)
    else: assert False, work
assert "left behind" in said, said
os.write(write, b"x")
time.sleep(0.5)
assert not woke and not any(thread.name == "mindio-apart" for thread in threading.enumerate()), woke
"""
        done = subprocess.run([self.door.python, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "PYTHONPATH": self.path})
        if done.returncode != 0:
            raise Failure(done.stderr)

    def says_which(self, _):
        """Not to be found unless it was asked for; looking for it does nothing; importing it says which it is."""
        look = "import importlib.util as u; print(u.find_spec('mindio_ttp') is not None)"
        for path, found in ((str(self.door.package), "False"), (self.path, "True")):
            done = subprocess.run([self.door.python, "-W", "ignore", "-c", look], capture_output=True, text=True, timeout=60, check=True,
                                  env={**os.environ, "PYTHONPATH": path})
            if done.stdout.strip() != found or done.stderr:
                raise Failure(f"PYTHONPATH={path}: {done.stdout} {done.stderr}")
        done = subprocess.run([self.door.python, "-W", "ignore", "-c", "import mindio_ttp, ttp_logger, ttp_c2python_api, ttp_mindx_api, ttp_utils"],
                              capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "PYTHONPATH": self.path})
        if "this is Kintsugi's" not in done.stderr:
            raise Failure(done.stderr)
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:  # as a wheel lays it out
            os.symlink(self.door.package / "kintsugi", f"{folder}/kintsugi")
            os.symlink(HERE.parent.parent / "integrations" / "python" / "kintsugi_mindio.pth", f"{folder}/kintsugi_mindio.pth")
            for value, found in (("1", "True"), ("0", "False")):
                done = subprocess.run([self.door.python, "-W", "ignore", "-c", f"import site; site.addsitedir('{folder}'); {look}"], capture_output=True,
                                      text=True, timeout=60, check=True, env={**os.environ, "KINTSUGI_MINDIO": value})
                if done.stdout.strip() != found or done.stderr:
                    raise Failure(f"KINTSUGI_MINDIO={value}: {done.stdout} {done.stderr}")

    def one_way(self, _):
        """No module behind the interface imports one that imports it, were it only for its types."""
        folder = self.door.package / "kintsugi" / "compat" / "mindio_ttp" / "_kintsugi"
        asks = {}
        for path in filter(Path.exists, folder.glob("*.py")):  # a build folder keeps links to files that are gone
            found = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level == 1)
            asks[path.stem] = {name for node in found for name in ([node.module] if node.module else [alias.name for alias in node.names])}
        left = dict(asks)
        while free := [name for name, asked in left.items() if not asked & left.keys()]:
            left = {name: asked for name, asked in left.items() if name not in free}
        if left or len(asks) < 20:
            raise Failure(f"of {len(asks)} modules these import each other: { {name: sorted(asked & left.keys()) for name, asked in left.items()} }")

    def typed(self, _):
        done = subprocess.run([self.door.python, "-m", "mypy", "--strict", f"--cache-dir={self.door.package / 'mypy-cache'}", "-p", "mindio_ttp"],
                              capture_output=True, text=True, timeout=300, check=False, cwd=self.door.package,
                              env={**os.environ, "PYTHONPATH": self.path, "MYPYPATH": self.path})
        if "No module named mypy" in done.stderr:
            raise Skip("mypy is not installed in build/python")
        if done.returncode != 0:
            raise Failure(done.stdout[-4000:] + done.stderr[-1000:])


if __name__ == "__main__":
    door = Door([a for a in sys.argv[1:] if not a.startswith("--")])
    m = Mindio(door)
    clean_first = {"TTP_STOP_CLEAN_BEFORE_DUMP": "1"}
    quick = {"MINDIO_WAIT_MINDX_TIME": "1"}
    tests = [
        ("says which one it is, and only where it is asked for", m.says_which),
        ("types are as they say", m.typed),
        ("imports point one way", m.one_way),
        ("wrong calls are refused in words", m.mistakes),
        ("C entry points in a process without Python", m.without_python),
        ("the environment means what it says, or is named once", m.environment),
        ("UCE high: stop, clean, repair of the pair, rollback", m.repaired("uce-high", "--fault", "uce-high:2@5:forward")),
        ("the same, marked from C", m.repaired("uce-high", "--fault", "uce-high:2@5:backward", "--c-markers", "libttp.so")),
        ("marked from C on another thread, as MindSpore does",
         m.repaired("uce-mindspore", "--fault", "uce-high:2@5:backward", "--groups", "halves", "--c-markers", "mindspore_api/libttp_c_api.so",
                    environment={"MINDIO_FOR_MINDSPORE": "1"})),
        ("UCE low: no repair", m.repaired("uce-low", "--fault", "uce-low:2@5:forward")),
        ("UCE low, told to the controller's process after all others have asked", m.repaired("uce-low", "--fault", "uce-low:2@5:forward", "--late-reports")),
        ("UCE high in one of two groups, told so late", m.repaired(None, "--fault", "uce-high:2@5:backward", "--groups", "halves", "--late-reports")),
        ("network retry: clean is told of no memory", m.repaired("network", "--fault", "hccl:2@5:forward")),
        ("ARF without a scheduler: the new process takes part from rebuild_group on",
         m.repaired("arf", "--fault", "kill:2@5:forward", "--arf", respawn=True)),
        ("ARF with a scheduler", m.repaired("arf-scheduled", "--fault", "kill:2@5:forward", "--arf", respawn=True, scheduler="answer")),
        ("hot switch: another process takes the place of one that trains", m.switched("switch")),
        ("downgrade: the others go on, and do its work", m.shrunk("downgrade", [0, 0, -9, 0], "--fault", "kill:2@5:forward")),
        ("downgrade and upgrade: the rank comes back, with a copy of its part",
         m.repaired("upgrade", "--zit", "--fault", "kill:2@5:forward", "--hold", "8", scheduler="regrow", respawn=True)),
        ("two pauses, the second as the first ends", m.repaired("pauses", "--pace", "0.15", scheduler="pauses")),
        ("pause and continue", m.repaired("pause", "--pace", "0.15", scheduler="pause")),
        ("a precision error: all reload the periodic checkpoint",
         m.repaired("reload", "--fault", "precision:2@9:forward", "--save-every", "3")),
        ("a precision error that all ranks raise",
         m.repaired(None, *(word for rank in range(4) for word in ("--fault", f"precision:{rank}@9:forward")), "--save-every", "3")),
        ("dump: one writer for each part, rename on the first that is not rank 0",
         m.dumped("dump", [2, 2, -9, 2], 4, "--fault", "kill:2@5:forward", environment=clean_first)),
        ("dump of two groups, stop and clean before it off", m.dumped("dump-halves", [2, 2, 2, -9], 4, "--fault", "kill:3@5:forward", "--groups", "halves")),
        ("two optimizer types: one pair moves both", m.repaired("uce-two-types", "--fault", "uce-high:2@5:forward", "--types", "2")),
        ("dump of two optimizer types: the first usable holder of each part writes it",
         m.dumped("dump-two-types", [2, 2, -9, 2], 4, "--fault", "kill:2@5:forward", "--types", "2", environment=clean_first)),
        ("a source says that it cannot send: what it holds is dumped",
         m.dumped(None, [2, 2, 2, 2], 4, "--fault", "uce-high:2@5:forward", "--send-fails", "0", environment=clean_first)),
        ("a source says that it cannot send, with a scheduler: dump is its choice",
         m.dumped("dump-unsent", [2, 2, 2, 2], 4, "--fault", "uce-high:2@5:forward", "--send-fails", "0", "--arf", scheduler="answer", told=True)),
        ("rename says that it failed: called again, nothing is saved again",
         m.dumped("rename-again", [2, 2, -9, 2], 4, "--fault", "kill:2@5:forward", "--rename-fails", "2", environment=clean_first)),
        ("a rank dies while another is repaired", m.repaired(None, "--fault", "uce-high:2@5:forward", "--fault", "kill:2@5:repair", "--arf", respawn=True)),
        ("a saver dies while it saves: another holder saves", m.dumped(None, [2, -9, -9, 2], 4, "--fault", "kill:2@5:forward", "--save-kill", "1")),
        ("a handler that waits is left behind, one that works is not", m.left_behind),
        ("a saver dies while another waits for its part", m.dumped(None, [2, -9, -9, 2], 4, "--fault", "kill:2@5:forward", "--save-kill", "1",
                                                                  "--save-waits", "0")),
        ("a saver of two types dies while it saves",
         m.dumped(None, [2, -9, -9, 2], 4, "--fault", "kill:2@5:forward", "--save-kill", "1", "--types", "2", environment=clean_first)),
    ]
    if "--soak" in sys.argv:
        tests = [
            ("names of torch's groups", m.group_names),
            ("mutual TLS", m.over_tls),
            ("an unknown RuntimeError ends in a dump, and its process with 2", m.dumped("dump-runtime", [2, 2, 2, 2], 4, "--fault", "runtime:1@5:forward")),
            ("another exception is raised again", m.dumped(None, [2, 1, 2, 2], 4, "--fault", "value:1@5:forward")),
            ("an unknown RuntimeError, with ARF", m.repaired(None, "--fault", "runtime:2@5:forward", "--arf", respawn=True)),
            ("memory fails within an update: all others finish it", m.repaired("uce-update", "--fault", "uce-high:2@5:update")),
            ("a process dies within its update", m.repaired(None, "--fault", "kill:1@7:update", "--arf", respawn=True)),
            ("a frozen process is ended and replaced", m.repaired("arf", "--fault", "freeze:2@5:forward", "--arf", respawn=True)),
            ("a frozen process, without ARF", m.dumped("dump", [2, 2, -9, 2], 4, "--fault", "freeze:2@5:forward", environment=clean_first)),
            ("UCE with a scheduler", m.repaired("uce-scheduled", "--fault", "uce-high:2@5:forward", "--arf", scheduler="answer")),
            ("a rank is lost before it is heard that the incident before is over", m.repaired(
                "two-incidents", "--fault", "uce-high:2@5:forward", "--fault", "kill:3@6:forward", "--arf", respawn=True, scheduler="answer:late")),
            ("a scheduler chooses to replace instead of mending", m.repaired("uce-recover", "--fault", "uce-high:2@5:forward", "--arf", respawn=True,
                                                                             scheduler="recover")),
            ("a scheduler chooses to dump instead of mending", m.dumped("uce-dump", [2, 2, 2, 2], 4, "--fault", "uce-high:2@5:forward", scheduler="dump")),
            ("a scheduler that says nothing: the ladder goes on", m.repaired("uce-silent", "--fault", "uce-high:2@5:forward", scheduler="silent", environment=quick)),
            ("a scheduler that chooses what was not offered: exit", m.left("bad", [2, 2, -9, 2], "--fault", "kill:2@5:forward", "--arf", scheduler="bad")),
            ("a rank dies in a pause, which is over with that", m.repaired(
                None, "--pace", "0.15", "--arf", "--fault", "kill:2@0:sync", scheduler="pause", respawn=True,
                among="[scheduler] report_stop_complete 405 'an incident came before the pause'")),
            ("hot switch, called off once it was offered", m.switched("unswitch", scheduler="unswitch", old=0, new=2)),
            ("hot switch, the process that stands aside dies, and another comes", m.switched("switch-again", "--fault", "kill:2@1:aside", respawn=True)),
            ("hot switch, the process that is to be replaced dies before", m.switched(None, "--fault", "kill:2@6:backward", old=-9)),
            ("hot switch, memory of another rank fails meanwhile", m.switched(None, "--fault", "uce-high:1@6:backward")),
            ("downgrade of two groups: a slice of them leaves", m.shrunk("downgrade-halves", [0, 2, 0, -9], "--fault", "kill:3@5:forward", "--groups", "halves")),
            ("downgrade and upgrade of two groups", m.repaired("upgrade-halves", "--zit", "--fault", "kill:3@5:forward", "--groups", "halves", "--hold", "8",
                                                               scheduler="regrow", respawn=True)),
            ("downgrade where ARF is on, too", m.repaired("upgrade-arf", "--zit", "--arf", "--fault", "kill:2@5:forward", "--hold", "8", scheduler="regrow:arf",
                                                          respawn=True)),
            ("downgrade and upgrade leave no pipes behind", m.keeps_few_pipes),
            ("downgrade, and again", m.shrunk("downgrade-again", [0, -9, -9, 0], "--fault", "kill:2@5:forward", "--fault", "kill:1@8:forward")),
            ("downgrade twice, and both come back", m.repaired(None, "--zit", "--fault", "kill:2@5:forward", "--fault", "kill:1@5:downgrade", "--hold", "8",
                                                               scheduler="regrow", respawn=True)),
            ("a rank dies on the way to fewer: they go on with fewer still",
             m.shrunk(None, [0, 0, -9, -9], "--fault", "kill:2@5:forward", "--fault", "kill:3@5:downgrade")),
            ("a rank dies in clean before a downgrade", m.shrunk(None, [0, 0, -9, -9], "--fault", "kill:2@5:forward", "--fault", "kill:3@5:clean")),
            ("downgrade, then memory fails: repaired from its copy",
             m.shrunk("downgrade-uce", [0, 0, -9, 0], "--fault", "kill:2@5:forward", "--fault", "uce-high:3@8:forward")),
            ("downgrade, then a network retry", m.shrunk(None, [0, 0, -9, 0], "--fault", "kill:2@5:forward", "--fault", "hccl:3@8:forward")),
            ("downgrade, and a dump with fewer", m.dumped("downgrade-dump", [2, -9, -9, 2], 7, "--zit", "--fault", "kill:2@5:forward", "--fault",
                                                          "kill:1@8:forward", scheduler="once")),
            ("downgrade, and a dump before the first step with fewer", m.dumped(None, [2, -9, -9, 2], 4, "--zit", "--fault", "kill:2@5:forward",
                                                                               "--fault", "kill:1@5:backward", scheduler="once")),
            ("MindSpeed's handlers take one downgrade: a second loss is dumped",
             m.dumped(None, [2, -9, -9, 2], 7, "--zit", "--mindspeed", "--fault", "kill:2@5:forward", "--fault", "kill:1@8:forward", scheduler="downgrade")),
            ("ARF goes on where ZIT is on, too", m.repaired(None, "--zit", "--arf", "--fault", "kill:2@5:forward", scheduler="zit:arf", respawn=True,
                                                            environment=quick)),
            ("the client cannot go on with fewer: dump", m.dumped("downgrade-fails", [2, 2, -9, 2], 4, "--zit", "--fault", "kill:2@5:forward", "--fault",
                                                                  "value:1@5:downgrade", scheduler="downgrade", told=True)),
            ("who comes back dies in its repair: dump", m.dumped("upgrade-fails", [2, 2, -9, 2], 8, "--zit", "--fault", "kill:2@5:forward", "--hold", "8",
                                                                 "--fault", "kill:2@1:upgrade-repair", scheduler="regrow", respawns={2: 1}, told=True)),
            ("a process that waits for the upgrade dies: another one comes",
             m.repaired("upgrade", "--zit", "--fault", "kill:2@5:forward", "--hold", "8", "--fault", "kill:2@1:aside", scheduler="regrow", respawn=True)),
            ("who comes back dies before it has joined: another process comes, and nothing was called",
             m.repaired("upgrade", "--zit", "--fault", "kill:2@5:forward", "--hold", "8", "--fault", "kill:2@1:join", scheduler="regrow", respawn=True)),
            ("another rank dies before it has joined all again: both come back",
             m.repaired("upgrade-both", "--zit", "--fault", "kill:2@5:forward", "--hold", "8", "--fault", "kill:1@9:join", scheduler="regrow", respawn=True)),
            ("the last holder of a part dies before it has joined all again: exit", m.left("upgrade-lost", [2, 2, 2, -9], "--zit", "--fault",
                                                                                          "kill:1@5:forward", "--hold", "8", "--fault", "kill:3@9:join",
                                                                                          scheduler="regrow", respawns={1: 1})),
            ("rank 0 is lost: downgrade is not offered", m.dumped("zit-rank-0", [-9, 2, 2, 2], 4, "--zit", "--fault", "kill:0@5:forward", scheduler="downgrade")),
            ("both holders of a part are lost: downgrade is not offered", m.left("zit-no-copy", [2, -9, 2, -9], "--zit", "--fault", "kill:1@5:forward",
                                                                                "--fault", "kill:3@5:forward", scheduler="downgrade")),
            ("no data-parallel group: downgrade is not offered", m.dumped("zit-refused", [2, 2, -9, 2], 4, "--zit", "--no-dp", "--fault", "kill:2@5:forward",
                                                                         scheduler="downgrade")),
            ("a handler is missing: downgrade is not offered", m.dumped("zit-refused", [2, 2, -9, 2], 4, "--zit", "--no-handler", "--fault",
                                                                        "kill:2@5:forward", scheduler="downgrade")),
            ("a scheduler that says nothing: dump", m.dumped(None, [2, 2, -9, 2], 4, "--zit", "--fault", "kill:2@5:forward", scheduler="zit", environment=quick)),
            ("ZIT without a scheduler: dump", m.dumped("dump", [2, 2, -9, 2], 4, "--zit", "--fault", "kill:2@5:forward", environment=clean_first)),
            ("rank 0 dies, the scheduler hosts the controller", m.repaired(None, "--fault", "kill:0@5:forward", "--arf", respawn=True, scheduler="answer")),
            ("a rank dies in clean", m.repaired(None, "--fault", "uce-high:2@5:forward", "--fault", "kill:3@5:clean", "--arf", respawn=True)),
            ("a rank dies in rebuild_group", m.repaired(None, "--fault", "kill:2@5:forward", "--fault", "kill:3@5:rebuild", "--arf", respawn=True)),
            ("a rank dies in rollback", m.repaired(None, "--fault", "uce-high:2@5:forward", "--fault", "kill:3@5:rollback", "--arf", respawn=True)),
            ("a source dies while another waits for it: freed by its stop handler, then all reload",
             m.repaired(None, "--fault", "uce-high:3@8:forward", "--fault", "kill:1@8:repair", "--save-every", "3", "--arf", respawn=True)),
            ("a dump without rank 0: the first writer publishes", m.dumped(None, [-9, 2, 2, 2], 4, "--fault", "kill:0@5:forward", scheduler="dump")),
            ("memory fails in a handler", m.repaired(None, "--fault", "uce-high:2@5:forward", "--fault", "uce-high:1@5:clean")),
            ("memory fails while the incident of another rank is under way: clean is told", m.repaired(
                None, "--fault", "hccl:1@5:forward", "--fault", "uce-high:2@5:locked", among="[2] clean True")),
            ("memory fails twice", m.repaired(None, "--fault", "uce-high:2@5:forward", "--fault", "uce-high:3@8:backward")),
            ("memory that an update has used: reload, rebuilt on that rank",
             m.repaired("reload-uce", "--fault", "corrupt:2@9:forward", "--save-every", "3")),
            ("memory that an update has used, and nothing is lost: reload, nothing is rebuilt",
             m.repaired("reload-uce-low", "--fault", "corrupt-low:2@9:forward", "--save-every", "3")),
            ("two reloads", m.repaired(None, "--fault", "precision:2@9:forward", "--fault", "precision:1@11:forward", "--save-every", "3")),
            ("all holders of a part are lost: reload", m.repaired(None, "--fault", "kill:1@8:forward", "--fault", "kill:3@8:forward", "--save-every", "3",
                                                                 "--arf", respawn=True)),
            ("nothing to reload: nothing is saved either", m.left(None, [2, 2, 2, 2], "--fault", "precision:2@9:forward")),
            ("clean fails again and again: dump", m.dumped(None, [2, 2, 2, 2], 4, "--fault", "uce-high:2@5:forward", "--clean-fails")),
        ]
    sys.exit(main(tests, door.bin, [a.removeprefix("--only=") for a in sys.argv if a.startswith("--only=")]))
