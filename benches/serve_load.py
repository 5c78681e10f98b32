#!/usr/bin/env python3
"""Load test of `driftc serve`: requests per second, latencies, and growth of the server's memory.

serve_load.py [--seconds N] [--clients N] [--model NAME] [--max-tokens N] [--pid PID] URL

The clients send chats (or completions, if the model has no chat template), half of them as streams. One request in ten is
abandoned, and one in ten is invalid. With --pid, the script reads the memory of the server from /proc, at the end of a warm-up
of a tenth of the time and at the end. It needs only the standard library.
"""

import argparse
import http.client
import json
import random
import threading
import time
import urllib.parse

WORDS = "the a one red old river house tree runs sees green under over bright day night friend sings".split()


class Load:
    """Counters of all clients."""

    def __init__(self):
        self.lock = threading.Lock()
        self.first, self.total, self.statuses, self.tokens = [], [], {}, 0

    def count(self, status, first=None, total=None, tokens=0):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.tokens += tokens
            if total is not None:
                self.total.append(total)
            if first is not None:
                self.first.append(first)


def request(source, args):
    """Returns path and body of a random request."""
    text = " ".join(source.choices(WORDS, k=source.randint(3, 60)))
    body = {"model": args.model, "max_tokens": source.randint(1, args.max_tokens), "stream": source.random() < 0.5}
    body |= source.choice([{"temperature": 0}, {"temperature": 0.8, "seed": source.randint(0, 9)}, {"logprobs": True}])
    if args.completions:
        body["logprobs"] = 2 if body.get("logprobs") else None
        return "/v1/completions", body | {"prompt": text}
    return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": text}]}


def run(load, source, args, address):
    """Sends one request and counts its answer."""
    kind = source.random()
    path, body = request(source, args)
    if kind < 0.1:
        body["temperature"] = "invalid"
    elif kind < 0.2:
        body |= {"stream": True, "max_tokens": args.max_tokens}
    start = time.monotonic()
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        first = response.readline()
        latency = time.monotonic() - start
        if 0.1 <= kind < 0.2:
            load.count("abandoned")
            return
        rest = (first + response.read()).decode()
        status = response.status
        if status == 429:
            time.sleep(0.1)
        if status != 200 or kind < 0.1:
            load.count(status)
            return
        assert not body["stream"] or rest.endswith("data: [DONE]\n\n"), rest[-300:]
        tokens = rest.count("data: ") if body["stream"] else json.loads(rest)["usage"]["completion_tokens"]
        load.count(status, latency if body["stream"] else None, time.monotonic() - start, tokens)
    finally:
        connection.close()


def resident(pid):
    """Returns the resident memory of a process in MiB."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def percentiles(name, values):
    values = sorted(values)
    if values:
        at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
        print(f"{name}: p50 {at(0.5):.3f} s, p95 {at(0.95):.3f} s, p99 {at(0.99):.3f} s, maximum {values[-1]:.3f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--model")
    parser.add_argument("--completions", action="store_true", help="use /v1/completions in place of chats")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--pid", type=int)
    args = parser.parse_args()
    address = urllib.parse.urlsplit(args.url)
    load, start = Load(), time.monotonic()
    failures = []

    def client(index):
        source = random.Random(index)
        while time.monotonic() - start < args.seconds and not failures:
            try:
                run(load, source, args, address)
            except Exception as error:  # every failure of a client is a failure of the test
                failures.append(error)

    threads = [threading.Thread(target=client, args=[index]) for index in range(args.clients)]
    for thread in threads:
        thread.start()
    samples = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(1, args.seconds / 20))
        if args.pid:
            samples.append((time.monotonic() - start, resident(args.pid)))
    took = time.monotonic() - start
    done = load.statuses.get(200, 0)
    print(f"{args.clients} clients, {took:.0f} s: {sum(load.statuses.values())} requests, {load.statuses}")
    print(f"{done / took:.2f} answers/s, {load.tokens / took:.1f} tokens/s")
    percentiles("time to the first byte of a stream", load.first)
    percentiles("time of an answer", load.total)
    for share in (0.1, 0.25, 0.5, 0.75, 1.0) if samples else ():
        at, memory = next(sample for sample in samples if sample[0] >= share * samples[-1][0])
        print(f"memory of the server after {at:.0f} s: {memory:.1f} MiB")
    if failures:
        raise SystemExit(f"a client failed: {failures[0]!r}")


main()
