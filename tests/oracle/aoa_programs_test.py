"""The AOA programs that ship (replica/aoa/programs) against models of megatron-core: saved by its dist_checkpointing, taken to Hugging
Face's names by `ckpt convert --aoa @NAME`, and back, bit for bit, weights and the moments of each; what came back is loaded by its
dist_checkpointing, strictly. What must come out is computed here from
the model's own parameters, layer by layer, with plain torch.
usage: aoa_programs_test.py KINTSUGI
"""
import dataclasses
import os
import pathlib
import signal
import sys
import tempfile

import oracle
import states
from checkpoint_formats_test import Kintsugi

LAYERS, HIDDEN, HEADS, GROUPS, HEAD, FFN, VOCABULARY, EXPERTS, POSITIONS = 3, 32, 8, 2, 6, 20, 64, 5, 16
MOMENT = "optimizer.state.exp_avg."


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    reference: str  # what --aoa is given, without reverse
    options: dict
    expect: object  # from the model's parameters to Hugging Face's names
    spec: dict
    positions: str = "rope"
    tied: bool = False


# --- the plain conversions ---------------------------------------------------------------------------------------------------------------

def heads(torch, fused, heads_of=HEADS, groups=GROUPS):
    """Q, K and V of a matrix, or a bias, that holds for each group its Q heads, then K, then V."""
    grouped = fused.reshape(groups, heads_of // groups + 2, HEAD, *fused.shape[1:])
    rows = lambda part: part.reshape(-1, *fused.shape[1:])
    return rows(grouped[:, :-2]), rows(grouped[:, -2]), rows(grouped[:, -1])


def llama_attention(torch, held, layer, out):
    ours, theirs = f"decoder.layers.{layer}.", f"model.layers.{layer}."
    out[theirs + "input_layernorm.weight"] = held[ours + "input_layernorm.weight"]
    out[theirs + "post_attention_layernorm.weight"] = held[ours + "pre_mlp_layernorm.weight"]
    for kind in ("weight", "bias"):
        if ours + "self_attention.linear_qkv." + kind in held:
            for name, part in zip("qkv", heads(torch, held[ours + "self_attention.linear_qkv." + kind])):
                out[f"{theirs}self_attn.{name}_proj.{kind}"] = part
    for name in "qk":
        if f"{ours}self_attention.{name}_layernorm.weight" in held:
            out[f"{theirs}self_attn.{name}_norm.weight"] = held[f"{ours}self_attention.{name}_layernorm.weight"]
    out[theirs + "self_attn.o_proj.weight"] = held[ours + "self_attention.linear_proj.weight"]


def llama_ends(held):
    out = {"model.embed_tokens.weight": held["embedding.word_embeddings.weight"], "model.norm.weight": held["decoder.final_layernorm.weight"]}
    if "output_layer.weight" in held:
        out["lm_head.weight"] = held["output_layer.weight"]
    return out


def gated(held, ours, theirs, out):
    out[theirs + "gate_proj.weight"], out[theirs + "up_proj.weight"] = held[ours + "linear_fc1.weight"].chunk(2)
    out[theirs + "down_proj.weight"] = held[ours + "linear_fc2.weight"]


def llama(torch, held):
    out = llama_ends(held)
    for layer in range(LAYERS):
        llama_attention(torch, held, layer, out)
        gated(held, f"decoder.layers.{layer}.mlp.", f"model.layers.{layer}.mlp.", out)
    return out


def qwen_moe(torch, held):
    out = llama_ends(held)
    for layer in range(LAYERS):
        llama_attention(torch, held, layer, out)
        ours, theirs = f"decoder.layers.{layer}.mlp.", f"model.layers.{layer}.mlp."
        out[theirs + "gate.weight"] = held[ours + "router.weight"]
        for expert in range(EXPERTS):
            gated(held, f"{ours}experts.local_experts.{expert}.", f"{theirs}experts.{expert}.", out)
        if ours + "shared_experts.linear_fc1.weight" in held:
            gated(held, ours + "shared_experts.", theirs + "shared_expert.", out)
            out[theirs + "shared_expert_gate.weight"] = held[ours + "shared_experts.gate_weight"]
    return out


def gpt(torch, held):
    out = {"transformer.wte.weight": held["embedding.word_embeddings.weight"],
           "transformer.wpe.weight": held["embedding.position_embeddings.weight"],
           "transformer.ln_f.weight": held["decoder.final_layernorm.weight"], "transformer.ln_f.bias": held["decoder.final_layernorm.bias"]}
    for layer in range(LAYERS):
        ours, theirs = f"decoder.layers.{layer}.", f"transformer.h.{layer}."
        for kind, turned in (("weight", lambda t: t.t()), ("bias", lambda t: t)):
            out[f"{theirs}ln_1.{kind}"], out[f"{theirs}ln_2.{kind}"] = held[f"{ours}input_layernorm.{kind}"], held[f"{ours}pre_mlp_layernorm.{kind}"]
            fused = heads(torch, held[f"{ours}self_attention.linear_qkv.{kind}"], groups=HEADS)
            out[f"{theirs}attn.c_attn.{kind}"] = turned(torch.cat(fused))
            for name, of in (("attn.c_proj", "self_attention.linear_proj"), ("mlp.c_fc", "mlp.linear_fc1"), ("mlp.c_proj", "mlp.linear_fc2")):
                out[f"{theirs}{name}.{kind}"] = turned(held[f"{ours}{of}.{kind}"])
    return out


def cases(functional):
    gated_units = {"gated_linear_unit": True, "activation_func": functional.silu, "normalization": "RMSNorm", "add_bias_linear": False}
    moe = {**gated_units, "num_moe_experts": EXPERTS, "moe_ffn_hidden_size": 12, "moe_router_topk": 2}
    values = f"num_heads={HEADS},num_key_value_heads={GROUPS}"
    local = ",mlp_norm=mlp.linear_fc1.layer_norm_weight"  # these are Megatron's local layers
    return [
        Case("llama", f"@llama:{values}", gated_units, llama, {}),
        Case("qwen2", f"@llama:{values}", {**gated_units, "add_qkv_bias": True}, llama, {}, tied=True),
        Case("qwen3", f"@llama:{values}", {**gated_units, "qk_layernorm": True}, llama, {"qk_layernorm": True}),
        Case("qwen2_moe", f"@qwen_moe:{values}{local}",
             {**moe, "add_qkv_bias": True, "moe_shared_expert_intermediate_size": 10, "moe_shared_expert_gate": True}, qwen_moe, {"num_experts": EXPERTS}),
        Case("qwen3_moe", f"@qwen_moe:{values}{local}", {**moe, "qk_layernorm": True}, qwen_moe, {"num_experts": EXPERTS, "qk_layernorm": True}),
        Case("gpt", f"@gpt:num_heads={HEADS}", {"num_query_groups": HEADS}, gpt, {}, positions="learned_absolute", tied=True),
    ]


# --- Megatron's side ---------------------------------------------------------------------------------------------------------------------

def make_model(case):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig
    options = {"num_query_groups": GROUPS, **case.options}
    config = TransformerConfig(num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, kv_channels=HEAD, ffn_hidden_size=FFN,
                               use_cpu_initialization=True, **options)
    spec = get_gpt_layer_local_spec(normalization=config.normalization, **case.spec)
    return GPTModel(config, spec, vocab_size=VOCABULARY, max_sequence_length=POSITIONS, position_embedding_type=case.positions,
                    share_embeddings_and_output_weights=case.tied)


def held_by(torch, model):
    return {key: value for key, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def save(torch, case, folder):
    """The model as Megatron saves it, and what it holds: its parameters and a moment of each."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.dict_utils import dict_list_map_inplace
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
    both = make_model(case).bfloat16(), make_model(case).float()  # the second one's parameters are the first one's moments
    for model in both:
        for parameter in model.parameters():
            parameter.data.normal_()
    sharded = [model.sharded_state_dict() for model in both]
    for one in sharded:
        apply_factories(one)

    def rename(leaf):
        if isinstance(leaf, ShardedTensor):
            leaf.key = MOMENT + leaf.key
        return leaf
    dict_list_map_inplace(rename, sharded[1])
    moments = {f"moment {key}": value for key, value in sharded[1].items() if not key.endswith("_extra_state")}
    folder.mkdir()
    (folder / "saved").mkdir()
    dist_checkpointing.save({**sharded[0], **moments, "iteration": 5}, str(folder / "saved"))
    held = [held_by(torch, model) for model in both]
    torch.save(held[0], folder / "held.pt")
    expected = case.expect(torch, held[0])
    expected.update({MOMENT + key: value for key, value in case.expect(torch, held[1]).items()})
    torch.save({key: value.detach().contiguous() for key, value in expected.items()}, folder / "expected.pt")


def load(torch, case, folder):
    """What came back from Hugging Face's names, by Megatron's own loader, as strict as it is by default."""
    from megatron.core import dist_checkpointing
    model = make_model(case).bfloat16()
    state = dist_checkpointing.load({"model": model.sharded_state_dict()}, str(next((folder / "again").glob("iter_*"))))
    model.load_state_dict(state["model"])
    expected, found = torch.load(folder / "held.pt", weights_only=True), held_by(torch, model)
    assert sorted(expected) == sorted(found), (case.name, sorted(set(expected) ^ set(found)))
    for key, value in expected.items():
        states.assert_equal_tensors(torch, value, found[key], (case.name, "Megatron", key))


def be_megatron(torch, folder, do):
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{do.__name__}", rank=0, world_size=1)
    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    # What it asks of a GPU and of psutil, where there is neither.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    filesystem_async._process_memory = lambda: 0  # pylint: disable=protected-access
    parallel_state.initialize_model_parallel(1, 1)
    for case in cases(torch.nn.functional):
        do(torch, case, folder / case.name)


def in_megatron(torch, folder, do):
    """For all cases, in a process of its own: megatron-core starts a manager that outlives it."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        try:
            be_megatron(torch, folder, do)
            os._exit(0)
        except BaseException:  # pylint: disable=broad-exception-caught
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    assert code == 0, f"Megatron ended with {code}: {do.__name__}"


# --- ours --------------------------------------------------------------------------------------------------------------------------------

def check(torch, kintsugi, case, folder):
    from safetensors.torch import load_file
    expected = torch.load(folder / "expected.pt", weights_only=True)
    there = kintsugi.convert(folder / "saved", folder / "hf.safetensors", "safetensors", "--aoa", case.reference)
    found = load_file(there)
    assert sorted(found) == sorted(expected), (case.name, sorted(set(found) ^ set(expected)))
    for key, value in expected.items():
        states.assert_equal_tensors(torch, value, found[key], (case.name, key))
    name, _, values = case.reference.partition(":")
    again = kintsugi.convert(there, folder / "again", "megatron", "--aoa", f"{name}:reverse,{values}", "--shards", "2")
    first, last = (torch.load(kintsugi.convert(path, folder / f"{path.name}.pt", "torch"), weights_only=True) for path in (folder / "saved", pathlib.Path(again)))
    tensors = [{key: value for key, value in states.leaves(torch, one) if isinstance(value, torch.Tensor)} for one in (first, last)]
    assert sorted(tensors[0]) == sorted(tensors[1]), (case.name, sorted(set(tensors[0]) ^ set(tensors[1])))
    for key, value in tensors[0].items():
        states.assert_equal_tensors(torch, value, tensors[1][key], (case.name, "back", key))
    return len(expected)


def check_refusals(kintsugi, folder):
    for reference, words in (("@lama", "there are @gpt, @llama, @qwen_moe"), ("@llama", "write '@llama:num_heads=...'"),
                             ("@llama:num_heads=8,num_key_value_heads=2,heads=3", "asks for no value 'heads'")):
        done = kintsugi.run("convert", folder / "llama" / "saved", folder / "none", "--to", "safetensors", "--aoa", reference, code=2)
        assert words in done.stderr, (reference, done.stderr)


def main():
    torch, _, _ = oracle.need("torch", "megatron.core", "safetensors")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    kintsugi = Kintsugi(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="kintsugi-aoa-programs-") as name:
        folder = pathlib.Path(name)
        in_megatron(torch, folder, save)
        told = [f"{case.name} {check(torch, kintsugi, case, folder / case.name)}" for case in cases(torch.nn.functional)]
        in_megatron(torch, folder, load)
        check_refusals(kintsugi, folder)
    print("to Hugging Face's names and back into Megatron's models, tensors: " + ", ".join(told))


if __name__ == "__main__":  # megatron-core starts a manager that imports this file again
    main()
