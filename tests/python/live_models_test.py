"""What a live run saves of a model, loaded by the libraries that people load models with: the very bits that were trained.

  live_models_test.py BIN_DIR PACKAGE_FOLDER PYTHON ORACLES      ORACLES: the folder with transformers (./tools/setup --oracles)
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from door import HERE, Failure, FrameworkDoor, main, skip_without_torch

STEP = 4
GPT_CONFIG = {"model_type": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
# Run by the interpreter that has transformers. WHAT: where to look, and what was trained.
READ = """
import json, sys, torch
from pathlib import Path
from transformers import GPT2LMHeadModel
folder, trained = Path(sys.argv[1]), torch.load(sys.argv[1] + "/trained.pt")
hub = folder / "saves/safetensors/checkpoint-4"
files = sorted(path.name for path in hub.glob("*.safetensors"))
assert len(files) > 1 and (hub / "model.safetensors.index.json").exists(), files
assert all(path.stat().st_size < 50_000 for path in hub.glob("*.safetensors")), files
index = json.loads((hub / "model.safetensors.index.json").read_text())["weight_map"]
assert "lm_head.weight" not in index and "transformer.wte.weight" in index, sorted(index)  # tied weights once, under the name that is loaded
model, said = GPT2LMHeadModel.from_pretrained(hub, output_loading_info=True)
assert not any(said[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
def same(state):
    assert state.keys() == trained.keys(), state.keys() ^ trained.keys()
    for key, value in state.items():
        assert value.dtype == trained[key].dtype and torch.equal(value, trained[key]), key
same(model.state_dict())
assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
state = torch.load(folder / "saves/torch/step-4.pt", weights_only=True, mmap=True)
same(state)
fresh = GPT2LMHeadModel(model.config)
fresh.load_state_dict(state)  # strict
same(fresh.state_dict())
import torch.distributed.checkpoint as dcp
there = {key: torch.empty_like(value) for key, value in trained.items()}
dcp.load(there, checkpoint_id=folder / "saves/dcp/step-4", no_dist=True)
same(there)
"""
# Of a save of all that a run has. ARGV: folder, model.
READ_ALL = """
import sys, torch
from pathlib import Path
folder, trained, states = Path(sys.argv[1]), torch.load(sys.argv[1] + "/trained.pt"), torch.load(sys.argv[1] + "/states.pt")
def same(found, expected, what):
    assert found.keys() == expected.keys(), (what, found.keys() ^ expected.keys())
    for key, value in found.items():
        assert value.dtype == expected[key].dtype and torch.equal(value, expected[key]), (what, key)
hub = folder / "saves/safetensors/checkpoint-4"
if sys.argv[2] == "gpt":
    from transformers import GPT2LMHeadModel
    model, said = GPT2LMHeadModel.from_pretrained(hub, output_loading_info=True)
    assert not any(said[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), said
    same(model.state_dict(), trained, "from_pretrained")
else:
    from safetensors.torch import load_file
    same(load_file(hub / "model.safetensors"), trained, "safetensors")
assert (hub / "optimizer.safetensors").exists()
same(torch.load(folder / "saves/torch/step-4.pt", weights_only=True, mmap=True)["model"], trained, "torch")
import torch.distributed.checkpoint as dcp
there = {key: torch.empty_like(value) for key, value in trained.items()}
dcp.load(there, checkpoint_id=folder / "saves/dcp/step-4", no_dist=True)
same(there, trained, "dcp")
from deepspeed.checkpoint.ds_to_universal import main
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from types import SimpleNamespace
joined = get_fp32_state_dict_from_zero_checkpoint(str(folder / "saves/deepspeed"))
same({key: value.to(trained[key].dtype) for key, value in joined.items()}, trained, "zero_to_fp32")
main(SimpleNamespace(input_folder=str(folder / "saves/deepspeed/global_step4"), output_folder=str(folder / "converted"), num_extract_workers=1,
                     num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=False))
for universal in (folder / "converted", folder / "saves/deepspeed-universal/global_step4_universal"):
    for name, state in states.items():
        if trained[name].numel() == 0 and universal.name == "converted":
            continue  # DeepSpeed's converter extracts no fragment of what has no element
        found = {file.stem: torch.load(file, weights_only=False) for file in (universal / "zero" / name).glob("*.pt")}
        assert found.keys() >= {"fp32", "exp_avg", "exp_avg_sq", "step"}, (universal, name, found.keys())
        assert int(found["step"]) == int(state["step"]), (universal, name, found["step"])
        for what, expected in (("fp32", trained[name]), ("exp_avg", state["exp_avg"]), ("exp_avg_sq", state["exp_avg_sq"])):
            assert torch.equal(found[what]["param"].reshape(expected.shape), expected), (universal, name, what)
print("the very bits")
"""


class Models(FrameworkDoor):
    def model_alone(self, _):
        """--save-only model: names, ties and files as from_pretrained, load_state_dict and DCP want them."""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            config = Path(folder) / "config.json"
            config.write_text(json.dumps(GPT_CONFIG))
            saves = ["--save-dir", f"{folder}/saves", "--save-every", str(STEP), "--save-format", "safetensors,torch,dcp", "--save-only", "model",
                     "--max-shard-size", "40KB", "--save-with", str(config)]
            self.run(saves, [str(HERE / "live_model.py"), folder, "gpt"], nproc=2)
            done = subprocess.run([self.python, "-W", "ignore", "-c", READ, folder], capture_output=True, text=True, timeout=300, check=False,
                                  env=self.environment())
            if done.returncode != 0:
                raise Failure(done.stdout[-2000:] + done.stderr[-4000:])

    def buffers_alone(self, _):
        """--save-only model of one with running statistics: what state_dict has, and nothing that it has not."""
        read = """
import sys, torch
from safetensors.torch import load_file
trained = torch.load(sys.argv[1] + "/trained.pt")
for state in (load_file(sys.argv[1] + "/saves/safetensors/checkpoint-4/model.safetensors"), torch.load(sys.argv[1] + "/saves/torch/step-4.pt", weights_only=True)):
    assert state.keys() == trained.keys(), state.keys() ^ trained.keys()
    assert all(value.dtype == trained[key].dtype and torch.equal(value, trained[key]) for key, value in state.items())
print("the very bits")
"""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            saves = ["--save-dir", f"{folder}/saves", "--save-every", str(STEP), "--save-format", "safetensors,torch", "--save-only", "model"]
            self.run(saves, [str(HERE / "live_model.py"), folder, "norm"], nproc=2)
            self.read(read, folder)

    def all_that_a_run_has(self, model):
        """A full save: the model as its library looks for it, DeepSpeed's tools take theirs, and a run goes on from it under its own names."""
        def test(_):
            with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
                config = Path(folder) / "config.json"
                config.write_text(json.dumps(GPT_CONFIG))
                program = [str(HERE / "live_model.py"), folder, model]
                saves = ["--save-dir", f"{folder}/saves", "--save-every", str(STEP // 2), "--save-with", str(config)]
                whole, log = self.run([*saves, "--save-format", "safetensors,torch,dcp,deepspeed,deepspeed-universal"], program, nproc=2)
                if any(word in log for word in ("save_format_failed", ": not written", "state_not_held")):
                    raise Failure(log[-4000:])
                self.read(READ_ALL, folder, model)
                for place in ("safetensors/checkpoint-2", "torch/step-2.pt", "dcp/step-2"):
                    rest, log = self.run(["--resume", f"{folder}/saves/{place}", "--save-dir", ""], program, nproc=2)
                    if rest["final_digest"] != whole["final_digest"] or rest["losses"] != whole["losses"][STEP // 2:]:
                        raise Failure(f"{place}: {rest['final_digest']}, {rest['losses']}; whole {whole['final_digest']}, {whole['losses']}\n{log[-3000:]}")
        return test

    def under_a_programs_names(self, _):
        """--save-aoa: the model apart, by the program's names, with its buffers; and a run goes on from it by the program backwards."""
        read = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file
import torch.distributed.checkpoint as dcp
folder, trained = Path(sys.argv[1]) / "saves", torch.load(sys.argv[1] + "/trained.pt")
trained["encoder"] = trained.pop("first.weight")
there = {key: torch.empty_like(value) for key, value in trained.items()}
dcp.load(there, checkpoint_id=folder / "dcp/step-4", no_dist=True)
for state in (load_file(folder / "safetensors/checkpoint-4/model.safetensors"), torch.load(folder / "torch/step-4.pt", weights_only=True)["model"], there):
    assert state.keys() == trained.keys(), state.keys() ^ trained.keys()
    assert all(value.dtype == trained[key].dtype and torch.equal(value, trained[key]) for key, value in state.items())
assert "optimizer/encoder.exp_avg" in load_file(folder / "safetensors/checkpoint-4/optimizer.safetensors")
print("the very bits")
"""
        with tempfile.TemporaryDirectory(prefix="kintsugi-test-") as folder:
            Path(folder, "there.aoa").write_text("model/first.weight -> encoder\n")
            Path(folder, "back.aoa").write_text("encoder -> model/first.weight\n")
            program = [str(HERE / "live_model.py"), folder, "norm"]
            whole, log = self.run(["--save-dir", f"{folder}/saves", "--save-every", str(STEP // 2), "--save-format", "safetensors,torch,dcp", "--save-aoa",
                                   f"{folder}/there.aoa"], program, nproc=2)
            if "save_format_failed" in log or "save_format_remark" in log:
                raise Failure(log[-4000:])
            self.read(read, folder)
            for place in ("safetensors/checkpoint-2", "torch/step-2.pt", "dcp/step-2"):
                rest, log = self.run(["--resume", f"{folder}/saves/{place}", "--resume-aoa", f"{folder}/back.aoa", "--save-dir", ""], program, nproc=2)
                if rest["final_digest"] != whole["final_digest"]:
                    raise Failure(f"{place}: {rest['final_digest']}, {rest['losses']}; whole {whole['final_digest']}\n{log[-3000:]}")

    def read(self, code, *arguments):
        done = subprocess.run([self.python, "-W", "ignore", "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False,
                              env=self.environment())
        if done.returncode != 0 or "the very bits" not in done.stdout:
            raise Failure(done.stdout[-2000:] + done.stderr[-4000:])

    def needs_a_format(self, _):
        """What would do nothing is refused at the start."""
        for words, said in ((["--save-only", "model"], "--save-format"), (["--max-shard-size", "5GB"], "--save-format"),
                            (["--save-format", "torch", "--save-only", "weights"], "model"),
                            (["--save-format", "safetensors", "--max-shard-size", "large"], "--max-shard-size large")):
            done = subprocess.run([str(self.bin / "kintsugi"), "run", "--nproc", "1", *words, "--", "true"], capture_output=True, text=True, timeout=60,
                                  check=False)
            if done.returncode != 2 or said not in done.stderr:
                raise Failure(f"{words}: {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    door = Models(sys.argv[1:])
    skip_without_torch(door)
    door.skip_without("transformers")
    sys.exit(main([("what is refused at the start", door.needs_a_format), ("the model alone, by three libraries", door.model_alone),
                   ("the model alone, with the buffers of its state_dict", door.buffers_alone),
                   ("all of a run, under a program's names, and gone on from", door.under_a_programs_names),
                   ("all of a run of GPT-2, by transformers, torch and DeepSpeed, and gone on from", door.all_that_a_run_has("gpt")),
                   ("all of a run with BatchNorm, by safetensors, torch and DeepSpeed, and gone on from", door.all_that_a_run_has("norm"))], door.bin))
