"""What the tests against other systems share: asking `kintsugi`, random layouts, and skipping with a reason."""

import importlib
import json
import math
import subprocess
import sys
import warnings

SKIPPED = 77


def need(*modules):
    """Imports modules in order; ends the test as skipped where one is missing."""
    warnings.simplefilter("ignore")
    found = []
    for name in modules:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            print(f"SKIPPED: {sys.executable} cannot import {name} ({error}); "
                  "./tools/setup --python installs it into build/python")
            sys.exit(SKIPPED)
    return found


def ask(kintsugi, *arguments, spec):
    """The answer of `kintsugi ARGUMENTS --spec - --json`, right or refused. Anything else is a failure."""
    done = subprocess.run([kintsugi, *arguments, "--spec", "-", "--json"], input=json.dumps(spec), capture_output=True,
                          text=True, check=False, timeout=120)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"no JSON but {done.stdout!r} {done.stderr!r}, exit code {done.returncode}") from None
    assert done.returncode == (0 if answer["ok"] else 2), (done.returncode, answer)
    return answer


def tiling(random, shape, pieces):
    """Boxes [(lo, hi)] that tile the shape exactly, none empty, by cuts at random places."""
    boxes = [([0] * len(shape), list(shape))]
    for _ in range(4 * pieces):
        if len(boxes) >= pieces or not shape:
            break
        lo, hi = boxes.pop(random.randrange(len(boxes)))
        axis = random.randrange(len(shape))
        if hi[axis] - lo[axis] < 2:
            boxes.append((lo, hi))
            continue
        at = random.randrange(lo[axis] + 1, hi[axis])
        boxes.append((lo, hi[:axis] + [at] + hi[axis + 1:]))
        boxes.append((lo[:axis] + [at] + lo[axis + 1:], hi))
    return boxes


def sizes(lo, hi):
    return [b - a for a, b in zip(lo, hi)]


def volume(shape):
    return math.prod(shape)
