"""Every family that is imported: a small random model through llama.cpp's own converter and back.

mlx-lm makes the model; it is written as its makers publish such models; the converter of the
llama.cpp that llama-cpp-python carries turns it into GGUF; rankd imports that. Then rankd's logits
for the imported folder are held against mlx-lm's for the model that it all began with. Whatever the
converter did to a tensor and the import did not undo, or a key that was not carried over, shows there.

Tokenizers are not converted: transformers would have to know each.
"""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "engine"))

import mlx.core as mx  # noqa: E402
from bases import BASE, GEMMA3, YARN, YARN_SCALING  # noqa: E402
from cases import run_cases  # noqa: E402
from checkpoints import PUBLISHED, as_published, as_qwen_publishes, gpt_oss_in_floats  # noqa: E402
import compare  # noqa: E402
from gemma4_architectures import LARGE  # noqa: E402
from convert_model import convert  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402
from mlx_lm.models import (  # noqa: E402
    deepseek_v2,
    gemma3_text,
    gpt_oss,
    qwen3,
    qwen3_5,
    smollm3,
)

BOUND = 1e-4  # of the largest logit; what differs is the order in which float32 is summed
IMPORT_MAX_S = 120
FAMILIES = compare.ARCHITECTURES


def flat(model):
    return dict(tree_flatten(model.parameters()))


def unstacked(names=None):
    """Experts one by one, under the names that the makers give their maps."""

    def write(model):
        out = {}
        for name, value in as_published(flat(model)).items():
            found = re.match(r"(.*)\.(switch_mlp|experts)\.(\w+)\.weight$", name)
            if found is None or value.ndim != 3:
                out[name] = value
                continue
            owner, _, own = found.groups()
            for i in range(value.shape[0]):
                out[f"{owner}.experts.{i}.{(names or {}).get(own, own)}.weight"] = value[i]
        return renamed(out, names)

    return write


def renamed(weights, names):
    out = {}
    for name, value in weights.items():
        found = re.match(r"(.*\.experts\.\d+)\.(\w+)\.weight$", name)
        if found is not None and found.group(2) in (names or {}):
            name = f"{found.group(1)}.{names[found.group(2)]}.weight"
        out[name] = value
    return out


def nemotron(model):
    weights = unstacked({"fc1": "up_proj", "fc2": "down_proj"})(model)
    return {name: value.swapaxes(1, 2) if name.endswith("conv1d.weight") else value
            for name, value in weights.items()}


def gemma4(model):
    """Experts all in two tensors, as Google publishes them."""
    out, weights = {}, flat(model)
    for name, value in weights.items():
        if "experts.switch_glu.gate_proj" in name:
            ups = weights[name.replace("gate_proj", "up_proj")]
            out[name.replace("switch_glu.gate_proj.weight", "gate_up_proj")] = mx.concatenate(
                [value, ups], axis=1)
        elif "experts.switch_glu.down_proj" in name:
            out[name.replace("switch_glu.down_proj.weight", "down_proj")] = value
        elif "switch_glu" not in name:
            out[name] = value
    return out


def qwen_hybrid(model):
    return as_qwen_publishes(model, lambda weights: weights)


def without_prefix(names=None):
    """As mlx-lm has them, without the language model's prefix."""
    def write(model):
        return {name.replace("language_model.", ""): value
                for name, value in unstacked(names)(model).items()}

    return write


