"""Numbers without torch, of which some are no numbers: refused_line.py FOLDER [--plain]. Plainly: as a loop that leaves these out."""
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

BAD = {4: 1, 9: 0}  # step, and the rank whose batch it is
folder, plain = Path(sys.argv[1]), "--plain" in sys.argv
weights = np.zeros(4)
steps = []
if plain:
    rank, size = 0, 2
else:
    import kintsugi

    run = kintsugi.join()
    rank, size = run.rank, run.world_size
    weights = run.register("weights", weights)
    run.keep(globals(), "steps")


def batch(k, of):
    return np.full(4, np.nan if BAD.get(k) == of else k + of / 10)


def step(k):
    if not plain and not np.isfinite(batch(k, rank)).all():
        time.sleep(0.5)  # the other one is at its gate by then
        run.reject("no numbers")
    total = sum(batch(k, of) for of in range(size))  # what a sum over ranks gives
    if plain:
        weights[:] += total * np.sqrt(k)
    else:
        run.report(float(total.sum()))
        with run.update():
            weights[:] += total * np.sqrt(k)
            if k == 8 and rank == 1:
                time.sleep(1.0)  # the other one is in step 9 by then, and refuses it: what follows this update is not done here
    steps.append(k)


if plain:
    for k in range(1, 13):
        if k not in BAD:
            step(k)
else:
    run.train(step, 12)
(folder / f"rank-{rank}.json").write_text(json.dumps({"line": {"weights": weights.tolist(), "steps": steps}}))
if plain:
    (folder / "rank-1.json").write_text((folder / "rank-0.json").read_text())
