"""The scenarios for peers written in Python, the same work as scenarios.ts puts to the others.

A peer gives a class with push, pop, offer, finish, settle and close. Requests are read before the clock starts, what came
back is written out after it has stopped; checking that is the parent's part, by the same code as for everybody.
"""

import errno
import json
import os
import sys
import time

BATCH = 100
BUDGET_S = 20


def read_lines(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def say(result):
    print(json.dumps(result), flush=True)


def batches(requests):
    for at in range(0, len(requests), BATCH):
        yield requests[at : at + BATCH]


def push_all(peer, requests):
    end = time.perf_counter() + BUDGET_S
    pushed = 0
    for batch in batches(requests):
        for request in batch:
            peer.push(request)
        pushed += len(batch)
        if time.perf_counter() > end:
            break
    return pushed


def pop_all(peer, popped, most=None):
    end = time.perf_counter() + BUDGET_S
    while most is None or len(popped) < most:
        request = peer.pop()
        if request is None:
            return True
        popped.append(request)
        if len(popped) % BATCH == 0 and time.perf_counter() > end:
            break
    return False


def timed(work):
    cpu = time.process_time()
    begun = time.perf_counter()
    result = work()
    return result, (time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000


def private_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon in /proc/self/status")


def push(make, orders, output):
    requests = read_lines(orders["input"])
    peer = make(orders["directory"])

    def work():
        pushed = push_all(peer, requests)
        peer.close()
        return pushed

    pushed, ms, cpu_ms = timed(work)
    peer = make(orders["directory"])
    popped = []
    pop_all(peer, popped, BATCH)
    output(popped)
    return {"operations": pushed, "ms": ms, "cpuMs": cpu_ms, "whole": False}


def pop(make, orders, output):
    requests = read_lines(orders["input"])
    peer = make(orders["directory"])
    for request in requests:
        peer.push(request)
    peer.close()
    del requests
    peer = make(orders["directory"])
    popped = []

    def work():
        whole = pop_all(peer, popped)
        peer.close()
        return whole

    whole, ms, cpu_ms = timed(work)
    output(popped)
    return {"operations": len(popped), "ms": ms, "cpuMs": cpu_ms, "whole": whole}


def crawl(make, orders, output):
    known = read_lines(orders["input"])
    pages = read_lines(orders["pages"])
    peer = make(orders["directory"])
    for request in known:
        peer.offer(request)
    steps = []

    def work():
        end = time.perf_counter() + BUDGET_S / 2
        for links in pages:
            taken = peer.pop()
            added = 0
            for link in links:
                added += peer.offer(link)
            steps.append({"taken": taken, "added": added})
            if time.perf_counter() > end:
                break
        peer.close()

    _, ms, cpu_ms = timed(work)
    output(steps)
    return {"operations": len(steps) * len(pages[0]), "ms": ms, "cpuMs": cpu_ms, "whole": False}


def hosts(make, orders, output):
    requests = read_lines(orders["input"])
    peer = make(orders["directory"], by_host=True)
    pushed = 0
    try:
        for request in requests:
            peer.push(request)
            pushed += 1
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        sys.stdout.flush()
        return {"cannot": f"a queue per host keeps files open: EMFILE after {pushed} of {len(requests)} pushes"}
    return {"cannot": "too few hosts at this scale to see whether a queue for each fits"}


def memory(make, orders, output):
    size = orders["size"]
    peer = make(orders["directory"])
    seen_only = size * 3 // 2
    small = seen_only // 5
    peak = 0

    with open(orders["input"], encoding="utf-8") as lines:

        # Popped as soon as offered, as in memory.ts.
        def offer_many(count, and_pop):
            nonlocal peak
            for at in range(count):
                peer.offer(json.loads(next(lines)))
                if and_pop:
                    peer.pop()
                if at % 10000 == 0:
                    peak = max(peak, private_bytes())
            return private_bytes()

        bytes_small = offer_many(small, True)
        bytes_seen_only = offer_many(seen_only - small, True)
        bytes_end = offer_many(size, False)
    bytes_seen = (bytes_seen_only - bytes_small) / (seen_only - small)
    return {
        "operations": size,
        "metrics": {
            "endMb": bytes_end / 1e6,
            "peakMb": max(peak, bytes_end) / 1e6,
            "bytesSeen": bytes_seen,
            "bytesPending": (bytes_end - bytes_seen_only) / size - bytes_seen,
        },
    }


def restart(make, orders, _output):
    task = orders["scenario"]
    size = orders["size"]
    requests = read_lines(orders["input"]) if task != "6 open" else []
    begun = time.perf_counter()
    peer = make(orders["directory"])
    open_ms = (time.perf_counter() - begun) * 1000
    if task == "6 fill":
        for request in requests:
            peer.offer(request)
        for _ in range(size):
            peer.pop()
        say({"pending": size})
    else:
        first = peer.pop()
        result = {"openMs": open_ms, "firstMs": (time.perf_counter() - begun) * 1000}
        if task == "6 count":
            left = [] if first is None else [first]
            pop_all(peer, left)
            sample = requests[:: max(1, len(requests) // 10000)]
            forgotten = sum(peer.offer(request) for request in sample)
            urls = {request["url"] for request in left}
            wrong = len(left) - len(urls)
            result.update(left=len(urls), wrong=wrong, forgotten=round(forgotten / len(sample) * 2 * size))
        say(result)
    # Stays until it is killed.
    while True:
        time.sleep(3600)


SCENARIOS = {"1": push, "2": pop, "5": crawl, "6": restart, "7": memory, "8": hosts}


def main(make):
    orders = json.loads(sys.argv[1])

    def output(values):
        with open(orders["output"], "w", encoding="utf-8") as lines:
            for value in values:
                lines.write(json.dumps(value) + "\n")

    os.makedirs(orders["directory"], exist_ok=True)
    say(SCENARIOS[orders["scenario"][0]](make, orders, output))