SIGMOID = {"scoring_func": "sigmoid"}
W = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
# For each: the family's case in compare.py (or one of its own), the class that its makers name, how
# its tensors are published, and what config.json has beside.
CASES = {
    "llama": ("LlamaForCausalLM", unstacked(), {}),
    "llama-rope-llama3": ("LlamaForCausalLM", unstacked(), {}),
    "llama-rope-linear": ("LlamaForCausalLM", unstacked(), {}),
    "llama-rope-yarn": ("LlamaForCausalLM", unstacked(), {}),
    "llama-bias": ("LlamaForCausalLM", unstacked(), {}),
    "internlm3": ("InternLM3ForCausalLM", unstacked(), {}),  # its biases are before attention alone
    "mixtral": ("MixtralForCausalLM", unstacked(W), {}),
    "ministral3": ("Ministral3ForCausalLM", unstacked(), {}),
    "qwen2": ("Qwen2ForCausalLM", unstacked(), {}),
    "qwen3": ("Qwen3ForCausalLM", unstacked(), {}),
    "qwen3-yarn": ("Qwen3ForCausalLM", unstacked(), {}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", unstacked(), {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", unstacked(), {}),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", without_prefix(), {}),
    "qwen3_next": ("Qwen3NextForCausalLM", PUBLISHED["qwen3_next-published"], {}),
    "qwen3_5": ("Qwen3_5ForCausalLM", qwen_hybrid, {}),
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM", PUBLISHED["qwen3_5_moe-published"], {}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", unstacked(), {}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", unstacked(), SIGMOID),
    "deepseek_v32": ("DeepseekV32ForCausalLM", unstacked(), SIGMOID),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", unstacked(), {}),
    "glm4_moe_lite": ("Glm4MoeLiteForCausalLM", unstacked(), {"words": "glm4"}),
    "youtu_llm": ("YoutuForCausalLM", unstacked(), {}),
    "glm4": ("Glm4ForCausalLM", unstacked(), {}),
    "glm4_moe-groups": ("Glm4MoeForCausalLM", unstacked(), {}),
    "solar_open": ("SolarOpenForCausalLM", unstacked(), {}),
    "dots1": ("Dots1ForCausalLM", unstacked(), SIGMOID),
    "minimax": ("MiniMaxM2ForCausalLM", unstacked(W), SIGMOID),
    "gpt_oss": ("GptOssForCausalLM", gpt_oss_in_floats, {}),
    "gemma3_text": ("Gemma3ForCausalLM", unstacked(), {}),
    "gemma4_text": ("Gemma4ForCausalLM", gemma4, {"moe_intermediate_size": None}),
    "gemma4_text-large": ("Gemma4ForCausalLM", gemma4, {"moe_intermediate_size": None}),
    "gemma4_text-experts": ("Gemma4ForCausalLM", gemma4, {}),
    "phi3": ("Phi3ForCausalLM", unstacked(), {"original_max_position_embeddings": 128}),
    "phi3-longrope": ("Phi3ForCausalLM", unstacked(), {}),
    "nemotron_h": ("NemotronHForCausalLM", nemotron, {
        "num_hidden_layers": 4, "hybrid_override_pattern": "M*-M"}),
    "nemotron_h-experts": ("NemotronHForCausalLM", nemotron, {
        "num_hidden_layers": 3, "hybrid_override_pattern": "ME*"}),
    "olmo2": ("Olmo2ForCausalLM", unstacked(), {}),
    "olmo3": ("Olmo3ForCausalLM", unstacked(), {}),
    "olmoe": ("OlmoeForCausalLM", unstacked(), {}),
    "exaone4-types": ("Exaone4ForCausalLM", unstacked(), {}),
    "exaone4-plain": ("Exaone4ForCausalLM", unstacked(), {}),
    "exaone_moe": ("ExaoneMoeForCausalLM", unstacked(), {
        **SIGMOID, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
        "n_group": 1, "topk_group": 1}),
    "granite": ("GraniteForCausalLM", unstacked(), {}),
    "smollm3": ("SmolLM3ForCausalLM", unstacked(), {}),
    "seed_oss": ("SeedOssForCausalLM", unstacked(), {}),
    "ernie4_5": ("Ernie4_5ForCausalLM", unstacked(), {}),
    "minicpm": ("MiniCPMForCausalLM", unstacked(), {}),
}


