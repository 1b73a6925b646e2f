"""What mlx-lm has a GPU do for a step, counted on the stand-in GPU: the table that gpu_graph prints
and holds beside rankd's.

    count_mlx_lm.py STAND_IN_LIBRARY MODELS_JSON TABLE

The steps are those of mlx-lm's server: one sequence with its own cache, eight in a batch with merged
caches, a chunk of a prompt, each behind others of the same shape, greedy with log probabilities.
"""

import ctypes
import importlib
import json
import sys

STREAMS = 8
CHUNK = 256
STEPS_BEFORE = 3
PROMPT_PART = 2048


class StandIn:
    """The stand-in GPU of this process. Made before mlx.core is imported."""

    def __init__(self, library):
        self._library = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self._library.stand_in_begin.restype = ctypes.c_bool
        self._library.stand_in_work.restype = ctypes.c_char_p
        if not self._library.stand_in_begin():
            sys.exit(2)

    def reset(self):
        self._library.stand_in_reset()

    def work(self):
        return json.loads(self._library.stand_in_work())


def load(mx, nn, config):
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    model.set_dtype(mx.bfloat16)

    def is_packed(_, part):
        return hasattr(part, "to_quantized") and part.weight.shape[-1] % 64 == 0

    predicate = getattr(model, "quant_predicate", None)

    def chosen(path, part):
        if not is_packed(path, part):
            return False
        return predicate(path, part) if predicate is not None else True

    nn.quantize(model, group_size=64, bits=4, class_predicate=chosen)
    mx.eval(model.parameters())
    model.eval()
    return model


class Steps:
    def __init__(self, mx, stand_in, model, entry):
        self._mx = mx
        self._stand_in = stand_in
        self._model = model
        self._entry = entry

    def _cache(self, context):
        from mlx_lm.models.cache import make_prompt_cache

        cache = make_prompt_cache(self._model)
        for begin in range(0, context, PROMPT_PART):
            tokens = self._mx.zeros((1, min(PROMPT_PART, context - begin)), self._mx.int32)
            self._model(tokens, cache=cache)
            self._mx.eval([layer.state for layer in cache])
        return cache

    def _step(self, tokens, cache):
        mx = self._mx
        logits = self._model(tokens, cache=cache)[:, -1, :]
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        token = mx.argmax(logprobs, axis=-1)
        mx.eval(token, logprobs, [layer.state for layer in cache])
        return token

    def _counted(self, step):
        for _ in range(STEPS_BEFORE):
            step()
        self._stand_in.reset()
        step()
        return self._stand_in.work()

    def decode(self, streams):
        mx = self._mx
        caches = [self._cache(self._entry["context"]) for _ in range(streams)]
        cache = caches[0]
        if streams > 1:
            layers = range(len(cache))
            cache = [cache[i].merge([one[i] for one in caches]) for i in layers]
        tokens = mx.zeros((streams,), mx.int32)
        mx.eval(tokens)

        def step():
            nonlocal tokens
            tokens = self._step(tokens[:, None], cache)

        return self._counted(step)

    def chunk(self):
        cache = self._cache(self._entry["chunk_at"])
        # As tokens come: a list that the host makes an array of.
        return self._counted(lambda: self._step(self._mx.array([[1] * CHUNK]), cache))


def stand_for_kernels(mx):
    """Kernels that mlx-lm writes in Metal's language, as the one operation that each of them is."""
    gated_delta = importlib.import_module("mlx_lm.models.gated_delta")

    def one_operation(q, k, v, g, beta, state, mask=None):
        return tuple(mx.fast.gated_delta_update(q, k, v, g, beta, state))

    gated_delta.gated_delta_kernel = one_operation
    mx.metal.is_available = lambda: True


def main():
    library, models, table = sys.argv[1:]
    stand_in = StandIn(library)
    import mlx.core as mx
    import mlx.nn as nn

    mx.set_default_device(mx.gpu)
    stand_for_kernels(mx)
    with open(models) as file:
        entries = json.load(file)
    rows = {}
    for name, entry in entries.items():
        steps = Steps(mx, stand_in, load(mx, nn, entry["config"]), entry)
        shapes = {
            "decode-1": lambda: steps.decode(1),
            "decode-8": lambda: steps.decode(STREAMS),
            "chunk": steps.chunk,
        }
        for shape, count in shapes.items():
            rows[f"{name} alone {shape}"] = count()
    with open(table, "w") as file:
        json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
