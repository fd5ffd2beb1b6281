"""kintsugi.torch without a run: loaders, steps, what is refused and by which words, what torch may ask of a group, types.

  torch_alone_test.py BIN_DIR PACKAGE_FOLDER PYTHON [--soak] [--only WORD]...     --soak: loaders whose workers are spawned
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from door import HERE, ROOT, Failure, beside, main, opened, where_newer


def shadowed(door):
    """A file beside the script that has torch's name."""
    def test(_):
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            Path(folder, "torch.py").write_text("")
            Path(folder, "train.py").write_text("import kintsugi.torch\n")
            done = subprocess.run([door.python, "train.py"], capture_output=True, text=True, timeout=200, cwd=folder, env=door.environment())
        for words in (f"'torch' is {folder}/torch.py, not PyTorch", "Rename it"):
            if done.returncode == 0 or words not in done.stderr:
                raise Failure(done.stderr[-3000:])
    return test


if __name__ == "__main__":
    door, options = opened(preload="")
    trainers = ("shards", "cut", "mixed", "built", "layouts", "quantized", "swapped", "optimizers", "gan", "schedulers", "shard_options", "ddp_options",
                "attributes", "early")
    soak = [("a loader whose workers are spawned", door.alone("torch_loaders.py", arguments=["spawned"]))]
    short = [
        ("torch's mistakes are sentences", where_newer(door, door.alone("torch_mistakes.py"))),
        ("what is made anew lies where what was before it lay", door.alone("torch_again.py")),
        ("loaders give the batches of plain iteration, the same again, and on in another process", door.alone("torch_loaders.py")),
        ("what cannot be replayed of a loader is a sentence, and other ranks divide what is left", beside(door.alone("torch_loader_mistakes.py"))),
        ("nothing that this torch asks of a group was overlooked", door.alone("torch_virtuals.py")),
        ("what is done at every step gives back what it took", door.alone("torch_parts.py")),
        ("a file that shadows torch is named", shadowed(door)),
        ("types of the package are as they say", where_newer(door, door.typed("--exclude", "compat", "kintsugi"))),
        ("types of the trainers are as they say",
         where_newer(door, door.typed(str(ROOT / "integrations/examples/torch_gpt/train.py"), *(str(HERE / f"torch_{name}.py") for name in trainers)))),
    ]
    sys.exit(main(soak if options.soak else short, door.bin, options.only))
