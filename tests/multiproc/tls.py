"""Mutual TLS on the control connections of whole runs: the same bits, and a peer without a certificate stays outside."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import chaos_runs
from alone import RANKS, TRAINER, Starter
from harness import SLOWNESS, SMALL, Failure, Skip, must_be_same, only_incident, reference, script
from live_run import LiveRun, wait_until
from network import Network
from nodes import NodesRun

LONG = ["--steps", "40", "--step-delay-us", "50000", *SMALL]
ENDLESS = ["--steps", "4000", "--step-delay-us", "100000", *SMALL]  # until it is told to end
HELLO = b"KINTSUGI\0\1"


class Authority:
    """A CA in a folder, made with the openssl command."""

    def __init__(self, folder, name="ca"):
        if not shutil.which("openssl"):
            raise Skip("there is no openssl command to make certificates with")
        self.folder, self.name = folder, name
        folder.mkdir(exist_ok=True)
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "4", "-subj",
                     f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def openssl(self, *arguments):
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"openssl {arguments[0]}: {done.stderr}")

    def issue(self, name, seconds=None):
        """The options of a process with a certificate of this authority, which lasts three days or so many seconds."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr")
        if seconds is None:
            self.openssl("x509", "-req", "-days", "3", "-in", f"{name}.csr", "-CA", f"{self.name}.pem", "-CAkey",
                         f"{self.name}.key", "-CAcreateserial", "-out", f"{name}.pem")
        else:
            self.issue_until(name, time.gmtime(time.time() + seconds))
        return ["--tls-cert", str(self.folder / f"{name}.pem"), "--tls-key", str(self.folder / f"{name}.key"), "--tls-ca",
                str(self.folder / f"{self.name}.pem")]


    def issue_until(self, name, end):
        """By the command that knows of seconds, and wants a list of what it has issued."""
        (self.folder / "ca.cnf").write_text("[ca]\ndefault_ca=of\n[of]\ndatabase=index\nrand_serial=yes\npolicy=any\n"
                                            "default_md=sha256\nunique_subject=no\n[any]\ncommonName=supplied\n")
        (self.folder / "index").touch()
        self.openssl("ca", "-batch", "-notext", "-config", "ca.cnf", "-in", f"{name}.csr", "-cert", f"{self.name}.pem", "-keyfile",
                     f"{self.name}.key", "-outdir", ".", "-out", f"{name}.pem", "-enddate", time.strftime("%Y%m%d%H%M%SZ", end))


def refused(status):
    return status["connections"]["refused"]


def a_run_has_the_same_bits(runner):
    options = Authority(runner.folder / "tls").issue("host")
    summary, log = runner.run([*options, "--inject", "kill:2@7:update"], ["--steps", "12"])
    must_be_same(reference(runner.bin, ["--steps", "12"]), summary, log)
    if only_incident(summary)["path"] != "respawn":
        raise Failure(f"{summary['incidents']}")


