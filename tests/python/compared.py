"""A trainer under Kintsugi leaves what it leaves under plain torch, bit for bit: how the two are run and compared.

Trainers are programs that write what is left to FOLDER/rank-N.json, {name: {what: value}}; with PLAIN=1 they import nothing of Kintsugi.
"""
import json
import re
import tempfile
from pathlib import Path

from door import HERE, Failure


def left_in(folder, nproc=2):
    found = {path.name: json.loads(path.read_text()) for path in Path(folder).glob("rank-*.json")}
    if sorted(found) != [f"rank-{rank}.json" for rank in range(nproc)]:
        raise Failure(f"left behind: {sorted(found)}")
    return found


class Compared:
    def __init__(self, door, program, *arguments, nproc=2, plain=("PLAIN", "1")):
        """`program`: a file's name, or the words that run it. `plain`: what in its environment makes it plain torch."""
        self._door = door
        self._nproc = nproc
        self._program = program if isinstance(program, list) else door.script(str(HERE / program))
        self._made_plain = dict([plain])
        self._arguments = arguments
        self._plain = None

    def plain(self):
        """Over Gloo: nothing of Kintsugi is imported."""
        if self._plain is None:
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                self._door.plain([*self._program, folder, *self._arguments], self._nproc, **self._made_plain)
                self._plain = left_in(folder, self._nproc)
        return self._plain

    def same(self, *faults, more=(), paths=((),), options=(), replaced=None, is_exact=False):
        """`more`: words for the program; `options`: for the launcher; `paths`: None: any; `replaced`: the ranks whose processes were, in their order;
        `is_exact`: and nothing is told to be inexact."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                summary, log = self._run(folder, [*options, *(word for fault in faults for word in ("--inject", fault))], more, paths)
            found = [int(rank) for rank, life in re.findall(r"event=spawned rank=(\d+) incarnation=(\d+)", log) if life != "1"]
            if is_exact and summary.get("inexact"):
                raise Failure(f"inexact: {summary['inexact']}")
            if replaced is not None and found != list(replaced):
                raise Failure(f"the processes of ranks {found} were replaced, expected {list(replaced)}\n{log[-4000:]}")
        return test

    def off(self, _):
        """With KINTSUGI=0 it is plain torch."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            self._door.plain([*self._program, folder, *self._arguments], self._nproc, KINTSUGI="0")
            self._compare(left_in(folder, self._nproc))

    def resumed(self, step=3):
        """From what was saved in the middle of the run."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                self._run(folder, ("--save-every", str(step), "--save-dir", f"{folder}/saves"), (), ((),))
                Path(folder, "rest").mkdir()
                middle = Path(folder, "saves", f"step_{step:010}").rename(Path(folder, "rest", f"step_{step:010}"))
                _, log = self._run(folder, ("--resume", str(middle.parent), "--save-dir", ""), (), ((),))
            if f"step {step}" not in log:
                raise Failure(f"nothing was resumed\n{log[-3000:]}")
        return test

    def _run(self, folder, arguments, more, paths):
        self.plain()
        for old in Path(folder).glob("rank-*.json"):
            old.unlink()
        summary, log = self._door.run(arguments, [*self._program, folder, *self._arguments, *more], nproc=self._nproc)
        found = left_in(folder, self._nproc)
        path = tuple(incident["path"] for incident in summary["incidents"])
        if paths is not None and path not in paths:
            raise Failure(f"repaired by {path}, expected one of {paths}\n{log[-4000:]}")
        self._compare(found)
        return summary, log

    def compare(self, folder):
        """What somebody else has run."""
        self._compare(left_in(folder, self._nproc))

    def _compare(self, found):
        self.plain()
        wrong = [f"{rank} {name}, {what}: plain torch {value} here {found[rank].get(name, {}).get(what)}"
                 for rank, of_rank in self.plain().items() for name, values in of_rank.items() for what, value in values.items()
                 if found[rank].get(name, {}).get(what) != value]
        if wrong:
            raise Failure(f"{len(wrong)} differ:\n" + "\n".join(line[:600] for line in wrong[:12]))
