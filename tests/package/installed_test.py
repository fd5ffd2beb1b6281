"""What an installation has for people who have no sources: the demonstration, pages whose links lead somewhere, dashboard, alerts, and
whose code it is.

  installed_test.py PREFIX [--library-path FOLDER]     the folder that bin, libexec and share are in
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/multiproc"))
from harness import Failure  # noqa: E402

PAGES = ["OPERATIONS.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "commands.md", "engines.md", "metrics.md", "orders.md", "hosts.md",
         "faults.md", "certificates.md", "grafana.json", "alerts.yml", "copyright"]


def anchors(page):
    """Of its headings, as they are made on GitHub and by most who show Markdown."""
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}


def links_lead_somewhere(folder):
    followed = 0
    for page in folder.glob("*.md"):
        for link in re.findall(r"\]\(([^)]*)\)", page.read_text()):
            if re.match(r"https?://", link):
                continue
            name, _, anchor = link.partition("#")
            target = folder / name if name else page
            if not target.is_file() or (anchor and anchor not in anchors(target)):
                raise Failure(f"{page.name}: the link {link} leads nowhere")
            followed += 1
    if followed < 5:
        raise Failure(f"only {followed} links were followed")
    print(f"-- {followed} links lead somewhere")


def pages_are_there(folder):
    missing = [name for name in PAGES if not (folder / name).is_file()]
    if missing:
        raise Failure(f"not installed in {folder}: {missing}")
    for name in PAGES:
        if str(ROOT) in (folder / name).read_text():
            raise Failure(f"{name} names the folder of the sources")
    if len(json.loads((folder / "grafana.json").read_text())["panels"]) < 10:
        raise Failure("a dashboard without its panels")
    for name in ("grafana.json", "alerts.yml"):
        if (folder / name).read_bytes() != (ROOT / "tools/observe" / name).read_bytes():
            raise Failure(f"{name} is another one than the sources'")
    # Where the pages say that something lies, it does.
    for place in re.findall(r"/usr/share/doc/kintsugi/([\w.]+)", "".join(page.read_text() for page in folder.glob("*.md"))):
        if not (folder / place).is_file():
            raise Failure(f"the pages speak of {place}")
    print(f"-- {len(PAGES)} pages")


# What CMake looks for (KintsugiDependencies.cmake): code of these is in the programs; those are loaded; the rest only builds and tests.
IN_IT = {"Boost": "boost", "Protobuf": "protobuf", "spdlog": "spdlog", "nlohmann_json": "nlohmann_json", "CLI11": "CLI11",
         "simdjson": "simdjson", "Gloo": "gloo", "Eigen3": "eigen3", "XXHASH_INCLUDE_DIR": "xxhash"}
LOADED = {"OpenSSL", "ISAL_INCLUDE_DIR"}
BESIDE_IT = {"Threads", "GTest", "Python3", "benchmark", "CUDAToolkit"}


def what_is_in_it_is_named(folder):
    text = (folder / "copyright").read_text()
    named = set(re.findall(r"^Files: ([\w-]+)", text, re.M))
    found = set(re.findall(r"^ *find_(?:package|path)\((\w+)", (ROOT / "tools/cmake/KintsugiDependencies.cmake").read_text(), re.M))
    if found - set(IN_IT) - LOADED - BESIDE_IT:
        raise Failure(f"say here, and in tools/packaging/copyright, what becomes of {found - set(IN_IT) - LOADED - BESIDE_IT}")
    if {IN_IT[library] for library in found & set(IN_IT)} | {"fmt"} != named:  # which spdlog brings
        raise Failure(f"copyright names {named}")
    licences = set(re.findall(r"^License: (\S+)$", text, re.M))
    told = set(re.findall(r"^License: (\S+)\n ", text, re.M))
    if licences != told or len(told) < 8:
        raise Failure(f"licences without their words: {licences - told}")
    print(f"-- {len(named)} libraries and {len(told)} licences named")


def the_demonstration_works(prefix, environment):
    done = subprocess.run([str(prefix / "bin/kintsugi"), "demo", "--steps", "20", "--nproc", "2"], capture_output=True, text=True,
                          timeout=300, env=environment, check=False, cwd="/")
    if done.returncode != 0 or "IDENTICAL" not in done.stderr + done.stdout:
        raise Failure(f"kintsugi demo: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    print("-- kintsugi demo")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--library-path")
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KINTSUGI_")}
    # Where no build of this tree is found by accident.
    environment["PATH"] = "/usr/bin:/bin"
    if options.library_path:
        environment["LD_LIBRARY_PATH"] = options.library_path
    folder = options.prefix / "share/doc/kintsugi"
    try:
        pages_are_there(folder)
        links_lead_somewhere(folder)
        what_is_in_it_is_named(folder)
        promtool = shutil.which("promtool", path=f"{ROOT}/build/prometheus/usr/bin:{os.environ['PATH']}")
        if promtool:
            subprocess.run([promtool, "check", "rules", str(folder / "alerts.yml")], check=True, capture_output=True, timeout=60)
        the_demonstration_works(options.prefix, environment)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
