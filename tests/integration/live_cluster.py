"""Real agents on this machine, for tests and measurements: started, watched, killed by process id.

A LiveCluster puts each node either on the loopback interface (discovery by loopback broadcast) or in a
network namespace of its own, joined by veth pairs to a bridge in one more namespace, as machines on a
switch. It stops every process and removes every namespace that it made. Standard library only.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUNDLED_MODEL = "knot-5m-4bit"
# 198.18.0.0/15 is set aside for tests between network devices (RFC 2544): no real machine has it.
SUBNET = "198.18.7"


class Failed(Exception):
    """What a test expected did not come true."""


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def run(args, check=True, timeout=30, **more):
    done = subprocess.run(args, capture_output=True, text=True, timeout=timeout, **more)
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def free_port(kind=socket.SOCK_STREAM):
    """None that a connection may be given before an agent binds it: systems take those from 32768 up."""
    refused = None
    for _ in range(200):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(20000, 32000)))
                return probe.getsockname()[1]
            except OSError as error:
                refused = error
    raise Failed(f"no port is free on 127.0.0.1: {refused}")


class Node:
    def __init__(self, cluster, index, name):
        self.cluster = cluster
        self.index = index
        self.name = name
        self.folder = os.path.join(cluster.folder, name)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self.socket_path = os.path.join(self.folder, "a.sock")
        self.log_path = os.path.join(self.folder, "agentd.log")
        self.namespace = f"{cluster.prefix}{name}" if cluster.namespaces else None
        self.address = f"{SUBNET}.{index + 1}" if cluster.namespaces else "127.0.0.1"
        self.process = None
        self.extra = {}
        self.gateway_port = 8000 if cluster.namespaces else 0

    def inside(self, args):
        """The command line that runs `args` where this node lives."""
        return ["ip", "netns", "exec", self.namespace] + args if self.namespace else args

    def write_config(self, secret=True, extra=None):
        keys = {
            "node_name": self.name,
            "state_folder": os.path.join(self.folder, "state"),
            "socket_path": self.socket_path,
            "model_folders": [os.path.join(REPOSITORY, "deploy/models")],
            "discovery_port": self.cluster.discovery_port,
            "discovery_loopback": not self.cluster.namespaces,
            "control_bind": self.address,
            # On a network of their own ranks listen everywhere and are reached by measured paths.
            "ring_bind": "" if self.namespace else "127.0.0.1",
            "gateway_bind": "127.0.0.1",
            "gateway_port": self.gateway_port,
            "log_file": self.log_path,
        }
        if secret:
            keys["cluster_secret_file"] = self.cluster.secret
        if extra is not None:
            self.extra = extra
        keys.update(self.extra)
        self.config_path = os.path.join(self.folder, "agentd.yaml")
        with open(self.config_path, "w") as out:
            for key, value in keys.items():
                out.write(f"{key}: {json.dumps(value)}\n")

    def start(self):
        if not self.namespace and self.gateway_port == 0:
            self.gateway_port = free_port()
            self.write_config()
        output = open(os.path.join(self.folder, "stdout.log"), "ab")
        self.process = subprocess.Popen(
            self.inside([self.cluster.binary("agentd"), "--config", self.config_path]),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        output.close()

    def agent_pid(self):
        """`ip netns exec` execs its command, so the child's pid is agentd's own."""
        return self.process.pid

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(timeout=20)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def ctl(self, *args, check=True, timeout=60):
        return run([self.cluster.binary("clusterctl"), "--socket", self.socket_path, *args],
                   check=check, timeout=timeout)

    def status(self):
        """The status as this node tells it, or None while it can't."""
        try:
            done = self.ctl("status", "-o", "json", check=False, timeout=10)
        except subprocess.TimeoutExpired:
            return None
        try:
            return json.loads(done.stdout) if done.stdout.strip() else None
        except json.JSONDecodeError as error:
            raise Failed(f"status of {self.name} is not JSON: {error}\n{done.stdout[:500]}")

    def http(self, method, path, body=None, timeout=60):
        """(status code, parsed body) from this node's gateway, asked from where the node lives."""
        args = ["curl", "-sS", "-m", str(timeout), "-X", method, "-w", "\n%{http_code}",
                f"http://127.0.0.1:{self.gateway_port}{path}"]
        if body is not None:
            args += ["-H", "content-type: application/json", "-d",
                     body if isinstance(body, str) else json.dumps(body)]
        text, _, code = run(self.inside(args), timeout=timeout + 5).stdout.rpartition("\n")
        try:
            return int(code), json.loads(text)
        except json.JSONDecodeError:
            return int(code), text


