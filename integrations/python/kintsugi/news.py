"""What ranks tell each other at an incident, so that all go on from one place of the script.

Sections: one that any rank has passed was done by all, and counts as done. Objects: what changed behind the update of the newest step is
told to those that do not have it, where all that have it have it alike. Both go through the run's store, in REBUILD. What has come back with the memory
of lost processes, or from a checkpoint, is known in ROLLBACK only: where no living rank has ended the step, objects are told then.

Threads: the trainer's. Errors: as the store's.
"""

from __future__ import annotations

import pickle
from typing import Any

from . import _core
from .objects import Objects, fits
from .program import Program, Recorded
from .sections import Meeting, digest_of

_LEVEL_MS = 60_000


class News:
    """Of one rank."""

    def __init__(self, agent: _core.Agent, program: Program, objects: Objects) -> None:
        self._agent = agent
        self._program = program
        self._objects = objects
        self._meeting: tuple[int, Meeting] | None = None
        self._of_before: dict[str, tuple[int, bytes]] = {}  # the rank before this one and its sections, where they differ from ours
        self._learnt: dict[str, Recorded] = {}
        self._nobody_ended = False  # the newest step, of the processes that live
        self._known: set[str] | None = None  # sections that count, of those behind the step at hand
        self.pending: tuple[str, bytes, bytes] | None = None  # done here, and not known whether by all

    def meeting(self, generation: int) -> Meeting:
        if self._meeting is None or self._meeting[0] != generation:
            self._meeting = generation, Meeting(self._agent, generation)
        return self._meeting[1]

    def agree(self, meeting: Meeting, section: str, step: int, result: bytes, changes: bytes, wish: bool) -> Recorded:
        """This rank has done it: waits until all have."""
        self.pending = section, result, changes
        differ, wished = meeting.agree(digest_of(result + changes), wish)
        kept = pickle.dumps((result, wished))
        if differ and len(self._agent.crew) > 1:
            self._of_before[section] = meeting.swap(pickle.dumps((kept, changes)))
        recorded = self._program.record(section, step, kept, changes)
        self.pending = None
        self._objects.put_program(step)
        return recorded

    def forget_before(self, step: int) -> None:
        """It is committed, and what came before it is with the partners."""
        self._program.forget_before(step, self._objects.variables_in)
        self._of_before = {}

    def facts(self, step: int) -> dict[str, Any]:
        """What is told to all, as JSON."""
        sections = {name: [kept.step, kept.behind, kept.lasting, digest_of(kept.result + kept.changes).hex()] for name, kept in self._program.sections_since(step).items()}
        return {"sections": sections, "before": {name: rank for name, (rank, _) in self._of_before.items()}, "changed": self._objects.changes_behind_gate(step)}

    def learn(self, generation: int, step: int, told: dict[int, dict[str, Any]], limit_ms: int, comes: bool) -> None:
        """What the others have and this rank lacks, and the reverse. `comes`: it had nothing of its own there (worlds.py)."""
        meeting = self.meeting(generation)
        self._known = {name for facts in told.values() for name in facts["sections"]}
        self._learn_sections(meeting, told, limit_ms, comes)
        if step > 0:
            self._learn_objects(meeting, told, limit_ms, comes)

    def apply(self, step: int, resumes: bool) -> None:
        """Once this rank's objects are put back. A section that a lost rank alone had passed is done again, also where its record came
        back with its memory."""
        if self._known is not None and not resumes:  # from a checkpoint all know the same
            self._program.keep_since(step, self._known)
        self._known = None
        for name, kept in self._learnt.items():
            self._program.take_record(name, kept)
        self._learnt = {}

    def level(self, generation: int, step: int, program: dict[str, Any], kept: dict[str, bytes], resumes: bool) -> None:
        """What comes from a checkpoint or from the memory of lost processes is as at the gate of its step for some ranks, and as at the step's
        end for others. What these have alike the others take from them; `program`, `kept`: record and objects that this rank has."""
        if not resumes and not self._nobody_ended:
            return
        self._nobody_ended = False
        me, meeting = self._agent.rank, self.meeting(generation)
        mine = {"changed": program["ended_keys"] if program["ended"] == step else None,
                "usual": [*program["ended_keys"]] if program["ended"] == step - 1 else [],
                "digests": {key: digest_of(data).hex() for key, data in kept.items()}}  # fmt: skip
        told = meeting.share("level", mine, _LEVEL_MS)
        ended = [rank for rank, facts in told.items() if facts["changed"] is not None]
        if len(ended) == len(told):
            return
        if not ended:
            return self._objects.learn({}, {key for facts in told.values() for key in facts["usual"]})
        newer: dict[str, tuple[str, bytes]] = {}
        own: set[str] = set()
        for key in sorted({key for rank in ended for key in told[rank]["changed"]} & {*kept}):
            versions = {(told[rank]["changed"].get(key), told[rank]["digests"][key]) for rank in ended}
            alike = len(versions) == 1
            if alike and me == ended[0]:
                meeting.say(f"level/object/{key}", kept[key])
            elif alike and me not in ended:
                newer[key] = str(next(iter(versions))[0]), meeting.hear(f"level/object/{key}", _LEVEL_MS)
            elif me not in ended:
                own.add(key)
        self._objects.learn(newer, own)

    def _learn_sections(self, meeting: Meeting, told: dict[int, dict[str, Any]], limit_ms: int, comes: bool) -> None:
        me = self._agent.rank
        mine = told[me]["sections"]
        for name in sorted({name for facts in told.values() for name in facts["sections"]}):
            having = [rank for rank in sorted(told) if name in told[rank]["sections"]]
            lacking = [rank for rank in sorted(told) if name not in told[rank]["sections"]]
            if not lacking:
                continue
            step, behind, lasting, _ = told[having[0]]["sections"][name]
            alike = len({told[rank]["sections"][name][3] for rank in having}) == 1
            if me == having[0]:
                own = self._program.recorded(name)
                assert own is not None
                meeting.say(f"news/section/{name}", pickle.dumps((own.result, own.changes)))
            for rank in lacking:
                if name in self._of_before and _keeper(told, name, rank) == me:
                    meeting.say(f"news/section/{name}/of/{rank}", self._of_before[name][1])
            if name in mine:
                continue
            kept_for_me = _keeper(told, name, me) is not None
            result, changes = pickle.loads(meeting.hear(f"news/section/{name}{f'/of/{me}' if kept_for_me else ''}", limit_ms))
            if self.pending is not None and self.pending[0] == name:
                result, changes = pickle.dumps((self.pending[1], pickle.loads(result)[1])), self.pending[2]
            elif not (alike or kept_for_me or comes):
                self._agent.note_inexact(f"run.do ({name}) of rank {me}: what it gave there is lost, that of rank {having[0]} counts")
            self._learnt[name] = Recorded(step, behind, result, lasting, changes)

    def _learn_objects(self, meeting: Meeting, told: dict[int, dict[str, Any]], limit_ms: int, comes: bool) -> None:
        me = self._agent.rank
        ended = [rank for rank in sorted(told) if told[rank]["changed"] is not None]
        self._nobody_ended = not ended
        if len(ended) in (0, len(told)):
            return
        newer: dict[str, tuple[str, bytes]] = {}
        own: set[str] = set()
        for key in sorted({key for rank in ended for key in told[rank]["changed"]}):
            versions = {tuple(told[rank]["changed"].get(key, ())) for rank in ended}
            alike = len(versions) == 1
            if alike and me == ended[0]:
                data = self._objects.end_bytes(key)
                meeting.say(f"news/object/{key}", b"\1" + data if fits(data) else b"\0")
            if me in ended:
                continue
            data = meeting.hear(f"news/object/{key}", limit_ms) if alike else b"\0"
            if data[:1] == b"\1":
                newer[key] = next(iter(versions))[0], data[1:]
            elif not comes:
                own.add(key)
        self._objects.learn(newer, own)


def _keeper(told: dict[int, dict[str, Any]], section: str, rank: int) -> int | None:
    """Who keeps what the section of `rank` gave, which was the one before it as that was done."""
    return next((keeper for keeper in sorted(told) if told[keeper]["before"].get(section) == rank), None)
