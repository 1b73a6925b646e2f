"""Runs in each virtual machine of `tests/rdma/run BUILD_DIR jaccl LIBRARY`: a simulated Mac of
tests/macos/fake whose ranks sum over MLX's own jaccl; the first machine tells the story.

    jaccl_story.py RANK COUNT BUILD CLUSTER,LIBRARY

CLUSTER: a description of tests/macos/fake/clusters with COUNT machines. LIBRARY: see README.md.

The verdict is jaccl, so is the plan; the model answers as it does over TCP; sums are verified; ten loads leave the
devices with what they had; a rank is killed, another one stopped, and the gang comes back. "mixed-frames": one machine
cuts messages as macOS before 26.3 does, though the descriptions say nothing of it: the model is served another way.
"""

import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../macos/fake"))
import story
from story import (BUILD, COUNT, MODEL_READY_MAX_S, RANK, SlownessWatch, answer, backend_of, epoch, expect, follow,
                   load, print_log, print_warnings_of_kernel, prove, start_agent, unload, verdict_is, wait_for)
from live_cluster import BUNDLED_MODEL, Failed, alive_nodes, coordinator_of, deployment, is_ready, run, say

CLUSTER, LIBRARY = story.STORY.split(",", 1)
FRAMES = "mixed-frames"
RELOADS = 10
HELD = ("pd", "cq", "qp", "mr")
DOMAINS = "/tmp/protection-domains"


