"""The page over all runs of an output folder: complete, self-contained, escaped, with true pictures."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from cagp_dist.cartography.colour_scale import FIELD, scale_of
from cagp_dist.cli import app
from cagp_dist.report.index import write_index
from cagp_dist.report.thumbnails import nearest_cells, picture_of, thumbnail, thumbnail_scales
from cagp_dist.service.published_runs import list_runs

from .make_run import make_run

LOOK = {"test_count": 60, "iterations": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two runs of the globe on two days, one without a map, one across the date line, one damaged."""
    folder = tmp_path_factory.mktemp("runs") / "a<b"
    make_run(folder, key=16 * "0", times=("2019-03-01T12:00",), map_step=6.0, **LOOK)
    make_run(folder, key=16 * "1", times=("2019-03-02T12:00",), map_step=6.0, **LOOK)
    make_run(folder, key=16 * "2", times=("2019-03-03T12:00",), map_step=None, **LOOK)
    pacific = {"longitude": (120.0, 290.0), "latitude": (-60.0, 60.0)}
    make_run(folder, key=16 * "3", times=("2019-02-01T00:00", "2019-02-02T00:00"), **pacific, **LOOK)
    damaged = make_run(folder, key=16 * "4", map_step=None, **LOOK)
    (damaged / "zarr.json").write_text("{")
    (folder / "CURRENT").write_text(16 * "1" + "\n")
    (folder / "report" / (16 * "1")).mkdir(parents=True)
    (folder / "report" / (16 * "1") / "report.html").write_text("written")
    return folder


@pytest.fixture(scope="module")
def page(root):
    result = CliRunner().invoke(app, ["index", str(root)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{root}/report/index.html\n"
    return (root / "report" / "index.html").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_every_run_has_a_card_the_newest_first_and_damaged_ones_last(root, page):
    assert re.findall(r'<p class="key">(\d+)</p>', page) == [16 * digit for digit in "2103"]
    assert page.index("cannot be read") > page.index(16 * "3")
    for run in list_runs(root)[:4]:
        assert f"{run.scores['rmse']:.2f} K" in page
        assert f"{100.0 * run.scores['coverage']:.1f} %" in page
    assert page.count(">current<") == 1
    assert "1 February 2019 and 1 more" in page


def test_the_page_refers_to_nothing_but_reports_that_are_there(page):
    assert re.findall(r'href="([^#"][^"]*)"', page) == ["1111111111111111/report.html"]
    assert "<script" not in page
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|http-equiv', "", page)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]+)"', page))
    assert len(page) < 300_000


def test_names_are_escaped(page):
    assert "<h1>Runs in a&lt;b</h1>" in page


def test_scores_by_date_are_drawn_once_there_are_two_dates(root, page, tmp_path):
    assert 'aria-label="Scores of 4 runs by date: RMSE from ' in page
    make_run(tmp_path, map_step=None, **LOOK)
    assert "<figure>" not in write_index(tmp_path).read_text()


def test_equal_cells_are_found_across_greenwich_and_the_date_line():
    latitude = np.arange(-5.0, 6.0, 5.0)
    for west in (-20.0, 160.0, 350.0):
        longitude = west + np.arange(0.0, 40.0, 10.0)
        field = np.arange(12.0).reshape(3, 4)
        rng = np.random.default_rng(0)
        x, y = rng.uniform(-180.0, 360.0, 500), rng.uniform(-12.0, 12.0, 500)
        found = nearest_cells(latitude, longitude, field, x, y)
        apart = np.abs((x[:, None] - longitude + 180.0) % 360.0 - 180.0)  # the obvious search
        column, row = apart.argmin(axis=1), np.abs(y[:, None] - latitude).argmin(axis=1)
        inside = (apart.min(axis=1) < 5.0) & (np.abs(y) < 7.5)
        assert inside.sum() > 5
        np.testing.assert_array_equal(found, np.where(inside, field[row, column], np.nan))


def test_pictures_of_a_variable_share_their_colours(root):
    pictures = [picture_of(run.path) for run in list_runs(root)[:4]]
    scales = thumbnail_scales(pictures)
    assert list(scales) == ["t2m"]
    values = np.concatenate([picture.values for picture in pictures])
    assert scales["t2m"] == scale_of(values, colours=FIELD, label=pictures[0].units)


def test_a_thumbnail_shows_warm_tropics_and_nothing_beside_the_globe(root):
    picture = picture_of(root / "runs" / f"{16 * '0'}.zarr")
    address = thumbnail(picture, thumbnail_scales([picture])["t2m"])
    image = Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    pixels = np.asarray(image).astype(int)
    height, width, _ = pixels.shape
    assert width == 360
    assert pixels[0, 0, 3] == 0
    brightness = pixels[..., :3].sum(axis=2)
    middle = brightness[height // 2 - 10 : height // 2 + 10, width // 4 : -width // 4]
    assert middle.mean() > 1.5 * brightness[2:8, 2 * width // 5 : 3 * width // 5].mean()


def test_an_empty_folder_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["index", str(tmp_path)])
    assert result.exit_code == 2
    assert "there is no published run" in result.stderr
