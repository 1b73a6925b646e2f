"""Two real agents serve a model on two ranks: what their metrics say is what happened.

Both text formats are read by Prometheus' own parser, and by promtool where it is installed. Run by `run`.
"""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from live_cluster import (BUNDLED_MODEL, REPOSITORY, Failed, LiveCluster, alive_nodes, coordinator_of,
                          is_ready, say)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

SECRET_WORDS = "the heron counts seven lanterns"
MODEL = {"model_name": BUNDLED_MODEL}


def expect(condition, text):
    if not condition:
        raise Failed(text)
    say(f"holds: {text}")


def ask(node, method, path, body=None, headers=None, host="127.0.0.1"):
    """(status, headers, text) from a node's gateway."""
    connection = http.client.HTTPConnection(host, node.gateway_port, timeout=60)
    try:
        fields = dict(headers or {})
        if body is not None:
            fields["content-type"] = "application/json"
            body = json.dumps(body)
        connection.request(method, path, body, fields)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def chat(node, stream, tokens, headers=None):
    return ask(node, "POST", "/v1/chat/completions",
               {"model": BUNDLED_MODEL, "stream": stream, "max_tokens": tokens, "ignore_eos": True,
                "messages": [{"role": "user", "content": SECRET_WORDS}]}, headers)


class Page:
    """One scrape, by name and labels."""

    def __init__(self, text, read=read_prometheus):
        self.text = text
        self.families = list(read(text))
        self.samples = {}
        for family in self.families:
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def value(self, name, **labels):
        """Of the one series that has these labels, or None."""
        found = [value for have, value in self.samples.get(name, [])
                 if all(have.get(key) == wanted for key, wanted in labels.items())]
        if len(found) > 1:
            raise Failed(f"{name} with {labels} is there {len(found)} times")
        return found[0] if found else None

    def sum(self, name, **labels):
        return sum(value for have, value in self.samples.get(name, [])
                   if all(have.get(key) == wanted for key, wanted in labels.items()))


def scrape(node, accept="text/plain"):
    status, headers, text = ask(node, "GET", "/metrics", headers={"accept": accept})
    if status != 200:
        raise Failed(f"/metrics of {node.name} answers {status}: {text[:300]}")
    is_open = headers["content-type"].startswith("application/openmetrics-text")
    return Page(text, read_openmetrics if is_open else read_prometheus)


