#!/usr/bin/env python3
"""Makes the small tokenizers under tests/unit/runtime/text/testdata.

Run once by hand, in the environment of requirements.txt; the results are committed. Three families
that real models belong to: byte-level BPE, BPE with byte fallback, and unigram with a metaspace.
"""

import json
import pathlib

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

ROOT = pathlib.Path(__file__).resolve().parents[2] / "unit/runtime/text/testdata"
TEMPLATES = pathlib.Path(__file__).resolve().parent / "templates"

TEXT = [
    "The cluster has four nodes, and each node keeps a part of the model in its memory.",
    "A coordinator is elected; when it dies, another one takes its place within a second.",
    "RDMA lets one machine read the memory of another without waking its processor.",
    "hello hello world, what is the weather in Paris today? It's 23.5 degrees, isn't it?",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n",
    "Grüße aus München, déjà vu, naïve café, señor, Ελλάδα, Привет мир, שלום עולם, مرحبا",
    "日本語のテキスト、中文文本，한국어 텍스트。",
    "user assistant system tool start end header think call response name arguments",
    "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {}}}",
    "im_start im_end eot_id INST | < > / [ ] <| |> </s>",
]


def save(name, tokenizer, config, template, extra=None):
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096,
              "clean_up_tokenization_spaces": False, **config}
    if template:
        (folder / "chat_template.jinja").write_text((TEMPLATES / template).read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    for file, content in (extra or {}).items():
        (folder / file).write_text(json.dumps(content, indent=1) + "\n")


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    words = r"'[a-z]{1,2}|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(words), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=560, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in
                          ("<think>", "</think>", "<tool_call>", "</tool_call>", "<unseen>")])
    save("byte_level", tokenizer,
         {"eos_token": "<|im_end|>", "bos_token": None, "pad_token": "<|endoftext|>"},
         "chatml_tools.jinja",
         {"generation_config.json": {"eos_token_id": [tokenizer.token_to_id("<|endoftext|>"),
                                                      tokenizer.token_to_id("<|im_end|>")]},
          "config.json": {"bos_token_id": tokenizer.token_to_id("<|endoftext|>")}})


def byte_fallback():
    specials = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, special_tokens=specials)
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    ascii_text = [text for text in TEXT if text.isascii()]
    trained.train_from_iterator(ascii_text, trainer)
    state = json.loads(trained.to_str())
    pieces = sorted(state["model"]["vocab"].items(), key=lambda item: item[1])
    names = specials + bytes_ + [piece for piece, _ in pieces if piece not in specials]
    merges = [tuple(merge) for merge in state["model"]["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)},
                                     merges=merges, unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.normalizer = trained.normalizer
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in
         specials + ["[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    save("byte_fallback", tokenizer,
         {"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False,
                        "rstrip": False, "normalized": False, "single_word": False}, "eos_token": "</s>",
          "unk_token": "<unk>"}, "instruct_brackets.jinja")


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    specials = ["<unk>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                "<|eot_id|>"]
    trainer = trainers.UnigramTrainer(vocab_size=420, show_progress=False, unk_token="<unk>",
                                      special_tokens=specials)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 1)])
    save("unigram", tokenizer,
         {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "unk_token": "<unk>"},
         "headers.jinja", {"generation_config.json": {"eos_token_id": 4}})


byte_level()
byte_fallback()
unigram()
