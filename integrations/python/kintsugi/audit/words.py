"""What a verdict says, in words: for the terminal, the JSON and the page alike. Pure."""

from __future__ import annotations

from . import differences as d
from .compare import Finding, Verdict

KEPT = {
    d.WEIGHTS: "the weights (register(model=...))",
    d.MOMENTS: "the moments (register(optimizer=...))",
    d.OPTIONS: "the options of each group (register(optimizer=...))",
    d.LEARNING_RATE: "the learning rate and its schedule (register(scheduler=...))",
    d.SCALE: "the loss scale (register(scaler=...))",
    d.AVERAGES: "the averages (register(average=...))",
    d.BUFFERS: "the buffers (register(model=...))",
    d.RANDOM: "the random numbers (a torch.Generator of the script's own by register(noise=generator))",
    d.SAMPLES: "the place in the data (run.batches(loader, epoch)) and the random numbers that it is drawn by",
    d.STEPS: "the number of steps (each is made once, by the gate)",
    d.ACCUMULATION: "the parts of an accumulated step (run.batches(loader, epoch, accumulate=N))",
    d.GRADIENTS: "a variable of the script's own, if it is named (run.keep(globals(), \"name\"))",
    d.TRAINED: "which weights are trained, since the surviving processes build nothing anew",
}


def verdict_word(verdict: Verdict) -> str:
    """"exact", "differs", "deterministic" or "not deterministic": the last two of runs that were not stopped, and of ones that cannot be told."""
    if verdict.nondeterminism is not None:
        return "not deterministic"
    if verdict.resumed_at is None:
        return "deterministic"
    return "differs" if verdict.findings else "exact"


def headline(verdict: Verdict) -> str:
    word = verdict_word(verdict)
    if word == "not deterministic":
        return f"The program is not deterministic: {verdict.nondeterminism.cause if verdict.nondeterminism else ''}"
    if word == "deterministic":
        return "The program is deterministic"
    if word == "exact":
        return "The resume is exact"
    return f"The resume is not exact: {verdict.findings[0].cause}"


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def what(finding: Finding) -> str:
    """The first thing that differs, and how many more do."""
    more = len(finding.names) - 1
    return finding.names[0] + (f" and {more} more" if more else "")


def explained(finding: Finding, resumed_at: int | None) -> str:
    parts = []
    where = "after the resume" if resumed_at is not None else "in the second run"
    told = [f"{value} {of}" for value, of in ((finding.was, "undisturbed"), (finding.now, where)) if value]
    if told:
        parts.append(", ".join(told))
    if finding.detail:
        parts.append(finding.detail)
    elif finding.dated is not None and resumed_at is not None and finding.dated != resumed_at:
        due = resumed_at + (finding.cause == d.LEARNING_RATE)
        found = finding.dated + (finding.cause == d.LEARNING_RATE)
        parts.append("as at the start of training" if finding.dated == 0 else f"as after step {found}, not {due}" if found == finding.dated else f"that of step {found}, not {due}")
    return "; ".join(parts) or "it has other bits"


def determinism(verdict: Verdict) -> str:
    bad = verdict.nondeterminism
    if bad is None:
        return f"yes: two runs made {counted(verdict.compared, 'equal step')}, bit for bit"
    remedy = {
        d.WEIGHTS: "seed it before the model is made (torch.manual_seed)" if bad.step == 1 else "",
        d.SAMPLES: "seed the sampler, or give the loader a generator with a seed",
        d.RANDOM: "seed torch, numpy and Python's random, and the loader's workers",
        d.GRADIENTS: "torch.use_deterministic_algorithms(True) names the operation",
        d.STEPS: "give it a fixed number of steps",
    }.get(bad.cause, "")
    ranks = f" on rank {', '.join(map(str, bad.ranks))}" if verdict.ranks > 1 else ""
    return f"no: {bad.cause} at step {bad.step}{ranks} ({what(bad)}: {explained(bad, None)})" + (f"; {remedy}, or name --seed" if remedy and bad.step == 1 else f"; {remedy}" if remedy else "")


def resume_line(verdict: Verdict) -> str:
    assert verdict.resumed_at is not None and verdict.resumed_steps is not None
    total = verdict.resumed_at + verdict.resumed_steps
    count = "as many as undisturbed" if total == verdict.steps else f"{counted(abs(total - verdict.steps), 'step')} {'more' if total > verdict.steps else 'fewer'} than undisturbed"
    return f"stopped after step {verdict.stopped_after}, went on after step {verdict.resumed_at} and made {verdict.resumed_steps}: {total}, {count}"


def kept(verdict: Verdict) -> str:
    """The last line: what Kintsugi would have kept. Of what it keeps, not of what a program would need to add to its own checkpoint."""
    if verdict.resumed_at is None or verdict.nondeterminism is not None:
        return ""
    again = (verdict.stopped_after or 0) - verdict.resumed_at
    lost = f"the {counted(again, 'step')} behind the checkpoint" if again > 0 else ""
    causes = list(dict.fromkeys(KEPT[finding.cause] for finding in verdict.findings))
    everything = [one for one in [*causes, lost] if one]
    if not everything:
        return "Kintsugi would have kept the same: nothing was lost here."
    return "Kintsugi would have kept: " + "; ".join(everything) + "."
