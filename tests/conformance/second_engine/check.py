"""Holds what rankd answers with models of the second engine against mlx_lm itself.

    check.py BUILD_DIR [cluster]      (cluster: that part alone)
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step
from mlx_lm.utils import _get_classes, load_model

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
from held_ports import HeldPorts
from live_cluster import Failed, LiveCluster, alive_nodes, coordinator_of, deployment, is_ready, say

TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
BUNDLED = ROOT / "deploy" / "models" / "knot-5m-4bit"
VOCABULARY = 3072
TOKENS = 64
PROMPTS = ([5, 9, 200, 33, 7], [11], [(37 * i * i + 11 * i) % 3000 for i in range(600)])
BASE = {"vocab_size": VOCABULARY, "hidden_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 1024}
# Two that few will miss in rankd, and so it may stay without.
MODELS = {
    # mlx_lm has no shard() of it: one rank only.
    "stablelm": {**BASE, "model_type": "stablelm", "num_hidden_layers": 3, "rope_theta": 10000.0,
                 "intermediate_size": 192, "use_qkv_bias": True, "partial_rotary_factor": 0.25,
                 "layer_norm_eps": 1e-5},
    # Each layer runs twice, the second time in a window: two kinds of caches.
    "iquestloopcoder": {**BASE, "model_type": "iquestloopcoder", "num_hidden_layers": 4,
                        "head_dim": 32, "intermediate_size": 192, "rms_norm_eps": 1e-5,
                        "loop_num": 2, "loop_window_size": 64},
}


QWEN2 = {**BASE, "model_type": "qwen2", "num_hidden_layers": 4, "intermediate_size": 192,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}


def draw(path, value):
    if path.endswith("norm.weight"):
        return 1.0 + 0.2 * mx.random.normal(value.shape)
    scale = 0.3 if path.endswith("bias") else 1.5 / value.shape[-1] ** 0.5
    return scale * mx.random.normal(value.shape)


def make(folder, config, bits):
    config = dict(config)
    mx.random.seed(17)
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    model.load_weights([(path, draw(path, value))
                        for path, value in tree_flatten(model.parameters())])
    if bits:
        config["quantization"] = {"bits": bits, "group_size": 32}
        nn.quantize(model, group_size=32, bits=bits)
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())),
                        metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    for name in TEXT_FILES:
        shutil.copy(BUNDLED / name, folder / name)


def reference(folder, prompt):
    model, _ = load_model(folder)
    return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=TOKENS)]


def expect(what, got, wanted):
    if got != wanted:
        raise Failed(f"{what}:\n  got    {got}\n  wanted {wanted}")
    say(f"{what}: as mlx-lm")


def up_to_the_end(tokens):
    """rankd stops behind the end token, which is 2; generate_step goes on."""
    return tokens[:tokens.index(2) + 1] if 2 in tokens else tokens


def answer_of(command, pass_fds=(), on_started=lambda: None):
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          pass_fds=pass_fds) as process:
        on_started()
        try:
            out, error = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if process.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit {process.returncode}\n{error}")
    return json.loads(out)["tokens"]


def ask_alone(rankd, folder, prompt):
    return answer_of([rankd, "--generate", "--model", folder, "--python", sys.executable, "--json",
                      "--context", "1024", "--max-tokens", str(TOKENS),
                      "--prompt-tokens", ",".join(map(str, prompt))])


def write_spec(path, folder, rank, ports, staged):
    """protoc makes the message of its text. `staged`: two stages, else two parts of each layer."""
    ways = "tp: 1 pp: 2" if staged else "tp: 2 pp: 1"
    part = (f"stage: {rank} layer_begin: {2 * rank} layer_end: {2 * rank + 2}" if staged else
            f"tp_rank: {rank} layer_end: 4")
    ring = "".join(f'ring_addresses: "{address}"\n' for address in ports.ring)
    text = f"""deployment: "trial" epoch: 1 rank: {rank} world_size: 2 {ways} backend: "ring"
