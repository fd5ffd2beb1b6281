"""What keeps a commit from being a release, and what is made of one: tried on small repositories."""
import importlib.util
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("release", ROOT / "tools/packaging/release.py")
release = importlib.util.module_from_spec(spec)
spec.loader.exec_module(release)

HEADER = "#define KINTSUGI_ABI_VERSION 4\n"
FIT = {"CMakeLists.txt": "project(kintsugi VERSION 0.2.0 LANGUAGES CXX)\n", "CHANGELOG.md": "# Changelog\n\n## [0.2.0] - 2026-12-01\n",
       "integrations/c/kintsugi.h": HEADER, "tests/c_abi/recorded/4/kintsugi/kintsugi.h": HEADER}


class Release(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name, "tree")
        for name, text in FIT.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *words):
        named = ["-c", "user.name=tester", "-c", "user.email=tester@example.org", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false"]
        subprocess.run(["git", "-C", str(self.root), *named, *words], check=True, capture_output=True)

    def commit(self, tag="v0.2.0"):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a commit")
        if tag:
            self.git("tag", "--force", tag)

    def told(self):
        return list(release.obstacles(self.root, "0.2.0"))

    def test_a_tagged_commit_that_is_told_of_is_one(self):
        self.assertEqual(release.version_of(self.root), "0.2.0")
        self.assertEqual(self.told(), [])

    def test_each_obstacle_is_told_alone(self):
        for name, text, words in [("CHANGELOG.md", "## [Unreleased]\n", "no section '## [0.2.0] - DATE'"),
                                  ("integrations/c/kintsugi.h", HEADER + "int kintsugi_new(void);\n", "version 4 of the C ABI is not recorded"),
                                  ("integrations/c/kintsugi.h", HEADER.replace("4", "5"), "version 5 of the C ABI is not recorded")]:
            with self.subTest(words=words):
                before = (self.root / name).read_text()
                (self.root / name).write_text(text)
                self.commit()
                self.assertEqual(len(self.told()), 1)
                self.assertIn(words, self.told()[0])
                (self.root / name).write_text(before)
                self.commit()
        (self.root / "new").write_text("")
        self.assertEqual(self.told(), ["1 files differ from the commit: commit or remove them"])
        self.commit(tag=None)
        self.assertEqual(self.told(), ["the commit has no tag v0.2.0: git tag -s v0.2.0"])

    def test_the_archive_has_what_is_committed_and_the_same_bytes_each_time(self):
        (self.root / "left").write_text("not committed")
        bytes_of = [release.archive(self.root, "0.2.0", self.root.parent).read_bytes() for _ in range(2)]
        self.assertEqual(bytes_of[0], bytes_of[1])
        with tarfile.open(self.root.parent / "kintsugi-0.2.0.tar.gz") as made:
            files = {member.name for member in made.getmembers() if member.isfile()}
        self.assertEqual(files, {f"kintsugi-0.2.0/{name}" for name in FIT})

    def test_sums_are_those_of_sha256sum(self):
        (self.root / "b").write_text("b")
        (self.root / "a").write_text("a")
        (self.root / "SHA256SUMS").write_text(release.sums([self.root / "b", self.root / "a"]))
        checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=self.root, capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stdout), (0, "a: OK\nb: OK\n"))


if __name__ == "__main__":
    unittest.main()
