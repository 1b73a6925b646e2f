#!/usr/bin/env python3
"""Trains the model on what build_corpus.py wrote, on one CPU thread unless told otherwise.

    train.py --corpus OUT --run RUN [--minutes 60] [--threads 1] [--resume]

The learning rate follows a cosine over the wall-clock time given, so a busy machine makes a
poorer model rather than a later one. During the last part (--quantised-share) the forward pass
sees the weights as 4-bit quantisation will leave them. RUN/checkpoint.pt is replaced every few
minutes and RUN/log.jsonl grows by a line each time.
"""

import argparse
import json
import math
import os
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from model import Config, Linear, Llama

PROBES = ["Explain RDMA in simple terms", "What is pipeline parallelism?",
          "How do I load a model?", "who won the tennis match", "what is 7 plus 5"]


def encode_chat(messages, encode):
    """(ids, targets): targets are the ids that the model must learn to write, else -100.

    Mirrors CHAT_TEMPLATE of quantize.py; check_template.py compares the two.
    """
    ids, learn = [1], [False]
    for m in messages:
        text = m["content"].strip().replace("<|", "< |")
        role = {"system": 3, "user": 4, "assistant": 5}[m["role"]]
        body = encode(text, m["role"])
        mine = m["role"] == "assistant"
        ids += [role] + body + [2]
        learn += [False] + [mine] * (len(body) + 1)
    return ids, [i if l else -100 for i, l in zip(ids, learn)]


def encode_all(path, tokenizer_path, seed):
    rng = random.Random(seed)
    plain = Tokenizer.from_file(str(tokenizer_path))
    # Now and then a question is cut into smaller pieces than usual, so that a misspelled word
    # does not look like nothing ever seen.
    rough = Tokenizer.from_file(str(tokenizer_path))
    rough.model.dropout = 0.1

    def encode(text, role):
        which = rough if role == "user" and rng.random() < 0.25 else plain
        return which.encode(text, add_special_tokens=False).ids

    with open(path) as f:
        return [encode_chat(json.loads(line)["messages"], encode) for line in f]


def pack(documents, length, rng):
    """Rows of at most `length` tokens, each a list of whole documents."""
    order = list(range(len(documents)))
    rng.shuffle(order)
    rows, open_rows = [], []
    for i in order:
        size = len(documents[i][0])
        for row in open_rows:
            if row[0] + size <= length:
                row[0] += size
                row[1].append(i)
                break
        else:
            open_rows.append([size, [i]])
            if len(open_rows) > 64:
                open_rows.sort(key=lambda r: r[0])
                rows.append(open_rows.pop()[1])
    return rows + [r[1] for r in open_rows]


def make_batch(rows, documents, length):
    b = len(rows)
    ids = torch.zeros(b, length, dtype=torch.long)
    targets = torch.full((b, length), -100)
    positions = torch.zeros(b, length, dtype=torch.long)
    owner = torch.arange(length).neg().repeat(b, 1) - 1  # padding attends to itself only
    for r, row in enumerate(rows):
        at = 0
        for n, i in enumerate(row):
            doc, learn = documents[i]
            end = at + len(doc)
            ids[r, at:end] = torch.tensor(doc)
            targets[r, at:end - 1] = torch.tensor(learn[1:])
            positions[r, at:end] = torch.arange(len(doc))
            owner[r, at:end] = n
            at = end
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    mask = (owner[:, None, :, None] == owner[:, None, None, :]) & causal
    return ids, positions, mask, targets


