"""One model folder into GGUF by llama.cpp's own converter, in float32.

PyTorch is stand_ins/torch.py. Configs are read as they are: transformers would add its defaults of
other sizes. The tokenizer is one of plain words: "word3", "word4", ….
"""

import contextlib
import io
import json
import logging
import os
import sys
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))


def set_words(self):
    tokenizer = json.loads(Path(self.dir_model, "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    self.gguf_writer.add_tokenizer_model("gpt2")
    self.gguf_writer.add_tokenizer_pre(tokenizer.get("pre") or "gpt-2")
    self.gguf_writer.add_token_list(list(words))
    self.gguf_writer.add_token_types([1] * len(words))
    self.gguf_writer.add_token_merges(["a b"])
    self.gguf_writer.add_eos_token_id(0)


def as_it_is(folder, is_mistral_format=False):
    return json.loads(Path(folder, "config.json").read_text())


def convert(llama_cpp, folder, out):
    """`llama_cpp` holds conversion/ and gguf-py/."""
    if llama_cpp not in sys.path:
        sys.path[:0] = [os.path.join(HERE, "stand_ins"), llama_cpp]
    import conversion
    import gguf

    logging.disable(logging.WARNING)
    conversion.ModelBase.load_hparams = staticmethod(as_it_is)
    name = conversion.get_model_architecture(as_it_is(folder), conversion.ModelType.TEXT)
    kind = conversion.get_model_class(name)
    inner = [one for one in vars(kind).values() if isinstance(one, type)]
    for one in (*kind.__mro__, *(base for own in inner for base in own.__mro__)):
        if "set_vocab" in vars(one) and "impl" not in vars(kind).get("__annotations__", {}):
            one.set_vocab = set_words
    for own in inner:
        own.set_vocab = set_words
    kind.no_mtp = True  # layers that predict further tokens: mlx-lm's models have none
    model = kind(Path(folder), gguf.LlamaFileType.ALL_F32, Path(out), eager=True)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        model.write()
