"""Scrapy's own Scheduler with JOBDIR, as a crawl uses it: its dupefilter, its priority queue, its disk queues.

Settings are the defaults but for the disk queue, which is the first-in-first-out one, so that the order can be compared.
Log lines of the dupefilter are off. What it keeps across processes it writes when it is closed.
"""

import logging
from types import SimpleNamespace
from urllib.parse import urlsplit

import peer_run
from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.utils.test import get_crawler

logging.disable(logging.CRITICAL)


class Quiet(Spider):
    name = "bench"


class Peer:
    def __init__(self, directory, by_host=False):
        settings = {
            "JOBDIR": directory,
            "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
            "REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7",
        }
        if by_host:
            settings["SCHEDULER_PRIORITY_QUEUE"] = "scrapy.pqueues.DownloaderAwarePriorityQueue"
        crawler = get_crawler(Quiet, settings)
        slot_of = lambda request, _spider: urlsplit(request.url).hostname  # noqa: E731
        crawler.engine = SimpleNamespace(downloader=SimpleNamespace(slots={}, _get_slot_key=slot_of))
        spider = Quiet.from_crawler(crawler)
        crawler.spider = spider
        self.scheduler = Scheduler.from_crawler(crawler)
        self.scheduler.open(spider)

    def push(self, request):
        self.scheduler.enqueue_request(request_of(request, dont_filter=True))

    def pop(self):
        request = self.scheduler.next_request()
        if request is None:
            return None
        return {"url": request.url, "priority": request.priority, "meta": request.meta}

    def offer(self, request):
        return self.scheduler.enqueue_request(request_of(request, dont_filter=False))

    def close(self):
        self.scheduler.close("finished")


def request_of(request, dont_filter):
    return Request(
        request["url"], priority=request["priority"], meta=dict(request["meta"]), dont_filter=dont_filter
    )


peer_run.main(Peer)
