"""`kintsugi doctor` on several hosts, each a network namespace: what closed roads, lost nodes and folders are told as, on every node."""
import json
import os
import subprocess
import sys

from harness import SLOWNESS, Failure, script
from live_run import wait_until
from network import Network
from tls import Authority

PORT = 29400


def begin(runner, net, node, nodes, options=(), before=()):
    secret = runner.folder / "secret"
    if not secret.exists():
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
    options = [*options] if "--join-timeout" in options else [*options, "--join-timeout", "20"]
    line = [*before, runner.kintsugi, "doctor", "--json", "--nnodes", str(nodes), "--node-rank", str(node), "--rendezvous",
            f"{net.address(0)}:{PORT}", *([] if "--secret-file" in options else ["--secret-file", str(secret)]), *options]
    return net.popen(node, line, cwd=runner.folder, stdout=subprocess.PIPE, stderr=open(runner.folder / f"{node}.err", "w"), text=True)


def ends(doctors, code):
    """What each found out together with the others: all say the same."""
    told = []
    for doctor in doctors:
        out, _ = doctor.communicate(timeout=90 * SLOWNESS)
        if doctor.returncode != code:
            raise Failure(f"exit code {doctor.returncode}, expected {code}\n{out}")
        checks = json.loads(out)["checks"]
        # Each says first what is of its own host.
        start = next((i for i, one in enumerate(checks) if one["check"] in ("nodes", "meeting")), len(checks))
        told.append(checks[start:])
    return told


def all_alike(told):
    if any(one != told[0] for one in told):
        raise Failure(f"the nodes say different things: {told}")
    return told[0]


def of(findings, check, verdict):
    return [one["found"] for one in findings if one["check"] == check and one["verdict"] == verdict]


def must(condition, what):
    if not condition:
        raise Failure(what)


def hosts_that_are_well(runner):
    with Network(3) as net:
        options = ["--ports", "29500-29599", "--save-dir", str(runner.folder / "saves"), "--free-gib", "0"]
        found = all_alike(ends([begin(runner, net, node, 3, options) for node in range(3)], 0))
    for check in ("nodes", "versions", "TLS", "roads", "clocks", "shared folder"):
        must(of(found, check, "ok"), f"{check}: {found}")
    # Beside a busy machine one way may be slower than the others, which is told.
    rates = of(found, "rates", "ok")
    must(rates[0].endswith("(6 ways)") if rates else of(found, "rates", "warning"), f"{found}")
    must(not os.listdir(runner.folder / "saves"), "files were left in the save folder")


def certificates_that_one_node_lacks(runner):
    """A run would not come up: that is said before it is tried."""
    tls = Authority(runner.folder / "tls").issue("host")
    with Network(2) as net:
        found = all_alike(ends([begin(runner, net, 0, 2, tls), begin(runner, net, 1, 2, tls)], 0))
        must(of(found, "TLS", "ok") == ["all have certificates, and the same CA"], f"{found}")
        found = all_alike(ends([begin(runner, net, 0, 2, tls), begin(runner, net, 1, 2)], 1))
        must(len(of(found, "TLS", "error")) == 1 and of(found, "TLS", "error")[0].startswith("node 1 ("), f"{found}")


def a_closed_road(runner):
    """Both reach node 0, and not each other."""
    with Network(3) as net:
        net.cut(1, 2)
        found = all_alike(ends([begin(runner, net, node, 3) for node in range(3)], 1))
    roads = of(found, "roads", "error")
    must(len(roads) == 1 and net.address(1) in roads[0] and net.address(2) in roads[0] and "cannot reach each other" in roads[0] and
         "no answer" in roads[0], f"{found}")


def a_firewall_that_lets_one_way_pass(runner):
    with Network(3) as net:
        net.close_door(2, 1)
        found = all_alike(ends([begin(runner, net, node, 3) for node in range(3)], 1))
    roads = of(found, "roads", "error")
    must(len(roads) == 1 and roads[0].startswith("node 2 (") and f"cannot reach node 1 (" in roads[0] and
         "the other way it is open" in roads[0], f"{found}")


def a_node_that_does_not_come(runner):
    """The others say whom they wait for while they wait, and go on without it."""
    with Network(3) as net:
        doctors = [begin(runner, net, node, 3, ["--join-timeout", "8"]) for node in (0, 1)]
        for node in (0, 1):
            wait_until(lambda: "waits for node 2" in (runner.folder / f"{node}.err").read_text(), f"node {node} says whom it waits for")
        found = all_alike(ends(doctors, 1))
    must(of(found, "nodes", "error")[0].startswith("node 2 did not come within 8") and of(found, "roads", "ok"), f"{found}")


def node_0_that_is_not_reached(runner):
    with Network(2) as net:
        net.cut(0, 1)
        doctors = [begin(runner, net, node, 2, ["--join-timeout", "9"]) for node in (0, 1)]
        wait_until(lambda: "waits for node 0" in (runner.folder / "1.err").read_text() and
                   "no answer (nothing comes back" in (runner.folder / "1.err").read_text(), "node 1 says what it sees")
        first, second = ends(doctors, 1)
    must(of(first, "nodes", "error") and "took no part" in of(second, "meeting", "error")[0], f"{first} {second}")


def a_folder_that_is_not_shared(runner):
    """The same path on every host, and another file system on one."""
    saves = runner.folder / "saves"
    saves.mkdir()
    alone = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {saves} && exec "$@"', "sh"]
    with Network(3) as net:
        found = all_alike(ends([begin(runner, net, node, 3, ["--save-dir", str(saves), "--free-gib", "0"], alone if node == 2 else ())
                                for node in range(3)], 1))
    folders = of(found, "shared folder", "error")
    must(any(one.startswith("node 2 (") and "does not see what node 0, 1 wrote" in one for one in folders), f"{found}")


def who_comes_with_something_else_is_told(runner):
    with Network(2) as net:
        first = begin(runner, net, 0, 2, ["--join-timeout", "6"])
        other = begin(runner, net, 1, 3)
        must(other.wait(60) == 2, "another --nnodes is wrong usage")
        said = (runner.folder / "1.err").read_text()
        must("--nnodes 3, node 0 has 2" in said, said)
        (runner.folder / "other").write_bytes(os.urandom(32))
        (runner.folder / "other").chmod(0o600)
        stranger = begin(runner, net, 1, 2, ["--secret-file", str(runner.folder / "other"), "--join-timeout", "2"])
        out, _ = stranger.communicate(timeout=60)
        must(stranger.returncode == 1 and "secret" in out, out)
        found = ends([first], 1)[0]
    must(any("--nnodes 3, node 0 has 2" in one for one in of(found, "nodes", "error")), f"{found}")


TESTS = [(test.__name__.replace("_", " "), test) for test in (
    hosts_that_are_well, certificates_that_one_node_lacks, a_closed_road, a_firewall_that_lets_one_way_pass, a_node_that_does_not_come, node_0_that_is_not_reached,
    a_folder_that_is_not_shared, who_comes_with_something_else_is_told)]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
