"""The live page in a headless Chromium while its run is struck (./tools/test --oracles)."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import Failure, Skip, must_be_same, reference, script
from live_run import LiveRun, wait_until
from observe import url_of

TRAINER = ["--steps", "120"]
SLOW = [*TRAINER, "--step-delay-us", "80000"]
PROGRAMS = ["chromium-headless-shell", "chromium-shell", "chromium"]


class Browser:
    """Chromium, spoken to through its debugging pipe: JSON with a zero byte after each message."""

    def __init__(self, folder):
        program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
        if not program:
            raise Skip(f"there is no {PROGRAMS[0]}: ./tools/setup --oracles installs it")
        read, self.to = os.pipe()
        self.answers, write = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (read, write)]

        def take_ends():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={folder}/chromium", "about:blank"],
            preexec_fn=take_ends, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (read, write, *ends):
            os.close(end)
        self.rest, self.said, self.number, self.session = b"", [], 0, None
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.tell(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.answers)

    def message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise Failure("the browser does not answer")
            piece = os.read(self.answers, 1 << 20)
            if not piece:
                raise Failure("the browser has ended")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def tell(self, method, **params):
        self.number += 1
        order = {"id": self.number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to, json.dumps(order).encode() + b"\0")
        while True:
            heard = self.message(60)
            if heard.get("id") == self.number:
                if "error" in heard:
                    raise Failure(f"{method}: {heard['error']}")
                return heard["result"]
            if heard.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(heard["params"])

    def value(self, expression):
        return self.tell("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def size(self, width, height, phone):
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name):
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def shot(self, name, **clip):
        """A picture into KINTSUGI_SHOTS, where somebody wants to look."""
        if os.environ.get("KINTSUGI_SHOTS"):
            part = {"clip": {"x": 0, "y": 0, **clip}} if clip else {}
            data = self.tell("Page.captureScreenshot", captureBeyondViewport=True, **part)["data"]
            Path(os.environ["KINTSUGI_SHOTS"], name).write_bytes(base64.b64decode(data))


def the_page_shows_a_run_that_is_struck(runner):
    browser = Browser(runner.folder)
    try:
        with LiveRun(runner, ["--page", "0", "--save-every", "20"], SLOW) as run:
            run.wait_step(5)
            browser.size(1280, 1000, False)
            browser.scheme("light")
            browser.tell("Page.navigate", url=url_of(run, "page"))
            wait_until(lambda: browser.value("document.querySelectorAll('.tile.ready').length") == 4, "four tiles")
            wait_until(lambda: "Training" in browser.value("document.title"), "the title")
            if browser.value("document.getElementById('link').textContent") != "live":
                raise Failure("the page does not say that it is live")
            if browser.value("document.querySelectorAll('#index tr').length") != 0:
                raise Failure("an incident before there was one")
            run.strike("kill", 2)
            wait_until(lambda: "life 2" in browser.value("document.getElementById('ranks').textContent"), "the second life")
            wait_until(lambda: browser.value("document.querySelectorAll('#index tbody tr').length") == 1, "the incident")
            # What somebody has opened stays open when its part is sent anew.
            browser.value("document.querySelector('#accounts details').open = true")
            browser.shot("live.png", width=1280, height=1560, scale=0.6)
            run.strike("throw", 1, place="backward")
            wait_until(lambda: browser.value("document.querySelectorAll('#index tbody tr').length") == 2, "the second incident")
            if not browser.value("document.querySelector('#accounts details').open"):
                raise Failure("an incident's table was closed")
            for scheme in ("light", "dark"):
                browser.scheme(scheme)
                for width in (390, 1280):
                    browser.size(width, 900, width == 390)
                    wide = browser.value("document.documentElement.scrollWidth")
                    if wide > width:
                        raise Failure(f"{wide} pixels wide on {width}")
                    browser.shot(f"page-{scheme}-{width}.png")
            summary, log = run.finish()
        wait_until(lambda: "not connected" in browser.value("document.getElementById('link').textContent"), "the run's end")
    finally:
        browser.close()
    must_be_same(reference(runner.bin, TRAINER), summary, log)
    faults = [said for said in browser.said if "ERR_CONNECTION_REFUSED" not in json.dumps(said) and
              "ERR_INCOMPLETE_CHUNKED" not in json.dumps(said) and "ERR_CONNECTION_RESET" not in json.dumps(said)]
    if faults:
        raise Failure(f"the browser complains: {json.dumps(faults)[:3000]}")


def the_page_gives_orders_once_it_has_the_token(runner):
    browser = Browser(runner.folder)
    token = runner.folder / "token"
    token.write_text("correct-horse-battery\n")
    token.chmod(0o600)

    def told():
        return browser.value("document.getElementById('told').textContent")

    def enter(text):
        browser.value(f"document.querySelector('#unlock input').value = '{text}'; document.querySelector('#unlock button').click()")

    def press(order):
        browser.value(f"document.querySelector('#orders button[value={order}]').click()")

    def shows(selector):
        return browser.value(f"getComputedStyle(document.querySelector('{selector}')).display != 'none'")
    try:
        with LiveRun(runner, ["--page", "0", "--page-token-file", str(token)], SLOW) as run:
            run.wait_step(3)
            browser.size(1280, 1000, False)
            browser.scheme("light")
            browser.tell("Page.navigate", url=url_of(run, "page"))
            wait_until(lambda: browser.value("document.querySelectorAll('.tile.ready').length") == 4, "four tiles")
            if shows("#orders") or not shows("#unlock"):
                raise Failure("buttons before there was a token")
            enter("wrong-horse-battery-staple")
            wait_until(lambda: "not the run's token" in told(), told)
            if shows("#orders"):
                raise Failure("buttons for a wrong token")
            enter("correct-horse-battery")
            wait_until(lambda: shows("#orders") and not shows("#unlock"), "buttons for the right token")
            press("pause")
            wait_until(lambda: told().startswith("Paused after step "), told)
            wait_until(lambda: "Paused after step" in browser.value("document.title"), "the title of a paused run")
            press("save")
            wait_until(lambda: told().startswith("Saved step "), told)
            browser.shot("orders.png", width=1280, height=760, scale=0.6)
            press("replace")
            wait_until(lambda: "Which rank" in told(), told)
            browser.value("document.querySelector('#orders input').value = '9'")
            press("replace")
            wait_until(lambda: "there is no rank 9" in told(), told)
            browser.value("document.querySelector('#orders input').value = '2'")
            press("replace")
            wait_until(lambda: told().startswith("Rank 2 has a new process"), told)
            run.wait_status(lambda s: s["pause"]["at_step"], "the pause after it")
            for width in (390, 1280):
                browser.size(width, 900, width == 390)
                if browser.value("document.documentElement.scrollWidth") > width:
                    raise Failure(f"wider than {width}")
                browser.shot(f"orders-{width}.png")
            press("continue")
            wait_until(lambda: told().startswith("Continued after step"), told)
            summary, log = run.finish()
    finally:
        browser.close()
    must_be_same(reference(runner.bin, TRAINER), summary, log)


if __name__ == "__main__":
    sys.exit(script(__doc__, [("the page shows a run that is struck while it is open", the_page_shows_a_run_that_is_struck),
                              ("the page gives orders once it has the token", the_page_gives_orders_once_it_has_the_token)]))
