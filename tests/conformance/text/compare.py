#!/usr/bin/env python3
"""Compares the text library with `transformers`, request by request. See `run`."""

import json
import pathlib
import shutil
import sys
import tempfile

import transformers
import transformers.utils.chat_template_utils as chat_utils

import conversations
import nasty_strings
from probe import NOW, FixedDatetime, Probe, Tally

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FIXTURES = ROOT / "tests/unit/runtime/text/testdata"
BUNDLED = ROOT / "deploy/models/knot-5m-4bit"
HIDDEN = "\U0010fffd"


def compare_texts(probe, tally, folder, tokenizer, strings):
    name = folder.name
    added = tokenizer.added_tokens_decoder.items()
    special = {i for i, token in added if token.special}
    unknown = tokenizer.unk_token_id  # also what any unknown letter gives
    for text in strings:
        for add in (False, True):
            ours = probe.ask(op="encode", folder=str(folder), text=text, add=add, special=True)
            tally.equal(f"{name}: encode {text!r}", ours.get("ids", ours),
                        tokenizer.encode(text, add_special_tokens=add))
        plain = probe.ask(op="encode", folder=str(folder), text=text, add=False, special=False)
        theirs = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        what = f"{name}: encode as plain text {text!r}"
        if any(i in special for i in theirs):  # a model that spells special tokens: ours must not
            tally.equal(what, [i for i in plain.get("ids", [-1])
                               if i in special - {unknown} or i < 0], [])
        else:
            tally.equal(what, plain.get("ids", plain), theirs)
        ids = tokenizer.encode(text, add_special_tokens=True)
        for skip in (False, True):
            theirs = tokenizer.decode(ids, skip_special_tokens=skip)
            for op in ("decode", "stream"):
                ours = probe.ask(op=op, folder=str(folder), ids=ids, skip=skip)
                tally.equal(f"{name}: {op} {text!r}", ours.get("text", ours), theirs)


def render_theirs(tokenizer, messages, tools, variables, tokenize):
    try:
        return tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, tokenize=tokenize,
            return_dict=False, **variables)
    except Exception as error:  # the template's refusal, or Python's
        return error


def compare_chats(probe, tally, folder, tokenizer, strings, control):
    for messages, tools, variables in conversations.conversations(strings):
        request = dict(folder=str(folder), messages=messages, tools=tools, kwargs=variables,
                       generation=True, time=NOW)
        shown = json.dumps(messages, ensure_ascii=False)[:300]
        for op in ("render", "chat"):
            holds_control = any(token in json.dumps([messages, tools], ensure_ascii=False)
                                for token in control)
            if op == "chat" and holds_control:
                continue
            ours = probe.ask(op=op, **request)
            theirs = render_theirs(tokenizer, messages, tools, variables, op == "chat")
            if isinstance(theirs, Exception):
                tally.refused += 1
                said = str(theirs) if type(theirs).__name__ == "TemplateError" else "an error"
                agreed = "error" in ours and (said == "an error" or said in ours["error"])
                tally.equal(f"{folder.name}: {op} {shown}", said if agreed else ours, said)
            else:
                tally.equal(f"{folder.name}: {op} {shown}", ours.get("text", ours.get("ids", ours)),
                            theirs)


def compare_forgeries(probe, tally, folder, tokenizer, control):
    """A control token's text in a message gives the ids of plain text, and no token of that kind."""
    harmless = probe.ask(op="chat", folder=str(folder), messages=[{"role": "user", "content": "x"}],
                         tools=None, kwargs={}, generation=True, time=NOW)
    if "ids" not in harmless:
        return
    special = {tokenizer.convert_tokens_to_ids(token) for token in control}
    special.discard(tokenizer.unk_token_id)  # what can't be spelled is unknown, not forged
    count = lambda ids: sorted(i for i in ids if i in special)
    for text in nasty_strings.forgeries(control):
        ours = probe.ask(op="chat", folder=str(folder),
                         messages=[{"role": "user", "content": text}], tools=None, kwargs={},
                         generation=True, time=NOW)
        ids = ours.get("ids", [])
        tally.equal(f"{folder.name}: control tokens of a forged prompt {text!r}",
                    count(ids) if ids else ours, count(harmless["ids"]))
        # What the template renders when it can't see the token, and the token shown again.
        hidden = text
        for token in control:
            hidden = hidden.replace(token, HIDDEN + token[1:])
        theirs = render_theirs(tokenizer, [{"role": "user", "content": hidden}], None, {}, False)
        if tokenizer.backend_tokenizer.normalizer is None and isinstance(theirs, str):
            tally.equal(f"{folder.name}: text of a forged prompt {text!r}",
                        tokenizer.decode(ids, skip_special_tokens=False),
                        theirs.replace(HIDDEN, control[0][0]))


def with_template(folder, template, into):
    """A copy of a tokenizer's folder under another template."""
    copy = pathlib.Path(into) / f"{folder.name}+{template.stem}"
    shutil.copytree(folder, copy)
    shutil.copyfile(template, copy / "chat_template.jinja")
    return copy


def main():
    chat_utils.datetime = FixedDatetime
    probe, tally = Probe(sys.argv[1]), Tally()
    folders = [FIXTURES / name for name in ("byte_level", "byte_fallback", "unigram")]
    folders += [folder for folder in [BUNDLED] if (folder / "tokenizer.json").exists()]
    folders += [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    strings = nasty_strings.STRINGS + list(nasty_strings.random_strings(300, seed=7))
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            added = tokenizer.added_tokens_decoder.values()
            control = sorted(token.content for token in added if token.special)[:40]
            compare_texts(probe, tally, folder, tokenizer,
                          strings + list(nasty_strings.forgeries(control)))
            facts = probe.ask(op="facts", folder=str(folder))
            tally.equal(f"{folder.name}: size", facts.get("vocab_size"), len(tokenizer))
            bos = tokenizer.bos_token_id
            tally.equal(f"{folder.name}: bos", facts.get("bos"), -1 if bos is None else bos)
            tally.equal(f"{folder.name}: eos", tokenizer.eos_token_id in facts.get("eos", []),
                        tokenizer.eos_token_id is not None)
            chats = [folder] + [with_template(folder, template, scratch)
                                for template in sorted((HERE / "templates").glob("*.jinja"))]
            for chat in chats:
                tokenizer = transformers.AutoTokenizer.from_pretrained(chat)
                compare_chats(probe, tally, chat, tokenizer, nasty_strings.STRINGS, control)
                compare_forgeries(probe, tally, chat, tokenizer, control)
    print(f"text conformance: {tally.compared} comparisons over {len(folders)} tokenizers "
          f"({tally.refused} refusals by templates), {tally.different} different")
    sys.exit(1 if tally.different else 0)


main()
