"""Holds the fields of config.json that mlx-lm's code reads, of each architecture that rankd serves, against those that
our readers name (runtime/model/families). A field that only mlx-lm reads must be refused by its name or listed here
with the reason why it changes nothing: else a model is served as another one in silence.

  compare_fields.py ROOT
"""

import ast
import importlib.util
import pathlib
import re
import sys

# model_type to mlx-lm's module, where they are not the same.
MODULES = {
    "mistral": "llama", "kimi_k2": "deepseek_v3", "minimax_m2": "minimax", "gemma4_unified": "gemma4",
}
# Names that are no fields of a config.json, and fields of training, of towers and of files.
HARMLESS = {
    "model_type", "text_config", "vision_config", "audio_config", "is_moe", "is_sparse_attn", "num_nextn_predict_layers",
    "attention_dropout", "initializer_range", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id",
    "image_token_id", "image_token_index", "video_token_id", "video_token_index",
    "quantization",  # read for all in config_file.cc
    "output_router_logits", "router_aux_loss_coef", "time_step_min", "time_step_max",
}
FUNCTION = re.compile(r"^[A-Za-z][\w:<>\*&, ]* [\*&]?(\w+)\([^;{}]*\) (?:const )?\{\n(.*?)^\}", re.S | re.M)


def readers(folder):
    """By file and function: the texts that it holds and the functions that it calls."""
    found = {}
    for path in folder.glob("*.cc"):
        source = path.read_text()
        found[path.name] = {
            name: (set(re.findall(r'"([A-Za-z_0-9]+)"', body)), set(re.findall(r"\b(\w+)\(", body)))
            for name, body in FUNCTION.findall(source)
        }
    return found


def reached(found, file, name, seen):
    holder = file if name in found[file] else next((f for f in found if name in found[f]), None)
    if holder is None or (holder, name) in seen:
        return set()
    seen.add((holder, name))
    texts, calls = found[holder][name]
    return texts.union(*(reached(found, holder, call, seen) for call in calls))


def mlx_fields(models, name):
    path = models / f"{name}.py"
    if not path.exists():
        return set()
    source = path.read_text()
    fields = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and ("Args" in node.name or "Config" in node.name):
            fields |= {line.target.id for line in node.body if isinstance(line, ast.AnnAssign)}
    for base, names in re.findall(r"from \.(\w+) import ([^\n]*)", source):
        if "Args" in names:
            fields |= mlx_fields(models, base)
    return fields


def main():
    root = pathlib.Path(sys.argv[1])
    families = root / "runtime/model/families"
    found = readers(families)
    table = (families / "known_fields.cc").read_text()
    listed = set(re.findall(r'"([a-z_0-9]+)"', table))
    models = pathlib.Path(importlib.util.find_spec("mlx_lm").origin).parent / "models"
    rows = re.findall(r'\{"(\w+)", (Read\w+)\}', (families / "family.cc").read_text())
    assert len(rows) > 40, "the table of families is not found"
    wrong = 0
    for name, function in rows:
        ours = reached(found, "family.cc", function, set()) | listed
        if name.startswith(("kimi_k25", "kimi_vl")):  # a text config of DeepSeek-V3's
            ours |= reached(found, "family.cc", "ReadDeepseekV3", set())
        lacking = mlx_fields(models, MODULES.get(name, name)) - ours - HARMLESS
        if lacking:
            wrong += 1
            print(f"{name}: mlx-lm reads {', '.join(sorted(lacking))}; known_fields.cc says nothing of it")
    print(f"{len(rows)} architectures, {wrong} with fields that nobody reads")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
