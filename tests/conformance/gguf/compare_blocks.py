"""Every kind of blocks that is imported, made of random bytes, against the gguf package's own numbers."""

import os
import sys
import tempfile

import gguf
import numpy as np

from importing import Folder, import_gguf

EXACT = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "TQ1_0", "TQ2_0",
         "MXFP4")
# Root mean square of the difference as a share of the numbers': runtime/gguf/block_forms.h says why.
BOUNDS = {"Q2_K": 0.03, "Q3_K": 0.03, "Q4_K": 0.002, "Q5_K": 0.002, "Q6_K": 0.01,
          "IQ4_XS": 0.001, "IQ3_XXS": 0.001, "IQ3_S": 0.001, "IQ1_S": 0.001, "IQ1_M": 0.03,
          "IQ2_XXS": 0.03, "IQ2_XS": 0.03, "IQ2_S": 0.03, "NVFP4": 0.01}
# Where a block's float16 scales stand.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52],
          "TQ2_0": [64], "MXFP4": [], "NVFP4": [], "IQ1_M": [],
          **{name: [0] for name in ("IQ4_NL", "IQ4_XS", "IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS",
                                    "IQ2_S", "IQ1_S")}}
HIDDEN, HEADS, WORDS = 256, 4, 300


def random_blocks(kind, rows, columns, random):
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    if kind.name not in SCALES:
        values = random.standard_normal((rows, columns)).astype(np.float32)
        if kind.name == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(rows, -1)
        return values.astype(np.float16) if kind.name == "F16" else values
    blocks = random.integers(0, 256, (rows, columns // numbers, size), dtype=np.uint8)
    for place in SCALES[kind.name]:
        scale = (random.random((rows, columns // numbers, 1)) * 0.02 + 0.001).astype(np.float16)
        blocks[:, :, place:place + 2] = scale.view(np.uint8)
    if kind.name == "MXFP4":  # a power of two
        blocks[:, :, 0] = random.integers(112, 130, blocks.shape[:2])
    if kind.name == "NVFP4":  # 8-bit floats without a sign, that are numbers
        blocks[:, :, :4] = random.integers(1, 0x7E, (*blocks.shape[:2], 4))
    if kind.name == "IQ1_M":  # in the upper halves of four words
        scale = (random.random(blocks.shape[:2]) * 0.02 + 0.001).astype(np.float16).view(np.uint16)
        for i in range(4):
            nibble = (scale >> (4 * i)) & 15
            blocks[:, :, 49 + 2 * i] = (blocks[:, :, 49 + 2 * i] & 15) | (nibble << 4)
    return blocks.reshape(rows, -1)


def write_model(path, kind, random):
    """One layer; every matrix of it is of this kind. Returns what the package reads."""
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HIDDEN // HEADS)
    writer.add_value_length(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    words = ["a", "b", "ab"] + [f"word{i}" for i in range(3, WORDS)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([1] * WORDS)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    names = {"token_embd": "model.embed_tokens"}
    names.update({f"blk.0.{short}": f"model.layers.0.{long}" for short, long in (
        ("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"), ("attn_output", "self_attn.o_proj"),
        ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"), ("ffn_down", "mlp.down_proj"))})
    expected = {}
    for short, module in names.items():
        rows = WORDS if short == "token_embd" else HIDDEN
        data = random_blocks(kind, rows, HIDDEN, random)
        writer.add_tensor(f"{short}.weight", data, raw_dtype=kind)
        expected[module] = gguf.dequantize(data, kind).reshape(rows, HIDDEN).astype(np.float32)
    for name, size in (("output_norm", HIDDEN), ("blk.0.attn_norm", HIDDEN),
                       ("blk.0.ffn_norm", HIDDEN), ("blk.0.attn_q_norm", HIDDEN // HEADS),
                       ("blk.0.attn_k_norm", HIDDEN // HEADS)):
        writer.add_tensor(f"{name}.weight", np.ones(size, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def main():
    build = sys.argv[1]
    random = np.random.default_rng(5)
    failed = 0
    for name in (*EXACT, *BOUNDS):
        kind = gguf.GGMLQuantizationType[name]
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, f"{name}.gguf")
            expected = write_model(file, kind, random)
            imported = Folder(import_gguf(build, file, os.path.join(folder, "models"), name))
            worst = 0.0
            for module, numbers in expected.items():
                ours = imported.numbers(module)
                error = np.sqrt(np.mean((ours.astype(np.float64) - numbers) ** 2))
                worst = max(worst, error / np.sqrt(np.mean(numbers.astype(np.float64) ** 2)))
        if worst > BOUNDS.get(name, 0.0):
            print(f"FAILED {name}: off by {worst:.2e}, bound {BOUNDS.get(name, 0.0):.0e}")
            failed += 1
        else:
            print(f"{name}: {'exact' if worst == 0 else f'off by {worst:.1e} (rms)'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