def logits_through_gguf(build, converter, name, model, prompt):
    class_name, published, more = CASES[name]
    config = copy.deepcopy(FAMILIES[name][1])
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    config.update(more, architectures=[class_name])
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "source")
        os.mkdir(source)
        weights = {key: mx.contiguous(value.astype(mx.float32))
                   for key, value in published(model).items()}
        mx.save_safetensors(os.path.join(source, "model.safetensors"), weights)
        # What a converter asks of it: how many words there are.
        words = {word: i for i, word in enumerate(
            ["a", "b", "ab", *(f"word{i}" for i in range(3, vocabulary))])}
        tokenizer = {"model": {"vocab": words}, "added_tokens": [], "pre": config.pop("words", None)}
        Path(source, "tokenizer.json").write_text(json.dumps(tokenizer))
        Path(source, "config.json").write_text(json.dumps(config))
        file = os.path.join(folder, "model.gguf")
        try:
            convert(converter, source, file)
        except Exception as error:
            raise RuntimeError(f"the converter: {error!r}") from error
        done = subprocess.run([f"{build}/bin/rankd", "--import", file, "--into", folder, "--name",
                               "imported"], capture_output=True, timeout=IMPORT_MAX_S)
        imported = os.path.join(folder, "imported")
        if not os.path.exists(os.path.join(imported, "config.json")):
            raise RuntimeError(f"rankd --import: {done.stdout[-500:]!r} {done.stderr[-300:]!r}")
        return compare.run_rankd(f"{build}/bin/rankd", imported, prompt, vocabulary)


def difference(build, converter, name):
    model, ours, tokens = compare.draw_whole(
        name, "float32", f"gguf {name}",
        lambda model, prompt: logits_through_gguf(build, converter, name, model, prompt),
        compare.greedy_tokens)
    return compare.difference_of(ours, compare.reference(model, tokens))


def main():
    build, converter, *only = sys.argv[1:]
    cases = [(build, converter, name) for name in only or CASES]
    failed, worst = run_cases(cases, difference, lambda case: BOUND)
    print(f"{len(cases)} models through llama.cpp's converter and back: {failed} failed, largest "
          f"difference {worst.get(BOUND, 0):.1e} of the largest logit (bound {BOUND:.0e})")
    return 1 if failed else 0


FAMILIES["qwen3-yarn"] = (
    qwen3, {**BASE, "model_type": "qwen3", "head_dim": 32, "rope_scaling": YARN_SCALING})
# GGUF has no key for how scores are scaled, nor for every which layer sees everything.
FAMILIES["gemma3_text"] = (
    gemma3_text, {**GEMMA3, "num_hidden_layers": 6, "sliding_window_pattern": 6,
                  "query_pre_attn_scalar": 32})
# GGUF has one number for both, and DeepSeek's models too.
FAMILIES["deepseek_v2"] = (deepseek_v2, {
    **FAMILIES["deepseek_v2"][1], "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}})
# Two value heads for each key head, which the converter puts in another order.
text = {**FAMILIES["qwen3_5"][1]["text_config"], "linear_num_key_heads": 2}
FAMILIES["qwen3_5"] = (qwen3_5, {**FAMILIES["qwen3_5"][1], "text_config": text})
# llama.cpp knows no dense layers of these.
for name in ("qwen3_moe", "qwen3_next", "qwen3_5_moe", "qwen2_moe"):
    module, config = FAMILIES[name]
    FAMILIES[name] = (module, {**config, "mlp_only_layers": [], "decoder_sparse_step": 1})
FAMILIES["qwen3_5_moe"][1]["rope_parameters"] = {
    "type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 2]}
for key in ("rope_parameters", "layer_types", "final_logit_softcapping"):
    FAMILIES["gemma4_text"][1].setdefault(key, LARGE[key])
# Of steps that have a limit GGUF knows nothing.
name = "nemotron_h-experts"
FAMILIES[name] = (FAMILIES[name][0], {**FAMILIES[name][1], "time_step_limit": [0.0, float("inf")]})
# mlx-lm rounds the ends of YaRN's range, gpt-oss does not; the import says so.
FAMILIES["gpt_oss"] = (gpt_oss, {**FAMILIES["gpt_oss"][1], "rope_scaling": {"rope_type": "default"}})
# The layers without positions are every fourth, which GGUF has no key for.
FAMILIES["smollm3"] = (
    smollm3, {**BASE, "model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layer_interval": 4})

if __name__ == "__main__":
    sys.exit(main())
