"""Runs a model with mlx_lm for one rank of rankd, which holds all else: requests, text, sampling.

Orders come in on stdin, answers go out on what was stdout: frames of one byte (the kind), eight
bytes (the payload's length, little endian) and the payload. worker_process.h has the table of
kinds. What libraries print goes to stderr. The worker ends with its stdin, and when its parent is
gone.
"""

import ctypes
import faulthandler
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import signal
import struct
import sys
import tempfile
import threading
import time

FRAME_BYTES_MAX = 1 << 32
PARENT_POLL_SECONDS = 0.25
PR_SET_PDEATHSIG = 1
# MLX waits for its neighbours without a limit, and without letting Python run.
CONNECT_SECONDS_MAX = 600
CHUNK_TOKENS = 512
KEPT_SEQUENCES_MAX = 16
KEPT_TOKENS_MIN = 16  # in common, or a sequence begins anew
STEPS_WITH_BUFFERS = 256  # then what MLX keeps for reuse goes back to the system, as in mlx_lm
NO_ROWS, LAST_ROW, ALL_ROWS = 0, 1, 2


class Refusal(Exception):
    """What can't be served, with the code and the remedy that people are told."""

    def __init__(self, code, message, remedy=""):
        super().__init__(message)
        self.code, self.remedy = code, remedy


class Line:
    """The frames to and from rankd."""

    def __init__(self, source, sink):
        self.source, self.sink = source, sink

    def receive(self):
        head = self.source.read(9)
        if len(head) < 9:
            return None, b""
        kind, size = struct.unpack("<cQ", head)
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {size} bytes")
        payload = self.source.read(size)
        return (kind, payload) if len(payload) == size else (None, b"")

    def send(self, kind, *parts):
        self.sink.write(struct.pack("<cQ", kind, sum(len(part) for part in parts)))
        for part in parts:
            self.sink.write(part)
        self.sink.flush()

    def send_json(self, kind, value):
        self.send(kind, json.dumps(value).encode())


def watch_parent():
    parent = os.getppid()
    if sys.platform == "linux":
        # Also where a call into MLX keeps the thread below from running.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def poll():
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(0)

    threading.Thread(target=poll, daemon=True).start()


