"""How long the page of a run takes to show 30 days of a quarter-degree globe, in Chromium."""

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from cagp_dist.view import serve
from pipelines.benchmarks.cases import Figures
from tests.view.chromium import BINARY, Chromium
from tests.view.viewed_runs import DAYS, publish_viewed

VISITS = 5


def first_picture() -> Figures:
    """Median and longest seconds to the first picture of a browser that has started, and megabytes read."""
    if BINARY is None:
        raise SystemExit("first_picture needs Chromium, which is not installed.")
    with tempfile.TemporaryDirectory() as folder:
        publish_viewed(Path(folder), np.linspace(-90.0, 90.0, 721), np.arange(0.0, 360.0, 0.25), times=DAYS)
        with serve(folder) as page:
            visits = [_visit(page.url) for _ in range(VISITS)]
    first, megabytes = zip(*visits, strict=True)
    return {
        "seconds": statistics.median(first),
        "longest_seconds": max(first),
        "megabytes": statistics.median(megabytes),
    }


def _visit(url: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(Path(profile))
        try:
            began = time.time()
            browser.open(url, settled=False)
            read = browser.bytes / 1e6
            browser.settle()
            drawn = browser.run(
                "(performance.timeOrigin + performance.getEntriesByName('first picture')[0].startTime) / 1000"
            )
        finally:
            browser.close()
    return drawn - began, read