def batches(documents, tokens, long_length, rng):
    """For ever: rows of 256 for most, of `long_length` for the long conversations."""
    short = [d for d in documents if len(d[0]) <= 256]
    long = [d for d in documents if 256 < len(d[0]) <= long_length]
    while True:
        plan = []
        for docs, length in ((short, 256), (long, long_length)):
            rows = pack(docs, length, rng)
            rng.shuffle(rows)
            per = max(1, tokens // length)
            plan += [(rows[i:i + per], docs, length) for i in range(0, len(rows), per)]
        rng.shuffle(plan)
        for rows, docs, length in plan:
            yield make_batch(rows, docs, length)


def loss_of(model, batch, half):
    ids, positions, mask, targets = batch
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        hidden = model(ids, positions, mask)
        chosen = targets != -100
        logits = model.logits(hidden[chosen])
    return F.cross_entropy(logits.float(), targets[chosen])


@torch.no_grad()
def greedy(model, tokenizer, question, limit=120, half=True):
    ids, _ = encode_chat([{"role": "user", "content": question}],
                         lambda t, role: tokenizer.encode(t, add_special_tokens=False).ids)
    ids.append(5)
    start = len(ids)
    while len(ids) - start < limit:
        t = len(ids)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            hidden = model(torch.tensor([ids]), torch.arange(t)[None],
                           torch.ones(1, 1, t, t, dtype=torch.bool).tril())
            best = int(model.logits(hidden[0, -1]).argmax())
        if best == 2:
            return tokenizer.decode(ids[start:])
        ids.append(best)
    return tokenizer.decode(ids[start:]) + " …"


def learning_rate(progress, step, peak):
    warm = min(1.0, (step + 1) / 150)
    return peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--checkpoint-minutes", type=float, default=4)
    parser.add_argument("--quantised-share", type=float, default=0.15)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--peak-lr", type=float, default=2e-3)
    parser.add_argument("--float32", action="store_true", help="where bfloat16 is the slower one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def heldout_batches(corpus, tokenizer, rng):
    """120 held-out questions, half of them from templates."""
    with open(corpus / "heldout.jsonl") as f:
        held = [json.loads(line) for line in f]
    chosen = rng.sample([h for h in held if h["group"] == "template"], 60)
    chosen += rng.sample([h for h in held if h["group"] != "template"], 60)
    documents = [encode_chat([{"role": "user", "content": h["question"]},
                              {"role": "assistant", "content": h["answer"]}],
                             lambda t, role: tokenizer.encode(t).ids) for h in chosen]
    rows = pack(documents, 256, rng)
    return [make_batch(rows[i:i + 16], documents, 256) for i in range(0, len(rows), 16)]


class Trainer:
    """A model, its optimizer, and how far they have come."""

    def __init__(self, args, tokenizer, held):
        self.args, self.tokenizer, self.held = args, tokenizer, held
        self.half = not args.float32
        self.model = Llama(Config(vocab_size=tokenizer.get_vocab_size()))
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05},
                                            {"params": vectors, "weight_decay": 0.0}],
                                           lr=args.peak_lr, betas=(0.9, 0.98), fused=True)
        self.step, self.tokens, self.recent_loss = 0, 0, None
        self.began = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.began

    def resume(self, path):
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.tokens = saved["step"], saved["tokens"]
        self.began = time.monotonic() - saved["seconds"]

    def train_on(self, batch, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(self.model, batch, self.half)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value, last = float(loss.detach()), self.recent_loss
        self.recent_loss = value if last is None else last + 0.02 * (value - last)
        self.step += 1
        self.tokens += batch[0].numel()

    def checkpoint(self, path):
        with torch.no_grad():
            losses = [float(loss_of(self.model, b, self.half)) for b in self.held]
        said = {q: greedy(self.model, self.tokenizer, q, half=self.half) for q in PROBES}
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "step": self.step, "tokens": self.tokens, "seconds": self.seconds()},
                   str(path) + ".new")
        os.replace(str(path) + ".new", path)
        line = {"minutes": round(self.seconds() / 60, 1), "step": self.step,
                "tokens": self.tokens, "loss": self.recent_loss,
                "heldout_loss": sum(losses) / len(losses), "quantised": bool(Linear.quant),
                "answers": said}
        with open(path.parent / "log.jsonl", "a") as f:
            f.write(json.dumps(line) + "\n")


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    args.run.mkdir(parents=True, exist_ok=True)
    path = args.run / "checkpoint.pt"
    tokenizer = Tokenizer.from_file(str(args.corpus / "tokenizer.json"))
    documents = encode_all(args.corpus / "train.jsonl", args.corpus / "tokenizer.json", args.seed)
    trainer = Trainer(args, tokenizer, heldout_batches(args.corpus, tokenizer, rng))
    if args.resume:
        trainer.resume(path)
        rng.seed(args.seed + trainer.step)
    saved_at = time.monotonic()
    for batch in batches(documents, args.batch_tokens, 1024, rng):
        progress = trainer.seconds() / (args.minutes * 60)
        if progress >= 1:
            break
        if progress >= 1 - args.quantised_share:
            Linear.quant = (64, 4)
        trainer.train_on(batch, learning_rate(progress, trainer.step, args.peak_lr))
        if trainer.step % 50 == 0:
            print(f"{progress:6.1%} step {trainer.step} tokens {trainer.tokens} "
                  f"loss {trainer.recent_loss:.4f}", flush=True)
        if time.monotonic() - saved_at > args.checkpoint_minutes * 60:
            trainer.checkpoint(path)
            saved_at = time.monotonic()
    trainer.checkpoint(path)


if __name__ == "__main__":
    main()
