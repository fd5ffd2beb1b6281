"""A rank's place in the run: its guard, its loops and sections, its step markers. What it registers: registered.py.

Threads: everything runs on the thread that calls it, which is the trainer's; the agent has threads of its own, which run
nothing of Python (but functions given to `on_stop`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from . import _core
from ._errors import Error, InjectedFault, Interrupted
from .abi import Code, Joined, Outcome, TaskKind
from .aoa import with_macros
from .block import Block
from .carried import Home, forgotten, held_in
from .guard import Guard, begin_anew
from .loops import Codes, Loops
from .news import News
from .numbered import stale
from .objects import PROGRAM
from .outside import Outside, described
from .program import Program, Recorded
from .randomness import Between, Randomness, Seeded
from .reshard import Resharding
from .sections import pickled
from .source import script_frames
from .take_over import take_over_of
from .terms import ACTIVITIES, HANDLERS, PHASES, Guarded, Handler, Incident
from .variables import Variable
from .verdicts import MOST, Losses, Rejected, Sums, bits_of, rules_of
from .worlds import Worlds

_MOST_LOOKED_AT = 20000
_PAUSED, _ENDED = int(Code.PAUSED), int(Code.ENDED)  # every step looks for them
_AS_MANY_AS_MAY = 2**31 - 1  # be left out: what the script has passed by is counted with its record (program.py)


def join(**options: Any) -> Run:
    """Joins the run that `kintsugi run` began, or the one that the options name (controller, job, secret, rank, world_size). `macros`: words of
    one's own that programs of --save-aoa and --resume-aoa may use (aoa.py). `veto`: the rules of --veto, the same on all ranks."""
    rules = rules_of(options.pop("veto", None))
    if rules.norm:
        raise Error("--veto norm is of gradients, which torch has: without it leave norm out, and call run.reject", Code.INVALID_ARGUMENT)
    return Run(_core.Agent(**with_macros(options)), rules)