def strangers_stay_outside(runner):
    """One without TLS, one with TLS and no certificate: refused, counted, and the run goes on."""
    options = Authority(runner.folder / "tls").issue("host")
    with LiveRun(runner, options, LONG) as run:
        host, port = run.wait_step(3)["address"].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(HELLO)
            try:
                while plain.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        bare = subprocess.Popen(["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_3"], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        run.wait_status(lambda s: refused(s)["tls"] >= 2, "two refusals for want of TLS")
        told = bare.communicate(timeout=30)[1]  # not earlier: at the end of its input it would leave by itself
        if "alert certificate required" not in told:
            raise Failure(f"a client without a certificate was told: {told[-500:]}")
        summary, log = run.finish()
    must_be_same(reference(runner.bin, LONG), summary, log)
    if summary["incidents"]:
        raise Failure(f"strangers caused incidents: {summary['incidents']}")
    for said in ("does not speak TLS", "shows no certificate"):
        if said not in log:
            raise Failure(f"the log does not say '{said}'\n{log[-2000:]}")


class TwoLaunchers(chaos_runs.SeveralLaunchers):
    """Each host has a certificate of its own."""

    class Plan:
        nodes, nproc, options, trainer, slow = 2, 2, ["--inject", "kill:3@8:forward"], LONG, []

    def __init__(self, runner, certificates):
        self.certificates = certificates
        super().__init__(runner, self.Plan())

    def line(self, node):
        line = super().line(node)
        at = line.index("--nproc")
        return [*line[:at], *self.certificates[node], *line[at:]]


def launchers_of_two_hosts(runner):
    """A rank is lost on the way."""
    authority = Authority(runner.folder / "tls")
    with TwoLaunchers(runner, [authority.issue(f"host-{node}") for node in range(2)]) as run:
        wait_until(lambda: run.code() is not None, "the end")
        summary = run.end()
    must_be_same(reference(runner.bin, LONG), summary, run.log())
    if only_incident(summary)["path"] != "adopt":
        raise Failure(f"{summary['incidents']}")


def a_host_of_another_authority(runner):
    """It is told so at once; node 0 goes on waiting for the right one."""
    certificates = [Authority(runner.folder / "tls").issue("host-0"), Authority(runner.folder / "other", "other").issue("host-1")]
    with TwoLaunchers(runner, certificates) as run:
        code = run.launchers[1].wait(60)
        if code != 3 or run.launchers[0].poll() is not None:
            raise Failure(f"code {code}\n{run.log()}")
        wait_until(lambda: "event=peer_refused" in run.log(), lambda: f"nobody was refused\n{run.log()}")
        if "certificate" not in run.log():
            raise Failure(f"nobody says what is wrong\n{run.log()}")


class OwnCertificates(NodesRun):
    """Each host has a certificate of its own, which ends so many seconds after they begin."""

    def __init__(self, runner, net, nodes, seconds, **more):
        authority = Authority(runner.folder / "tls")
        self.certificates = [authority.issue(f"host-{node}", seconds) for node in range(nodes)]
        self.ended = time.monotonic() + seconds + 1
        super().__init__(runner, net, nodes, **more)

    def line(self, node):
        line = super().line(node)
        at = line.index("--nnodes")
        return [*line[:at], *self.certificates[node], *line[at:]]


def certificates_that_end_cost_no_state(runner):
    """Launchers whose leader is lost refuse each other then. Each is a part alone, which holds all and saves it; a rank that is
    lost meanwhile comes back to the launcher of its own host."""
    with Network(3) as net:
        run = OwnCertificates(runner, net, 3, 14 * SLOWNESS, trainer_args=ENDLESS,
                              run_args=["--node-wait", "3", "--replicas", "3"])
        ranks = run.wait_step(5)["ranks"]
        time.sleep(max(0, run.ended - time.monotonic()))
        os.kill(ranks[3]["pid"], signal.SIGKILL)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the repair of a rank")
        os.kill(run.launcher(0), signal.SIGKILL)
        run.finish(expect=75, nodes=[1, 2], leader=1)
        for node in (1, 2):
            if "event=no_majority" not in run.log(node) or "certificate expired" not in run.log(1) + run.log(2):
                raise Failure(f"node {node} does not say why it leaves\n{run.logs()}")
    if not any((runner.folder / "checkpoints").iterdir()):
        raise Failure("nothing was saved")


def renewed_certificates_are_taken_up(runner):
    """Before the first ones end they are told of; the new ones serve those who come later."""
    authority = Authority(runner.folder / "tls")
    options, ended = authority.issue("host", 5 * SLOWNESS), time.monotonic() + 5 * SLOWNESS + 1
    with LiveRun(runner, [*options, "--metrics", "127.0.0.1:0"], ENDLESS) as run:
        ranks = run.wait_step(3)["ranks"]
        run.wait_log("event=certificate_ends ")
        authority.issue("host")
        run.wait_log("event=certificate_renewed ")
        time.sleep(max(0, ended - time.monotonic()))
        os.kill(ranks[1]["pid"], signal.SIGKILL)
        run.wait_status(lambda s: s["incidents"] == 1 and s["phase"] == "RUNNING", "the repair")
        with urllib.request.urlopen(re.search(r"event=metrics url=(\S+)", run.log())[1], timeout=30) as answer:
            ends = float(re.search(r"^kintsugi_certificate_ends_seconds (\S+)", answer.read().decode(), re.M)[1])
        if not 2 * 86400 < ends - time.time() < 3 * 86400:
            raise Failure(f"the metric says that the certificate ends in {ends - time.time()} s")
        run.signal(signal.SIGTERM)
        summary, log = run.finish(expect=75)
    if only_incident(summary)["path"] not in ("adopt", "respawn") or "certificate_refused" in log:
        raise Failure(f"{summary['incidents']}\n{log[-3000:]}")


PAGE = Path(__file__).resolve().parents[2] / "runtime/launcher/docs/certificates.md"


def the_page_holds(runner):
    """Its blocks, as they are printed, beside a run: each change is taken up, a lost rank comes back after each, and whom the page
    shuts out is outside."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    authority, issue, trust_both, trust_one, secret = blocks[:5]
    reissue = issue.replace("-CA ca.pem -CAkey ca.key", "-CA ca2.pem -CAkey ca2.key")  # as the page says it in words
    if reissue == issue:
        raise Failure(f"who signs? {issue}")
    folder = runner.folder / "tls"
    folder.mkdir()

    def do(block):
        done = subprocess.run(["bash", "-euc", block], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise Failure(f"{block}\n{done.stderr}")

    do(authority)
    do(issue)
    do(secret)
    if (folder / "secret").stat().st_size != 32 or (folder / "secret").stat().st_mode & 0o077:
        raise Failure("the secret is not 32 bytes for its owner alone")
    shutil.copytree(folder, runner.folder / "stolen")
    options = ["--tls-cert", str(folder / "host.pem"), "--tls-key", str(folder / "host.key"), "--tls-ca", str(folder / "ca.pem")]
    with LiveRun(runner, options, ENDLESS) as run:
        run.wait_step(3)
        for change, block in enumerate((issue, trust_both, reissue, trust_one), 1):
            do(block)
            wait_until(lambda: run.log().count("event=certificate_renewed ") == change, lambda: f"change {change}\n{run.log()[-2000:]}")
            run.signal_rank(change % 4, signal.SIGKILL)
            run.wait_status(lambda s: s["incidents"] == change and s["phase"] == "RUNNING", f"the repair after change {change}")
            why = refused_for(run, runner.folder / "stolen")
            if (why == ["tls"]) != (block == trust_one):
                raise Failure(f"after change {change} the holder of the first CA's certificate is refused for {why}")
        run.signal(signal.SIGTERM)
        _, log = run.finish(expect=75)
    if "certificate_refused" in log:
        raise Failure(log[-3000:])


def another_secret(runner):
    """The page's last three blocks, beside a run of two hosts: after each a launcher that lost its ranks' host comes back, and who has
    the first secret is let in until the last one."""
    steps = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.M | re.S)[5:]
    with Network(3) as net:
        run = NodesRun(runner, net, 2, trainer_args=ENDLESS)
        run.wait_step(3)
        shutil.copy(run.secret, runner.folder / "stolen")
        for number, block in enumerate(steps, 1):
            subprocess.run(["bash", "-euc", block], cwd=runner.folder, check=True, capture_output=True, timeout=60)
            for node in (0, 1):
                wait_until(lambda node=node: run.log(node).count("event=secret_renewed") == (number if node == 0 else 1),
                           lambda: f"step {number}\n{run.logs()}")
            if b"secret_refused" in run.logs().encode():
                raise Failure(run.logs())
            # Its ranks connect to it anew with what they were given, and it to the leader with what the file has.
            run.launchers[1][0].kill()
            run.launchers[1][0].wait()
            run.start(1)
            run.wait_log(1, "event=welcomed")
            run.wait_status(lambda s: s["incidents"] == number and s["phase"] == "RUNNING", f"the repair after step {number}")
            run.wait_step(run.status()["step"] + 3)
            stranger = run.line(1)
            stranger[stranger.index("--secret-file") + 1] = str(runner.folder / "stolen")
            stranger[stranger.index("--run-dir") + 1] = str(runner.folder / f"stranger-{number}")
            err = open(runner.folder / f"stranger-{number}.err", "w+")
            code = net.popen(2, stranger, cwd=runner.folder, stdout=subprocess.DEVNULL, stderr=err).wait(60)
            said = open(err.name).read()
            known = "node 1 is here already" in said  # it was heard, and told why it has no place
            if code == 0 or known != (number < 3) or (not known and "secret" not in said):
                raise Failure(f"step {number}: code {code}\n{said}")
        os.kill(run.launcher(0), signal.SIGTERM)
        run.finish(expect=75)


def a_secret_file_that_is_wrong(runner):
    """It is told, and the one before is used on."""
    with Network(2) as net:
        run = NodesRun(runner, net, 2, trainer_args=ENDLESS)
        run.wait_step(3)
        good = run.secret.read_bytes()
        run.secret.write_bytes(b"short")
        run.wait_log(0, "event=secret_refused")
        run.secret.write_bytes(good)
        run.wait_log(0, "event=secret_renewed")
        os.kill(run.launcher(0), signal.SIGTERM)
        run.finish(expect=75)


def refused_for(run, certificates):
    """Why a stranger is refused that has them: "tls", or what it says then, which is no hello."""
    before = refused(run.status())
    door = subprocess.Popen(["openssl", "s_client", "-quiet", "-connect", run.status()["address"], "-tls1_3", "-cert",
                             str(certificates / "host.pem"), "-key", str(certificates / "host.key")],
                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        door.stdin.write(b"no hello\n" * 100)
        door.stdin.flush()  # and not closed: at the end of its input it would leave by itself
        after = run.wait_status(lambda s: refused(s) != before, "a refusal")
        return [why for why, count in refused(after).items() if count != before[why]]
    finally:
        door.kill()
        door.wait()


def the_controller_alone(runner):
    options = Authority(runner.folder / "tls").issue("host")
    names = dict(zip(("KINTSUGI_TLS_CERT", "KINTSUGI_TLS_KEY", "KINTSUGI_TLS_CA"), options[1::2]))
    os.environ.update(names)  # as a launcher hands them down; the controller has them as arguments
    try:
        with Starter(runner, *options) as starter:
            starter.start_all()
            starter.must_end_like(reference(runner.bin, TRAINER, nproc=RANKS))
    finally:
        for name in names:
            del os.environ[name]


def mistakes(runner):
    good = Authority(runner.folder / "tls").issue("host")
    other = Authority(runner.folder / "other", "other").issue("host")
    open_key = runner.folder / "open.key"
    shutil.copy(good[3], open_key)
    open_key.chmod(0o644)
    for options, said in (
            (good[:2], "private key (--tls-key, KINTSUGI_TLS_KEY) '' is missing"),
            ([*good[:2], "--tls-key", "/nowhere.key", *good[4:]], "'/nowhere.key' cannot be read: No such file"),
            ([*good[:2], *other[2:4], *good[4:]], "does not belong to the certificate"),
            ([*good[:4], *other[4:]], "is it issued by the CA"),
            ([*good[:2], "--tls-key", str(open_key), *good[4:]], "chmod 600")):
        for command in (["run", "--nproc", "2", *options, "--", runner.byte_lm],
                        ["controller", "--world-size", "2", "--secret-fd", "0", "--port", "0", *options]):
            began = time.monotonic()
            done = runner.tool(command, stdin=subprocess.DEVNULL if command[0] == "run" else open("/dev/zero"))
            if done.returncode != 2 or said not in done.stderr:
                raise Failure(f"{command[0]}: code {done.returncode}, expected '{said}' after "
                              f"{time.monotonic() - began:.1f} s:\n{done.stderr[-1500:]}")


TESTS = [(test.__name__.replace("_", " "), test) for test in (
    a_run_has_the_same_bits, strangers_stay_outside, launchers_of_two_hosts, a_host_of_another_authority,
    certificates_that_end_cost_no_state, renewed_certificates_are_taken_up, the_page_holds, another_secret,
    a_secret_file_that_is_wrong, the_controller_alone, mistakes)]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
