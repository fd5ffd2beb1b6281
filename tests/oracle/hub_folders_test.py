#!/usr/bin/env python3
"""Model folders of Hugging Face's libraries: shards of .bin, adapters, variants, pipelines of diffusers, indexes that are named.

    hub_folders_test.py KINTSUGI

Behind ./tools/test --oracles: huggingface_hub writes the folders, transformers loads what we make of them.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import oracle
import states
from checkpoint_formats_test import Kintsugi
from misread_formats_test import refused

LIBRARIES = pathlib.Path(__file__).resolve().parents[2] / "build" / "oracles"


def save(hub, state, place, **options):
    place.mkdir(exist_ok=True)
    hub.save_torch_state_dict(state, place, **options)


def keys(kintsugi, path, *more):
    shown = json.loads(kintsugi.run("show", path, *more).stdout)
    return {tensor["key"] for tensor in shown["tensors"]}, shown["notes"]


def check_bin(torch, hub, transformers, kintsugi, folder):
    """A model as transformers wrote it before safetensors: one file, and shards with their index."""
    config = transformers.LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(config)
    for name, size in (("one", "5GB"), ("shards", "8KB")):
        place = folder / name
        save(hub, model.state_dict(), place, safe_serialization=False, max_shard_size=size)
        config.save_pretrained(place)
        sources = [place] + ([place / "pytorch_model.bin.index.json"] if size == "8KB" else [place / "pytorch_model.bin"])
        assert size == "5GB" or len(list(place.glob("*.bin"))) > 3
        for number, source in enumerate(sources):
            ours = kintsugi.convert(source, folder / f"{name}-{number}", "safetensors", "--max-shard-size", "16KB")
            assert (ours / "config.json").exists() == (source.suffix != ".bin")
            if source.suffix == ".bin":
                config.save_pretrained(ours)
            loaded = transformers.LlamaForCausalLM.from_pretrained(ours)
            states.assert_equal_states(torch, dict(model.state_dict()), dict(loaded.state_dict()), source)
        assert json.loads(kintsugi.run("verify", place, "--json").stdout)["format"] == "torch"
    index = folder / "one-0/model.safetensors.index.json"
    assert keys(kintsugi, index)[0] == keys(kintsugi, index.parent)[0] == set(model.state_dict())
    # One file and shards side by side, of two saves: what transformers takes.
    other = transformers.LlamaForCausalLM(config)
    for name, ending, is_safe in (("one", "bin", False), ("one-0", "safetensors", True)):
        both = folder / f"two-saves-{ending}"
        shutil.copytree(folder / name, both)
        for shard in both.glob("*-of-*"):
            os.unlink(shard)
        for index in both.glob("*.index.json"):
            os.unlink(index)
        save(hub, other.state_dict(), both, safe_serialization=is_safe, max_shard_size="8KB")  # removes what it replaces
        single = "model.safetensors" if is_safe else "pytorch_model.bin"
        save(hub, model.state_dict(), folder / f"single-{ending}", safe_serialization=is_safe)
        shutil.copy(folder / f"single-{ending}" / single, both)
        config.save_pretrained(both)
        loaded = transformers.LlamaForCausalLM.from_pretrained(both).state_dict()
        found = torch.load(kintsugi.convert(both, folder / "two-saves.pt", "torch", "--overwrite"))
        states.assert_equal_states(torch, {key: loaded[key] for key in found}, found, both)
        states.assert_equal_states(torch, dict(model.state_dict()), found, both)
    # What a Trainer keeps of its optimizer is another file, and told of.
    torch.save({"state": {0: {"exp_avg": torch.ones(2)}}}, folder / "one/optimizer.pt")
    assert any("'optimizer.pt'" in note for note in keys(kintsugi, folder / "one")[1])
    assert keys(kintsugi, folder / "one/optimizer.pt")[0] == {"state.0.exp_avg"}
    os.unlink(folder / "one/optimizer.pt")
    # Index and files say one thing.
    place = folder / "shards"
    table = json.loads((place / "pytorch_model.bin.index.json").read_text())
    lost = sorted(set(table["weight_map"].values()))[1]
    os.rename(place / lost, folder / "lost.bin")
    refused(kintsugi, (f"lists '{lost}', which is missing",), "show", place)
    os.rename(folder / "lost.bin", place / lost)
    name = next(key for key, file in table["weight_map"].items() if file == lost)
    for change, words in (({name: None}, (f"holds the tensor '{name}'", "does not say so")), ({"more": lost}, ("lists the tensor 'more'", "does not hold it"))):
        other = {key: file for key, file in {**table["weight_map"], **change}.items() if file}
        (place / "pytorch_model.bin.index.json").write_text(json.dumps({**table, "weight_map": other}))
        refused(kintsugi, words, "convert", place, folder / "x", "--to", "torch")
    # transformers joins the folder and what the index says; ours stays inside.
    for form in ("bin", "safetensors"):
        start = folder / f"start-{form}"
        save(hub, model.state_dict(), start, safe_serialization=form == "safetensors", max_shard_size="8KB")
        config.save_pretrained(start)
        for name, say, words in (("dot", "./{}", None), ("below", "a/./b//{}", None), ("out", "../x/{}", ("not the name of a file in this folder",)),
                                 ("link", "link/{}", ("is a symbolic link to a folder",))):
            place = folder / f"{form}-{name}"
            shutil.copytree(start, place)
            index = next(place.glob("*.index.json"))
            table = json.loads(index.read_text())
            first = sorted(set(table["weight_map"].values()))[0]
            index.write_text(json.dumps({**table, "weight_map": {key: say.format(file) if file == first else file for key, file in table["weight_map"].items()}}))
            if name == "link":
                (folder / f"{form}-away").mkdir()
                (place / "link").symlink_to(folder / f"{form}-away")
            target = place / say.format(first)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(place / first, target)
            if words:
                refused(kintsugi, words, "show", place)
                continue
            loaded = transformers.LlamaForCausalLM.from_pretrained(place)
            states.assert_equal_states(torch, dict(model.state_dict()), dict(loaded.state_dict()), place)
            found = torch.load(kintsugi.convert(place, folder / f"{form}-{name}.pt", "torch"))
            states.assert_equal_states(torch, dict(model.state_dict()), found, place)
    # Both kinds: safetensors is read, as transformers does, and the other is told of.
    both = folder / "both"
    shutil.copytree(folder / "one", both)
    save(hub, {"w": torch.ones(2)}, folder / "w")
    shutil.copy(folder / "w/model.safetensors", both)
    found, notes = keys(kintsugi, both)
    assert found == {"w"} and any("'pytorch_model.bin' is there too" in note and "--format torch" in note for note in notes), (found, notes)
    assert keys(kintsugi, both, "--format", "torch")[0] == set(model.state_dict())


def check_bases(torch, hub, kintsugi, folder):
    """Adapters of PEFT, models of diffusers and their pipelines, variants: read, and written again under their names."""
    state = {"base_model.model.q.lora_A.weight": torch.randn(4, 32), "base_model.model.q.lora_B.weight": torch.randn(32, 4)}
    for base, config in (("adapter_model", "adapter_config.json"), ("diffusion_pytorch_model", "config.json")):
        for is_safe, ending in ((True, "safetensors"), (False, "bin")):
            place = folder / f"{base}-{ending}"
            save(hub, state, place, filename_pattern=base + "{suffix}." + ending, safe_serialization=is_safe)
            (place / config).write_text("{}")
            states.assert_equal_states(torch, state, torch.load(kintsugi.convert(place, folder / "a.pt", "torch", "--overwrite")), place)
            ours = kintsugi.convert(place, folder / f"{base}-{ending}-ours", "safetensors")
            assert (ours / f"{base}.safetensors").exists() and (ours / config).exists(), list(ours.iterdir())
            split = kintsugi.convert(ours, folder / f"{base}-{ending}-split", "safetensors", "--max-shard-size", "512")
            assert (split / f"{base}.safetensors.index.json").exists() and (split / f"{base}-00001-of-00002.safetensors").exists()
            kintsugi.equal(place, split)
    pipeline = folder / "pipeline"
    for part in ("unet", "vae"):
        shutil.copytree(folder / "diffusion_pytorch_model-safetensors", pipeline / part)
    (pipeline / "scheduler").mkdir()
    (pipeline / "model_index.json").write_text("{}")
    refused(kintsugi, ("pipeline of diffusers", "'unet', 'vae'"), "show", pipeline)
    assert keys(kintsugi, pipeline / "unet")[0] == set(state)
    # Variants: the plain one is read; alone, the one there is; of several, none.
    unet = pipeline / "unet"
    save(hub, {"half": torch.ones(2).half()}, folder / "half")
    shutil.copy(folder / "half/model.safetensors", unet / "diffusion_pytorch_model.fp16.safetensors")
    found, notes = keys(kintsugi, unet)
    assert found == set(state) and any("'diffusion_pytorch_model.fp16.safetensors'" in note for note in notes), notes
    os.unlink(unet / "diffusion_pytorch_model.safetensors")
    assert keys(kintsugi, unet)[0] == {"half"}
    shutil.copy(folder / "half/model.safetensors", unet / "diffusion_pytorch_model.ema.safetensors")
    refused(kintsugi, ("variants of a model alone", "'diffusion_pytorch_model.ema.safetensors'", "name the file"), "show", unet)


def main():
    if not LIBRARIES.is_dir():
        print("SKIPPED: there is no build/oracles; ./tools/setup --oracles makes it")
        sys.exit(oracle.SKIPPED)
    sys.path.append(str(LIBRARIES))
    torch, _, hub, transformers = oracle.need("torch", "safetensors.torch", "huggingface_hub", "transformers")
    kintsugi = Kintsugi(sys.argv[1])
    for check, arguments in ((check_bin, (torch, hub, transformers, kintsugi)), (check_bases, (torch, hub, kintsugi))):
        with tempfile.TemporaryDirectory() as folder:
            check(*arguments, pathlib.Path(folder))
        print(check.__name__, "ok")


if __name__ == "__main__":
    main()
