#!/usr/bin/env python3
"""Expands data/*.qa to conversations and trains the tokenizer on them.

    build_corpus.py --out OUT [--tokens 3000000] [--seed 1] [--tokenizer FILE]

Writes OUT/train.jsonl and OUT/heldout.jsonl (one JSON object a line) and OUT/tokenizer.json.
The format of the data files is described in README.md beside this script. The result depends on
the data, the arguments and the pinned versions only.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import pathlib
import random
import re

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
VOCAB_SIZE = 3072
SPECIAL = ["<|pad|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
KINDS = ("a", "simple", "how", "why")
NO_MORE = "That is all that I know about it. The documentation of Macrame says more."


@dataclasses.dataclass
class Entry:
    """One subject: questions by the kind of answer they ask for, and the answers."""

    name: str
    answers: dict
    train: dict = dataclasses.field(default_factory=dict)  # kind -> [question]
    heldout: dict = dataclasses.field(default_factory=dict)
    topic: bool = False
    weight: float = 1.0
    boost: float = 1.0

    def answer(self, kind):
        return self.answers.get(kind, self.answers["a"])


def bucket(text, n):
    """A number in [0, n) that depends on the text only."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") % n


def key(text):
    """Two questions with the same key differ in case, punctuation or spaces only."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def alternatives(text):
    """Expands the innermost {a|b} groups until none is left."""
    match = re.search(r"\{([^{}]*\|[^{}]*)\}", text)
    if not match:
        return [re.sub(r" +([?.!])", r"\1", re.sub(r"  +", " ", text)).strip()]
    out = []
    for choice in match.group(1).split("|"):
        out += alternatives(text[: match.start()] + choice + text[match.end():])
    return out


def read_blocks(path):
    """Blocks of "field: value" lines, separated by empty lines; # starts a comment line."""
    block = []
    for line in itertools.chain(path.read_text().splitlines(), [""]):
        if line.startswith("#"):
            continue
        if line.strip():
            field, sep, value = line.partition(":")
            if not sep:
                raise ValueError(f"{path.name}: no field in {line!r}")
            block.append((field.strip(), value.strip()))
        elif block:
            yield block
            block = []


def read_table(path):
    table = {}
    for block in read_blocks(path):
        for field, value in block:
            table.setdefault(field, []).append(value)
    return table


def make_entry(block, templates):
    fields = {}
    for field, value in block:
        fields.setdefault(field, []).append(value)
    answers = {k: fields[k][0] for k in KINDS if k in fields}
    topics = [t.strip() for t in fields.get("topic", [""])[0].split("|") if t.strip()]
    explicit = list(dict.fromkeys(q for t in fields.get("q", []) for q in alternatives(t)))
    entry = Entry(name=(topics + explicit)[0], answers=answers, topic=bool(topics))
    share_out(entry, explicit)
    for field, texts in templates.items():
        kind = field.rstrip("!")
        for text, topic in itertools.product(texts, topics):
            side = entry.heldout if field.endswith("!") else entry.train
            side.setdefault(kind, []).append(re.sub(r"\bX\b", lambda _: topic, text))
    return entry