model {{ path: "{folder}" engine: "mlx-lm" }} python: "{sys.executable}"
assignment {{ rank: {rank} {part} node_id: "node-{rank}" }}
{ring} step_address: "{ports.step}" gang_secret: "{'s' * 32}" context_length: 1024
socket_path: "{path}.sock" """
    done = subprocess.run(["protoc", f"-I{ROOT}/proto", "--encode=macrame.v1.LaunchSpec",
                           f"{ROOT}/proto/macrame/v1/rank.proto"], input=text.encode(),
                          capture_output=True, check=True)
    path.write_bytes(done.stdout)


def ask_two(rankd, folder, prompt, scratch, staged=False):
    specs = [scratch / f"rank{rank}" for rank in range(2)]
    with HeldPorts(2) as ports, open(scratch / "rank1.log", "w") as log:
        for rank, spec in enumerate(specs):
            write_spec(spec, folder, rank, ports, staged)
        options, fds = ports.handed(1)
        other = subprocess.Popen([rankd, "--launch-spec", specs[1], *options],
                                 stdin=subprocess.PIPE, stderr=log, pass_fds=fds)
        ports.release(1)
        try:
            options, fds = ports.handed(0)
            tokens = answer_of([rankd, "--generate", "--launch-spec", specs[0], *options, "--json",
                                "--max-tokens", str(TOKENS),
                                "--prompt-tokens", ",".join(map(str, prompt))], fds, lambda: ports.release(0))
            if other.wait(timeout=20) != 0:
                raise Failed(f"rank 1 ended with {other.returncode}: see {log.name}")
        finally:
            other.kill()
            other.wait()
    return tokens


def complete(node, model, prompt):
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": 40,
                       "temperature": 0}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{node.gateway_port}/v1/completions", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)["choices"][0]["text"]


def alone(rankd, folder, prompt):
    """The text that one rank by itself gives."""
    done = subprocess.run([rankd, "--generate", "--model", folder, "--python", sys.executable,
                           "--json", "--prompt", prompt, "--max-tokens", "40"],
                          capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)["text"]


def load_soon(node, *model):
    """As soon as the agents have looked for mlx-lm."""
    begun = time.monotonic()
    while True:
        done = node.ctl("model", "load", *model, check=False, timeout=90)
        if done.returncode == 0:
            return
        if time.monotonic() - begun > 60:
            raise Failed(f"not loaded: {done.stdout}{done.stderr}")
        time.sleep(1)


def complete_soon(node, model, prompt, limit_s):
    begun = time.monotonic()
    while True:
        try:
            return complete(node, model, prompt)
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() - begun > limit_s:
                raise Failed(f"HTTP {error.code}: {error.read().decode()}") from error
            time.sleep(0.5)


def children_of(pid):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except (OSError, ValueError):
            pass
    return found


def on_a_cluster(build, models, rankd):
    with LiveCluster(build, names=("ada", "bob")) as cluster:
        ada, bob = cluster.nodes
        folders = {"model_folders": [str(models)]}
        ada.write_config(extra={**folders, "mlx_lm_python": sys.executable})
        bob.write_config(extra={**folders, "mlx_lm_python": "/nowhere/python3"})
        cluster.start()
        cluster.wait_for("two agents", lambda s: len(alive_nodes(s)) == 2 and coordinator_of(s), 20)
        load_soon(ada, "iquestloopcoder")
        cluster.wait_for("model ready", lambda s: is_ready(s, "iquestloopcoder"), 60)
        prompts = ["Explain RDMA in simple terms", "What is a mesh, and what is a ring?"]
        wanted = [alone(rankd, models / "iquestloopcoder", prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            texts = list(pool.map(lambda p: complete(bob, "iquestloopcoder", p), prompts))
        expect("two at once, through the other node's gateway", texts, wanted)
        longer = prompts[0] + wanted[0] + " And then? " + prompts[1]
        expect("a prompt that goes on where an answer ended",
               complete(ada, "iquestloopcoder", longer),
               alone(rankd, models / "iquestloopcoder", longer))
        status = ada.status()
        ranks = [rank for found in status["deployments"] for rank in found["ranks"]]
        own = next(n["identity"]["node_id"] for n in status["nodes"] if n.get("is_self"))
        expect("the rank's node and engine", [(r["node_id"], r.get("engine")) for r in ranks],
               [(own, "mlx-lm")])
        worker = children_of(int(ranks[0]["pid"]))
        os.kill(worker[0], signal.SIGKILL)
        begun = time.monotonic()
        expect("after the worker was killed", complete_soon(ada, "iquestloopcoder", prompts[0], 60),
               wanted[0])
        say(f"served again after {time.monotonic() - begun:.1f} s")
        refused = bob.ctl("model", "load", "stablelm", "--nodes", "bob", check=False)
        told = refused.stdout + refused.stderr
        if refused.returncode == 0 or "bob" not in told or "has no mlx-lm" not in told:
            raise Failed(f"a node without mlx-lm: exit {refused.returncode}: {told}")
        say("a node without mlx-lm is refused by name")


def over_two_nodes(build, models, rankd):
    """Both have mlx-lm: equal tensor parts over the ring, and again when a worker was killed."""
    with LiveCluster(build, names=("ada", "bob")) as cluster:
        for node in cluster.nodes:
            node.write_config(extra={"model_folders": [str(models)],
                                     "mlx_lm_python": sys.executable})
        cluster.start()
        cluster.wait_for("two agents that have mlx-lm",
                         lambda s: len(alive_nodes(s)) == 2 and coordinator_of(s), 20)
        load_soon(cluster.nodes[0], "iquestloopcoder", "--ranks", "2")
        cluster.wait_for("model ready", lambda s: is_ready(s, "iquestloopcoder"), 60)
        ranks = deployment(cluster.nodes[0].status(), "iquestloopcoder")["ranks"]
        expect("the ranks' engine and backend",
               [(rank.get("engine"), rank.get("backend")) for rank in ranks],
               [("mlx-lm", "ring")] * 2)
        prompt = "Explain RDMA in simple terms"
        wanted = alone(rankd, models / "iquestloopcoder", prompt)
        expect("over two nodes", complete(cluster.nodes[1], "iquestloopcoder", prompt), wanted)
        os.kill(children_of(int(ranks[1]["pid"]))[0], signal.SIGKILL)
        cluster.wait_for("the gang is launched again", lambda s: is_ready(
            s, "iquestloopcoder", int(deployment(s, "iquestloopcoder")["epoch"]) - 1) and all(
                rank["pid"] != ranks[1]["pid"]
                for rank in deployment(s, "iquestloopcoder")["ranks"]), 60)
        expect("after rank 1's worker was killed",
               complete_soon(cluster.nodes[0], "iquestloopcoder", prompt, 60), wanted)


def known_to_rankd(rankd, folder):
    done = subprocess.run([rankd, "--describe", folder, "--python", "/nowhere/python3"],
                          capture_output=True, check=True, timeout=60)
    return b"MODEL_ARCHITECTURE_UNKNOWN" not in done.stdout


def main(build, only=None):
    rankd = pathlib.Path(build, "bin", "rankd")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        models = scratch / "models"
        models.mkdir()
        for name, config in MODELS.items():
            for bits in (0, 4):
                folder = models / (f"{name}-{bits}bit" if bits else name)
                make(folder, config, bits)
                if known_to_rankd(rankd, folder):
                    raise Failed(f"rankd knows {name} by now: take another architecture here")
                if only == "cluster":
                    continue
                for prompt in PROMPTS:
                    wanted = up_to_the_end(reference(folder, prompt))
                    what = f"{folder.name}, {len(prompt)} tokens and {len(wanted)} more"
                    expect(f"{what}, one rank", ask_alone(rankd, folder, prompt), wanted)
                    if name == "iquestloopcoder":
                        expect(f"{what}, two ranks", ask_two(rankd, folder, prompt, scratch),
                               wanted)
        if only != "cluster":
            # rankd knows it, and mlx_lm has a pipeline of it; plans have none of mlx_lm's.
            make(scratch / "qwen2", QWEN2, 0)
            expect("qwen2 through mlx-lm, two stages",
                   ask_two(rankd, scratch / "qwen2", PROMPTS[2], scratch, staged=True),
                   up_to_the_end(reference(scratch / "qwen2", PROMPTS[2])))
        on_a_cluster(build, models, rankd)
        over_two_nodes(build, models, rankd)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failed as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