class LiveCluster:
    def __init__(self, build, names=("ada", "bess", "cleo"), namespaces=False):
        self.build = os.path.abspath(build)
        self.namespaces = namespaces
        # Short: a unix socket's path may be 104 bytes long.
        self.folder = tempfile.mkdtemp(prefix="mcr", dir="/tmp")
        self.prefix = f"m{os.getpid()}"
        self.discovery_port = 8888 if namespaces else free_port(socket.SOCK_DGRAM)
        self.secret = os.path.join(self.folder, "cluster.secret")
        self.made_namespaces = []
        run([self.binary("clusterctl"), "cluster", "init", "--name", "trial", "--out", self.secret])
        self.nodes = [Node(self, i, name) for i, name in enumerate(names)]
        if namespaces:
            self.make_network()
        for node in self.nodes:
            node.write_config()

    def binary(self, name):
        return os.path.join(self.build, "bin", name)

    def make_network(self):
        switch = f"{self.prefix}switch"
        self.add_namespace(switch)
        for bridge in ("br0", "br1"):
            run(["ip", "-n", switch, "link", "add", bridge, "type", "bridge"])
            run(["ip", "-n", switch, "link", "set", bridge, "up"])
        for node in self.nodes:
            self.plug_in(node.namespace, f"p{node.index}", node.address)

    def plug_in(self, namespace, port, address):
        """Makes a namespace with this address behind a port of the switch."""
        switch = f"{self.prefix}switch"
        self.add_namespace(namespace)
        run(["ip", "-n", switch, "link", "add", port, "type", "veth",
             "peer", "name", "eth0", "netns", namespace])
        run(["ip", "-n", switch, "link", "set", port, "master", "br0", "up"])
        run(["ip", "-n", namespace, "addr", "add", f"{address}/24", "broadcast", "+", "dev", "eth0"])
        run(["ip", "-n", namespace, "link", "set", "eth0", "up"])
        run(["ip", "-n", namespace, "link", "set", "lo", "up"])

    def add_host(self, name, number):
        """One more machine on the switch, without an agent: (its address, what runs a command there)."""
        namespace, address = f"{self.prefix}{name}", f"{SUBNET}.{number}"
        self.plug_in(namespace, f"h{number}", address)
        return address, lambda args: ["ip", "netns", "exec", namespace] + args

    def add_spare(self, name, index, extra):
        """A node on the switch that is not of the cluster's list: the caller starts and stops it."""
        node = Node(self, index, name)
        self.plug_in(node.namespace, f"p{index}", node.address)
        node.write_config(extra=extra)
        return node

    def split(self, apart):
        """Puts these nodes on a switch of their own, and all others on theirs; [] heals. Links stay up."""
        for node in self.nodes:
            bridge = "br1" if node in apart else "br0"
            run(["ip", "-n", f"{self.prefix}switch", "link", "set", f"p{node.index}", "master", bridge])

    def add_namespace(self, name):
        run(["ip", "netns", "add", name])
        self.made_namespaces.append(name)

    def start(self):
        for node in self.nodes:
            node.start()

    def wait_for(self, what, condition, limit_s, nodes=None):
        """Asks until `condition(status of a node)` holds on every running node; seconds it took."""
        begun = time.monotonic()
        asked = [n for n in (nodes or self.nodes) if n.running()]
        missing = list(asked)
        last = {}
        while missing:
            if time.monotonic() - begun > limit_s:
                for node in missing:
                    self.show(node, last.get(node.name))
                raise Failed(f"not within {limit_s} s: {what} (as {missing[0].name} sees it)")
            node = missing[0]
            if not node.running():
                self.show(node, None)
                raise Failed(f"agentd of {node.name} ended by itself while waiting: {what}")
            last[node.name] = node.status()
            if last[node.name] is not None and condition(last[node.name]):
                missing.pop(0)
            else:
                time.sleep(0.1)
        took = time.monotonic() - begun
        say(f"{what}: {took:.2f} s")
        return took

    @staticmethod
    def show(node, status):
        print(f"--- {node.name}: last status {json.dumps(status)[:3000]}")
        for path in (node.log_path, os.path.join(node.folder, "stdout.log")):
            if os.path.exists(path):
                with open(path, errors="replace") as log:
                    print(f"--- end of {path}\n" + "".join(log.readlines()[-40:]))

    def stop(self):
        for node in self.nodes:
            if node.running():
                node.process.terminate()
        for node in self.nodes:
            if node.process is not None:
                try:
                    node.process.wait(timeout=15)
                except subprocess.TimeoutExpired:
                    say(f"agentd of {node.name} did not stop within 15 s; killing it")
                    node.process.kill()
                    node.process.wait(timeout=5)
        for name in self.made_namespaces:
            run(["ip", "netns", "del", name], check=False)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.stop()
        if kind is None:
            self.remove()
        else:
            print(f"logs are kept in {self.folder}", file=sys.stderr)


def alive_nodes(status):
    return [n for n in status["nodes"] if n.get("state") in ("alive", "NODE_STATE_ALIVE")]


def coordinator_of(status):
    fence = status.get("coordinator") or {}
    return fence.get("coordinator_id") or None


def deployment(status, name=BUNDLED_MODEL):
    for found in status.get("deployments", []):
        if found.get("name", found.get("deployment", {}).get("name")) == name:
            return found
    return None


def is_ready(status, name=BUNDLED_MODEL, after_epoch=0):
    found = deployment(status, name)
    return (found is not None and found.get("state") in ("ready", "DEPLOYMENT_STATE_READY")
            and int(found.get("epoch", 0)) > after_epoch)


def needs_root_and_namespaces():
    """Exits with 77 (skipped) and one line that says why, where namespaces can't be had."""
    if sys.platform != "linux":
        print("network namespaces exist on Linux only")
        sys.exit(77)
    if os.geteuid() != 0:
        print("making network namespaces needs root")
        sys.exit(77)
    probe = f"m{os.getpid()}probe"
    if shutil.which("ip") is None or run(["ip", "netns", "add", probe], check=False).returncode:
        print("network namespaces can't be made here")
        sys.exit(77)
    run(["ip", "netns", "del", probe])