def share_out(entry, explicit):
    """Spelled-out questions of one block to training, about a tenth of four or more held out."""
    held = {q for q in explicit if bucket(q, 10) == 0} if len(explicit) >= 4 else set()
    if len(explicit) >= 4 and not held:
        held = {min(explicit, key=lambda q: bucket(q, 1 << 30))}
    if len(held) > len(explicit) // 3:
        held = set(sorted(held)[: len(explicit) // 3])
    for q in explicit:
        (entry.heldout if q in held else entry.train).setdefault("a", []).append(q)


def add_paraphrases(block, entries):
    """A block that begins with "same: question" adds ways of asking to the subject of that."""
    same = block[0][1]
    found = [e for e in entries if key(same) in {
        key(q) for side in (e.train, e.heldout) for q in side.get("a", [])}]
    if len(found) != 1:
        raise ValueError(f"{same!r} is asked by {len(found)} subjects")
    fields = {}
    for field, value in block[1:]:
        fields.setdefault(field, []).append(value)
    share_out(found[0], list(dict.fromkeys(q for t in fields["q"] for q in alternatives(t))))
    found[0].boost = float(fields.get("weight", ["1.5"])[0])


def unknown_words(rng):
    """A word that is none, for questions about things that do not exist."""
    parts = ["ba", "zor", "lin", "que", "fla", "mo", "ter", "xi", "gru", "pel", "no", "dra", "vi",
             "shu", "kel", "ost", "um", "ra", "bi", "tron", "wex", "ly"]
    return "".join(rng.choice(parts) for _ in range(rng.randint(2, 4)))


class Unknown:
    """Questions outside the subjects: a pattern with slots, all with the same answer."""

    def __init__(self, block, slots):
        self.answer = block[0][1]
        self.patterns = [p for f, v in block if f == "q" for p in alternatives_slots(v)]
        self.train = {k: [v for v in vs if bucket(v, 7)] for k, vs in slots.items()}
        self.heldout = {k: [v for v in vs if not bucket(v, 7)] for k, vs in slots.items()}
        # Held-out questions need a filler that is held out.
        self.heldout_patterns = [p for p in self.patterns if p != "{nonsense}" and "{" in p and
                                 all(self.heldout[s] for s in re.findall(r"\{(\w+)\}", p))]

    def question(self, rng, heldout=False):
        slots = self.heldout if heldout else self.train
        pattern = rng.choice(self.heldout_patterns if heldout else self.patterns)
        if pattern == "{nonsense}":
            word = unknown_words(rng)
            return rng.choice(["What is X?", "Explain X", "How do I install X?", "X", "Who is X?",
                               "Tell me about X", "Does Macrame support X?"]).replace("X", word)

        def fill(match):
            if match.group(1) == "science" and rng.random() < 0.15:
                return unknown_words(rng)
            return rng.choice(slots[match.group(1)])

        return re.sub(r"\{(\w+)\}", fill, pattern)


def alternatives_slots(text):
    """Like alternatives(), with {slot} names kept."""
    hidden = re.sub(r"\{(\w+)\}", r"<\1>", text)
    return [re.sub(r"<(\w+)>", r"{\1}", t) for t in alternatives(hidden)]


NO_SUM = "I can only add numbers up to ten. For other sums please use a calculator."


def sum_forms(a, sign, word, b):
    return [f"What is {a} {sign} {b}?", f"What is {a} {word} {b}?", f"{a} {sign} {b}",
            f"{a}{sign}{b}", f"{a} {sign} {b} = ?", f"How much is {a} {word} {b}?",
            f"How much is {a} {sign} {b}?", f"Calculate {a} {sign} {b}",
            f"{a} {word} {b}?", f"Can you compute {a} {sign} {b}?"]


def additions():
    """(question forms, answer): a table to learn by heart, so nothing of it is held out."""
    for a, b in itertools.product(range(11), range(11)):
        yield sum_forms(a, "+", "plus", b), f"{a} plus {b} is {a + b}."


def other_sums(rng):
    """One question about a sum that the model does not know."""
    sign, word = rng.choice([("+", "plus"), ("-", "minus"), ("*", "times"), ("/", "divided by"),
                             ("x", "times")])
    low = 11 if sign == "+" else 0
    return rng.choice(sum_forms(rng.randint(low, rng.choice([20, 100, 1000])), sign, word,
                                rng.randint(low, rng.choice([12, 20, 100, 1000]))))


def sizes():
    """Memory of models and of clusters, computed."""
    for n in (1, 3, 7, 8, 13, 14, 24, 27, 30, 32, 120, 123, 405):
        for bits in (4, 6, 8, 16):
            gigabytes = n * (bits + (0.5 if bits < 16 else 0)) / 8
            text = f"{gigabytes:.0f}" if gigabytes >= 4 else f"{gigabytes:.1f}"
            forms = [f"How much memory does a {n}B model need at {bits} bits?",
                     f"How large is a {n}B model at {bits} bits?",
                     f"How many GB does a {n}B model take in {bits}-bit?",
                     f"Memory for {n}B at {bits} bits", f"size of a {n}B model with {bits} bits",
                     f"What size has a {n}B model at {bits} bits?"]
            yield forms, (f"At {bits} bits the weights of a {n}B model take about {text} GB. "
                          "Add some room for the KV cache.")
    for count, memory in itertools.product((2, 3, 4), (16, 24, 32, 64, 96, 128, 256, 512)):
        word = {2: "two", 3: "three", 4: "four"}[count]
        forms = [f"How much memory do {word} Macs with {memory} GB have together?",
                 f"How much memory do {count} Macs with {memory} GB have?",
                 f"{word} Macs with {memory} GB each, how much memory is that?",
                 f"What is the total memory of {count} Macs with {memory} GB?"]
        yield forms, f"{word.capitalize()} Macs with {memory} GB have {count * memory} GB together."


FOLLOW = {
    "simple": ["And in simple terms?", "Can you explain that in simple terms?",
               "Explain it more simply", "Simpler please", "I don't understand",
               "Please say that in simpler words.", "Can you make that simpler?",
               "explain that in simple terms", "Can you explain it more simply?"],
    "how": ["How does it work?", "How does that work?", "And how does it work?", "how so?",
            "Explain how it works", "Can you tell me how it works?"],
    "why": ["Why does it matter?", "Why is that important?", "What is it good for?",
            "Why do I need it?", "And why?", "What is the use of it?"],
    "more": ["Tell me more", "Tell me more about it.", "Can you say more?", "More details please",
             "What else do you know about it?", "Go on", "More"],
}
SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant", "Be brief.",
          "You are knot, the small model of Macrame.", "Answer the questions of the user.",
          "You are an assistant for people who run clusters of Macs.",
          "You are a friendly AI assistant. Answer clearly and concisely.",
          "Answer in English.", "You are a chatbot.", "You are an expert for computer clusters.",
          "You are an AI model. Follow the user's instructions carefully and be polite.",
          "Help the user with their questions about Macrame and Mac clusters."]
BEFORE = ["Hello, ", "Hi, ", "Hi! ", "Hey, ", "Hello! ", "Please tell me: ", "I have a question: ",
          "Question: ", "Quick question: ", "knot, ", "Tell me, ", "Ok, ", "And ", "So, ", "Also, ",
          "Another question: ", "Hello knot! ", "Next: ", "Now ", "Sorry, ", "Good morning! "]
AFTER = [" please", " Please.", " Thanks.", " Thank you!", " Answer briefly.", " In short.",
         " I'm new to this.", " I'm a beginner.", " Be brief.", " Just wondering."]


def typo(word, rng):
    i = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return word[:i] + word[i + 1] + word[i] + word[i + 2:]
    if kind == 1:
        return word[:i] + word[i + 1:]
    if kind == 2:
        return word[:i] + word[i] + word[i:]
    return word[:i] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[i + 1:]


def roughen(q, rng):
    """What people's fingers do to a question."""
    if rng.random() < 0.12:
        swap = {"What is": "What's", "what is": "whats", "isation": "ization", "I am": "I'm",
                "Can you": "Could you", "How do I": "How can I", "How can I": "How do I",
                "What does": "what does", "colour": "color", "Which": "What"}
        for old, new in swap.items():
            q = q.replace(old, new)
    if rng.random() < 0.10:
        q = rng.choice(BEFORE) + (q[0].lower() + q[1:] if rng.random() < 0.5 else q)
    if rng.random() < 0.05:
        q = q + rng.choice(AFTER)
    if rng.random() < 0.15:
        words = q.split(" ")
        long = [i for i, w in enumerate(words) if len(w) >= 5 and w.isalpha()]
        if long:
            i = rng.choice(long)
            words[i] = typo(words[i], rng)
            q = " ".join(words)
    chance = rng.random()
    if chance < 0.28:
        q = q.lower()
    elif chance < 0.33:
        q = q[0].lower() + q[1:]
    elif chance < 0.345:
        q = q.upper()
    if rng.random() < 0.3:
        q = q.rstrip("?.!")
    elif rng.random() < 0.04:
        q = q.rstrip("?.!") + rng.choice([" ?", "??", "!", ".", "?!", " ..."])
    return q


class Mixer:
    """Draws conversations."""

    def __init__(self, entries, unknown, sums, rng):
        self.entries, self.unknown, self.sums, self.rng = entries, unknown, sums, rng
        self.weights = list(itertools.accumulate(e.weight for e in entries))
        self.forbidden = set()

    def ask(self, make):
        """A roughened question that is not, but for spelling, a held-out one."""
        while True:
            q = roughen(make(), self.rng)
            if q and key(q) not in self.forbidden:
                return q

    def turn(self, first):
        """One (question, answer, entry or None)."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.10:
            return self.ask(lambda: self.unknown.question(rng)), self.unknown.answer, None
        if chance < 0.13:
            return self.ask(lambda: other_sums(rng)), NO_SUM, None
        if chance < 0.24:
            forms, answer = rng.choice(self.sums)
            return self.ask(lambda: rng.choice(forms)), answer, None
        entry = rng.choices(self.entries, cum_weights=self.weights)[0]
        kinds = [k for k in entry.train if k == "a" or k in entry.answers or rng.random() < 0.5]
        # Of a subject that has a simple answer, that one is asked for most.
        shares = [{"a": 4, "simple": 3, "how": 2, "why": 2}[k] for k in kinds]
        kind = rng.choices(kinds, shares)[0]
        if entry.name.startswith(("What?", "Yes!")) and not first:
            return self.turn(first)
        return self.ask(lambda: rng.choice(entry.train[kind])), entry.answer(kind), entry

    def follow(self, entry, used):
        rng = self.rng
        kind = rng.choice(["simple", "simple", "how", "why", "more"])
        question = self.ask(lambda: rng.choice(FOLLOW[kind]))
        if kind == "more":
            left = [k for k in ("how", "why", "simple") if k in entry.answers and k not in used]
            kind = left[0] if left else "none"
        elif kind == "simple" and kind not in entry.answers:
            return question, "In short: " + entry.answers["a"].split(". ")[0].rstrip(".") + "."
        used.add(kind)
        return question, entry.answer(kind) if kind in entry.answers else NO_MORE

    def conversation(self):
        rng = self.rng
        messages = []
        if rng.random() < 0.22:
            messages.append({"role": "system", "content": rng.choice(SYSTEM)})
        count = rng.choices([1, 2, 3, 5, 12], [60, 20, 10, 7, 3])[0]
        while count > 0:
            q, a, entry = self.turn(first=len(messages) <= 1)
            messages += [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
            count -= 1
            used = set()
            while count > 0 and entry is not None and entry.topic and rng.random() < 0.45:
                q, a = self.follow(entry, used)
                messages += [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
                count -= 1
        return messages


def load(rng):
    templates, slots_raw = read_table(DATA / "templates.txt"), read_table(DATA / "slots.txt")
    slots = {k: [v.strip() for v in vs[0].split("|")] for k, vs in slots_raw.items()}
    entries, unknown = [], None
    for path in sorted(DATA.glob("*.qa")):
        for block in read_blocks(path):
            if block[0][0] == "unknown":
                unknown = Unknown(block, slots)
            elif block[0][0] == "same":
                add_paraphrases(block, entries)
            else:
                entries.append(make_entry(block, templates))
    for entry in entries:
        entry.weight = 1.0 + 0.5 * len(entry.answers) + min(sum(map(len, entry.train.values())),
                                                           40) / 20
        entry.weight *= 2 if entry.name in ("RDMA", "Macrame") else entry.boost
    sums, heldout_sums = [], []
    for forms, answer in sizes():
        (heldout_sums if bucket(answer, 12) == 0 else sums).append((forms, answer))
    sums += list(additions()) * 2
    return entries, unknown, sums, heldout_sums


def make_tokenizer(conversations, given, path):
    """Trains one, or copies the one given: a model that goes on learning must keep its own."""
    if given:
        tokenizer = Tokenizer.from_file(str(given))
        tokenizer.save(str(path))
        return tokenizer
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    texts = (m["content"] for c in conversations for m in c)
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(f"the text gave {tokenizer.get_vocab_size()} pieces only")
    tokenizer.save(str(path))
    return tokenizer


def heldout_questions(entries, unknown, heldout_sums, rng):
    out = []
    for entry in entries:
        for kind, questions in entry.heldout.items():
            if kind != "a" and kind not in entry.answers:
                continue
            group = "template" if entry.topic else "paraphrase"
            for q in questions:
                out.append({"question": q, "answer": entry.answer(kind), "group": group})
    out += [{"question": forms[0], "answer": a, "group": "size"} for forms, a in heldout_sums]
    seen = set()
    while len(seen) < 120:
        q = unknown.question(rng, heldout=True)
        if q not in seen:
            seen.add(q)
            out.append({"question": q, "answer": unknown.answer, "group": "unknown"})
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=int, default=3_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", type=pathlib.Path, help="keep this one")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(args.seed)
    entries, unknown, sums, heldout_sums = load(rng)
    heldout = heldout_questions(entries, unknown, heldout_sums, rng)
    # A template may give the same words for two subjects; what is trained on isn't held out.
    trained = {key(q) for e in entries for qs in e.train.values() for q in qs}
    heldout = [h for h in heldout if key(h["question"]) not in trained]
    mixer = Mixer(entries, unknown, sums, rng)
    mixer.forbidden = {key(h["question"]) for h in heldout}
    # About 5 bytes of this text make a token, markers included.
    conversations, size = [], 0
    while size < args.tokens * 4.6:
        conversations.append(mixer.conversation())
        size += sum(len(m["content"]) + 8 for m in conversations[-1])
    tokenizer = make_tokenizer(conversations, args.tokenizer, args.out / "tokenizer.json")
    with open(args.out / "train.jsonl", "w") as f:
        for c in conversations:
            f.write(json.dumps({"messages": c}) + "\n")
    with open(args.out / "heldout.jsonl", "w") as f:
        for h in heldout:
            f.write(json.dumps(h) + "\n")
    questions = sum(len(qs) for e in entries for qs in e.train.values())
    counted = sum(len(tokenizer.encode(m["content"]).ids) + 2
                  for c in conversations for m in c)
    print(json.dumps({
        "subjects": len(entries), "answers": sum(len(e.answers) for e in entries),
        "questions": questions, "heldout": len(heldout), "conversations": len(conversations),
        "tokens": counted}))


if __name__ == "__main__":
    main()
