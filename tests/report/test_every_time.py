"""Every time of a run has its map in the page, in colours that mean the same at all times."""

import base64
import io
import json
import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from PIL import Image, features

from cagp_dist.cartography import basemap
from cagp_dist.cartography.colour_scale import FIELD, ColourScale, scale_of
from cagp_dist.cartography.frame import PlateCarree
from cagp_dist.cartography.raster import resample
from cagp_dist.pages.templates import _digest
from cagp_dist.report import every_time, write_report
from cagp_dist.report.every_time import PIXELS, survey
from cagp_dist.report.maps import ZERO_CELSIUS_KELVIN, drawing_order, map_frame, map_scales
from cagp_dist.report.published import each_map, read_run
from cagp_dist.variables import T2M

from .make_run import make_run

DAYS = tuple(f"2017-01-{day:02d}T12:00" for day in range(1, 6))
REGION = {"longitude": (-10.0, 30.0), "latitude": (35.0, 65.0)}


def parts(page: str) -> tuple[list[str], dict[str, object]]:
    """Pictures of the gallery, and the data of the script."""
    data = re.search(r'<script type="application/json" id="every-time-data">(.*?)</script>', page)
    assert data is not None
    return re.findall(r'<img src="([^"]+)"', page), json.loads(data[1])


def decoded(url: str) -> np.ndarray:
    text = url.removeprefix("data:image/webp;base64,").removeprefix("data:image/png;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA"))


def looked_up(values: np.ndarray, scale) -> np.ndarray:
    norm = mpl.colors.Normalize(scale.low, scale.high)
    return mpl.colormaps[scale.colours](norm(values), bytes=True)


@pytest.fixture(scope="module")
def daily(tmp_path_factory) -> tuple[Path, str]:
    path = make_run(tmp_path_factory.mktemp("daily"), times=DAYS, test_count=60, map_step=5.0, **REGION)
    with pytest.MonkeyPatch.context() as smaller:
        smaller.setattr(every_time, "WIDEST", 300)
        smaller.setattr(basemap, "RASTER_WIDTH", 300)
        return path, write_report(path).read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_every_time_has_its_map_in_the_colours_of_the_large_ones(daily, monkeypatch) -> None:
    path, page = daily
    pictures, data = parts(page)
    run = read_run(path)
    every = survey(path, run)
    scales = map_scales(run, every.spans)
    with xr.open_zarr(path, group="map", consolidated=False) as fields:
        means = fields.t2m_mean.load()
    of_all = scale_of(means.values.ravel() - ZERO_CELSIUS_KELVIN, colours=FIELD)
    assert (scales["mean"].low, scales["mean"].high) == (of_all.low, of_all.high)
    assert len(pictures) == len(data["stamps"]) == len(DAYS)
    assert data["pictures"] == {}  # the standard deviation is one map
    pixels = np.stack([decoded(picture) for picture in pictures])
    longitude, latitude = map_frame(run).pixels(pixels.shape[2])
    assert pixels.shape[1:3] == longitude.shape
    wanted = []
    for (_, grid), mean in zip(each_map(path, T2M), means.values, strict=True):
        np.testing.assert_array_equal(grid.mean, mean)
        celsius = resample(grid, mean, longitude, latitude) - ZERO_CELSIUS_KELVIN
        wanted.append(looked_up(celsius, scales["mean"]))
    error = np.abs(pixels[:, None].astype(float) - np.stack(wanted)[None]).mean(axis=(2, 3, 4))
    own = np.diagonal(error)
    assert own.max() < 2.0  # of 255: what the compression loses
    assert (error + np.diag(np.full(len(DAYS), np.inf)) > 1.3 * own.max()).all()


def test_dots_get_the_colours_of_their_time(daily) -> None:
    path, page = daily
    _, data = parts(page)
    run = read_run(path)
    residual = run.points.observed - run.points.mean
    scale = map_scales(run, {"mean": np.zeros(1), "std": np.zeros(1), "residual": residual.ravel()})[
        "residual"
    ]
    order = drawing_order(residual[0], scale)
    colours = np.array(data["dots"]["residual"]["colours"])
    for text, values in zip(data["dots"]["residual"]["times"], residual, strict=True):
        steps = np.frombuffer(base64.b64decode(text), np.uint8)
        norm = mpl.colors.Normalize(scale.low, scale.high)
        wanted = mpl.colormaps[scale.colours](norm(values[order]))
        assert colours[steps].tolist() == [mpl.colors.to_hex(colour) for colour in wanted]
    drawn = re.findall(r"fill: (#\w{6})", page[page.index("residual-PathCollection_1") :])[: len(order)]
    assert (
        drawn
        == colours[np.frombuffer(base64.b64decode(data["dots"]["residual"]["times"][0]), np.uint8)].tolist()
    )


def with_errors(path: Path, group: str, factors, unfinished) -> None:
    """Multiply the standard deviations of a run by time, and say how much of them is unfinished."""
    with xr.open_zarr(path, group=group, consolidated=False) as fields:
        changed = fields.load()
    changed["t2m_std"] = changed.t2m_std * xr.DataArray(np.array(factors), dims="time")
    changed["t2m_std_computational"] = changed.t2m_std * xr.DataArray(np.array(unfinished), dims="time")
    changed.to_zarr(path, group=group, mode="w", zarr_format=3, consolidated=False)


