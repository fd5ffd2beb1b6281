"""REBUILD_GROUP, REPAIR and ROLLBACK: the client's handlers of these, on the ranks that they concern.

Threads: the guard's.
"""

from __future__ import annotations

from typing import Any

from kintsugi import _core
from kintsugi.abi import Joined, Rung

from . import layout
from .callbacks import CallbackFailed, Kind
from .codes import MindioError, RepairType
from .limits import TEXT_MAX
from .reload import Reload
from .scope import Scope

_STORE_LIMIT_MS = 60_000
_UNSENT_MAX = 2  # so often a source's repair handler may fail in one incident


class Repair:
    """All raise CallbackFailed, MindioError and RuntimeError."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._rank, self._state, self._journey = scope, scope.rank, scope.state, scope.journey
        self._reload = Reload(scope.rank, scope.crew, scope.calls.call)

    def rebuild_groups(self, task: _core.Task) -> None:
        scope, state, journey = self._scope, self._state, self._journey
        if scope.begins:
            return
        scope.begin_repair(task)
        if state.round == 0 and (scope.agent.joined_as == Joined.REPLACEMENT or journey.hollow):
            self._await_newcomer()
        replaced = scope.crew.of(task.replaced_ranks)
        if replaced or journey.under_way:
            state.repair_step = state.told_step(task.step)
        if journey.under_way:
            journey.rebuild(scope.calls.call, self._rank.args)
        elif replaced and self._rank.callbacks.has(Kind.REBUILD_GROUP):
            scope.calls.call(Kind.REBUILD_GROUP, sorted(replaced), self._rank.args)
        with state.changed:
            state.rebuilt = True
            state.changed.notify_all()

    def _await_newcomer(self) -> None:
        """Its groups are built with its main thread out of the way, and with the arguments of the training in hand."""
        state = self._state
        with state.changed:
            came = state.changed.wait_for(lambda: state.reported is not None or state.exiting is not None, self._rank.settings.action_limit)
        if not came:
            raise MindioError("this process takes the place of a lost one, and its training did not report ARF FINISH or RS_INIT_FINISH")

    def repair(self, task: _core.Task) -> None:
        """Raises NoCheckpoint, too."""
        scope, rank, state = self._scope, self._rank, self._state
        if scope.begins:
            return
        scope.await_parked()
        replaced = set(scope.crew.of(task.replaced_ranks))
        if rank.number in replaced:
            with state.changed:
                state.repair_type = "recover"
        if task.rung == Rung.RELOAD:
            self._reload.run(task, scope.store(task), state.incident.memory_failed and not state.incident.needs_nothing)
            return
        moves = [(kind, scope.crew.rank(destination), scope.crew.of(sources)) for kind, destination, sources in task.moves]
        replaced |= self._journey.back
        unneeded = self._need_nothing(task, {move[1] for move in moves} - replaced)
        found = self._pairs([move for move in moves if move[1] not in unneeded])
        received = RepairType.RT_RECV_REPAIR if rank.number in replaced else RepairType.RT_UCE_HIGHLEVEL
        for info in layout.repair_infos(found, rank.number, (RepairType.RT_SEND.value, received.value)):
            self._move(task, info)

    def _move(self, task: _core.Task, info: dict[str, Any]) -> None:
        """This rank's part of what is moved."""
        kind = Kind.ZIT_UPGRADE_REPAIR if self._journey.under_way else Kind.REPAIR
        if not self._rank.callbacks.has(kind):
            raise MindioError(f"no {kind.value} handler is registered: the state of a rank cannot be moved")
        rebuilds = info["repair_type"] == RepairType.RT_UCE_HIGHLEVEL.value
        try:
            self._scope.calls.call(kind, self._state.told_step(task.step), rebuilds, list(info["dst"]), info, self._rank.args)
        except CallbackFailed as error:
            if info["repair_type"] == RepairType.RT_SEND.value and not self._scope.agent.superseded():
                self._note_unsent(str(error))
            raise

    def _note_unsent(self, text: str) -> None:
        """Sending leaves a source's state as it is. Kintsugi gives up a process whose handlers fail three times, and its state with it: before
        that, what is held is saved."""
        incident = self._state.incident
        incident.unsent += 1
        if incident.unsent == _UNSENT_MAX:
            self._rank.link.ask("cannot_send", 4 * self._rank.settings.scheduler_wait + 20, era=self._scope.place.era, text=text[:TEXT_MAX])

    def _need_nothing(self, task: _core.Task, destinations: set[int]) -> set[int]:
        """Those whose clean handler said that their memory needs nothing from anybody. Each says so itself, to all alike: what the
        controller's process knows of an incident when one rank asks is not what it knows when the next one does."""
        store, mine = self._scope.store(task), self._rank.number
        if mine in destinations:
            store.set(f"mindio/low/{mine}", b"1" if self._state.incident.needs_nothing else b"0")
        return {rank for rank in sorted(destinations) if store.get(f"mindio/low/{rank}", _STORE_LIMIT_MS) == b"1"}

    def _pairs(self, moves: list[tuple[int, int, list[int]]]) -> list[layout.Pair]:
        """The moves of all groups: ranks of several may have to meet in one."""
        groups = self._rank.groups
        others = sorted({rank for kind, rank, _ in moves if rank not in groups[kind].ranks})
        told = self._rank.link.ask("groups", self._rank.settings.action_limit, ranks=others)["groups"] if others else {}

        def group_of(kind: int, rank: int) -> layout.Group:
            ranks, replicas = told[str(rank)][kind]
            return layout.Group(tuple(ranks), replicas)

        return layout.pairs(groups, moves, group_of)

    def roll_back(self, task: _core.Task) -> None:
        scope = self._scope
        if not scope.begins:
            self._roll_back(task)
        # Told before the agent knows: what this rank reports from here on is of the next incident, or of another attempt.
        self._rank.link.tell("rolled_back", era=scope.place.era, generation=task.generation)

    def _roll_back(self, task: _core.Task) -> None:
        scope, state, args = self._scope, self._state, self._rank.args
        scope.await_parked()
        step = state.repair_step = state.told_step(task.step)
        if self._journey.under_way:
            self._journey.arrive(scope.calls.call, step, args)
        elif self._rank.callbacks.has(Kind.ROLLBACK):
            scope.calls.call(Kind.ROLLBACK, step, args)
