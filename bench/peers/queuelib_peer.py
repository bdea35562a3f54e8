"""queuelib as its own documentation sets it up: a priority queue of first-in-first-out queues on disk.

Requests are pickled as Scrapy does. Duplicates are found by a set in memory, because queuelib has no notion of them. It
writes where its queues begin and end only when they are closed.
"""

import hashlib
import os
import pickle
from urllib.parse import urlsplit

import peer_run
from queuelib import FifoDiskQueue, PriorityQueue


class Peer:
    def __init__(self, directory, by_host=False):
        self.directory = directory
        self.by_host = by_host
        self.prios_path = os.path.join(directory, "prios.pickle")
        prios = ()
        if os.path.exists(self.prios_path):
            with open(self.prios_path, "rb") as file:
                prios = pickle.load(file)
        self.queue = PriorityQueue(self.queue_for, prios)
        self.hosts = {}
        self.seen = set()

    def queue_for(self, priority):
        return FifoDiskQueue(os.path.join(self.directory, str(priority)))

    def push(self, request):
        value = pickle.dumps(request, protocol=4)
        if not self.by_host:
            self.queue.push(value, -request["priority"])
            return
        host = urlsplit(request["url"]).hostname
        if host not in self.hosts:
            self.hosts[host] = FifoDiskQueue(os.path.join(self.directory, host))
        self.hosts[host].push(value)

    def pop(self):
        value = self.queue.pop()
        return None if value is None else pickle.loads(value)

    def offer(self, request):
        mark = hashlib.sha1(request["url"].encode()).digest()[:16]
        if mark in self.seen:
            return False
        self.seen.add(mark)
        self.push(request)
        return True

    def close(self):
        prios = self.queue.close()
        with open(self.prios_path, "wb") as file:
            pickle.dump(prios, file)


peer_run.main(Peer)
