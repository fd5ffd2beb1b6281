"""The sources that the client's test runs: fetched at run time, kept below the build folder, never part of this project."""
import subprocess

from harness import Skip

# Repository, commit, the folder of it that is needed.
_SOURCES = {
    "megatron-lm": ("https://github.com/NVIDIA/Megatron-LM", "core_v0.12.1", "megatron"),
    "mindspeed": ("https://github.com/Ascend/MindSpeed", "028de58ca629d035185b00ff7d1eb7eff4f7fd48", "mindspeed"),
    "mindspeed-llm": ("https://github.com/Ascend/MindSpeed-LLM", "c77308a14bfcb1aa7ca61da9c1aa24a893cb1b91", "mindspeed_llm"),
}


def fetch(cache):
    """The folders for sys.path; raises Skip where they are not there and cannot be fetched. git's insteadOf names mirrors."""
    paths = []
    for name, (repository, commit, folder) in _SOURCES.items():
        place = cache / f"{name}-{commit[:12]}"
        if not (place / folder).is_dir():
            _fetch(place, repository, commit, folder)
        paths.append(str(place))
    return paths


def _fetch(place, repository, commit, folder):
    place.mkdir(parents=True, exist_ok=True)

    def git(*arguments):
        return subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, text=True, check=False, timeout=900)

    git("init", "--quiet")
    git("sparse-checkout", "set", folder)
    got = git("fetch", "--quiet", "--depth", "1", "--filter=blob:none", repository, commit)
    if got.returncode == 0:
        git("config", "remote.origin.url", repository)
        git("config", "remote.origin.promisor", "true")
        got = git("checkout", "--quiet", "FETCH_HEAD")
    if got.returncode != 0:
        raise Skip(f"{repository} at {commit} cannot be fetched: {got.stderr.strip().splitlines()[-1] if got.stderr.strip() else 'git failed'}")
