"""The page in a browser shows what the store has, and asks nobody else."""

import functools
import http.server
import json
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import cagp_dist.view
from cagp_dist.cartography.colour_scale import ERROR_BARS, scale_of
from cagp_dist.store.publish import current_run, make_current, output_lock
from cagp_dist.store.zarr_arrays import write_group
from cagp_dist.view import export_page, notebook, serve

from . import viewed_runs
from .chromium import BINARY, MAP, Chromium
from .viewed_runs import DAYS, error_bar, publish_viewed

pytestmark = pytest.mark.skipif(BINARY is None, reason="needs Chromium")

VENDORING = Path(cagp_dist.view.__file__).parent / "vendoring"
AXE = VENDORING / "node_modules" / "axe-core" / "axe.min.js"

RAMP = """import("./colours.js").then(({colourOf, ramp}) => {
  const range = document.getElementById("bar").dataset.range.split(" ").map(Number);
  return %s.map(value => colourOf(ramp("plasma"), range, value).match(/[0-9]+/g).map(Number));
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def open_page(browser):
    """Open a page; at the end nothing went wrong in it, and no host but ours was asked."""
    servers = []

    def opened(run, after=""):
        servers.append(serve(run))
        browser.requests.clear()
        browser.console.clear()
        browser.open(servers[-1].url + after)
        return browser

    yield opened
    browser("Page.navigate", url="about:blank")  # which asks for no newer run during the next test
    for server in servers:
        server.close()
    assert browser.console == []
    origins = {re.match(r"https?://[^/]+|data:|blob:", url)[0] for url in browser.requests}
    assert origins - {"data:", "blob:"} == {server.url.rstrip("/") for server in servers}


def numbers(text):
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))]


def place_of(browser, latitude, longitude):
    return browser.run(f"(p => [p.x, p.y])({MAP}.project([{longitude}, {latitude}]))")


def chosen(browser):
    """What the page says of the place that was chosen: its latitude and longitude, and its facts by name."""
    browser.until("!document.getElementById('inspector').hidden")
    sides = re.match(r"(?:.*, )?([\d.]+)° ([NS]), ([\d.]+)° ([EW])", browser.text("#place"))
    latitude = float(sides[1]) * (1 if sides[2] == "N" else -1)
    longitude = float(sides[3]) * (1 if sides[4] == "E" else -1)
    pairs = browser.run(
        "[...document.querySelectorAll('#facts dt')].map(dt => [dt.innerText, dt.nextSibling.innerText])"
    )
    return latitude, longitude, dict(pairs)


def value_shown(browser):
    """Value and error bar that the page shows of a place, and the digits behind their points."""
    text = browser.text("#value")
    return *numbers(text), len(text.partition(" ")[0].partition(".")[2])


def test_a_click_tells_the_value_of_the_store_and_the_series(open_page, world):
    browser = open_page(world)
    run = xr.open_zarr(current_run(world), group="map")
    browser.click(*place_of(browser, 26.0, 11.0))
    latitude, longitude, facts = chosen(browser)
    assert (latitude, longitude) == (25.0, 10.0)
    cell = run.sel(latitude=latitude, longitude=longitude)
    for time in reversed(range(run.sizes["time"])):  # the newest is shown first
        browser.until(f"document.documentElement.dataset.shown === 'mean {time}'")
        _, _, facts = chosen(browser)
        mean, std, noisy, part = (
            float(cell[f"t2m_{kind}"][time])
            for kind in ("mean", "std", "predictive_std", "std_computational")
        )
        value, error, digits = value_shown(browser)
        assert (value, error) == (round(mean - 273.15, digits), round(std, digits))
        assert browser.text("#bar-of") == "± one standard deviation of the field"
        ends = [mean - 273.15 - 1.6448536 * std, mean - 273.15 + 1.6448536 * std]
        assert list(facts) == [
            "90 % range of the field",
            "± from unfinished computation, at most",
            "± of an observation, noise included",
        ]
        (low, high), (unfinished,), (of_observation,) = map(numbers, facts.values())
        assert [low, high] == [round(end, digits) for end in ends]
        assert of_observation == round(noisy, digits)
        assert unfinished == pytest.approx(part, rel=0.05)
        browser.press("ArrowLeft")
    points = browser.run("document.querySelector('#series .mean').getAttribute('points').split(' ').length")
    assert points == run.sizes["time"]
    assert browser.run("document.querySelector('#series .band').points.length") == 2 * points


def test_the_bar_ends_in_a_point_where_values_lie_beyond_it(open_page, tmp_path, monkeypatch):
    axes = np.arange(-87.5, 90.0, 5.0), np.arange(2.5, 360.0, 5.0)

    def large_in_a_few_cells(latitude, longitude):
        return error_bar(latitude, longitude) + 50.0 * ((latitude > 85.0) & (longitude < 20.0))

    monkeypatch.setattr(viewed_runs, "error_bar", large_in_a_few_cells)
    run = publish_viewed(tmp_path, *axes, times=DAYS[:1])
    browser = open_page(run, "#layer=std")
    browser.until("document.documentElement.dataset.shown === 'std 0'")
    low, high = map(float, browser.run("document.getElementById('bar').dataset.range").split(" "))
    std = xr.open_zarr(run, group="map")["t2m_std"].values
    scale = scale_of(std.ravel(), colours=ERROR_BARS)
    assert (low, high) == (scale.low, scale.high)
    assert scale.extend == "max"
    said = browser.run("document.getElementById('bar').getAttribute('aria-label')")
    assert said.endswith("; some values are larger")
    assert "9px" in browser.run("getComputedStyle(document.getElementById('ramp')).clipPath")


@pytest.mark.exhaustive
@pytest.mark.parametrize("coarse", [None, 2])
def test_recalibrated_error_bars_are_the_quantiles_of_the_run(open_page, tmp_path, coarse):
    axes = np.arange(-90.0, 90.1, 5.0), np.arange(0.0, 360.0, 5.0)
    publish_viewed(tmp_path, *axes, skewed=True, coarse=coarse)
    browser = open_page(tmp_path)
    browser.click(*place_of(browser, 20.0, 10.0))
    latitude, longitude, facts = chosen(browser)
    run = xr.open_zarr(current_run(tmp_path), group="map" if coarse is None else "map_std")
    cell = run.sel(latitude=latitude, longitude=longitude).isel(time=-1)
    ends = [float(cell["t2m_quantile"].sel(quantile_level=level)) - 273.15 for level in (0.05, 0.95)]
    found = numbers(facts["90 % range of an observation"])[-2:]
    np.testing.assert_allclose(found, ends, rtol=0.0, atol=0.051)
    assert ends[1] - ends[0] > 1.0  # which is seen
    assert browser.text("#bar-of") == "± one standard deviation of an observation, noise included"
    _, noisy, _ = value_shown(browser)
    assert noisy == pytest.approx(float(cell["t2m_predictive_std"]), abs=0.051)
    for layer, end in zip(("lower", "upper"), ends, strict=True):
        browser.run(f"document.querySelector('#layers button[value={layer}]').click()")
        browser.until(f"document.documentElement.dataset.shown === '{layer} 2'")
        browser.click(*place_of(browser, 20.0, 10.0))
        browser.until("!document.getElementById('readout').hidden")
        assert numbers(browser.text("#readout"))[-1] == pytest.approx(end, abs=0.051)


@pytest.mark.exhaustive
def test_time_is_chosen_by_slider_buttons_and_keys(open_page, world):
    browser = open_page(world, "#time=2020-01-02T12:00&layer=std")
    assert browser.run("document.documentElement.dataset.shown") == "std 1"
    assert browser.text("#stamp") == "2020-01-02 12:00 UTC"
    browser.press("End")
    browser.until("document.documentElement.dataset.shown === 'std 2'")
    browser.run("document.getElementById('earlier').click()")
    browser.until("document.documentElement.dataset.shown === 'std 1'")
    slide = "(s => { s.value = 0; s.dispatchEvent(new Event('input')) })(document.getElementById('slider'))"
    browser.run(slide)
    browser.until("document.documentElement.dataset.shown === 'std 0'")
    assert browser.run("location.hash") == "#layer=std&time=2020-01-01T12:00"
    browser.press("ArrowLeft")
    assert browser.text("#stamp") == "2020-01-01 12:00 UTC"


@pytest.mark.exhaustive
def test_every_layer_is_shown_with_its_unit(open_page, world):
    browser = open_page(world)
    shown = {}
    for layer in browser.run("[...document.querySelectorAll('#layers button')].map(b => b.value)"):
        browser.run(f"document.querySelector('#layers button[value={layer}]').click()")
        browser.until(f"document.documentElement.dataset.shown === '{layer} 2'")
        shown[layer] = browser.text("#legend-title")
    browser.settle()
    assert list(shown) == ["mean", "std", "computation", "lower", "upper", "width", "errors"]
    units = {layer: text[-5:].partition("[")[2] for layer, text in shown.items()}
    assert {layer for layer, unit in units.items() if unit == "°C]"} == {"mean", "lower", "upper"}
    assert {unit for layer, unit in units.items() if layer not in ("mean", "lower", "upper")} == {"K]"}
    # an observation that was held out
    posterior = xr.open_zarr(current_run(world), group="posterior").isel(time=-1)
    number = int(
        np.argmin(
            np.hypot(posterior.latitude.values - 20.0, (posterior.longitude.values + 180.0) % 360.0 - 180.0)
        )
    )
    point = posterior.isel(point=number)
    browser.click(*place_of(browser, float(point.latitude), float(point.longitude)))
    browser.until(f"document.getElementById('place').innerText.startsWith('Station {number},')")
    _, _, facts = chosen(browser)
    value, error, digits = value_shown(browser)
    assert value == round(float(point.t2m_mean) - 273.15, digits)
    assert error == round(float(point.t2m_predictive_std), digits), "of an observation, as the one beside it"
    difference = float(point.t2m - point.t2m_mean)
    (said,) = numbers(facts["Observed − predicted"])
    assert said == pytest.approx(difference, abs=0.051)


GRIDS = {
    "all around, from 0 to 360": (np.arange(-90.0, 90.1, 10.0), np.arange(0.0, 360.0, 10.0), None),
    "across the date line": (np.arange(-30.0, 10.1, 2.5), np.arange(165.0, 205.1, 2.5), None),
    "with missing cells": (np.arange(35.0, 60.1), np.arange(-12.0, 30.1), 8.0),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", GRIDS)
def test_every_cell_is_drawn_where_it_is(open_page, tmp_path, name):
    latitude, longitude, hole = GRIDS[name]
    rows, columns = np.meshgrid(latitude, longitude, indexing="ij")
    blank = None if hole is None else np.hypot(rows - 47.0, columns - 9.0) < hole
    publish_viewed(tmp_path, latitude, longitude, times=DAYS[:1], blank=blank, points=20)
    browser = open_page(tmp_path)
    colours_are_those_of_the_store(browser, xr.open_zarr(current_run(tmp_path), group="map"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("north_first", [False, True])
def test_a_store_of_another_order_is_drawn_too(open_page, tmp_path, north_first):
    """Latitudes from north to south, or unequal ones, westward longitudes, values beyond four bytes."""
    latitude = np.array([-60.0, -45.0, -31.0, -18.0, -6.0, 6.0, 18.0, 31.0, 45.0, 60.0])
    publish_viewed(tmp_path / "out", latitude, np.arange(-40.0, 40.1, 8.0), times=DAYS[:1], points=20)
    group = xr.open_zarr(current_run(tmp_path / "out"), group="map").load()
    if north_first:
        group = group.isel(latitude=slice(None, None, -1), longitude=slice(None, None, -1))
        group.t2m_mean[:, 5, 5], group.t2m_mean[:, 5, 6] = 1e40, -1e40
    run = tmp_path / "run.zarr"
    write_group(run, "/", xr.Dataset())
    write_group(run, "map", group)
    browser = open_page(run)
    colours_are_those_of_the_store(browser, group)


def colours_are_those_of_the_store(browser, group):
    """Compare the middles of cells in a picture, neither marked nor smoothed, with the scale of colours."""
    for switch in ("hatch", "fade", "smooth", "globe"):
        browser.run(f"document.querySelector('#{switch}:checked')?.click()")
    browser.settle()
    for layer in ("net", "halo", "coast", "dots"):
        browser.run(f"void {MAP}.setLayoutProperty('{layer}', 'visibility', 'none')")
    browser.settle()
    picture = np.asarray(browser.picture())
    field = group.t2m_mean.isel(time=0)
    compared, blank = [], []
    places = [
        (y, x + turn)
        for y in field.latitude.values
        if abs(y) < 80
        for x in field.longitude.values
        for turn in (0, -360)
    ]
    pixels = browser.run(f"{json.dumps(places)}.map(([y, x]) => {MAP}.project([x, y])).map(p => [p.x, p.y])")
    for (y, x), (across, down) in zip(places, pixels, strict=True):
        if 350 < across < 1200 and 30 < down < 700:
            value = float(field.sel(latitude=y, longitude=x if x in field.longitude.values else x + 360))
            pixel = picture[round(down), round(across)]
            (compared if np.isfinite(value) else blank).append((value - 273.15, pixel))
    assert len(compared) > 30
    expected = np.array(browser.run(RAMP % [value for value, _ in compared]))
    found = np.array([pixel for _, pixel in compared], dtype=float)
    assert np.abs(found - expected).max() <= 4  # of 255, by rounding on the way
    if group.attrs.get("blank_cells"):
        assert len(blank) > 30
        assert np.ptp([pixel for _, pixel in blank], axis=0).max() == 0


@pytest.mark.exhaustive
def test_what_the_observations_leave_of_the_prior_variance_is_hatched_and_fades(open_page, tmp_path):
    axes = np.arange(30.0, 60.1, 3.0), np.arange(-20.0, 20.1, 4.0)
    publish_viewed(tmp_path, *axes, times=DAYS[:1], points=9, attributes={"prior": {"variance": 1.0}})
    browser = open_page(tmp_path)
    run = xr.open_zarr(current_run(tmp_path), group="map").isel(time=0)
    browser.run("document.getElementById('smooth').click()")
    for layer in ("net", "halo", "coast"):
        browser.run(f"void {MAP}.setLayoutProperty('{layer}', 'visibility', 'none')")
    browser.settle()
    hatched = np.asarray(browser.picture(), dtype=float)
    browser.run("document.getElementById('hatch').click()")
    browser.settle()
    plain = np.asarray(browser.picture(), dtype=float)
    browser.run("document.getElementById('fade').click()")
    browser.settle()
    faded = np.asarray(browser.picture(), dtype=float)
    lined = (np.abs(hatched - plain).max(axis=-1) > 30.0).astype(float)
    ground = np.array([0xF3, 0xF5, 0xF7], dtype=float)
    seen, uncertain = [], set()
    for latitude, longitude in ((57.0, 0.0), (45.0, -16.0), (33.0, 16.0)):
        at = tuple(round(each) for each in place_of(browser, latitude, longitude))[::-1]
        share = float(run.t2m_std.sel(latitude=latitude, longitude=longitude)) ** 2
        opaque = 1.0 - 0.94 * min(share, 1.0)
        np.testing.assert_allclose(faded[at], opaque * plain[at] + (1.0 - opaque) * ground, atol=4.0)
        seen.append(opaque)
        around = lined[at[0] - 9 : at[0] + 9, at[1] - 9 : at[1] + 9]  # 18 by 18 pixels: lines are every 9
        uncertain.add(share > 0.5)
        assert (around.mean() > 0.08) == (share > 0.5)
        assert around.any() == (share > 0.5)
    assert max(seen) - min(seen) > 0.1
    assert uncertain == {True, False}


@pytest.mark.exhaustive
def test_no_coast_line_goes_back_around_the_globe(open_page, world):
    browser = open_page(world)
    widest = browser.run(
        f"{MAP}.getSource('coast').getData().then(found => Math.max(...found.geometry.coordinates.map(line =>"
        " line.reduce((most, [x], k) => Math.max(most, k ? Math.abs(x - line[k - 1][0]) : 0), 0))))"
    )
    assert 0.0 < widest < 60.0


@pytest.mark.exhaustive
def test_the_first_picture_of_large_maps_waits_for_mean_and_error_bars_alone(open_page, tmp_path):
    publish_viewed(tmp_path, np.linspace(-90.0, 90.0, 181), np.arange(0.0, 360.0, 0.5), times=DAYS[:3])
    browser = open_page(tmp_path)
    browser.until("document.querySelector('#layers').innerText.includes('Unfinished computation')")
    asked = browser.run(
        "performance.getEntriesByType('resource').map(each => [each.name, each.startTime])"
        ".filter(each => each[1] < performance.getEntriesByName('first picture')[0].startTime)"
    )
    names = [url.partition("/map/")[2].partition("/c")[0] for url, _ in asked if "/c" in url]
    before = {name: names.count(f"t2m_{name}") for name in ("mean", "std", "std_computational")}
    assert before == {"mean": 1, "std": 1, "std_computational": 0}  # planes of one time


@pytest.mark.exhaustive
def test_unfinished_computation_of_earlier_times_alone_is_found_after_the_first_picture(open_page, tmp_path):
    latitude, longitude, share = np.linspace(-90.0, 90.0, 181), np.arange(0.0, 360.0, 0.5), np.zeros(24)
    share[:2] = 0.2
    publish_viewed(tmp_path, latitude, longitude, times=DAYS[:24], unfinished=share)
    browser = open_page(tmp_path)
    browser.until("document.querySelector('#layers').innerText.includes('Unfinished computation')")
    labels = browser.run("[...document.querySelectorAll('#layers button')].map(each => each.value)")
    assert labels[:3] == ["mean", "std", "computation"]
    browser.run("document.querySelector('#layers [value=computation]').click()")
    browser.until("document.documentElement.dataset.shown === 'computation 23'")
    browser.run("location.reload()")
    browser.until("document.documentElement.dataset.shown === 'computation 23'")
    assert not browser.console


@pytest.mark.exhaustive
def test_it_works_without_a_mouse(open_page, world):
    browser = open_page(world)
    browser.run(f"{MAP}.getCanvas().focus()")
    browser.press("Enter")
    middle = browser.run(f"(c => [c.lat, c.lng])({MAP}.getCenter())")
    latitude, longitude, _ = chosen(browser)
    assert max(abs(latitude - middle[0]), abs(longitude - middle[1])) <= 2.5
    browser.press("Escape")
    browser.until("document.getElementById('inspector').hidden")
    browser.run("document.querySelector('#layers [aria-checked=true]').focus()")
    browser.press("ArrowRight")
    browser.until("document.documentElement.dataset.shown === 'std 2'")
    assert browser.run("document.activeElement.value") == "std"
    browser.press("ArrowLeft")
    browser.until("document.documentElement.dataset.shown === 'mean 2'")
    reached = set()
    for _ in range(25):
        browser.press("Tab")
        reached.add(browser.run("document.activeElement.id"))
    assert reached >= {
        "hatch",
        "fade",
        "dots",
        "smooth",
        "globe",
        "fit",
        "theme",
        "play",
        "earlier",
        "slider",
        "later",
        "in",
    }
    has_no_name = "each => !each.ariaLabel && !each.innerText && !each.labels.length"
    assert browser.run(f"[...document.querySelectorAll('button, input')].filter({has_no_name}).length") == 0


@pytest.mark.exhaustive
@pytest.mark.skipif(not AXE.is_file(), reason=f"needs axe-core: npm ci --ignore-scripts in {VENDORING}")
@pytest.mark.parametrize("phone", [False, True])
def test_axe_finds_no_violation(tmp_path, world, phone):
    """On a desktop and a phone, light and dark, before and after a place is chosen."""
    size = (390, 844) if phone else (1280, 800)
    browser = Chromium(tmp_path, size=size, mobile=phone)
    try:
        with serve(world) as page:
            browser.open(page.url)
            browser.run(f"{AXE.read_text()};0")
            for theme in ("light", "dark"):
                browser.run(f"document.documentElement.dataset.theme = {json.dumps(theme)}")
                browser.run("document.getElementById('close').click()")
                browser.until("document.getElementById('inspector').hidden")
                assert violations(browser) == []
                browser.run("document.getElementById('fold').click()")
                assert violations(browser) == []
                browser.run("document.getElementById('fold').click()")
                browser.click(*(each / 2 for each in size))
                browser.until("!document.getElementById('inspector').hidden")
                assert violations(browser) == []
    finally:
        browser.close()


def violations(browser):
    """Rules of axe-core that the page breaks, and where."""
    return browser.run(
        "axe.run().then(found => found.violations.map(({id, nodes}) => [id, nodes.map(each => each.html)]))"
    )


@pytest.mark.exhaustive
def test_a_newer_run_is_offered(open_page, tmp_path, world):
    root = tmp_path / "out"
    shutil.copytree(world, root)
    browser = open_page(root)
    assert browser.run("document.getElementById('newer').hidden")
    newer = current_run(root).with_name(f"{'f' * 32}.zarr")
    shutil.copytree(current_run(root), newer)
    with output_lock(root):
        make_current(root, run_key=newer.stem)
    browser.run("void document.dispatchEvent(new Event('visibilitychange'))")
    browser.until("!document.getElementById('newer').hidden")
    browser.run("document.querySelector('#newer button').click()")
    browser.until(
        f"performance.getEntriesByType('resource').some(each => each.name.includes('{newer.name}'))"
    )
    browser.until("document.documentElement?.dataset.shown && document.getElementById('progress').hidden")
    assert browser.run("document.getElementById('newer').hidden")


@pytest.mark.exhaustive
def test_a_run_without_map_says_so_and_shows_points(open_page, tmp_path):
    publish_viewed(tmp_path, np.arange(0.0, 41.0), np.arange(0.0, 41.0), times=DAYS[:2], with_map=False)
    browser = open_page(tmp_path)
    assert "no map" in browser.text("#note")
    posterior = xr.open_zarr(current_run(tmp_path), group="posterior").isel(time=-1)
    point = posterior.isel(point=7)
    browser.click(*place_of(browser, float(point.latitude), float(point.longitude)))
    browser.until("!document.getElementById('inspector').hidden")
    assert browser.text("#place").startswith("Station ")
    number = int(re.search(r"\d+", browser.text("#place"))[0])
    value, _, digits = value_shown(browser)
    assert value == round(float(posterior.t2m_mean[number]) - 273.15, digits)


@pytest.mark.exhaustive
def test_the_export_works_from_a_folder_of_any_server(browser, tmp_path, world):
    index = export_page(world, tmp_path / "site" / "some" / "maps")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=tmp_path / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.requests.clear()
        browser.console.clear()
        where = f"http://127.0.0.1:{server.server_port}/some/maps/"
        browser.open(f"{where}#at=25,10")
        stored = float(
            xr.open_zarr(current_run(world), group="map").t2m_mean.sel(latitude=25.0, longitude=10.0)[-1]
        )
        chosen(browser)
        value, _, digits = value_shown(browser)
        assert value == round(stored - 273.15, digits)
        server.shutdown()
    assert browser.console == []
    assert {url.startswith(where) for url in browser.requests if not url.startswith(("data:", "blob:"))} == {
        True
    }
    assert index.is_file()


@pytest.mark.exhaustive
def test_unfinished_computation_that_cannot_be_read_says_so_only_where_it_is_looked_at(browser, tmp_path):
    latitude, longitude = np.arange(-87.5, 90.0, 5.0), np.arange(2.5, 360.0, 5.0)
    run = publish_viewed(tmp_path, latitude, longitude, unfinished=0.0)
    flip(run / "map" / "t2m_std_computational" / "c.0.0.0")
    with serve(run) as page:
        browser.open(page.url)
        assert browser.run("document.documentElement.dataset.shown") == "mean 2"
        browser.run("document.querySelector('#layers [value=computation]').click()")
        browser.until("!document.getElementById('failure').hidden")
        assert "checksum" in browser.text("#failure")


@pytest.mark.exhaustive
def test_damage_is_said_and_not_shown(browser, tmp_path, world):
    for name, damage in (("flipped", flip), ("missing", Path.unlink)):
        run = tmp_path / f"{name}.zarr"
        shutil.copytree(current_run(world), run)
        damage(run / "map" / "t2m_mean" / "c.0.0.0")
        with serve(run) as page:
            browser("Page.navigate", url=page.url)
            browser.until("document.getElementById('failure')?.hidden === false")
            assert "cagp verify" in browser.text("#failure")
            assert browser.run("document.documentElement.dataset.shown") is None


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.exhaustive
def test_a_result_in_memory_is_shown_without_a_date_where_it_has_none(open_page):
    pytest.importorskip("IPython")
    latitude, longitude = np.arange(40.0, 61.0, 5.0), np.arange(0.0, 31.0, 5.0)
    mean = latitude[:, None] + 0.1 * longitude
    result = xr.Dataset(
        {
            name: (("latitude", "longitude"), held, {"units": "ug m-3"})
            for name, held in (("mean", mean), ("std", 0.1 * mean))
        },
        {"latitude": latitude, "longitude": longitude},
    )
    result.cagp.explore()
    browser = open_page(Path(notebook._open[-1][1].name) / "result.zarr")
    assert browser.text("#stamp") == ""
    browser.click(*place_of(browser, 50.2, 14.8))
    assert chosen(browser)[:2] == (50.0, 15.0)
    assert browser.text("#value").startswith("51.5 ±")
    assert "µg m⁻³" in browser.text("#value")
    notebook._close()