@pytest.mark.parametrize(
    "unfinished",
    [(0.0, 0.3), *(pytest.param(both, marks=pytest.mark.exhaustive) for both in ((0.5, 0.25), (0.0, 0.0)))],
)
@pytest.mark.exhaustive
def test_error_bars_that_differ_are_drawn_at_every_time(tmp_path, unfinished) -> None:
    """And what is unfinished of them, also where the first time has nothing left to compute."""
    path = make_run(tmp_path, times=DAYS[:2], test_count=60, map_step=10.0, **REGION)
    with_errors(path, "map", [1.0, 2.0], unfinished)
    page = write_report(path)
    text = page.read_text(encoding="utf-8")
    _, data = parts(text)
    drawn = {"std", "computational"} if unfinished != (0.5, 0.25) and unfinished[1] else {"std"}
    assert {name: len(images) for name, images in data["pictures"].items()} == dict.fromkeys(drawn, 2)
    assert (page.parent / "computational.png").is_file() == any(unfinished)
    assert bool(re.search('<image [^>]*id="computational-image', text)) == any(unfinished)
    # half of the first error bar is a quarter of the second, of twice the size
    alike = "the same at all 2 times, on the map grid, at most"
    assert (alike in text) == (unfinished == (0.5, 0.25))
    assert text.count("the same at all 2 times") == (2 if alike in text else 0)


@pytest.mark.usefixtures("without_figures")
def test_without_a_map_the_dots_follow(tmp_path) -> None:
    path = make_run(tmp_path, times=DAYS[:3], test_count=60, map_step=None, **REGION)
    page = write_report(path).read_text(encoding="utf-8")
    pictures, data = parts(page)
    assert pictures == []
    assert set(data["dots"]) == {"residual", "mean"}
    assert "the same at all 3 times, at the test points" in page
    with_errors(path, "posterior", [1.0, 1.0, 1.0], [0.0, 0.1, 0.2])
    run = read_run(path)
    every = survey(path, run)
    dots = every_time._dots(run, every, map_scales(run, every.spans))
    assert set(dots) == {"residual", "mean", "computational"}
    assert len(dots["computational"]["times"]) == 3


def test_the_page_says_the_scores_of_every_time_and_stands_alone(daily) -> None:
    _, page = daily
    assert len(re.findall(r"RMSE \d\.\d\d K; inside \d+\.\d %", page)) == len(DAYS)
    assert len(re.findall('<button [^>]*aria-pressed="true"', page)) == 1
    assert "The maps show the first of 5 times, 1 January 2017, 12:00 UTC." in page
    assert not re.search(r"<script[^>]*\bsrc=|<link|@import|https?:", re.sub(r"base64,[^\"]*", "", page))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_figures")
def test_a_run_of_one_time_has_no_script(tmp_path) -> None:
    path = make_run(tmp_path, test_count=60, map_step=10.0, **REGION)
    page = write_report(path).read_text(encoding="utf-8")
    assert "<script" not in page
    assert 'id="every-time"' not in page


@pytest.mark.parametrize("count", [2, 31, 100, 744])
def test_pictures_of_many_times_are_smaller(daily, count) -> None:
    run = read_run(daily[0])
    many = type(run)(
        run.key,
        np.resize(run.times, count),
        *(
            getattr(run, name)
            for name in ("points", "grid", "calibration", "trace", "attributes", "variable")
        ),
    )
    assert isinstance(map_frame(run).projection, PlateCarree)
    longitude, _ = map_frame(run).pixels(every_time._width(many))
    assert longitude.size * count <= 1.01 * PIXELS


def test_pictures_are_png_where_webp_is_unknown(daily, monkeypatch) -> None:
    monkeypatch.setattr(features, "check", lambda name: False)
    scale = ColourScale("inferno", 0.0, 20.0, "neither", "")
    raster = np.linspace(scale.low, scale.high, 200, dtype=np.float32).reshape(10, 20)
    raster[0, 0] = np.nan
    picture = every_time._picture(raster, scale)
    assert picture.startswith("data:image/png;base64,")
    pixels = decoded(picture)
    assert pixels[0, 0, 3] == 0
    assert (pixels[1:, :, 3] == 255).all()


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_the_chosen_time(daily, tmp_path) -> None:
    _, page = daily
    pictures, data = parts(page)
    click = 'addEventListener("load", () => document.querySelectorAll("button.time")[3].click())'
    allowed = page.replace("script-src ", f"script-src {escape(_digest(click))} ")
    intruder = '<img src="data:," onerror="document.title = 1"><script>document.title = 1</script>'
    text = allowed.replace("</body>", f"<script>{click}</script>{intruder}</body>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    shown = subprocess.run(
        [BROWSER, *options, "--virtual-time-budget=2000", "--dump-dom", f"file://{tmp_path}/page.html"],
        capture_output=True, text=True, check=True, timeout=600,
    ).stdout  # fmt: skip
    assert "<title>1</title>" not in shown
    assert 'aria-valuetext="4 January 2017, 12:00 UTC"' in shown  # the slider
    assert ">play</button>" in shown
    assert "The maps show time 4 of 5, 4 January 2017, 12:00 UTC." in shown
    assert re.search(r'<image [^>]*id="mean-image[^>]*', shown)
    large = re.search(r'<image href="([^"]+)" id="mean-image', shown)
    assert large is not None
    assert large[1] == pictures[3]
    assert shown.count("4 January 2017, 12:00 UTC, ") == 2  # mean and residual
    fills = re.findall(r"fill: rgb\((\d+), (\d+), (\d+)\)", shown[shown.index("residual-PathCollection_1") :])
    steps = np.frombuffer(base64.b64decode(data["dots"]["residual"]["times"][3]), np.uint8)
    colours = [data["dots"]["residual"]["colours"][step] for step in steps]
    assert ["#{:02x}{:02x}{:02x}".format(*map(int, fill)) for fill in fills[: len(steps)]] == colours
