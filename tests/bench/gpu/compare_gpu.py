"""Decode steps and prompts on a GPU, beside mlx-lm's in the same run.

    compare_gpu.py BENCH MODEL LIBRARIES

Prints a line for each measurement: ours, mlx-lm's and the ratio, each measured in turn, the least
of three. Exit 1 where the answers differ.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "graph_cpu"))

import mlx.core as mx  # noqa: E402
from compare_steps import TIMES, ours, prompt_of, theirs  # noqa: E402
from mlx_lm.utils import load_model  # noqa: E402

# Streams, context.
CASES = ((1, 128), (8, 128), (1, 2048), (8, 2048))
ROOM = 64  # for the answers
# As mlx-lm takes prompts by default.
PEER_CHUNK = 2048


def line(name, own, peer, note=""):
    print(f"{name:<34}{own:>10.2f}{peer:>12.2f}{own / peer:>7.2f}{note}", flush=True)


def main():
    bench, folder, libraries = sys.argv[1:]
    on_cpu = os.environ.get("MACRAME_BENCH_DEVICE") == "cpu"
    mx.set_default_device(mx.cpu if on_cpu else mx.gpu)
    device = () if on_cpu else ("gpu",)
    environment = dict(os.environ)
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries
    model, config = load_model(Path(folder))
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    print(f"{folder}, {'CPU' if on_cpu else mx.device_info().get('device_name', 'GPU')}")
    print(f"{'':<34}{'ours, ms':>10}{'mlx-lm, ms':>12}{'ratio':>7}")
    good = True
    for streams, context in CASES:
        prompts = [prompt_of(slot, context, vocabulary) for slot in range(streams)]
        pool = streams * (-(-(context + ROOM) // 32) * 32)
        pairs = [
            (
                ours(bench, folder, streams, context, pool, *device, environment=environment),
                theirs(model, prompts, PEER_CHUNK),
            )
            for _ in range(TIMES)
        ]
        same = all(pair[0][1] == pair[1][1] for pair in pairs)
        good = good and same
        least = [[min(pair[side][i] for pair in pairs) for side in (0, 1)] for i in (0, 2)]
        note = "" if same else "  other tokens"
        line(f"step of {streams} at {context:,}", *least[0], note)
        if streams == 1:
            line(f"prompt of {context:,}", *least[1])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
