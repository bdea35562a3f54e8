"""A whole crawl by Scrapy with a JOBDIR, as its documentation sets it up: every link of the host is followed, one JSON line a page.

Usage: crawl_scrapy.py URL JOBDIR OUTPUT
"""

import sys
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor

url, job_directory, output = sys.argv[1:]


class Everything(Spider):
    name = "everything"
    start_urls = [url]
    allowed_domains = [urlsplit(url).hostname]
    links = LinkExtractor()

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in self.links.extract_links(response):
            yield response.follow(link)


process = CrawlerProcess(
    {
        "JOBDIR": job_directory,
        "FEEDS": {output: {"format": "jsonlines", "overwrite": False}},
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "ROBOTSTXT_OBEY": True,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7",
    }
)
process.crawl(Everything)
process.start()
