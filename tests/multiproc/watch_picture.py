"""Makes the picture of `kintsugi status --watch`: what a terminal shows of a run that was struck twice, as SVG.

    watch_picture.py BIN_DIR FILE.svg
"""
import html
import re
import sys

from console import Screen
from harness import Failure, Runner
from live_run import LiveRun, wait_until

COLUMNS, ROWS = 96, 18
CELL, LINE = 7.8, 17  # of a monospaced font of 13 pixels
CLASSES = {"1": "bold", "2": "soft", "32": "good", "33": "slow", "31": "bad"}
STYLE = """text{font:13px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#e6e1d6;white-space:pre}
.bold{font-weight:700}.soft{fill:#9a958b}.good{fill:#8fbf92}.slow{fill:#d9ab4c}.bad{fill:#e0785c}"""


def svg(lines):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * CELL + 24:.0f}" height="{len(lines) * LINE + 22}">',
           f"<style>{STYLE}</style><rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1d1b18\"/>"]
    for row, line in enumerate(lines):
        column, shown = 0, ""
        for escape, text in re.findall(r"(?:\x1b\[(\d+)m)?([^\x1b]*)", line):
            if text:
                name = CLASSES.get(escape, "")
                shown += (f'<tspan x="{12 + column * CELL:.1f}"' + (f' class="{name}"' if name else "") +
                          f' textLength="{len(text) * CELL:.1f}">{html.escape(text)}</tspan>')
                column += len(text)
        out.append(f'<text y="{24 + row * LINE}" xml:space="preserve">{shown}</text>')
    return "\n".join(out) + "\n</svg>\n"


def last_screen(text):
    """The lines of the last screen that was drawn to its end."""
    whole = [piece for piece in text.split("\x1b[H") if piece.endswith("\x1b[J")]
    if not whole:
        raise Failure("nothing was drawn")
    return whole[-1].removesuffix("\x1b[J").replace("\x1b[K", "").split("\r\n")


def main(bin_dir, file):
    runner = Runner(bin_dir)
    try:
        with LiveRun(runner, ["--job", "gpt-7b", "--save-every", "40", "--spares", "1", "--inject", "kill:2@61:update",
                              "--inject", "throw:1@90:backward"], ["--steps", "4000", "--step-delay-us", "20000"], nproc=8) as run:
            run.wait_status(lambda s: s["incidents"] == 2 and s["step"] > 130 and s["phase"] == "RUNNING", "both incidents")
            screen = Screen([runner.kintsugi, "status", "--run", str(run.run_dir), "--watch", "0.5"], COLUMNS, ROWS, colored=True)
            wait_until(lambda: screen.read() and screen.text.count("\x1b[J") >= 4, "four drawings")
            lines = last_screen(screen.text)
        with open(file, "w") as picture:
            picture.write(svg(lines))
    finally:
        runner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
