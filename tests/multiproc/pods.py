"""The Job that `kintsugi manifest` prints, played: its pods are hosts in network namespaces that run its command with its
environment, as its user and with its secret; they come late, and so does the name of the first. An end that the Job's policy
ignores is followed by another start of that pod."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

from harness import SLOWNESS, Failure, Skip, must_be_same, reference, script
from live_run import wait_until
from network import Network

USER = 4242
STEPS = ["--samples", "0", "--steps", "12"]


class Job:
    """What a cluster makes of the manifest."""

    def __init__(self, runner, net, nodes, options=()):
        if not shutil.which("setpriv"):
            raise Skip("no setpriv")
        self.runner, self.net, self.nodes = runner, net, nodes
        done = runner.tool(["manifest", "--image", "trainer:1", "--nnodes", str(nodes), "--nproc", "2", "--claim", "saves", "--user",
                            str(USER), *options, "--", "./trainer", *STEPS])
        self.text = done.stdout
        if done.returncode != 0:
            raise Failure(done.stderr)
        self.command = json.loads(re.search(r"command: (\[.*\])", self.text).group(1))
        self.environment = dict(re.findall(r'- name: "(\w+)"\n +value: "(.*)"', self.text))
        self.ignored, self.fatal = (json.loads(values) for values in re.findall(r"values: (\[.*\])", self.text))
        self.pods, self.ends = {}, {node: [] for node in range(nodes)}
        self._mount()

    def number(self, name):
        return int(re.search(rf"{name}: (\d+)", self.text).group(1))

    def _mount(self):
        """Volumes: files of root, given to the pod's group."""
        folder = self.runner.folder
        folder.chmod(0o755)
        for name in ("saves", *(f"pod-{node}" for node in range(self.nodes))):
            (folder / name).mkdir()
            os.chown(folder / name, 0, self.number("fsGroup"))
            (folder / name).chmod(0o770)
        secret = folder / "secret"
        secret.write_bytes(os.urandom(32))
        os.chown(secret, 0, self.number("fsGroup"))
        secret.chmod(self.number("defaultMode"))

    def start(self, node):
        folder, here = self.runner.folder, self.runner.folder / f"pod-{node}"
        places = {"kintsugi": self.runner.kintsugi, "./trainer": self.runner.byte_lm, "/saves": str(folder / "saves"),
                  "/tmp/kintsugi-run": str(here / "run"), "/secret/secret": str(folder / "secret")}
        environment = {name: places.get(value, value) for name, value in self.environment.items()}
        environment |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": str(node), "HOSTNAME": f"train-{node}",
                        "PATH": os.environ["PATH"], "HOME": str(here)}
        user = self.number("runAsUser")
        line = ["setpriv", "--reuid", str(user), "--regid", str(self.number("runAsGroup")), "--clear-groups", "--no-new-privs",
                *(places.get(word, word) for word in self.command)]
        line[line.index("--"):line.index("--")] = ["--json", str(here / "summary.json")]
        self.pods[node] = self.net.popen(node, line, cwd=here, env=environment, stdout=subprocess.DEVNULL,
                                         stderr=open(here / "log", "a"))

    def log(self, node):
        return (self.runner.folder / f"pod-{node}" / "log").read_text()

    def wait_log(self, node, words):
        wait_until(lambda: words in self.log(node), lambda: f"'{words}' in {self.log(node)}")

    def finish(self):
        """As the Job's controller: until each pod has succeeded."""
        end = time.monotonic() + 120 * SLOWNESS
        while self.pods and time.monotonic() < end:
            for node, pod in list(self.pods.items()):
                if pod.poll() is None:
                    continue
                self.ends[node].append(pod.returncode)
                if pod.returncode in self.fatal:
                    raise Failure(f"the Job ends for good: pod {node} ended with {pod.returncode}\n{self.log(node)}")
                del self.pods[node]
                if pod.returncode != 0:
                    if pod.returncode not in self.ignored:
                        raise Failure(f"pod {node} ended with {pod.returncode}\n{self.log(node)}")
                    self.start(node)
            time.sleep(0.05)
        if self.pods:
            raise Failure(f"not done: {self.ends}\n" + "".join(self.log(node)[-3000:] for node in range(self.nodes)))

    def must_have_the_bits(self):
        summaries = [path for node in range(self.nodes) if (path := self.runner.folder / f"pod-{node}" / "summary.json").exists()]
        must_be_same(reference(self.runner.bin, STEPS[2:]), json.loads(summaries[0].read_text()))


def cluster(runner, net, options=()):
    for host in (0, 1):
        net.write_hosts(host, "127.0.0.1 localhost")
    return Job(runner, net, 2, options)


def names_are_known(net):
    for host in (0, 1):
        net.write_hosts(host, f"{net.address(0)} train-0.train")


def a_pod_that_is_late_and_a_name_that_is_later(runner):
    """Pod 1 is up before pod 0 is, and the service knows pod 0 only when both wait."""
    with Network(2) as net:
        job = cluster(runner, net)
        job.start(1)
        job.wait_log(1, "'train-0.train'")
        job.start(0)
        job.wait_log(0, "'train-0.train'")
        names_are_known(net)
        job.finish()
        job.must_have_the_bits()
    if job.ends != {0: [0], 1: [0]}:
        raise Failure(f"{job.ends}")


def a_pod_that_waits_in_vain_is_started_again(runner):
    """Beyond --join-timeout, and by SIGTERM before the run began: both are ends that the Job ignores."""
    with Network(2) as net:
        job = cluster(runner, net, ["--run-option=--join-timeout=2"])
        job.start(1)
        wait_until(lambda: job.pods[1].poll() is not None, "pod 1 gives up")
        if job.pods[1].returncode != 75:
            raise Failure(f"{job.pods[1].returncode}\n{job.log(1)}")
        job.ends[1].append(75)
        names_are_known(net)
        job.start(1)
        job.start(0)
        job.finish()
        job.must_have_the_bits()


def a_secret_that_others_may_read_ends_the_job(runner):
    with Network(2) as net:
        job = cluster(runner, net)
        names_are_known(net)
        (runner.folder / "secret").chmod(0o444)
        job.start(0)
        if job.pods[0].wait(60) != 2 or "can be read by others" not in job.log(0):
            raise Failure(job.log(0))


TESTS = [(test.__name__.replace("_", " "), test) for test in (
    a_pod_that_is_late_and_a_name_that_is_later, a_pod_that_waits_in_vain_is_started_again, a_secret_that_others_may_read_ends_the_job)]

if __name__ == "__main__":
    sys.exit(script(__doc__, TESTS))