def wait_for(what, condition, limit_s=20):
    """Until it holds; the page of the agent is put together anew each time."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > limit_s:
            raise Failed(f"not within {limit_s} s: {what}")
        time.sleep(0.2)
    say(f"holds: {what}")


def documented():
    """Names and kinds that docs/metrics.md lists."""
    with open(os.path.join(REPOSITORY, "docs/metrics.md")) as page:
        return dict(re.findall(r"^\| `([a-z0-9_:]+)` \| (\w+) \|", page.read(), re.M))


def check_formats(node):
    plain, open_ = scrape(node), scrape(node, "application/openmetrics-text;version=1.0.0")
    kinds = documented()
    for family in plain.families:
        # The parser drops the end of a counter's name.
        name = family.name + ("_total" if family.type == "counter" else "")
        if kinds.get(name) != family.type:
            raise Failed(f"{name} is a {family.type}, and docs/metrics.md says {kinds.get(name)}")
    expect(len(plain.families) > 50, f"{len(plain.families)} families are documented as what they are")
    ours = {family.name: family.type for family in plain.families}
    theirs = {family.name: family.type for family in open_.families}
    expect(set(theirs) == set(ours), "OpenMetrics has the same families")
    tool = shutil.which("promtool")
    if tool is None:
        say("promtool is not installed: the page was read by the Python parser alone")
    else:
        done = subprocess.run([tool, "check", "metrics"], input=plain.text, capture_output=True, text=True,
                              timeout=30)
        # Names of vLLM are not its own: a colon is for recorded rules, _perc no unit.
        ours = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("vllm:")]
        expect(not ours, f"promtool finds nothing in our own names: {ours[:5]}")
    told = json.loads(node.ctl("metrics", "--format", "json").stdout)
    names = {family["name"] for family in told["metrics"]}
    expect("macrame_node_up" in names and "vllm:generation_tokens_total" in names,
           "clusterctl metrics tells the same as JSON")
    text = node.ctl("metrics").stdout
    expect(Page(text).value("macrame_node_up", node="ada") == 1, "and as text")
    wrong = node.ctl("metrics", "--format", "xml", check=False)
    expect(wrong.returncode == 2 and "xml" in wrong.stderr, "another format is a wrong command line")


def check_cluster(ada, bess):
    page = scrape(bess)
    for node in ("ada", "bess"):
        expect(page.value("macrame_node_up", node=node) == 1, f"bess tells that {node} is up")
        total = page.value("macrame_node_memory_total_bytes", node=node)
        available = page.value("macrame_node_memory_available_bytes", node=node)
        expect(total > available > 0, f"and how much memory {node} has")
        expect(page.value("macrame_node_memory_held_by_ranks_bytes", node=node) > 0,
               f"and that ranks hold some of it on {node}")
    expect(page.value("macrame_node_heartbeat_round_trip_seconds", node="ada") is not None
           or scrape(ada).value("macrame_node_heartbeat_round_trip_seconds", node="bess") is not None,
           "a heartbeat's round trip is known on the side that calls")
    expect(page.sum("macrame_coordinator") == 1, "one of them is coordinator")
    expect(page.value("macrame_coordinator_term") >= 1, "with a term")
    expect(page.value("macrame_model_ready", model=BUNDLED_MODEL) == 1, "the model is ready")
    expect(page.value("macrame_gang_epoch", model=BUNDLED_MODEL) >= 1, "its gang has an epoch")
    ranks = [labels["rank"] for labels, value in page.samples["macrame_rank_ready"] if value == 1]
    expect(sorted(ranks) == ["0", "1"], "both ranks are ready")


def check_serving(ada, bess):
    before = scrape(ada)
    status, _, _ = chat(ada, True, 12)
    expect(status == 200, "a stream is answered")
    status, _, _ = chat(ada, False, 8)
    expect(status == 200, "and a whole answer")
    wait_for("both are counted", lambda: scrape(ada).sum(
        "macrame_gateway_requests_total", route="/v1/chat/completions", status="200") == 2)
    page = scrape(ada)

    def rise(name, **labels):
        return page.sum(name, **labels) - before.sum(name, **labels)

    expect(rise("vllm:generation_tokens_total", **MODEL) == 20, "twenty tokens were generated")
    expect(rise("vllm:request_success_total", finished_reason="length", **MODEL) == 2, "two ended by length")
    expect(rise("vllm:time_to_first_token_seconds_count", **MODEL) == 2, "two first tokens were timed")
    expect(rise("vllm:inter_token_latency_seconds_count", **MODEL) == 18, "and what lies between the others")
    expect(rise("vllm:e2e_request_latency_seconds_count", **MODEL) == 2, "and two whole requests")
    prompt = rise("vllm:prompt_tokens_total", **MODEL)
    expect(prompt > 10 and rise("vllm:prefix_cache_queries_total", **MODEL) == prompt, "prompts are counted")
    expect(rise("vllm:prefix_cache_hits_total", **MODEL) <= prompt, "hits are a part of them")
    expect(rise("macrame_gateway_first_byte_overhead_seconds_count") == 1, "the stream's overhead was timed")
    expect(scrape(bess).value("vllm:generation_tokens_total", **MODEL) is None,
           "the other gateway tells of none of it: sums over agents are right")
    holders = [node for node in (ada, bess)
               if scrape(node).value("vllm:num_requests_running", **MODEL) is not None]
    expect(len(holders) == 1, "one agent tells of the entry rank")
    wait_for("nobody holds KV blocks any more",
             lambda: scrape(holders[0]).value("vllm:kv_cache_usage_perc", **MODEL) == 0)
    status, _, _ = ask(ada, "POST", "/v1/chat/completions",
                       {"model": "nobody", "messages": [{"role": "user", "content": "hi"}]})
    expect(status == 404, "an unknown model is refused")
    page = scrape(ada)
    expect(page.value("macrame_request_failures_total", code="MODEL_NOT_LOADED") == 1, "by its reason")
    expect("nobody" not in page.text, "and leaves no series of its name")


def check_running(ada, bess):
    """While answers are under way the gauges show them."""
    over = threading.Event()

    def ask_on():
        while not over.is_set():
            chat(ada, True, 400)

    seen = {"running": 0, "kv": 0.0, "busy": 0}

    def look():
        for node in (ada, bess):
            page = scrape(node)
            seen["running"] = max(seen["running"], page.sum("vllm:num_requests_running", **MODEL))
            seen["kv"] = max(seen["kv"], page.sum("vllm:kv_cache_usage_perc", **MODEL))
            seen["busy"] = max(seen["busy"], page.sum("macrame_gateway_requests_in_progress"))
        return seen["running"] >= 1 and 0 < seen["kv"] <= 1 and seen["busy"] >= 2

    askers = [threading.Thread(target=ask_on) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        wait_for("running requests show, with the KV blocks that they hold", look)
    finally:
        over.set()
        for asker in askers:
            asker.join()
    wait_for("they are gone when they are over", lambda: sum(
        scrape(node).sum("vllm:num_requests_running", **MODEL) for node in (ada, bess)) == 0)


def check_departure(ada):
    gone = "macrame_gateway_clients_gone_total"
    before = scrape(ada).sum(gone)
    body = json.dumps({"model": BUNDLED_MODEL, "stream": True, "ignore_eos": True,
                       "messages": [{"role": "user", "content": SECRET_WORDS}]})
    with socket.create_connection(("127.0.0.1", ada.gateway_port), timeout=20) as client:
        client.sendall((f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
                        f"content-type: application/json\r\n\r\n{body}").encode())
        client.recv(1)
    wait_for("a client that left is counted", lambda: scrape(ada).sum(gone) == before + 1)


def check_log(ada):
    status, headers, _ = chat(ada, False, 4, {"x-request-id": "trace-4711"})
    expect(status == 200 and headers["x-request-id"] == "trace-4711", "a client's request id comes back")

    def lines():
        with open(ada.log_path, errors="replace") as log:
            return [line for line in log if "request_id='trace-4711'" in line]

    wait_for("the access log has its line", lambda: len(lines()) == 1)
    line = lines()[0]
    wanted = ("POST /v1/chat/completions 200 ", " client=127.0.0.1 ", f" model='{BUNDLED_MODEL}'")
    expect(all(part in line for part in wanted), f"with what was asked: {line.strip()}")


def check_secrets(ada):
    with open(ada.log_path, errors="replace") as log:
        expect(SECRET_WORDS not in log.read(), "no prompt is in the log")


def check_loopback6(ada):
    try:
        socket.create_connection(("::1", ada.gateway_port), timeout=5).close()
    except OSError as error:
        if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
            say(f"this machine has no ::1: {error}")
            return
        with open("/proc/net/if_inet6") as addresses:
            if "00000000000000000000000000000001" not in addresses.read():
                say("this machine has no ::1")
                return
        raise
    status, _, _ = ask(ada, "GET", "/health", host="::1")
    expect(status == 200, "the gateway answers at [::1] too")


def check_loss(ada, bess):
    bess.kill()
    wait_for("ada tells that bess is down", lambda: scrape(ada).value("macrame_node_up", node="bess") == 0)
    page = scrape(ada)
    expect(page.value("macrame_node_state", node="bess", state="dead") == 1, "as dead")
    expect(page.value("macrame_node_deaths_total", node="bess") == 1, "for the first time")
    expect(page.value("macrame_node_memory_available_bytes", node="bess") is None,
           "and nothing of what it last said of itself")
    expect(page.value("macrame_cluster_healthy") == 0, "the cluster is not healthy")
    wait_for("the gang's next launch is a restart", lambda: scrape(ada).value(
        "macrame_gang_restarts_total", model=BUNDLED_MODEL) >= 1, limit_s=60)


def say_cost(ada):
    page = scrape(ada)
    cpu = page.value("macrame_metrics_cpu_seconds_total") / page.value("macrame_metrics_scrapes_total")
    say(f"a page of two nodes and {len(page.text)} bytes costs {cpu * 1000:.2f} ms of CPU")
    expect(cpu < 0.005, "less than 5 ms")


def main(build):
    with LiveCluster(build, names=("ada", "bess")) as cluster:
        ada, bess = cluster.nodes
        cluster.start()
        cluster.wait_for("two nodes and a coordinator",
                         lambda s: len(alive_nodes(s)) == 2 and coordinator_of(s), 30)
        ada.ctl("model", "load", BUNDLED_MODEL, "--ranks", "2", timeout=120)
        cluster.wait_for("the model is ready", is_ready, 60)
        check_cluster(ada, bess)
        check_serving(ada, bess)
        check_formats(ada)
        check_log(ada)  # before there are so many requests that the log leaves lines out (log_guard.h)
        check_running(ada, bess)
        check_departure(ada)
        check_secrets(ada)
        check_loopback6(ada)
        say_cost(ada)
        check_loss(ada, bess)
    say("all holds")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Failed as error:
        say(f"FAILED: {error}")
        sys.exit(1)
