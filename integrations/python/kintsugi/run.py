"""A rank's place in the run: what it registers, its guard, its step markers. Works with any array that has a buffer.

Threads: everything runs on the thread that calls it, which is the trainer's; the agent has threads of its own, which run
nothing of Python (but functions given to `on_stop`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import pickle
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _core
from ._errors import Error, InjectedFault, Interrupted
from .abi import Code, Joined, Outcome, TaskKind
from .arrays import DTYPE_BYTES, dtype_name, like
from .cuts import Cut, parts_of
from .guard import Guard, begin_anew
from .loops import Block, Loops
from .objects import PROGRAM, Objects, bytes_of
from .news import News
from .program import Program, Recorded
from .sections import pickled
from .take_over import TakeOver, take_over_of
from .terms import ACTIVITIES, FIRST_OF_HOLDERS, HANDLERS, PHASES, Codec, Guarded, Handler, Incident, Piece
from .values import NamedValues, Values
from .variables import variables_of

_PAUSED = int(Code.PAUSED)  # every step looks for it


def join(**options: Any) -> Run:
    """Joins the run that `kintsugi run` began, or the one that the options name (controller, job, secret, rank, world_size)."""
    return Run(_core.Agent(**options))


class Run:
    """One rank. Made by `join`."""

    def __init__(self, agent: _core.Agent) -> None:
        self.agent = agent
        self.at = 0  # the step in hand, else the newest that is committed
        self._in_step = False
        self._program = Program()
        self._objects = Objects(agent, self._program, agent.note_inexact)
        self._guard = Guard(agent, self._put_back, self.outcome_of, self._is_changed, self._leave_script)
        self._loops = Loops(self, self._program)
        self._news = News(agent, self._program, self._objects)
        self._plain = False  # is outside of loops and sections
        self.committed = 0  # the newest step that this rank has committed
        self._replicas: tuple[list[int], int] | None = None
        self._layouts: dict[int, tuple[int, ...]] = {}  # number -> who holds the same
        self._keep: list[Any] = []  # arrays that registered memory belongs to
        self._tensors: dict[str, tuple[str, list[int], list[int], list[int], tuple[int, int], int, int]] = {}
        atexit.register(agent.leave_at_exit)  # while Python's lock still exists

    # ---- who this is --------------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return self.agent.rank

    @property
    def world_size(self) -> int:
        return self.agent.world_size

    @property
    def replaces(self) -> bool:
        """Whether this process takes the place of a lost one: its state comes from elsewhere."""
        return self.agent.joined_as == Joined.REPLACEMENT

    @property
    def resumes(self) -> bool:
        """Whether the run begins from a checkpoint, with new processes on all ranks."""
        return self.agent.joined_as == Joined.RESUMED

    @property
    def exit_code(self) -> int:
        return self.agent.exit_code

    def trains(self) -> bool:
        """Whether the guard has begun and the run has not ended."""
        return self._guard.begun and not self._guard.ended

    # ---- state --------------------------------------------------------------------------------------------------------

    def register(self, key: str, array: Any, /, *, cuts: Cut | None = None) -> Any:
        """Protects an array (numpy's, or any writable contiguous buffer) that every rank holds alike.

        It is copied into memory that outlives a killed process; the copy is returned, of the same type and shape for numpy,
        and must be used in its place.

        `cuts`: ranks hold parts of something larger, or what is one array is stored as several tensors: the rule that says so
        (kintsugi.cut). With other ranks a run goes on from what was saved, each with its parts.
        """
        try:
            source = memoryview(array)
        except (TypeError, ValueError) as error:
            raise Error(f"array '{key}' cannot be protected: {error}", Code.INVALID_ARGUMENT) from error
        if not source.c_contiguous:
            raise Error(f"array '{key}' is not contiguous: register a contiguous copy", Code.INVALID_ARGUMENT)
        dtype = dtype_name(array, source)
        shape = list(source.shape or ())
        parts = None if cuts is None else parts_of(key, shape, cuts)
        state = self.state_memory(max(source.nbytes, 1))
        state.fill_with(0, source)
        state.finish()
        memory = state.view()
        if parts is None:
            self.register_memory(key, memory, dtype, shape)
        for part in parts or ():
            if count := part.elements():
                first = part.first * source.itemsize
                used = memory[first : first + count * source.itemsize]
                self.register_memory(part.key, used, dtype, part.piece.box or (), part.piece)
        return like(array, memory, source)

    def state_memory(self, size_bytes: int) -> _core.StateMemory:
        """Memory that outlives a killed process, to be filled with what is registered then."""
        return _core.StateMemory(self.agent, size_bytes)

    def register_memory(
        self, key: str, memory: Any, dtype: str, shape: Iterable[int], piece: Piece | None = None
    ) -> None:
        """The same for memory that is in its place already: a writable buffer, or (address, bytes). `piece`: it is part of a
        larger tensor, or held by other ranks than set_replicas says."""
        local = list(shape)
        box = local if piece is None or piece.box is None else list(piece.box)
        address, size = self._place_of(memory)
        count = 1
        for length in local:
            count *= length
        flat = (0, 0) if piece is None else piece.flat
        if flat != (0, 0):
            count = flat[1] - flat[0]
        bytes_used = count * DTYPE_BYTES[dtype] if dtype in DTYPE_BYTES else size
        layout = self._layout_for(piece)
        whole = local if piece is None else list(piece.global_shape)
        offset = [0] * len(local) if piece is None else list(piece.offset)
        self.agent.register_tensor(key, dtype, whole, box, offset, flat, address, bytes_used, layout, 0)
        self._tensors[key] = (dtype, whole, box, offset, flat, bytes_used, layout)

    def rebind(self, key: str, memory: Any) -> None:
        """What is registered as `key` lies in `memory` from now on: a writable buffer, or (address, bytes), that holds its bytes
        already. In handlers (clean, rebuild, rollback) only; what the old place holds is nobody's any more."""
        if key not in self._tensors:
            raise Error(f"no array '{key}' is registered that could be rebound", Code.NOT_FOUND)
        dtype, whole, box, offset, flat, size, layout = self._tensors[key]
        address, given = self._place_of(memory)
        if given < size:
            raise Error(f"array '{key}' of {size} bytes cannot be rebound to {given}", Code.INVALID_ARGUMENT)
        self.agent.rebind_tensor(key, dtype, whole, box, offset, flat, address, size, layout, 0)

    def unregister(self, key: str) -> None:
        """What is registered as `key` is no part of the state any more, on no rank: it is not repaired, compared or saved from then
        on. In handlers (clean, rebuild, rollback) only; in clean and rebuild one rank that says so is enough, in rollback every one
        that registered it must. Nothing happens where it is gone already."""
        self.agent.unregister_tensor(key)

    def holds(self, key: str) -> bool:
        """Whether `key` is part of this rank's state: registered, and not unregistered here or on another rank."""
        return self.agent.has_tensor(key)

    def _place_of(self, memory: Any) -> tuple[int, int]:
        """Address and size; a buffer is kept."""
        if isinstance(memory, tuple):
            return memory
        view = memoryview(memory)
        holder = (ctypes.c_char * 0).from_buffer(view)
        self._keep.append((memory, holder))
        return ctypes.addressof(holder), view.nbytes

    def _layout_for(self, piece: Piece | None) -> int:
        """The number of a set of holders: one that all of them find without asking."""
        usual = self.usual_holders()
        if piece is None or piece.holders == usual:
            self._layouts[0] = usual
            return 0
        number = FIRST_OF_HOLDERS + (zlib.crc32(repr(piece.holders).encode()) & 0x3FFFFFFF)
        if self._layouts.setdefault(number, piece.holders) != piece.holders:
            raise Error(f"ranks {piece.holders} and {self._layouts[number]} have one layout number: register them apart", Code.INTERNAL)
        return number

    def usual_holders(self) -> tuple[int, ...]:
        """Who holds the same as this rank where no piece says otherwise."""
        ranks, replicas = self._replicas or (list(range(self.world_size)), self.world_size)
        stride = max(len(ranks) // replicas, 1)
        return tuple(ranks[ranks.index(self.rank) % stride :: stride]) if self.rank in ranks else (self.rank,)

    def register_alias(self, alias: str, key: str) -> None:
        """One more name of a registered array (tied weights): it is held and repaired once, checkpoints have both names, and a run
        resumes from one that has either."""
        self.agent.register_alias(alias, key)

    def register_object(
        self, key: str, thing: Codec, take_over: TakeOver | None = None, *, grid: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> None:
        """Protects what is no array: anything with state_dict and load_state_dict. Its state at the gate of each step is kept
        by the replica partners, and put back where a step begins anew.

        `take_over`: how it goes on where a run resumes with other ranks ("same-rank", "rank-zero", "derived", or a function of what
        all ranks saved; see TakeOver). Nothing is guessed: unless it is said, such a run ends with the object's name.

        `grid`: (place, shape) where it is one cell of a grid of objects under this key (Megatron's ShardedObject), as ((0, 1), (2, 2)).
        Ranks with the same place hold the same. In checkpoints the cell is called "KEY/shard_0.1_2.2"; with other ranks a run takes
        it over from wherever it was, if the grid has the same shape."""
        if not (callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))):
            raise Error(f"object '{key}' ({type(thing).__name__}) lacks state_dict or load_state_dict", Code.INVALID_ARGUMENT)
        if grid is not None:
            key, take_over = _cell_key(key, *grid), "cell" if take_over is None else take_over
        how, function = take_over_of(key, take_over)
        bytes_of(key, thing)  # what cannot travel is told here
        self.agent.register_object(key, True, how, function)
        self._objects.add(key, thing)

    def keep(self, owner: Any, /, *names: str, take_over: TakeOver | None = None) -> None:
        """Protects variables of the script's own, which change from step to step or decide what it does: `run.keep(globals(), "best", "x")`,
        or attributes of an object, `run.keep(trainer, "best")`. Each is an object with its name. `take_over`: as of register_object."""
        for name, variable in variables_of(owner, names, sys._getframe(1)).items():
            self.register_object(name, variable, take_over)

    def register_values(self, key: str, thing: NamedValues) -> None:
        """The same for small numbers and texts that are equal on all ranks: `thing.state_dict()` gives them by name ("consumed_samples",
        "opt_param_scheduler.num_steps": dots are dictionaries within each other). A checkpoint of any format has each of them under
        its name, as a number, where the format's own readers look for it; a run with other ranks takes them over from there."""
        values = Values(key, thing)
        values.encode()  # what is no value is told here
        self.agent.register_object(key, True, *take_over_of(key, "rank-zero"))
        self._objects.add(key, values)

    def exchange_object(self, key: str, thing: Codec) -> None:
        """Another in the place of a registered object: from now on it is its state that is kept, and put back."""
        if key not in self._objects:
            raise Error(f"object '{key}' was not registered, so nothing can take its place", Code.INVALID_ARGUMENT)
        self._objects.add(key, thing)

    def set_replicas(self, ranks: Iterable[int], replicas: int) -> None:
        """Which ranks share this one's state, and how many hold the same. Default: all ranks hold the same."""
        if self._layouts:
            raise Error("set_replicas comes before what it is about is registered", Code.FAILED_PRECONDITION)
        self._replicas = (sorted(ranks), replicas)

    def on_stop(self, function: Callable[[int], object]) -> None:
        """Called with the generation, on a thread of the agent's and under Python's lock, to free a blocked training thread.
        Where a function of C will do, `agent.on_stop` takes its address and needs no lock."""
        self.agent.on_stop_python(function)

    def handler(self, kind: str, function: Handler | None = None) -> Any:
        """Registers a handler (clean, rebuild, rollback); also a decorator: `@run.handler("rebuild")`. A text that it returns stands
        in the incident's record; what all ranks say alike stands there once."""
        if kind not in HANDLERS:
            raise Error(f"there is no handler '{kind}': clean, rebuild or rollback", Code.INVALID_ARGUMENT)
        if self._guard.begun:
            raise Error(f"handler '{kind}' was registered after training began", Code.FAILED_PRECONDITION)

        def add(handler: Handler) -> Handler:
            self._guard.add(kind, handler)
            return handler

        return add if function is None else add(function)

    # ---- loops --------------------------------------------------------------------------------------------------------

    def train(self, step: Callable[[int], object], steps: int) -> None:
        """Calls step(k) for every k up to `steps`, again where an incident made it void. May be called several times, with growing
        `steps`. Leaves the process with the run's exit code where the run cannot go on."""
        self._loops.train(step, steps)

    def guard(self, loop: Guarded) -> None:
        """The same for a loop of one's own: loop(first) trains from step first + 1 on and marks its steps."""
        self._loops.guard(loop)

    def steps(self, count: int) -> Iterator[int]:
        """`for k in run.steps(n):` gives the numbers of the next `count` steps of the run, one for each iteration, the same once more where
        a step was void. Each iteration has one `with run.step():`."""
        return self._loops.steps(count)

    def step(self) -> Block:
        """`with run.step() as k:` makes step k of a loop over `steps`; what a fault raises in it ends here. Behind it
        `if run.again: continue` leaves out what belongs to a step that is void."""
        return Block(self._loops)

    @property
    def again(self) -> bool:
        """Whether the newest block's step is void: the loop is about to give it once more."""
        return self._loops.again

    def after(self, function: Callable[[int], object]) -> None:
        """function(k) is called once for each step that is committed, at its end: also for a step that was cut off behind its update, and
        by a process that takes a lost one's place then. For what a rank alone changes behind an update."""
        self._objects.add_after(function)

    def finish(self) -> None:
        """The run is over for this rank; by itself it is where the script ends. Waits until it is so on all."""
        if not self._guard.begun and not self._guard.ended:
            self.open()
        self._guard.finish()

    # ---- sections -----------------------------------------------------------------------------------------------------

    def do(self, function: Callable[..., Any], /, *args: Any, only: int | None = None, limit: float | None = None, **kwargs: Any) -> Any:
        """Calls function(*args, **kwargs) on all ranks, with whatever collectives it has; again where a fault struck within. Gives
        its result, which a process that comes later is given without a call: it must be picklable and small (64 KiB at most).

        `only`: that rank alone calls it; the others wait, and are given its result. `limit`: seconds after which standing still in it
        is taken for a hang; without it, never. All ranks call the same sections in the same order."""
        return self._section(_name_of(function), lambda: function(*args, **kwargs), only, limit, False)[0]

    def stop_if(self, wish: object) -> bool:
        """Whether any rank wants to stop: the same answer on all."""
        return self._section("stop_if", lambda: None, None, None, bool(wish))[1]

    def _section(self, name: str, call: Callable[[], Any], only: int | None, limit: float | None, wish: bool) -> tuple[Any, bool]:
        if only is not None and not 0 <= only < self.world_size:
            raise Error(f"run.do({name}, only={only}): there are {self.world_size} ranks, numbered from 0", Code.INVALID_ARGUMENT)
        self.open()
        self._loops.check_section()
        if self._in_step and self.committed == self.at:
            raise Error(f"run.do({name}) behind the update of step {self.at}, within the step: a process that took a lost one's place could "
                        "not come here. Move it behind the step, or before its update", Code.FAILED_PRECONDITION)  # fmt: skip
        section = self._program.next_section(name)
        if not self._in_step:
            self.note_place()
        kept = self._program.recorded(section)
        if kept is not None:
            self._objects.apply(kept.changes, self.rank, section, self._loops.arriving)
        while kept is None:
            if self._loops.arriving:
                raise Error(f"the result of run.do({name}) ({section}) is not known to this process, which goes on from step {self.at}: the script decides "
                            "by a variable that the run does not keep (run.keep), or the checkpoint was made by another script", Code.NOT_FOUND)  # fmt: skip
            try:
                kept = self._do(section, name, call, only, limit, wish)
            except BaseException as error:
                if self._in_step:
                    raise  # the whole step is made again
                stood = self.at
                self.settle(error)
                if self.at < stood:
                    begin_anew(self.rank, self.at)
                kept = self._program.recorded(section)
        result, wished = pickle.loads(kept.result)
        return pickle.loads(result), wished

    def _do(self, section: str, name: str, call: Callable[[], Any], only: int | None, limit: float | None, wish: bool) -> Recorded:
        self._news.pending = None
        meeting = self._news.meeting(self._guard.generation)
        self._enter_plain_code(False)
        meeting.enter(section)
        result: bytes
        if only is None or only == self.rank:
            with self._in_activity("section", limit):
                result = pickled(name, call())
            if only is not None:
                meeting.tell_result(result)
        with self._in_activity("wait"):
            if only is not None and only != self.rank:
                result = meeting.hear_result()
            kept = self._news.agree(meeting, section, self.committed, result, b"" if self._in_step else self._objects.changes_since_place(), wish)
        if not self._in_step:
            self._enter_plain_code(not self._program.in_loop)
        return kept

    @contextlib.contextmanager
    def _in_activity(self, name: str, limit: float | None = None) -> Iterator[None]:
        self._check(self.agent.begin_activity(ACTIVITIES[name], int((limit or 0) * 1000)))
        yield
        self._check(self.agent.end_activity())

    def _enter_plain_code(self, yes: bool) -> None:
        """Outside of loops and sections nobody knows what a script does, nor for how long."""
        if yes and not self._plain:
            self.agent.begin_activity(ACTIVITIES["section"], 0)
        elif self._plain and not yes:
            self.agent.end_activity()
        self._plain = yes

    # ---- the guard ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Enters the guard, where that has not happened."""
        if self._guard.ended:
            raise Error("the run has ended: nothing of it can be called behind run.finish()", Code.ENDED)
        if self._guard.begun:
            return
        self._begin()
        first = self._objects.variables()
        self._go_on_from(self._guard.begin())
        self._loops.arriving = (self.replaces or self.resumes) and self.at > 0
        if self._loops.arriving:
            self._objects.load(first)
        self._enter_plain_code(True)

    def settle(self, error: BaseException) -> None:
        """What a step or a section ended by: an incident is worked off, or it is the script's end. Then this stands at the step from
        which all go on."""
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            self._guard.leaves = True
            raise error
        self._go_on_from(self._guard.settle(error))

    def _go_on_from(self, step: int) -> None:
        self._in_step = False
        self._plain = False
        self.at = self.committed = step

    def note_place(self) -> None:
        """The script was on its own here: what it has changed since the newest step ended is put back where an incident comes now."""
        if not self._loops.arriving:
            self._objects.note_place(self.committed)

    def note_iteration(self) -> None:
        """An iteration begins: where its step is void all of it is done again, also what the script does before the step."""
        self._objects.note_iteration(self.committed)
        self._program.note_variables(self._objects.variables())

    def enter_step(self) -> None:
        """From here on an incident makes the step of this iteration void."""
        self._objects.return_to_iteration()

    def arrived(self) -> None:
        """A newcomer's script has come to where the run stands: objects are as they were there."""
        self._objects.put_back_end()

    def leave_loop(self, number: int) -> None:
        """The script leaves the loop, or a newcomer passes it by."""
        if self._loops.arriving:
            self._objects.load(self._program.variables_behind(number))
        else:
            self._program.record_end(number, self.committed, self._objects.variables())

    def enter_iteration_again(self) -> None:
        """A newcomer's script comes to the iteration of the newest step."""
        self._objects.load(self._program.variables_of_iteration())

    def note_loop_end(self) -> None:
        if self._guard.ended or self._guard.leaves:
            return
        self._objects.put_program(self.at)
        self._enter_plain_code(True)

    def has_updated(self) -> bool:
        """Whether the step in hand has had its update."""
        return self.committed == self.at

    def _begin(self) -> None:
        if not self._tensors:
            raise Error("nothing is registered: run.register comes before the first step and the first section", Code.FAILED_PRECONDITION)
        if self._replicas is not None and 0 in self._layouts:
            self.agent.set_layout(0, *self._replicas)
        elif not self._layouts or 0 in self._layouts:
            self.agent.set_layout(0, list(range(self.world_size)), self.world_size)
        for number, holders in self._layouts.items():
            if number != 0:
                self.agent.set_layout(number, list(holders), len(holders))
        self.register_object(PROGRAM, self._program, "rank-zero")
        self._objects.put_at_gate(0)
        self._add_news_handler()

    def _add_news_handler(self) -> None:
        def tell(incident: Incident) -> None:
            store = self.agent.open_store(incident.generation)
            limit_ms = max(incident.left_ms - 500, 1000) if incident.left_ms > 0 else 60_000
            store.set(f"news/{self.rank}", json.dumps(self._news.facts(incident.step)).encode())
            told = {rank: json.loads(store.get(f"news/{rank}", limit_ms)) for rank in range(self.world_size)}
            self._news.learn(incident.generation, incident.step, told, limit_ms)

        self.handler("rebuild", tell)

    def _put_back(self, step: int) -> None:
        if not self._guard.released and not self.replaces and self.agent.joined_as == Joined.FRESH:
            return  # the run begins: they are live
        begins = self.resumes and not self._guard.released
        self._objects.put_back(step, self.rank, lambda kept: self._news.level(self._guard.generation, step, kept, begins))
        self._program.forget_after(step)
        self._news.apply(step, begins)

    def _leave_script(self) -> None:
        self._enter_plain_code(False)
        self.note_place()

    def _is_changed(self) -> bool:
        """Whether registered arrays were changed behind the last step."""
        return False

    def outcome_of(self, error: BaseException) -> int:
        """What an exception that leaves the loop means; a door to a framework knows more."""
        if isinstance(error, Interrupted):
            return Outcome.WAS_INTERRUPTED
        if isinstance(error, Error) and error.code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.NOT_FOUND):
            return Outcome.REFUSED
        return Outcome.COMM_ERROR if isinstance(error, ConnectionError) else Outcome.RAISED

    # ---- in the loop --------------------------------------------------------------------------------------------------

    def begin_step(self, k: int) -> None:
        self._enter_plain_code(False)
        self._loops.note_step(k)
        code = self.agent.begin_step(k)
        while code == _PAUSED:  # a save point
            task = self.agent.next()
            if task.kind == TaskKind.CONTINUE:
                code = Code.OK
            elif task.kind in (TaskKind.UNWIND, TaskKind.ENDED):
                raise Interrupted
            else:
                self._guard.work_off(task)
        self._check(code)
        self.at = k
        self._in_step = True
        self.mark("forward")

    def end_step(self, k: int) -> None:
        """What `train` does after each step: a step without an update commits an empty one."""
        self.mark("between")
        if self.committed == k:
            self._objects.put_at_end(k)
            self._news.forget_before(k)
        self._in_step = False

    def mark(self, phase: str) -> None:
        """Progress within the step; where `--inject` strikes."""
        self._check(self.agent.mark(self.at, PHASES[phase]))

    def report(self, loss: float, samples: Iterable[int] = ()) -> None:
        """This step's loss and the samples it consumed; before the update."""
        self._check(self.agent.report(self.at, float(loss), [int(sample) for sample in samples]))

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """The gate and the commit around local arithmetic: `with run.update(): weights -= rate * gradient`."""
        self.begin_update()
        yield
        self.end_update()

    def begin_update(self) -> None:
        self._loops.note_gate()
        self._objects.put_at_gate(self.at)
        self._check(self.agent.enter_update(self.at))

    def end_update(self) -> None:
        code = self.agent.leave_update(self.at)
        self.committed = self.at
        self._check(code)

    def poll(self) -> None:
        """For long stretches without a collective: ends them once an incident has begun."""
        self._check(self.agent.poll())

    @contextlib.contextmanager
    def activity(self, name: str) -> Iterator[None]:
        """Standing still is no hang within (warmup, eval, save, compile)."""
        self._check(self.agent.begin_activity(ACTIVITIES[name]))
        yield
        self._check(self.agent.end_activity())

    def report_memory_error(self, keys: Iterable[str] = (), text: str = "") -> None:
        """These arrays are damaged, or with none named all of this rank's memory. Does not return."""
        self._check(self.agent.report_memory_error(list(keys), text))

    def _check(self, code: int) -> None:
        if not code:
            return
        if code == Code.THROW:
            raise InjectedFault(self.agent.why())
        if code in (Code.INTERRUPTED, Code.COMM_FAILURE, Code.CANCELLED):
            raise Interrupted
        raise Error(self.agent.why() or "the call failed", code)


def _cell_key(key: str, place: Sequence[int], shape: Sequence[int]) -> str:
    """As Megatron-core names it (callbacks/state/key.h, GridName)."""
    if not shape or len(place) != len(shape) or any(not 0 <= at < size for at, size in zip(place, shape)):
        raise Error(f"object '{key}': {tuple(place)} is no place in a grid of {tuple(shape)}: along each axis from 0, below how many there are", Code.INVALID_ARGUMENT)
    return f"{key}/shard_{'.'.join(map(str, place))}_{'.'.join(map(str, shape))}"


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
