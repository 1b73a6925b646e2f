"""Names, packed numbers and a safetensors file, for make_models; numbered words for convert_gguf too."""

import json
import os
import struct

import numpy as np


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def words_of(numbers, bits):
    """MLX's words of 32 bits: the first number in the lowest bits."""
    each = 32 // bits
    parts = numbers.astype(np.uint32).reshape(numbers.shape[0], -1, each)
    words = np.zeros(parts.shape[:2], dtype=np.uint32)
    for i in range(each):
        words |= parts[:, :, i] << np.uint32(bits * i)
    return words


def write_numbered_words(folder, count):
    # A word for each number: what a prompt has for tokens is what it has for words.
    words = {f"w{i}": i for i in range(count)}
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
               "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
               "post_processor": None, "decoder": None,
               "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}},
              open(f"{folder}/tokenizer.json", "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast",
               "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}"},
              open(f"{folder}/tokenizer_config.json", "w"))


class Safetensors:
    """One file, written as its tensors come."""

    def __init__(self, path):
        self.path, self.header, self.body = path, {}, open(path + ".body", "wb")

    def add(self, name, kind, array):
        begin = self.body.tell()
        self.body.write(np.ascontiguousarray(array).tobytes())
        self.header[name] = {"dtype": kind, "shape": list(array.shape),
                             "data_offsets": [begin, self.body.tell()]}

    def close(self):
        self.body.close()
        header = json.dumps(self.header).encode()
        header += b" " * (-len(header) % 8)
        with open(self.path, "wb") as out, open(self.path + ".body", "rb") as body:
            out.write(struct.pack("<Q", len(header)) + header)
            while chunk := body.read(1 << 24):
                out.write(chunk)
        os.remove(self.path + ".body")