def simulated_macs():
    loader = importlib.machinery.SourceFileLoader("make_cluster", os.path.join(HERE, "../macos/fake/make_cluster"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_cluster", loader))
    loader.exec_module(module)
    # The frames that differ are those of the library: what the Macs say of themselves is all right.
    description = os.path.join(HERE, "../macos/fake/clusters", ("mesh-2" if CLUSTER == FRAMES else CLUSTER) + ".json")
    with open(description) as text:
        return module.make_cluster(json.load(text), "/tmp/macs")


def become_mac():
    """This machine's interfaces and devices get the names and addresses that the simulated Mac's commands tell of."""
    macs = simulated_macs()
    names = list(macs)
    mac = macs[names[RANK]]
    lan = mac.model["lan"][1]
    rename("lan0", lan, f"{mac.lan_ip}/24")
    if not mac.says["lan"]:
        run(["ip", "link", "set", lan, "down"])
    for socket, cable in mac.cables.items():
        peer = names.index(cable.peer.name)
        run(["rdma", "link", "del", f"rdma_cable{peer}"])
        rename(f"cable{peer}", mac.sockets[socket], f"{cable.ip}/30")
        run(["rdma", "link", "add", f"rdma_{mac.sockets[socket]}", "type", "rxe", "netdev", mac.sockets[socket]])
    os.environ["MACRAME_COMMANDS_FOLDER"] = f"/tmp/macs/{mac.name}/bin"


def rename(device, name, address):
    run(["ip", "link", "set", device, "down"])
    run(["ip", "addr", "flush", "dev", device])
    run(["ip", "link", "set", device, "name", name])
    run(["ip", "addr", "add", address, "brd", "+", "dev", name])
    run(["ip", "link", "set", name, "up"])


def give_ranks_jaccl():
    """rankd of this machine alone, whose root is a layer of its own, begins with the library."""
    if not os.path.isfile(LIBRARY):
        raise Failed(f"{LIBRARY} is not to be seen from this machine (nothing below /tmp is)")
    rankd = os.path.join(BUILD, "bin/rankd")
    os.rename(rankd, rankd + ".program")
    os.makedirs(DOMAINS)
    old_frames = "JACCL_OLD_FRAMES=1 " if CLUSTER == FRAMES and RANK == 1 else ""
    with open(rankd, "w") as script:
        script.write(f'#!/bin/sh\n{old_frames}JACCL_HELD={DOMAINS} LD_PRELOAD={LIBRARY} exec {rankd}.program "$@"\n')
    os.chmod(rankd, 0o755)


def held():
    """What all devices of this machine hold, as the kernel counts it."""
    shown = run(["rdma", "resource", "show"]).stdout
    return {kind: sum(int(n) for n in re.findall(rf"\b{kind} (\d+)", shown)) for kind in HELD}


def domains_kept():
    """{process: how many protection domains it had not given back} of the ranks that ran on this machine."""
    return {pid: int(open(os.path.join(DOMAINS, pid)).read()) for pid in os.listdir(DOMAINS)}


def own_rank_pid():
    found = run(["pgrep", "-f", "rankd.program --launch-spec"], check=False).stdout.split()
    if len(found) != 1:
        raise Failed(f"one rank was expected on this machine, there are {len(found)}")
    return int(found[0])


def after_loss(node, what, reference, lose):
    before = epoch(node)
    lose()
    wait_for(node, f"{what}: the gang is formed again",
             lambda s: is_ready(s, after_epoch=before) and backend_of(s) == "jaccl", 240)
    expect(answer(node) == reference, f"{what}: the answer is the same")


def find_everything(node):
    wait_for(node, f"{COUNT} agents see each other",
             lambda s: len(alive_nodes(s)) == COUNT and coordinator_of(s), 180)
    verdict = "jaccl-ring" if CLUSTER.startswith("ring") else "jaccl-mesh"
    wait_for(node, f"the verdict is: {verdict}", verdict_is(node, verdict), 180)
    print(node.ctl("links").stdout, flush=True)


def refuse_mixed_frames(node):
    node.ctl("model", "load", BUNDLED_MODEL, "--ranks", str(COUNT), "--parallelism", "tensor",
             timeout=MODEL_READY_MAX_S)
    status = wait_for(node, "the model is ready", is_ready, MODEL_READY_MAX_S)
    expect(backend_of(status) != "jaccl", "no gang is formed over jaccl of ranks that cut messages differently")
    expect(len(answer(node).split()) >= 5, "the model is served another way")
    told = json.dumps(deployment(status).get("fallbacks", []))
    expect("GROUP_MISMATCH" in told and "64 KiB" in told, "status says which sum was wrong")


def serve(node):
    before = held()
    status = load(node, parallelism="tensor")
    expect(backend_of(status) == "jaccl", "the plan takes jaccl by itself")
    during = held()
    expect(during["pd"] > before["pd"] and during["qp"] > before["qp"], f"its group holds devices: {during}")
    reference = answer(node)
    say(f"answer: {reference.strip()[:70]!r}…")
    expect(len(reference.split()) >= 5, "an answer of words came over jaccl")
    prove(node, "jaccl")

    after_loss(node, "a rank was killed", reference, lambda: os.kill(own_rank_pid(), signal.SIGKILL))
    after_loss(node, "a rank stands still", reference, lambda: os.kill(own_rank_pid(), signal.SIGSTOP))
    unload(node)
    earlier = domains_kept()
    for _ in range(RELOADS):
        expect(backend_of(load(node, parallelism="tensor")) == "jaccl", "loaded once more over jaccl")
        unload(node)
    expect(held() == before, f"{RELOADS} loads later the devices hold what they held: {before}")
    # The kernel of a Mac keeps what a process that ended has not given back; Linux's does not.
    kept = {pid: count for pid, count in domains_kept().items() if pid not in earlier}
    expect(len(kept) == RELOADS and not any(kept.values()), "each of these ranks gave back its protection domains")

    load(node, transport="ring", parallelism="tensor")
    expect(answer(node) == reference, "the answer over TCP is the same")
    unload(node)


def main():
    become_mac()
    give_ranks_jaccl()
    slowness = SlownessWatch()
    slowness.start()
    node = start_agent()
    if RANK != 0:
        return follow(node)
    try:
        find_everything(node)
        refuse_mixed_frames(node) if CLUSTER == FRAMES else serve(node)
    except (Failed, subprocess.SubprocessError):
        print(f"a moment's sleep was late by at most {slowness.most_s:.1f} s", flush=True)
        print_log(node)
        raise
    print(f"{story.checks} held; a moment's sleep was late by at most {slowness.most_s:.1f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (Failed, subprocess.SubprocessError) as failure:
        print(f"FAILED after {story.checks} checks: {failure}", flush=True)
        print_warnings_of_kernel()
        sys.exit(1)
