#!/usr/bin/python3
"""Time to the first byte and bytes of each page of the page, for docs/performance.md.

    LARDER=target/release/larder /usr/bin/python3 tests/e2e/page_weight.py

Over TLS on loopback, from a warm connection, as the owner of a larder of its own on three folders. Pages that watch the machine for a
time (connections, power) take that time.
"""

import http.client
import re
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from conftest import make
from test_page import port_of, tls, visitor

VISITS = 15
PAGES = ["", "storage", "volume?name=tank/files", "sharing", "people", "explain", "alerts", "care", "care/log", "care/doctor", "care/bench",
         "care/config", "me", "connections", "care/power"]
SLOW = {"connections", "care/power"}


def measured(connection, cookie, path):
    """Milliseconds until the first byte, and bytes of the body."""
    began = time.perf_counter()
    connection.request("GET", path, headers={"Cookie": cookie, "Accept": "text/html"})
    answer = connection.getresponse()
    first = time.perf_counter() - began
    body = answer.read()
    assert answer.status == 200, (path, answer.status)
    return first * 1e3, body


def main():
    folder = Path(tempfile.mkdtemp(prefix="larder-page-"))
    daemon = make(folder, extra=["--page", "127.0.0.1:0"])
    try:
        daemon.start()
        owner = visitor(daemon)
        connection, assets = http.client.HTTPSConnection("127.0.0.1", port_of(daemon), context=tls()), {}
        print(f"| page | first byte, ms (median of {VISITS}) | bytes |\n|---|---|---|")
        for page in PAGES:
            seen = [measured(connection, owner.cookie, "/+/" + page) for _ in range(3 if page in SLOW else VISITS)]
            body = seen[-1][1]
            assets |= {path: None for path in re.findall(r'/\+/assets/[a-z0-9.-]+', body.decode())}
            print(f"| {page or 'Home'} | {statistics.median(one for one, _ in seen):.1f} | {len(body):,} |")
        sizes = {path: len(measured(connection, owner.cookie, path)[1]) for path in assets}
        print(f"| all {len(sizes)} assets together, once | | {sum(sizes.values()):,} |")
        daemon.stop()
    finally:
        daemon.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
