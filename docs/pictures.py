"""Take the screenshots of the documentation anew, with Chromium: ``python docs/pictures.py FOLDER``.

FOLDER has output folders ``demo`` (of `cagp demo`), ``stations`` (of `cagp example --stations`),
``calibrated`` (of `cagp calibrate`), ``strata`` (the demo with 1,000 points held out) and ``daily`` (seven
days, with an index).
"""

import base64
import functools
import http.server
import io
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from cagp_dist.store.publish import current_run
from cagp_dist.view import serve
from tests.view.chromium import MAP, Chromium

HERE = Path(__file__).parent
FIGURES = HERE / "figures"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def browser(width: int, height: int, *, dark: bool = False, mobile: bool = False) -> Iterator[Chromium]:
    """Open a tab of this size."""
    with tempfile.TemporaryDirectory() as profile:
        tab = Chromium(Path(profile) / "profile", size=(width, height), dark=dark, mobile=mobile)
        try:
            yield tab
        finally:
            tab.close()


def around(tab: Chromium, elements: str, *, margin: float = 0.0, scale: float = 1.0) -> Image.Image:
    """Picture of what holds all elements of a list in JavaScript, also beyond the window."""
    boxes = tab.run(
        f"{elements}.map(each => each.getBoundingClientRect())"
        ".map(box => [box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY])"
    )
    left, top = (min(box[side] for box in boxes) - margin for side in (0, 1))
    right, bottom = (max(box[side] for box in boxes) + margin for side in (2, 3))
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": scale}
    found = tab("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    return Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")


def section(heading: str, first: int, last: int) -> str:
    """Some of a heading (0) and the two elements after it (1, 2), as a list in JavaScript."""
    title = f"[...document.querySelectorAll('h2')].find(each => each.textContent === {json.dumps(heading)})"
    return (
        f"[{title}].map(each => [each, each.nextElementSibling, each.nextElementSibling.nextElementSibling])"
        f".flat().slice({first}, {last})"
    )


def reports(folder: Path) -> None:
    """Parts of reports and of the index."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with browser(1200, 950) as tab:

        def show(name: str) -> None:
            run = current_run(folder / name)
            assert run is not None
            page = "index.html" if name == "daily" else f"{run.stem}/report.html"
            tab("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/{name}/report/{page}")
            tab.until("document.readyState === 'complete' && document.querySelector('svg, img') !== null")
            time.sleep(0.5)

        show("demo")
        maps = [
            around(tab, f"[document.querySelectorAll('figure')[{k}].firstElementChild]", scale=1.4)
            for k in (0, 1)
        ]
        beside(maps).save(HERE / "_static" / "map.png", optimize=True)
        show("stations")
        few = tab.picture().convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(FIGURES / "station-report.png", optimize=True)
        show("calibrated")
        simulated = section("On fields drawn from the prior", 0, 3)
        around(tab, simulated, margin=8.0).save(FIGURES / "calibrate-report.png", optimize=True)
        show("strata")
        held = section("Where the error bars hold", 2, 3)
        around(tab, held, margin=8.0).save(FIGURES / "where-error-bars-hold.png", optimize=True)
        show("daily")
        tab.picture().crop((0, 0, 1200, 800)).save(FIGURES / "runs-index.png", optimize=True)
    server.shutdown()


def pages(folder: Path) -> None:
    """The page of a series on a desktop and of stations on a phone, beside each other."""
    with serve(folder / "daily" / "series.zarr") as page, browser(1280, 800) as tab:
        tab.open(page.url)
        found = [chosen(tab, 52.5, -1.9)]
    with serve(folder / "stations") as page, browser(390, 844, dark=True, mobile=True) as tab:
        tab.open(page.url)
        found.append(chosen(tab, 57.0, 12.0).resize((370, 800)))
    beside(found).save(FIGURES / "view.jpg", quality=72, optimize=True)


def beside(pictures: list[Image.Image]) -> Image.Image:
    """Two pictures beside each other, on white."""
    first, second = pictures
    both = Image.new("RGB", (first.width + 12 + second.width, max(first.height, second.height)), "white")
    both.paste(first, (0, 0))
    both.paste(second, (first.width + 12, 0))
    return both


def chosen(tab: Chromium, latitude: float, longitude: float) -> Image.Image:
    """Picture of the page once a place was clicked."""
    tab.click(*tab.run(f"(p => [p.x, p.y])({MAP}.project([{longitude}, {latitude}]))"))
    tab.until("!document.getElementById('inspector').hidden")
    tab.settle()
    time.sleep(0.5)
    return tab.picture()


if __name__ == "__main__":
    reports(Path(sys.argv[1]))
    pages(Path(sys.argv[1]))
