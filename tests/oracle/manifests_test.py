"""`kintsugi manifest` against the published schemas of Kubernetes, and against what our own launcher reads from its pods.

  manifests_test.py KINTSUGI      with the package kubernetes-validate
JobSet and PyTorchJob are kinds of others: of theirs the pods and jobs inside are judged.
"""
import pathlib
import subprocess
import sys

# Behind what build/python has, as for the other large ones.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "build/oracles"))

try:
    import kubernetes_validate
    import yaml
except ImportError as missing:
    print(f"SKIPPED: {missing}: ./tools/setup --oracles")
    sys.exit(77)

VERSIONS = ("1.31", "1.35")


class Failure(Exception):
    pass


def documents(kintsugi, *words):
    done = subprocess.run([kintsugi, "manifest", "--image", "trainer:1", *words, "--", "./trainer", "--note", "it's: \"so\" # yes", "on"],
                          capture_output=True, text=True, timeout=60, check=True)
    return list(yaml.safe_load_all(done.stdout))


def judge(document):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.InvalidSchemaError) as error:
            raise Failure(f"{document['kind']}, Kubernetes {version}: {error}") from error


def job_of(name, spec):
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def inner(document):
    """What of a kind of others is Kubernetes' own."""
    spec, name = document["spec"], document["metadata"]["name"]
    if document["kind"] == "JobSet":
        return [job_of(name, jobs["template"]["spec"]) for jobs in spec["replicatedJobs"]]
    if document["kind"] == "PyTorchJob":
        pods = [replicas["template"] for replicas in spec["pytorchReplicaSpecs"].values()]
        if sum(replicas["replicas"] for replicas in spec["pytorchReplicaSpecs"].values()) != 3:
            raise Failure(f"not three pods: {spec}")
        return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod["spec"]} for pod in pods]
    return [document]


def main():
    kintsugi = sys.argv[1]
    judged = 0
    for kind in ("job", "jobset", "pytorchjob"):
        for options in (["--nnodes", "3"], ["--nnodes", "3", "--nproc", "8", "--gpus", "8", "--claim", "saves", "--name", "gpt-3"]):
            for document in documents(kintsugi, "--kind", kind, *options):
                for part in inner(document):
                    judge(part)
                    judged += 1
    [job] = documents(kintsugi)
    judge(job)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    if command[-4:] != ["./trainer", "--note", "it's: \"so\" # yes", "on"]:
        raise Failure(f"words came back otherwise: {command}")
    if job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] != [2]:
        raise Failure(f"what may succeed the next time ends the job: {job['spec']['podFailurePolicy']}")
    [watched] = documents(kintsugi, "--save-every", "100", "--metrics", "9100", "--run-option=--verify-every=50")
    judge(watched)
    container = watched["spec"]["template"]["spec"]["containers"][0]
    line = container["command"]
    for words in (["--save-every", "100"], ["--metrics", "0.0.0.0:9100"], ["--verify-every=50", "--"]):
        if words[0] not in line or line[line.index(words[0]) + 1] != words[1]:
            raise Failure(f"{words} in {line}")
    if container["ports"] != [{"name": "metrics", "containerPort": 9100}]:
        raise Failure(f"{container['ports']}")
    for document in documents(kintsugi, "--nnodes", "2", "--user", "1000"):
        judge(document)
        if document["kind"] == "Job":
            pod = document["spec"]["template"]["spec"]
            of_container = pod["containers"][0]["securityContext"]
            # What the restricted profile of Pod Security asks for.
            if not (pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault" and
                    of_container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}):
                raise Failure(f"{pod['securityContext']} {of_container}")
    # The schemas do find mistakes.
    job["spec"]["template"]["spec"]["containers"][0]["image"] = 5
    try:
        judge(job)
    except Failure:
        print(f"{judged + 1} documents are right by the schemas of Kubernetes {', '.join(VERSIONS)}")
        return
    raise Failure("a number as an image was taken for right")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
