"""The Debian packages, made by ./tools/package, in a root of Debian 12 that has nothing else.

  deb_test.py MINIMAL_TRAINER [--packages DIR]      a trainer of ours, for the run in that root; packages that were made before
Exit code 77 where no such root can be made (mmdebstrap is missing, no root rights, no mirror).
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/multiproc"))
from harness import Failure  # noqa: E402

# In C, so that the package's own header and library are all it needs.
PROGRAM = r"""
#include <kintsugi/kintsugi.h>
#include <stdio.h>
int main(void) { return printf("%s\n", kintsugi_version()) > 0 ? 0 : 1; }
"""


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=1800, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


def expect(what, text, *words):
    for word in words:
        if word not in text:
            raise Failure(f"{what}: '{word}' is not in\n{text[-2000:]}")
    print(f"-- {what}")


def fresh_root(folder, packages="man-db,zsh,bash-completion,gcc,libc6-dev,pkg-config"):
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        raise LookupError("needs root and the package mmdebstrap")
    mirror = next((line.split()[1] for name in glob.glob("/etc/apt/sources.list.d/debian*") for line in open(name)
                   if line.startswith("URIs:")), "http://deb.debian.org/debian")
    done = subprocess.run(["mmdebstrap", "--variant=apt", f"--include={packages}", "bookworm", folder, mirror], capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        raise LookupError(f"mmdebstrap: {done.stderr[-500:]}")


def main():
    trainer = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        if sys.argv[2:3] == ["--packages"]:
            packages = sorted(Path(sys.argv[3]).glob("*.deb"))
        else:
            packages = [Path(line) for line in call(ROOT / "tools/package", "--out", f"{scratch}/packages").split()]
        print("-- made", ", ".join(package.name for package in packages))
        unpacked(packages, Path(scratch, "unpacked"))
        there = f"{scratch}/root"
        try:
            fresh_root(there)
        except LookupError as reason:
            print(f"skipped: {reason}")
            return 77
        inside = ["chroot", there]
        shutil.copy("/etc/resolv.conf", f"{there}/etc/resolv.conf")
        for settings in glob.glob("/etc/apt/apt.conf.d/*proxy*"):
            shutil.copy(settings, f"{there}/etc/apt/apt.conf.d")
        for file in [*packages, trainer]:
            shutil.copy(file, f"{there}/opt")
        for place, kind in (("proc", "proc"), ("dev/shm", "tmpfs")):
            Path(there, place).mkdir(exist_ok=True)
            call("mount", "-t", kind, kind, f"{there}/{place}")
        try:
            try_it(inside, there, packages, trainer.name)
        finally:
            for place in ("proc", "dev/shm"):
                call("umount", "-l", f"{there}/{place}")
    return 0


def unpacked(packages, there):
    """What is in them needs no root of its own: version, pages, the demonstration."""
    commit = call("git", "-C", ROOT, "describe", "--always", "--dirty=.dirty", "--abbrev=12", "--exclude=*").strip()
    versions = {call("dpkg-deb", "-f", package, "Version").strip() for package in packages}
    released = subprocess.run(["git", "-C", str(ROOT), "describe", "--exact-match", "--match", "v*"], capture_output=True, text=True, check=False)
    if len(versions) != 1 or not (min(versions).endswith(commit) or f"v{min(versions)}" == released.stdout.strip()):
        raise Failure(f"versions {versions} of commit {commit}")
    expect("the library's headers are those of the same commit",
           call("dpkg-deb", "-f", next(package for package in packages if "-dev" in package.name), "Depends"), f"kintsugi (= {min(versions)})")
    for package in packages:
        call("dpkg-deb", "-x", package, there)
    library = next(there.rglob("libkintsugi.so.*")).parent
    print(call(sys.executable, Path(__file__).with_name("installed_test.py"), there / "usr", "--library-path", library), end="")


def try_it(inside, there, packages, trainer):
    names = [f"/opt/{package.name}" for package in packages]
    # A proxy of this machine, where it needs one, is needed there too.
    plain = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    plain |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    call(*inside, "apt-get", "update", env=plain)
    call(*inside, "apt-get", "install", "-y", "--no-install-recommends", *names, env=plain)
    print("-- installed")
    expect("the command", call(*inside, "kintsugi", "--version", env=plain), "kintsugi 0.", "commit", "control protocol")
    said = subprocess.run([*inside, "kintsugi", "run", "--nproc", "2", "--save-dir", "", "--inject", "kill:1@5:update", "--",
                           f"/opt/{trainer}"], capture_output=True, text=True, timeout=120, env=plain, check=False)
    expect("a trainer that is killed and replaced", said.stdout + said.stderr + f" code {said.returncode}", "code 0", "y = ", "incident")
    demo = call(*inside, "sh", "-c", "cd / && kintsugi demo --nproc 2 --steps 20 2>&1", env=plain)
    expect("the demonstration", demo, "IDENTICAL")
    expect("a man page", call(*inside, "man", "kintsugi-ckpt-convert", env=plain), "KINTSUGI-CKPT-CONVERT", "--max-shard-size")
    expect("completion in bash", call(*inside, "bash", "-c", "source /usr/share/bash-completion/bash_completion; "
                                      "_completion_loader kintsugi; COMP_WORDS=(kintsugi ckpt con); COMP_CWORD=2; _kintsugi; "
                                      "echo ${COMPREPLY[*]}", env=plain), "convert")
    expect("completion in zsh", call(*inside, "zsh", "-c", "autoload -Uz compinit && compinit -u && echo $_comps[kintsugi]",
                                     env=plain), "_kintsugi")
    Path(there, "opt/program.c").write_text(PROGRAM)
    call(*inside, "sh", "-c", "cd /opt && gcc -std=c99 -Wall -Werror program.c $(pkg-config --cflags --libs kintsugi) -o program",
         env=plain)
    expect("a program in C, by pkg-config", call(*inside, "/opt/program", env=plain), "0.")
    if shutil.which("systemd-analyze"):
        # The root has no systemd: this machine's judges the unit, with the command where it lies.
        text = Path(there, "usr/lib/systemd/system/kintsugi-controller@.service").read_text()
        unit = Path(there, "opt/kintsugi-controller@job.service")
        unit.write_text(text.replace("/usr/bin/kintsugi", f"{there}/usr/bin/kintsugi"))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False)
        complaints = [line for line in done.stderr.splitlines() if "kintsugi" in line]
        if complaints:
            raise Failure(f"the unit: {complaints}")
        print("-- the unit")
    call(*inside, "apt-get", "purge", "-y", "kintsugi", env=plain)
    left = [path for path in (*Path(there, "usr").rglob("*kintsugi*"),) if path.exists()]
    if left:
        raise Failure(f"left behind by purge: {left}")
    print("-- removed without a trace")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
