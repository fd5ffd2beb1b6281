"""A verdict for a terminal and for programs. Pure."""

from __future__ import annotations

import textwrap
from typing import Any

from . import words
from .compare import Finding, Verdict

WIDTH = 118
NAMES_MOST = 200  # of a finding in JSON


def table(rows: list[list[str]], indent: str = "  ") -> str:
    """Columns as wide as their words, the last one broken into lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    before = len(indent) + sum(widths) + 2 * len(widths)
    lines = []
    for row in rows:
        left = indent + "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths))
        parts = textwrap.wrap(row[-1], max(30, WIDTH - before)) or [""]
        lines += [(left if i == 0 else " " * before) + part for i, part in enumerate(parts)]
    return "\n".join(line.rstrip() for line in lines)


def findings_table(verdict: Verdict) -> list[list[str]]:
    """With its heading."""
    ranks = verdict.ranks > 1
    rows = [["step", *(["ranks"] if ranks else []), "cause", "first of it", "how it differs"]]
    for finding in verdict.findings:
        told = "all" if len(finding.ranks) == verdict.ranks else ", ".join(map(str, sorted(finding.ranks)))
        rows.append([str(finding.step), *([told] if ranks else []), finding.cause, words.what(finding), words.explained(finding, verdict.resumed_at)])
    return rows


def text(verdict: Verdict) -> str:
    facts = [["undisturbed", f"{words.counted(verdict.steps, 'step')}, {words.counted(verdict.ranks, 'rank')}, torch {verdict.torch}"],
             ["deterministic", words.determinism(verdict)]]  # fmt: skip
    if verdict.resumed_at is not None:
        facts.append(["resumed", words.resume_line(verdict)])
        if verdict.checkpoint:
            facts.append(["checkpoint", verdict.checkpoint])
    parts = [words.headline(verdict) + ".", table(facts)]
    if verdict.findings and verdict.nondeterminism is None:
        parts.append(table(findings_table(verdict)))
    parts += [table([["note", note]]) for note in verdict.notes if verdict.nondeterminism is None]
    if last := words.kept(verdict):
        parts.append(textwrap.fill(last, WIDTH))
    return "\n\n".join(parts) + "\n"


def _finding(finding: Finding, resumed_at: int | None) -> dict[str, Any]:
    return {"cause": finding.cause, "step": finding.step, "ranks": sorted(finding.ranks), "first": finding.names[0], "names": finding.names[:NAMES_MOST],
            "count": len(finding.names), "undisturbed": finding.was, "other": finding.now, "as_after_step": finding.dated,
            "text": words.explained(finding, resumed_at)}  # fmt: skip


def as_json(verdict: Verdict, program: list[str], resume: list[str]) -> dict[str, Any]:
    bad = verdict.nondeterminism
    total = None if verdict.resumed_at is None else verdict.resumed_at + (verdict.resumed_steps or 0)
    return {
        "schema": 1, "verdict": words.verdict_word(verdict), "program": program, "resume": resume, "ranks": verdict.ranks, "torch": verdict.torch,
        "steps": verdict.steps, "deterministic": bad is None, "steps_compared": verdict.compared,
        "nondeterminism": None if bad is None else _finding(bad, None), "stopped_after": verdict.stopped_after, "resumed_after": verdict.resumed_at,
        "resumed_steps": verdict.resumed_steps, "steps_in_all": total, "checkpoint": verdict.checkpoint,
        "findings": [_finding(finding, verdict.resumed_at) for finding in verdict.findings], "notes": verdict.notes, "kept": words.kept(verdict),
    }  # fmt: skip