class Run(Resharding):
    """One rank. Made by `join`."""

    passes_steps_by = False  # the loop is a framework's, and leaves steps out by itself

    def __init__(self, agent: _core.Agent, rules: _core.StepRules | None = None) -> None:
        self._program = Program()
        super().__init__(agent, self._program)
        self.at = 0  # the step in hand, else the newest that is committed
        self._in_step = False
        self._outside = Outside(self.collectives)
        self._guard = Guard(agent, self._put_back, self.outcome_of, self._is_changed, self._leave_script,
                            self._describe_place, self._went_on)  # fmt: skip
        self._loops = Loops(self, self._program, self._outside)
        self._news = News(agent, self._program, self._objects)
        self._worlds = Worlds(agent, self._program, self._objects, self._news, agent.note_inexact)
        self._rules = rules or _core.StepRules("")
        self._plain = False  # is outside of loops and sections
        self._told_of_sections: set[tuple[str, bool]] = set()
        self._between: Between | None = None  # none: the script says itself what of its random numbers is kept
        self.committed = 0  # the newest step that this rank has committed
        self.handler("clean", self._settle_cut)
        self.handler("rebuild", self._note_crew)  # before all others
        atexit.register(agent.leave_at_exit)  # while Python's lock still exists

    # ---- who this is --------------------------------------------------------------------------------------------------

    @property
    def replaces(self) -> bool:
        """Whether this process takes the place of a lost one: its state comes from elsewhere."""
        return self.agent.joined_as == Joined.REPLACEMENT

    @property
    def resumes(self) -> bool:
        """Whether the run begins from a checkpoint, with new processes on all ranks."""
        return self.agent.joined_as == Joined.RESUMED

    def offer(self, worlds: Iterable[int] | None = None) -> None:
        """The script can go on with fewer ranks, so many as `worlds` says (None: any number). Where ranks are lost for good the others do, in the largest such
        world, from the step at which they meet, as a run that was saved there and resumed in it: `rank` and `world_size` are new, each object goes on as its
        `take_over` says. So it does where ranks come again, or leave by word (`kintsugi scale`). Before the first step, with the same worlds on all ranks.
        What cannot follow is refused by name (docs/fewer_ranks.md)."""
        if self._guard.begun:
            raise Error("run.offer comes before training", Code.FAILED_PRECONDITION)
        self._worlds.offer(worlds)

    @property
    def offers(self) -> bool:
        """Whether the run may go on with other ranks."""
        return bool(self._worlds.offered)

    @property
    def exit_code(self) -> int:
        return self.agent.exit_code

    def trains(self) -> bool:
        """Whether the guard has begun and the run has not ended."""
        return self._guard.begun and not self._guard.ended

    # ---- handlers -----------------------------------------------------------------------------------------------------

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

    def guard(self, loop: Guarded, codes: Codes | None = None) -> None:
        """The same for a loop of one's own: loop(first) trains from step first + 1 on and marks its steps. `codes`: for doors to frameworks."""
        self._loops.guard(loop, codes or (lambda error: ((loop, error),)))

    def steps(self, count: int) -> Iterator[int]:
        """`for k in run.steps(n):` gives the numbers of the next `count` steps of the run, which count from 1, one for each iteration, the same once
        more where a step was void. Each iteration has one `with run.step():`. In the place of `for i in range(n)` stands `run.range(n)`."""
        return self._loops.steps(count)

    def range(self, *bounds: int) -> Iterator[int]:
        """`for i in run.range(n):` gives what `for i in range(n):` does (also `start, stop, step`), a step for each."""
        return self._loops.range(range(*bounds))

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

    def make_again(self, key: str, function: Callable[[bytes], object]) -> None:
        """For doors to frameworks: function(state of object `key`) in a process that has not come to where all others changed `key` behind an
        update; it makes again what of that change is each rank's own."""
        self._objects.make_again(key, function)

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
        return self._section(_name_of(function), lambda: function(*args, **kwargs), only, limit, False, function)[0]

    def stop_if(self, wish: object) -> bool:
        """Whether any rank wants to stop: the same answer on all."""
        return self._section("stop_if", lambda: None, None, None, bool(wish))[1]

    def _section(self, name: str, call: Callable[[], Any], only: int | None, limit: float | None, wish: bool, code: Any = None) -> tuple[Any, bool]:
        if only is not None and not 0 <= only < self.world_size:
            raise Error(f"run.do({name}, only={only}): there are {self.world_size} ranks, numbered from 0", Code.INVALID_ARGUMENT)
        self.open()
        self._loops.check_section()
        if self._in_step and self.committed == self.at:
            raise Error(f"run.do({name}) behind the update of step {self.at}, within the step: a process that took a lost one's place could "
                        "not come here. Move it behind the step, or before its update", Code.FAILED_PRECONDITION)  # fmt: skip
        section = self._program.next_section(name)
        if not self._loops.inside:
            self._leave_outside(section)
        if not self._in_step:
            self.note_place()
        kept, made = self._program.recorded(section), False
        while kept is None:
            if self._loops.arriving:
                raise Error(f"the result of run.do({name}) ({section}) is not known to this process, which goes on from step {self.at}: the script decides "
                            "by a variable that the run does not keep (run.keep), or the checkpoint was made by another script", Code.NOT_FOUND)  # fmt: skip
            try:
                kept, made = self._do(section, name, call, only, limit, wish), True
            except BaseException as error:
                if self._in_step:
                    raise  # the whole step is made again
                stood = self.at
                self.settle(error)
                if self.at < stood:
                    begin_anew(self.agent.rank, self.at)
                kept = self._program.recorded(section)
                if kept is None:
                    self._make_section_again(section)
                    self._note_forgotten_there(section, code, only, error)
        if not made:
            self._objects.apply(kept.changes, self.agent.rank, section, self._loops.arriving)
            if self._loops.arriving:
                self._note_forgotten_there(section, code, only, None)
        if not self._loops.inside:
            self._outside.begin()
        if not self._program.in_loop:
            self._begin_between()
        result, wished = pickle.loads(kept.result)
        return pickle.loads(result), wished

    def _leave_outside(self, section: str) -> None:
        made = self._outside.end()
        if made and not self._program.in_loop:
            print(f"kintsugi: rank {self.agent.rank}: {described(made, f'run.do ({section})')}", file=sys.stderr, flush=True)

    def _do(self, section: str, name: str, call: Callable[[], Any], only: int | None, limit: float | None, wish: bool) -> Recorded:
        self._news.pending = None
        meeting = self._news.meeting(self._guard.generation)
        self._enter_plain_code(False)
        meeting.enter(section)
        result: bytes
        if only is None or only == self.rank:
            with self._in_activity("section", limit), self._loops.section():
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

    def takes_part(self) -> bool:
        """Whether all ranks are here, and a process that comes later would be: in a step before its update, or in a section."""
        return self._loops.sections > 0 or (self._in_step and self.committed < self.at)

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
            return self._end_between()
        self._begin()
        self._go_on_from(self._guard.begin())
        self._loops.arriving = (self.replaces or self.resumes) and self.at > 0
        if self._loops.arriving:
            self._objects.arrive_at(self._program.variables_at_start)
        self._enter_plain_code(True)

    def _begin_between(self) -> None:
        """The script is on its own from here on."""
        if self._between is not None:
            self._between.begin(self._loops.arriving)

    def _end_between(self) -> None:
        if self._between is not None and not self._program.in_loop and self._between.end(self._loops.arriving):
            self.agent.note_inexact(f"random numbers of rank {self.agent.rank}, drawn between loops that this process passes by: others than were drawn there. Draw "
                                    "them in a step, or in run.do")  # fmt: skip

    def settle(self, error: BaseException) -> None:
        """What a step or a section ended by: an incident is worked off, or it is the script's end. Then this stands at the step from
        which all go on."""
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            self._guard.leaves = True
            raise error
        if self._in_step:
            self._note_computed()
        self._go_on_from(self._guard.settle(self._explained(error)))

    def _explained(self, error: BaseException) -> BaseException:
        """Who closes its groups at the end of its script breaks the collectives of those that are not there, each time anew."""
        if self.outcome_of(error) != Outcome.COMM_ERROR:
            return error
        try:
            left = self._news.meeting(self._guard.generation).describe_leavers()
        except (Error, Interrupted):  # an incident has begun
            return error
        if not left:
            return error
        return Error(f"{f'step {self.at}' if self._in_step else 'a section'} has a collective that not all ranks come to{left}: all ranks make the same steps "
                     "and sections", Code.FAILED_PRECONDITION)  # fmt: skip

    def _go_on_from(self, step: int) -> None:
        self._in_step = False
        self._plain = False
        self.at = self.committed = step
        self._outside.begin()

    def _went_on(self) -> None:
        """All ranks have."""
        if self._before is not None:
            self._keep_cut()
        self._worlds.went_on()

    def note_place(self) -> None:
        """The script was on its own here: what it has changed since the newest step ended is put back where an incident comes now."""
        if not self._loops.arriving:
            self._objects.note_place(self.committed)

    def note_iteration(self) -> None:
        """An iteration begins: where its step is void all of it is done again, also what the script does before the step."""
        self._objects.note_iteration(self.committed)
        self._program.note_variables(self._objects.variables())

    def restore_iteration(self) -> None:
        self._objects.restore_iteration(self.committed)

    def enter_step(self) -> None:
        """From here on an incident makes the step of this iteration void."""
        self._objects.return_to_iteration()

    def arrived(self) -> None:
        """A newcomer's script has come to where the run stands: objects are as they were there."""
        self._objects.put_back_end()

    def leaves_out(self, k: int) -> bool:
        """Whether step k is empty, since its data was to blame: of the newest step, or the next."""
        return k in self._program.left_out

    def leave_loop(self, number: int) -> None:
        """The script leaves the loop, or a newcomer passes it by."""
        if self._loops.arriving:
            self._objects.arrive_at(self._program.variables_behind(number))
        else:
            self._program.record_end(number, self.committed, self._objects.variables())
        self._begin_between()

    def enter_iteration_again(self) -> None:
        """A newcomer's script comes to the iteration of the newest step."""
        self._objects.arrive_at(self._program.variables_of_iteration())

    def sums_of_collectives(self) -> Sums:
        """Of what this process has given to collectives since this was asked last, as far as a door to a framework knows."""
        return {}

    def gradient_norm(self) -> float | None:
        """Of all gradients together, as far as a door to a framework knows them."""
        return None

    def collectives(self) -> int:
        """How many this process has begun, as far as a door to a framework knows."""
        return 0

    def note_forgotten(self, k: int, code: Any, arrives: bool, error: BaseException | None = None) -> None:
        """What the script carries from step to step, and the run does not keep. `arrives`: this process has made none of the steps up to k; else
        step k is made again, and ended by `error`."""
        told = forgotten(code, arrives, error, self._is_kept)
        if told:
            what = (f"this process goes on from step {k} with their first values" if arrives else f"changed in step {k}, which is made again")  # fmt: skip
            self.agent.note_inexact(f"{told} of rank {self.agent.rank}, neither registered nor kept (run.keep): {what}")

    def _note_forgotten_there(self, section: str, code: Any, only: int | None, error: BaseException | None) -> None:
        """What a section changes and the run does not keep. `error`: it is made again; none: this process passes it by."""
        told = forgotten(code, error is None, error, self._is_kept, is_section=True) if only in (None, self.rank) else ""
        if told and (told, error is None) not in self._told_of_sections:
            self._told_of_sections.add((told, error is None))
            what = "which this process passes by" if error is None else "which is made again"
            self.agent.note_inexact(f"{told} of rank {self.agent.rank}, neither registered nor kept (run.keep): changed in run.do ({section}), {what}")

    def _is_kept(self, home: Home, name: str, value: Any) -> bool:
        if any(isinstance(thing, Variable) and thing.is_of(home.held, name) for thing in self._objects.things()):
            return True
        return any(map(self._lies_registered, (value, *held_in(value)))) or any(home.owner is part or value is part for part in self._kept_parts())

    def _kept_parts(self) -> Iterator[Any]:
        """What is registered or kept, and what that holds."""
        seen: set[int] = set()
        level = [thing.state_dict() if isinstance(thing, Variable) else thing for thing in self._registered_things()]
        while level and len(seen) < _MOST_LOOKED_AT:
            thing = level.pop()
            if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type, type(None))):
                continue
            seen.add(id(thing))
            yield thing
            level += self._kept_within(thing)

    def _kept_within(self, thing: Any) -> Iterable[Any]:
        if isinstance(thing, dict):
            return thing.values()
        if isinstance(thing, (list, tuple)):
            return thing
        is_ours = type(thing).__module__.startswith(f"{__package__}.")  # these keep a part of what they know
        return vars(thing).values() if hasattr(thing, "__dict__") and not is_ours else ()

    def _registered_things(self) -> Iterable[Any]:
        return self._objects.things()

    def note_loop_end(self) -> None:
        if self._guard.ended or self._guard.leaves:
            return
        self._objects.put_program(self.at)
        self._enter_plain_code(True)

    def has_updated(self) -> bool:
        """Whether the step in hand has had its update."""
        return self.committed == self.at

    def _begin(self) -> None:
        if not self._cut.tensors:
            raise Error("nothing is registered: run.register comes before the first step and the first section", Code.FAILED_PRECONDITION)
        self._register_random()
        self.agent.allow_rejects(_AS_MANY_AS_MAY)
        if self._rules.spike:
            self.register_object("veto.losses", Losses(self._rules), "rank-zero")
        if self.offers and self._replicas:
            raise Error("run.offer: run.set_replicas names ranks, which are others where their number changes: leave run.offer out", Code.FAILED_PRECONDITION)
        for layout in self._layouts_of_crew():
            self.agent.set_layout(*layout)
        self.agent.register_object(PROGRAM, True, *take_over_of(PROGRAM, lambda saved: Program.take_over(saved, self.agent.crew)))
        if self.offers:
            self._worlds.begin(self.slice_of(), next(iter(self.held_alone()), None), self._is_cut_anew())
        self._program.go_on_among(self.agent.crew)
        self._program.note_start(self._objects.variables())
        self._objects.put_at_gate(0)
        self._add_news_handler()

    def _is_cut_anew(self) -> bool:
        """Whether other ranks hold other pieces, which move there."""
        return False

    def _register_random(self) -> None:
        """Whatever draws without a generator of its own."""
        if "random" in self._objects:
            return  # the script says itself what of it is kept
        random = self._make_randomness()
        if self.offers:
            random.note_seeded()
            self.register_object("random.seeded", Seeded(random), "derived")
        self.register_object("random", random, random.take_over)
        self._between = Between(random)
        self.register_object("random.between", self._between, Between.take_over)

    def _make_randomness(self) -> Randomness:
        return Randomness(lambda: self.rank)

    def _add_news_handler(self) -> None:
        def tell(incident: Incident) -> None:
            limit_ms = max(incident.left_ms - 500, 1000) if incident.left_ms > 0 else 60_000
            self._worlds.note_lost(incident.step)
            facts = {**self._news.facts(incident.step), **self._worlds.facts(self.slice_of() if self.offers else ())}
            told = self._news.meeting(incident.generation).share("news", facts, limit_ms)
            self._worlds.compare(told, self.held_alone())
            self._worlds.note_coming(told)
            self._news.learn(incident.generation, incident.step, told, limit_ms, self._worlds.comes)

        self.handler("rebuild", tell)

    def _put_back(self, step: int) -> None:
        if not self._guard.released and not self.replaces and self.agent.joined_as == Joined.FRESH:
            return  # the run begins: they are live
        begins = self.resumes and not self._guard.released
        is_put = self._objects.put_back(step, self.agent.rank, lambda program, kept: self._news.level(self._guard.generation, step, program, kept, begins),
                                        is_own=not self._worlds.comes)  # fmt: skip
        self._program.forget_after(step, self.agent.crew)
        self._news.apply(step, begins)
        if begins:
            self._program.go_on_among(self.agent.crew)
        else:
            self._worlds.go_on(step, self._guard.generation)
            self._note_numbers_of_before(step)
        self._note_left_out(step, is_put)

    def _note_left_out(self, step: int, is_put: bool) -> None:
        """What all leave out from here on. Into the record, too: all processes may be new ones when the run comes there."""
        k = step
        while k := self.agent.next_left_out(k):
            self._program.note_left_out(k)
        if is_put and self._program.left_out[-1:] > (step,):
            self._objects.put_program(step)

    def _note_numbers_of_before(self, step: int) -> None:
        """This process goes on among other ranks, with what its script has computed of those that there were."""
        stay = {*self._worlds.ran_in} & {*self.agent.crew}
        if self._worlds.ran_in == self.agent.crew or not stay or self.agent.rank != min(stay):  # all have the same script
            return
        if told := stale(script_frames(), self._functions_of_steps()):
            self.agent.note_inexact(f"{', '.join(told)}: set among {len(self._worlds.ran_in)} ranks, and from step {step} on {self.world_size} take part. Ask "
                                    "run.rank and run.world_size there")  # fmt: skip

    def _functions_of_steps(self) -> Iterator[Any]:
        """That are called beside what stands in the script's loops, as far as this is known."""
        if self._loops.function is not None:
            yield self._loops.function
        for thing in self._registered_things():
            yield from getattr(thing, "lr_lambdas", ())

    def _make_section_again(self, section: str) -> None:
        """A fault struck within, before all ranks had done it."""

    def _note_crew(self, incident: Incident) -> None:
        self._settle_cut(incident)
        if (crew := tuple(self.agent.crew)) != self.crew:
            self.crew = crew

    def _leave_script(self) -> None:
        self._loops.refuse_cut_short()
        self._enter_plain_code(False)
        self.note_place()
        try:
            self._news.meeting(self._guard.generation).leave()
        except Error as error:  # else an incident has begun, and it is told once more behind it
            if error.code == Code.FAILED_PRECONDITION:
                raise

    def _describe_place(self) -> str:
        try:
            return self._loops.describe_place() + self._news.meeting(self._guard.generation).describe_leavers()
        except Error:  # an incident has begun
            return self._loops.describe_place()

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
        self._enter_step(k)
        if self.leaves_out(k) and self._loops.marks_steps and not self.passes_steps_by:
            raise RuntimeError(f"step {k} is refused ({self.agent.left_out(k)}), and this loop does not leave its batches out: ask run.leaves_out(k) before "
                               "run.begin_step(k), and call run.pass_by(k) instead")  # fmt: skip

    def pass_by(self, k: int) -> None:
        """In a loop that marks its steps itself (run.guard), all of step k where run.leaves_out(k): its batch is passed by, and nothing is computed or
        drawn. Elsewhere loops do so by themselves."""
        if not self.leaves_out(k):
            raise Error(f"run.pass_by({k}): no rank passes this step by; one that run.leaves_out names is", Code.FAILED_PRECONDITION)
        self._enter_step(k)
        self.end_step(k)

    def _enter_step(self, k: int) -> None:
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
        if code == _ENDED:
            self._give_way()
        self._check(code)
        self.at = k
        self._rules.begin()
        self.sums_of_collectives()  # what was given before is of no step
        self._in_step = True
        most = MOST if self._rules.most is None else self._rules.most
        if self.leaves_out(k) and len(self.left_out) > most:
            raise RuntimeError(f"step {k} is refused ({self.agent.left_out(k)}), and {most} have been left out: no more may be (--veto most)")
        self.mark("forward")

    def end_step(self, k: int) -> None:
        """What `train` does after each step: a step without an update commits an empty one."""
        if self.committed < k and self.leaves_out(k):
            self._pass_gate()
            Run.end_update(self)
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
        numbers = [int(sample) for sample in samples]
        self._rules.note_loss(float(loss), numbers)
        self.agent.note_computed("loss", [bits_of(float(loss))])
        self._check(self.agent.report(self.at, float(loss), numbers))

    def reject(self, reason: str, back: int = 0) -> NoReturn:
        """In a step, before its update: nothing of it is to become part of the state. Does not return; it is enough that one rank says so.

        All make the step again, from the same state and with the same batches. Refused again by the same numbers, the data is to blame: its batches are
        left out, on all ranks, as by `continue` in a plain loop. Where one rank alone computes otherwise than before, its machine is, and a new process
        takes its place. --veto refuses by rules, without a call (docs/refused_steps.md).

        `back`: where the data is to blame, so many steps before this one are left out with it: the run goes back to before them, to a snapshot in
        memory (--snapshot-every) or a checkpoint."""
        if back < 0:
            raise Error(f"run.reject(back={back}): so many steps before this one cannot be left out", Code.INVALID_ARGUMENT)
        if not self._in_step or self.committed == self.at:
            raise Error("run.reject outside of a step, or behind its update: a step is refused before it changes anything", Code.FAILED_PRECONDITION)
        self._refuse_step(str(reason), back)

    @property
    def left_out(self) -> tuple[int, ...]:
        """Steps whose batches were left out, since their data was to blame."""
        return tuple(k for k in self._program.left_out if k <= self.at)

    def _refuse_step(self, why: str, back: int, of_all: bool = False) -> NoReturn:
        """`of_all`: in what all ranks have summed up."""
        self._note_computed()
        code = self.agent.reject(self.at, why, back, of_all)
        if code != Code.INTERNAL:
            self._check(code)
        raise Rejected(self.agent.why())

    def _note_computed(self) -> None:
        """What this rank alone has computed in the step: where it is made again, the same comes out."""
        for group, sums in self.sums_of_collectives().items():
            self.agent.note_computed(f"group {group}", sums)

    def _give_way(self) -> NoReturn:
        """A new process takes this one's place. The agent has said why."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.kill(os.getpid(), 9)
        raise SystemExit(1)

    def _judge_step(self) -> None:
        """Before the gate."""
        if self._rules.asks_norm() and (norm := self.gradient_norm()) is not None:
            self._rules.note_norm(norm)
        why, of_all = self._rules.judge()
        if why:
            self._refuse_step(why, self._rules.back, of_all)
        self._rules.pass_gate()
        self._note_computed()

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """The gate and the commit around local arithmetic: `with run.update(): weights -= rate * gradient`."""
        self.begin_update()
        yield
        self.end_update()

    def begin_update(self) -> None:
        self._judge_step()
        self._pass_gate()

    def _pass_gate(self) -> None:
        self._loops.note_gate()
        self._objects.put_at_gate(self.at)
        self._check_gate(self.agent.enter_update(self.at))

    def _check_gate(self, code: int) -> None:
        """The agent refuses a step that the script went on with, or whose numbers are others than when it was refused before."""
        if code == Code.INTERNAL:
            raise Rejected(self.agent.why())
        self._check(code)

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


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
