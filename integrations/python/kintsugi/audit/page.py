"""A verdict as a page that needs no script and no network. The head and the masthead come from the `kintsugi` command: all pages look alike."""

from __future__ import annotations

import html
import shlex

from . import tell, words
from .compare import Verdict


def _e(text: str) -> str:
    return html.escape(text, quote=True)


def _figure(value: str, name: str, good: bool | None = None) -> str:
    css = "" if good is None else f' class="{"good" if good else "bad"}"'
    return f"<div{css}><dt>{_e(name)}</dt><dd>{_e(value)}</dd></div>\n"


def _fact(name: str, value: str, css: str = "") -> str:
    return f"<div><dt>{_e(name)}</dt><dd{css}>{_e(value)}</dd></div>\n"


def _findings(verdict: Verdict) -> str:
    rows = tell.findings_table(verdict)
    head = "".join(f"<th scope=\"col\">{_e(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f'<td data-label="{_e(name)}"><div>{_e(cell)}</div></td>' for name, cell in zip(rows[0], row)) + "</tr>\n" for row in rows[1:])
    return ("<section aria-labelledby=\"h-found\">\n<h2 id=\"h-found\">What differs, and since when</h2>\n<p class=\"sub\">The first step in which each cause shows; "
            "what only follows from it is left out.</p>\n<table class=\"ledger audit\">\n"
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>\n</section>\n")  # fmt: skip


def _lead(verdict: Verdict) -> str:
    return ("Runs of one program, beside each other." if verdict.stopped_after is None
            else "A run that was never stopped, beside the same one stopped and resumed as its user resumes it.")  # fmt: skip


def page(verdict: Verdict, program: list[str], resume: list[str], head: str, masthead: str) -> str:
    bad = verdict.nondeterminism is not None
    figures = _figure(str(verdict.steps), "steps undisturbed") + _figure("yes" if not bad else "no", "deterministic", not bad)
    facts = _fact("Program", shlex.join(program), ' class="mono"') + _fact("Deterministic", words.determinism(verdict))
    if verdict.resumed_at is not None:
        total = verdict.resumed_at + (verdict.resumed_steps or 0)
        figures += _figure(str(total), "steps, stopped and resumed", total == verdict.steps)
        if not bad:
            figures += _figure(str(len(verdict.findings)), "cause" if len(verdict.findings) == 1 else "causes", not verdict.findings)
        facts += _fact("Resumed by", shlex.join(resume), ' class="mono"') + _fact("Resume", words.resume_line(verdict))
        if verdict.checkpoint:
            facts += _fact("Checkpoint", verdict.checkpoint, ' class="mono"')
    facts += _fact("Ranks", str(verdict.ranks)) + _fact("torch", verdict.torch)
    notes = "".join(f"<p class=\"note\">{_e(note)}</p>\n" for note in verdict.notes) if not bad else ""
    last = words.kept(verdict)
    return (f"{head}<body>\n<a class=\"skip\" href=\"#main\">Skip to what differs</a>\n<header>\n{masthead}<h1>{_e(words.headline(verdict))}</h1>\n"
            f"<p class=\"lead\">{_e(_lead(verdict))}</p>\n"
            f"<dl class=\"key-figures\">\n{figures}</dl>\n</header>\n<main id=\"main\" tabindex=\"-1\">\n"
            f"{_findings(verdict) if verdict.findings and not bad else ''}"
            f"<section aria-labelledby=\"h-runs\">\n<h2 id=\"h-runs\">The runs</h2>\n<dl class=\"facts\">\n{facts}</dl>\n{notes}</section>\n"
            f"{'<p class=%skept%s>%s</p>' % (chr(34), chr(34), _e(last)) if last else ''}\n</main>\n"
            "<footer><p>Beside this page: <a href=\"audit.json\">audit.json</a> for programs, and what each run printed.</p></footer>\n</body>\n</html>\n")  # fmt: skip