def version_of_mlx_lm():
    try:
        return importlib.metadata.version("mlx-lm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def import_engine():
    """mlx_lm, whole: what can't be imported is not offered."""
    if importlib.util.find_spec("mlx_lm") is None:
        raise Refusal("ENGINE_MISSING", f"{sys.executable} has no mlx_lm",
                      f"run '{sys.executable} -m pip install mlx-lm' ('mlx-lm[cpu]' on Linux)")
    try:
        import mlx.core as mx
        import mlx_lm.utils
        import mlx_lm.models.cache
    except Exception as error:
        raise Refusal("ENGINE_MISSING", f"{sys.executable} can't import mlx_lm: {error}",
                      f"run '{sys.executable} -m pip install --upgrade mlx-lm'") from error
    device = "cpu"
    if mx.default_device().type != mx.DeviceType.cpu:
        device = "metal" if mx.metal.is_available() else "cuda"
    return {"python": sys.executable, "version": version_of_mlx_lm(), "device": device}


def architectures():
    """Which model types there are a module for, and in which ways each can be split."""
    import mlx_lm
    import mlx_lm.utils

    folder = pathlib.Path(mlx_lm.__file__).parent / "models"
    types = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if not re.search(r"^class Model\b", text, re.M):
            continue
        types[path.stem] = {
            "tensor": bool(re.search(r"^    def shard\(", text, re.M)),
            "pipeline": bool(re.search(r"\bPipelineMixin\b|^    def pipeline\(", text, re.M)),
        }
    for name, module in getattr(mlx_lm.utils, "MODEL_REMAPPING", {}).items():
        if module in types:
            types.setdefault(name, types[module])
    return types


def limit_memory(order):
    """On a Mac's GPU: what the plan gives this rank stays resident, and freed buffers are kept up
    to a limit. Other processes have parts of the working set too."""
    import mlx.core as mx

    try:
        if not mx.metal.is_available():
            return
        working_set = mx.device_info()["max_recommended_working_set_size"]
        mx.set_cache_limit(order["cache_bytes"])
        mx.set_wired_limit(min(order["wired_bytes"] or working_set, working_set))
    except (AttributeError, KeyError, ValueError) as error:
        print(f"no memory was wired for the GPU: {error}", file=sys.stderr)


def held_bytes():
    """By arrays, and by freed buffers that MLX keeps for reuse."""
    import mlx.core as mx

    return mx.get_active_memory() + mx.get_cache_memory()


def vocabulary_of(model, config):
    args = getattr(model, "args", None)
    for held in (getattr(args, "text_config", None), config.get("text_config"), config):
        if isinstance(held, dict) and isinstance(held.get("vocab_size"), int):
            return held["vocab_size"]
    return getattr(args, "vocab_size", 0)


def common_length(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Sequence:
    """The tokens that rankd has fed, and a cache that holds some: its own, or what was left of a
    sequence that began alike. Every rank's worker is fed the same and so decides the same."""

    def __init__(self, model, salt):
        self.model = model
        self.salt = salt  # only sequences of the same one share
        self.tokens = []
        self.forget()

    def forget(self):
        from mlx_lm.models.cache import make_prompt_cache

        self.cache, self.held = make_prompt_cache(self.model), []

    def cut(self, length):
        """Leaves `length` positions in the cache; all go where the kind of cache can't be cut."""
        from mlx_lm.models.cache import can_trim_prompt_cache, trim_prompt_cache

        excess = len(self.held) - length
        if excess <= 0:
            return
        # One that has dropped its beginning lacks what a shorter sequence would look at.
        has_dropped = any(getattr(each, "start_position", 0) > 0 for each in self.cache)
        if has_dropped or not can_trim_prompt_cache(self.cache):
            self.forget()
        elif trim_prompt_cache(self.cache, excess) != excess:
            self.forget()
        else:
            del self.held[length:]

    def feed(self, tokens, wanted, on_progress):
        begin = len(self.tokens)
        self.tokens += tokens
        if self.tokens[:len(self.held)] == self.held:
            common = len(self.held)
        else:
            common = common_length(self.held, self.tokens)
        if wanted == NO_ROWS and common == len(self.tokens):
            return []
        # Rows are of what is computed now.
        self.cut(min(common, {NO_ROWS: common, LAST_ROW: len(self.tokens) - 1}.get(wanted, begin)))
        todo = self.tokens[len(self.held):]
        split = begin - len(self.held) if wanted == ALL_ROWS else len(todo) - 1
        # As mlx_lm does: a prompt's last token goes alone, and no head runs over the others.
        while wanted != NO_ROWS and split > 0:
            part = min(split, CHUNK_TOKENS)
            self.forward(todo[:part], False)
            on_progress()
            todo, split = todo[part:], split - part
        if wanted != NO_ROWS:
            return self.forward(todo, True)
        for at in range(0, len(todo), CHUNK_TOKENS):
            self.forward(todo[at:at + CHUNK_TOKENS], False)
            on_progress()
        return []

    def forward(self, part, keeps):
        import mlx.core as mx

        logits = self.model(mx.array([part]), cache=self.cache)
        rows = [logits[0].astype(mx.float32)] if keeps else []
        mx.eval(rows, [layer.state for layer in self.cache])
        self.held += part
        return rows


class KeptSequences:
    """Ended ones, for the next turn of a conversation; never more positions than are free."""

    def __init__(self):
        self.sequences = []  # the one that ended last comes last

    def add(self, sequence):
        self.sequences = [*self.sequences, sequence][-KEPT_SEQUENCES_MAX:]

    def take(self, tokens, salt):
        """The one that shares most with what a sequence begins with, if that is worth it."""
        from mlx_lm.models.cache import can_trim_prompt_cache

        best, most = None, KEPT_TOKENS_MIN - 1
        for sequence in self.sequences:
            common = common_length(sequence.held, tokens)
            is_whole = common == len(sequence.held)
            if sequence.salt != salt or not (is_whole or can_trim_prompt_cache(sequence.cache)):
                continue
            goes_on = common == min(len(sequence.held), len(tokens))
            if common > most and (goes_on or 2 * common >= len(sequence.held)):
                best, most = sequence, common
        if best is not None:
            self.sequences.remove(best)
            best.tokens = []
        return best

    def make_room(self, positions):
        while sum(len(each.held) for each in self.sequences) > max(positions, 0):
            del self.sequences[0]


class Worker:
    def __init__(self, line):
        self.line = line
        self.group = None
        self.order = None
        self.model = None
        self.sequences = {}  # by slot
        self.kept = KeptSequences()
        self.steps = 0

    def connect(self, order):
        """Forms the gang's group and proves it: one that came up alone would answer nonsense."""
        import mlx.core as mx

        self.order = order
        rank, world, backend = order["rank"], order["world"], order["backend"]
        if world > 1:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                if backend == "jaccl":
                    os.environ["MLX_IBV_DEVICES"] = file.name
                    os.environ["MLX_JACCL_COORDINATOR"] = order["rendezvous"]
                    if order["topology"] == "ring":
                        os.environ["MLX_JACCL_RING"] = "1"
                    json.dump(order["devices"], file)
                else:
                    os.environ["MLX_HOSTFILE"] = file.name
                    json.dump([[address] for address in order["addresses"]], file)
                file.flush()
                os.environ["MLX_RANK"] = str(rank)
                faulthandler.dump_traceback_later(CONNECT_SECONDS_MAX, exit=True)
                try:
                    self.group = mx.distributed.init(strict=True, backend=backend)
                except Exception as error:
                    raise Refusal("CONNECT_FAILED",
                                  f"rank {rank} could not form mlx_lm's {backend} group: {error}")
                finally:
                    faulthandler.cancel_dump_traceback_later()
            shares = mx.distributed.all_sum(
                (mx.arange(world) == rank).astype(mx.float32), group=self.group)
            if self.group.size() != world or shares.tolist() != [1] * world:
                raise Refusal("GROUP_MISMATCH",
                              f"rank {rank}: mlx_lm's {backend} group came up with "
                              f"{self.group.size()} ranks of {world}, or lacks a rank's share")
        self.line.send_json(b"C", {"backend": backend if world > 1 else "single", "size": world})

    def load(self):
        import mlx.core as mx
        from mlx.utils import tree_flatten
        from mlx_lm.utils import load_model

        limit_memory(self.order)
        folder = pathlib.Path(self.order["folder"])
        config = json.loads((folder / "config.json").read_text())
        kind = config.get("model_type")
        if config.get("model_file") is not None:
            raise Refusal("MODEL_FORMAT_UNSUPPORTED",
                          f"{folder}: config.json asks for code of the model's own "
                          f"({config['model_file']}), which is never run",
                          "use a copy of the model whose architecture mlx-lm has")
        try:
            model, _ = load_model(folder, lazy=True)
        except Exception as error:
            raise Refusal("MODEL_CONFIG_INVALID", f"{folder}: mlx_lm {version_of_mlx_lm()} can't "
                          f"load this {kind} model: {type(error).__name__}: {error}",
                          "update mlx-lm, or convert the model with mlx_lm.convert")
        self.split(model, kind)
        leaves = [array for _, array in tree_flatten(model.parameters())]
        total, loaded = sum(array.nbytes for array in leaves), 0
        for array in leaves:
            mx.eval(array)
            loaded += array.nbytes
            self.line.send_json(b"P", {"loaded": loaded, "total": total})
        model.eval()
        self.model = model
        self.line.send_json(b"L", {"bytes": total, "active": mx.get_active_memory(),
                                   "vocab": vocabulary_of(model, config)})

    def split(self, model, kind):
        tp, pp = self.order["tp"], self.order["pp"]
        if tp > 1 and pp > 1:
            raise Refusal("MODEL_FORMAT_UNSUPPORTED",
                          "mlx_lm has no stages that are tensor groups",
                          "load the model with --tp or --pp alone")
        if tp > 1:
            if not hasattr(model, "shard"):
                raise Refusal("MODEL_FORMAT_UNSUPPORTED",
                              f"mlx_lm {version_of_mlx_lm()} can't split {kind} over ranks",
                              "load the model on one node")
            try:
                model.shard(self.group)
            except Exception as error:
                raise Refusal("MODEL_FORMAT_UNSUPPORTED",
                              f"mlx_lm can't split this {kind} model into {tp} equal parts: "
                              f"{type(error).__name__}: {error}", "load the model on fewer nodes")
        if pp > 1:
            inner = getattr(model, "model", None)
            if not hasattr(inner, "pipeline"):
                raise Refusal("MODEL_FORMAT_UNSUPPORTED",
                              f"mlx_lm {version_of_mlx_lm()} has no pipeline of {kind}",
                              "load the model on one node")
            if len(inner.layers) % pp != 0:
                raise Refusal("MODEL_FORMAT_UNSUPPORTED",
                              f"{len(inner.layers)} layers don't make {pp} equal stages, and "
                              "mlx_lm's pipelines need equal ones",
                              "load the model with another --pp")
            inner.pipeline(self.group)

    def step(self, payload):
        """Slots closed, then segments one after the other; rank 0's rows go back as float32."""
        import mlx.core as mx

        reader = struct.iter_unpack("<I", payload)
        take = lambda: next(reader)[0]
        for _ in range(take()):
            slot = take()
            if slot in self.sequences:
                self.kept.add(self.sequences.pop(slot))
        rows = []
        for _ in range(take()):
            slot, begin = take(), take()
            salt = take() << 32 | take()
            wanted, count = take(), take()
            tokens = [take() for _ in range(count)]
            rows += self.run(slot, begin, salt, wanted, tokens)
        parts = [memoryview(row).cast("B") for row in rows] if self.order["rank"] == 0 else []
        width = rows[0].shape[-1] if rows else 0
        self.line.send(b"R", struct.pack("<QQ", held_bytes(), width), *parts)

    def run(self, slot, begin, salt, wanted, tokens):
        import mlx.core as mx

        if begin == 0:
            self.sequences[slot] = self.kept.take(tokens, salt) or Sequence(self.model, salt)
        sequence = self.sequences.get(slot)
        fed = 0 if sequence is None else len(sequence.tokens)
        if sequence is None or fed != begin:
            raise ValueError(f"slot {slot} holds {fed} positions and is to go on at {begin}")
        self.steps += 1
        if len(tokens) > 1 or self.steps % STEPS_WITH_BUFFERS == 0:
            mx.clear_cache()
        rows = sequence.feed(tokens, wanted, lambda: self.line.send_json(b"P", {}))
        in_use = sum(len(each.held) for each in self.sequences.values())
        self.kept.make_room(self.order["positions"] - in_use)
        return rows


def serve(line):
    worker = Worker(line)
    while True:
        kind, payload = line.receive()
        if kind is None or kind == b"Q":
            return
        if kind == b"D":
            line.send_json(b"D", architectures())
        elif kind == b"C":
            worker.connect(json.loads(payload))
        elif kind == b"L":
            worker.load()
        elif kind == b"S":
            worker.step(payload)
        else:
            raise ValueError(f"an order of kind {kind!r}")


def main():
    # Signals to the whole group are rankd's to answer; the worker ends with its stdin.
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    line = Line(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    watch_parent()
    try:
        line.send_json(b"H", import_engine())
        serve(line)
    except Refusal as refusal:
        line.send_json(b"E", {"code": refusal.code, "message": str(refusal),
                              "remedy": refusal.remedy})
    except BrokenPipeError:
        pass
    except Exception as error:
        line.send_json(b"E", {"code": "", "message": f"{type(error).__name__}: {error}",
                              "remedy": ""})
        raise


main()
