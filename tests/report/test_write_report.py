import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.image import imread

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.report import write_report
from cagp_dist.report.charts import draw_charts
from cagp_dist.report.maps import draw_maps, map_frame
from cagp_dist.report.page import render
from cagp_dist.report.published import read_run
from cagp_dist.report.report_tables import seconds_by_stage
from cagp_dist.store.zarr_arrays import write_group

from .make_run import HOURS, make_run

FIGURES = ["mean", "std", "residual", "pit", "convergence"]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Document(HTMLParser):
    """Collects tags, identifiers, references and text; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "href", "xlink:href", "srcset", "action", "data"}:
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="session")
def document(global_report: Path) -> Document:
    return Document(global_report.read_text(encoding="utf-8"))


def page_of(run: Path) -> str:
    """Page of a run with blank figures: drawing takes most of the time and says nothing about words."""
    return render(read_run(run), dict.fromkeys([*FIGURES, "times"], Markup("<svg></svg>")))


def calibration_of(report: Path) -> xr.Dataset:
    run = report.parents[2] / "runs" / "0123456789abcdef.zarr"
    with xr.open_zarr(run, group="calibration", consolidated=False) as opened:
        return opened.load()


def test_the_report_lies_beside_the_runs(global_report: Path) -> None:
    assert global_report.name == "report.html"
    assert global_report.parent.parts[-2:] == ("report", "0123456789abcdef")
    assert sorted(path.name for path in global_report.parent.iterdir()) == sorted(
        ["report.html", *(f"{name}.png" for name in FIGURES)]
    )


def test_the_page_stands_alone(document: Document) -> None:
    assert document.tags.isdisjoint({"script", "link", "iframe", "object", "embed"})
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in document.links)
    assert any(link.startswith("data:") for link in document.links)


def test_the_style_fetches_nothing(global_report: Path) -> None:
    page = global_report.read_text(encoding="utf-8")
    assert "@import" not in page
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    assert "http" not in re.sub(r"base64,[^\"]*|http-equiv", "", page)


def test_identifiers_are_unique_and_references_resolve(document: Document, global_report: Path) -> None:
    assert len(document.ids) == len(set(document.ids))
    used = {link[1:] for link in document.links if link.startswith("#")}
    used |= set(re.findall(r"url\(#([^)]*)\)", global_report.read_text(encoding="utf-8")))
    assert used
    assert used <= set(document.ids)


def test_both_themes_and_print_are_styled(global_report: Path) -> None:
    page = global_report.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    svg = page[page.index("<svg") :]
    assert "var(--ink)" in svg
    assert "#1b2733" not in svg


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_drawn(global_report: Path, name: str) -> None:
    image = imread(global_report.parent / f"{name}.png")[..., :3]
    height, width, _ = image.shape
    assert width == 1160
    assert height > 500
    assert float(np.mean(np.any(image < 0.97, axis=2))) > 0.03  # ink
    assert np.unique(np.round(image[::3, ::3].reshape(-1, 3), 2), axis=0).shape[0] > 20
    np.testing.assert_array_equal(image[0], 1.0)  # nothing runs off the paper
    np.testing.assert_array_equal(image[-1], 1.0)


def test_scores_are_those_of_the_run(document: Document, global_report: Path) -> None:
    scores = calibration_of(global_report)
    assert f"{float(scores.rmse):.3f} K" in document.text
    assert f"{float(scores.rmse_area_weighted):.3f} K" in document.text
    assert f"{float(scores.crps):.3f} K" in document.text
    assert f"{float(scores.nll):.3f}" in document.text
    assert f"{float(scores.ks_statistic):.4f}" in document.text
    for level, inside in zip(scores.level.values, scores.coverage.values, strict=True):
        assert f"{100 * level:g} % {100 * inside:.1f} %" in document.text


def test_the_page_tells_what_when_and_how_many(document: Document) -> None:
    for phrase in (
        "Temperature at 2 m, 27 April 2017, 12:00 UTC",
        "10,000 observations",
        "400 held-out points",
        "Mathematical",
        "Computational",
        "the solver did 5 iterations; the error bars include what it did not compute",
        "the prior is right, its mean included",
        "no fault found in the error bars",
        "the noise of an observation, 0.71 K",
        "The KS p-value assumes independent test points",
        "Close to flat",
        "completed",
        "More iterations narrow the error bars.",
        "Gram never stored",
        'name = "block-gauss-seidel"',
        "13.7 s",
        "Source sha256 c0ffee",
        "Versions python 3.11.2, cagp_dist 0.1.0, numpy 2.4.6",
        "lengthscale 0.05",
        "Natural Earth",
        "46 x 90 points",
    ):
        assert phrase in document.text, phrase


def test_one_time_has_no_chapter_on_times(document: Document) -> None:
    assert "Time by time" not in document.text


def test_few_times_are_all_listed(tmp_path: Path) -> None:
    run = make_run(tmp_path, times=HOURS[:3], test_count=20, map_step=None, iterations=1)
    text = Document(page_of(run)).text
    assert "All 3 times" in text
    assert all(f"1 March 2019, 0{hour}:00 UTC" in text for hour in range(3))


@pytest.mark.exhaustive
def test_several_times_state_what_is_shown(hourly_report: Path) -> None:
    text = Document(hourly_report.read_text(encoding="utf-8")).text
    assert "Temperature at 2 m, 1 March 2019, 00:00 to 09:00 UTC (10 times)" in text
    assert "The maps show the first of 10 times, 1 March 2019, 00:00 UTC." in text
    assert "The 8 of 10 times with the largest errors" in text
    assert text.count("1 March 2019, 0") >= 8
    assert imread(hourly_report.parent / "times.png").shape[1] == 1160


def test_scores_by_time_agree_with_the_pooled_ones(hourly_report: Path) -> None:
    run = hourly_report.parents[2] / "runs" / "0123456789abcdef.zarr"
    with xr.open_zarr(run, group="posterior", consolidated=False) as opened:
        errors = (opened["t2m"] - opened["t2m_mean"]).values
    by_time = np.sqrt((errors**2).mean(axis=1))
    text = Document(hourly_report.read_text(encoding="utf-8")).text
    assert f"{by_time.max():.3f} K" in text
    scores, worst = calibration_of(hourly_report), int(by_time.argmax())
    inside = np.abs(scores.pit.values[worst] - 0.5) <= 0.45
    nll, crps = (float(scores[name][worst].mean()) for name in ("nll_of_value", "crps_of_value"))
    assert f"{by_time.max():.3f} K {nll:.3f} {crps:.3f} K {100 * inside.mean():.1f} %" in text


def test_a_recalibrated_run_shows_what_its_scores_were_before(
    hourly_report: Path, document: Document
) -> None:
    text, scores = Document(hourly_report.read_text(encoding="utf-8")).text, calibration_of(hourly_report)
    assert "recalibrated: local-scale Learnt from errors near by." in text
    assert f"CRPS {float(scores.crps):.3f} K {float(scores.crps_plain):.3f} K" in text
    assert f"NLL {float(scores.nll):.3f} {float(scores.nll_plain):.3f}" in text
    assert "this run not recalibrated prior alone" in text
    # which may be leave-one-out errors of observed points
    assert "corrected by errors of predictions that did not use the observation" in text
    assert "points that were not used" not in text
    assert "recalibrated" not in document.text


def test_a_run_shows_where_its_error_bars_hold(hourly_report: Path, document: Document) -> None:
    page = hourly_report.read_text(encoding="utf-8")
    text, scores = Document(page).text, calibration_of(hourly_report).sel(level=0.9)
    kinds = dict.fromkeys(scores.stratum_kind.values.tolist())
    assert list(kinds) == ["all", "latitude", "surface", "roughness"]
    for name in scores.stratum.values:
        one = scores.sel(stratum=name)
        shown = "all observations" if name == "all" else name
        inside = [
            f"{100 * float(one[f'stratum_coverage{distribution}']):.1f} %" for distribution in ("_plain", "")
        ]
        chance = f"±{100 * float(one.stratum_coverage_standard_error):.1f}"
        widths = [
            f"{float(one[f'stratum_mean_width{distribution}']):.2f} K" for distribution in ("_plain", "")
        ]
        crps = [f"{float(one[f'stratum_crps{distribution}']):.2f} K" for distribution in ("_plain", "")]
        row = [shown, f"{int(one.stratum_observations):,}", *inside, chance, *widths, *crps]
        assert " ".join(row) in text
    for title, name in (("Width, 90 %", "mean_width"), ("Interval score, 90 %", "interval_score")):
        assert f"{title} {float(scores[name]):.3f} K {float(scores[f'{name}_plain']):.3f} K" in text
    error = np.abs(scores.stratum_coverage - 0.9)[1:]
    held = int((error <= 1.96 * scores.stratum_coverage_standard_error[1:]).sum())
    furthest = str(scores.stratum.values[1 + int(np.argmax(error.values))])
    assert (
        f"In {held} of the {error.size} groups listed below, the coverage of the 90 % error bars is within"
        in text
    )
    assert f"the largest difference is at {furthest}, with" in text
    assert page.count('class="bars"') == scores.sizes["stratum"]
    for name in ("reliability", "strata", "scale"):
        assert imread(hourly_report.parent / f"{name}.png").shape[1] == 1160
    assert "Map of the local scale of the error bars, 1 March 2019" in page
    assert "0.6 to 1 times" in page
    # a run of before does not say
    assert "Where the error bars hold" not in document.text


@pytest.mark.usefixtures("without_figures")
def test_few_observations_are_not_divided(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, test_count=40, map_step=30.0, recalibrated=True, attributes={"recalibration": "marx"}
    )
    text = Document(page_of(run)).text
    assert "recalibrated: marx" in text  # by a method of an earlier version
    assert "also includes its noise and is recalibrated." in text  # as runs were of which this is one
    assert (
        "There are too few held-out observations to divide them into groups: a group needs at least 50."
        in text
    )
    assert "all observations 40" in text
    assert "Left out, with fewer than 50 observations: " in text
    assert {drawing.name for drawing in draw_charts(read_run(run))} == {"pit", "reliability", "convergence"}


def test_without_a_map_nothing_is_interpolated(hourly_report: Path) -> None:
    page = hourly_report.read_text(encoding="utf-8")
    assert "nothing is interpolated" in page
    assert "shaded bilinearly" not in page
    assert "median error bar at the test points" in page
    mean = page[page.index('aria-label="Map of the posterior mean') :]
    # no raster but the strip of the colour bar
    assert len(max(re.findall(r"base64,([^\"]*)", mean[: mean.index("</svg>")]), key=len, default="")) < 5000


def test_a_region_across_greenwich_is_one_piece(hourly_report: Path) -> None:
    page = hourly_report.read_text(encoding="utf-8")
    mean = page[page.index('aria-label="Map of the posterior mean') :]
    labels = re.findall(r">([0-9.]+°[EW]?)<", mean[: mean.index("</svg>")])
    assert {"10°W", "5°W", "0°"} & set(labels) >= {"5°W", "0°"}
    assert not any(label.endswith("E") and float(label[:-2]) > 3.0 for label in labels)


@pytest.mark.exhaustive
def test_a_regional_map_fills_its_frame(tmp_path: Path) -> None:
    run = make_run(tmp_path, longitude=(-10.0, 2.0), latitude=(50.0, 58.0), map_step=0.5, test_count=40)
    image = imread(write_report(run, tmp_path / "elsewhere").parent / "mean.png")[..., :3]
    coloured = np.ptp(image, axis=2) > 0.1
    rows = np.flatnonzero(coloured.mean(axis=1) > 0.3)
    columns = np.flatnonzero(coloured[rows[0] : rows[0] + 600].mean(axis=0) > 0.5)
    # 12 degrees by 8, half a cell beyond the outer points, shrunk by cos(54 degrees); 2 pixels of rim
    assert rows[-1] - rows[0] > 500
    height = np.flatnonzero(coloured[:, columns[len(columns) // 2]])
    tall = np.flatnonzero(np.diff(height) > 5)
    high = (height[tall[0]] if len(tall) else height[-1]) - height[0]
    wide = columns[-1] - columns[0]
    assert wide / high == pytest.approx(12.0 * np.cos(np.deg2rad(54.0)) / 8.5, rel=0.03)


def test_the_frame_holds_the_cells_and_every_test_point(tmp_path: Path) -> None:
    run = read_run(
        make_run(tmp_path, longitude=(-10.0, 2.0), latitude=(50.0, 58.0), map_step=1.5, test_count=200)
    )
    assert run.grid is not None
    frame = map_frame(run)
    # columns -10, -8.5 .. 0.5 and rows 50, 51.5 .. 57.5 reach 0.75 further; points fill (-10, 2) x (50, 58)
    points = run.points
    easternmost = float(frame.relative(points.longitude_degrees).max())
    assert frame.centre_degrees + frame.west == pytest.approx(-10.75)
    assert frame.east == pytest.approx(easternmost, abs=1e-9)
    assert frame.south == pytest.approx(49.25)
    assert frame.north == pytest.approx(58.25)


def test_the_map_of_error_bars_shows_the_observations_that_are_on_it(tmp_path: Path) -> None:
    path = make_run(tmp_path, longitude=(-10.0, 2.0), latitude=(50.0, 58.0), map_step=1.5, test_count=20)
    times = read_run(path).times.astype("datetime64[ns]")
    latitude, longitude = np.array([52.0, 57.0, 51.0]), np.array([355.0, 1.0, 30.0])
    places = {"latitude": ("point", latitude), "longitude": ("point", longitude)}
    values = xr.Dataset({"t2m": (("time", "point"), np.full((1, 3), 280.0))}, {"time": times, **places})
    write_group(path, "observations", values)
    run = read_run(path)
    drawings = {drawing.name: drawing.figure for drawing in draw_maps(run)}
    (shown,) = drawings["std"].axes[0].collections
    on_map = np.stack(map_frame(run).project(longitude[:2], latitude[:2]), axis=1)
    np.testing.assert_allclose(shown.get_offsets(), on_map)
    assert drawings["std"].texts[1].get_text().endswith("UTC, on the map grid; points: observations")
    for name in ("mean", "std", "residual"):  # region and source on one line
        assert drawings[name].texts[2].get_text() == "49°N to 58°N, 11°W to 2°E; observations from sample"
    assert not drawings["mean"].axes[0].collections


def test_text_of_the_run_is_escaped(tmp_path: Path) -> None:
    hostile = '<script>alert("x")</script> & {{ title }}'
    names = ["job", "status_advice", "solver", "executor", "status"]
    run = make_run(
        tmp_path,
        test_count=30,
        map_step=None,
        iterations=1,
        attributes=dict.fromkeys(names, hostile)
        | {"plan": f'["{"<b>bold"}"]', "timings": '{"<i>stage": 1.0}', "provenance": '{"<u>": "<q>"}'},
    )
    page = page_of(run)
    document = Document(page)
    assert document.tags.isdisjoint({"script", "u", "q"})
    assert page.count("&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp; {{ title }}") == len(names)
    assert "&lt;b&gt;bold" in page
    assert "&lt;i&gt;stage" in page
    assert "&lt;u&gt;" in page


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("attributes", "phrase", "pill"),
    [
        ({"status": "exact"}, "the solver finished the computation", "pill good"),
        ({"status": "neighbours"}, "; each place is predicted from those near it; checked at", "pill good"),
        ({"status": "completed"}, "; error bars include unfinished computation; checked at", "pill good"),
        ({"status": "breakdown"}, "the solver broke down after 1 iteration;", "pill bad"),
        ({"solver_calibration": "approximate"}, "usually too wide, sometimes too narrow", "pill good"),
        (
            {"solver_calibration": "conservative"},
            "are never too narrow, but they may be too wide",
            "pill good",
        ),
        # runs of earlier versions have a flag alone
        ({"solver_calibration": None, "solver_calibrated": False}, "usually too wide,", "pill good"),
    ],
)
def test_the_status_changes_the_words(
    tmp_path: Path, attributes: dict[str, object], phrase: str, pill: str
) -> None:
    run = make_run(tmp_path, test_count=30, map_step=None, iterations=1, attributes=attributes)
    page = page_of(run)
    assert phrase in page
    assert "On fields drawn from the prior" not in page
    assert f'class="{pill}"' in page


@pytest.mark.parametrize(
    ("solver", "words", "pill"),
    [
        (cagp.GaussSeidel(2), "no fault found in the error bars", "pill good"),
        (cagp.ConjugateGradient(6), "error bars too wide", "pill bad"),
    ],
    ids=["right", "too wide"],
)
def test_simulated_fields_have_a_section(
    tmp_path: Path, solver: cagp.solvers.Solver, words: str, pill: str
) -> None:
    rng = np.random.default_rng(0)
    prior = cagp.Prior(cagp.Matern32(0.3), noise_variance=0.01)
    found = cagp.calibrate(
        prior, rng.uniform(size=(60, 2)), rng.uniform(size=(30, 2)), solver=solver, simulations=500
    )
    run = make_run(tmp_path, map_step=None, test_count=30, iterations=1, simulation=found)
    page = page_of(run)
    Document(page)
    section = page[page.index("<h2>On fields drawn from the prior</h2>") : page.index("<h2>How it was")]
    assert f'<span class="{pill}">{words}</span>' in section
    assert found.verdict.statement in section
    for number in (f"{found.joint.std:.4f}", f"{found.tests.z_std:.3f}", f"{found.tests.ks_statistic:.4f}"):
        assert f'<td class="number">{number}</td>' in section
    assert "500 fields were drawn from the prior" in section
    [drawing] = [drawing for drawing in draw_charts(read_run(run)) if drawing.name == "simulation"]
    assert drawing.description.startswith("Histogram of 500 PIT values in 20 intervals")
    bars = drawing.figure.axes[0].containers[0]
    assert [bar.get_height() for bar in bars] == found.histogram.counts.tolist()


@pytest.mark.usefixtures("without_figures")
def test_the_prior_alone_can_be_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=30, map_step=None, iterations=0, attributes={"timings": "{}"})
    page = write_report(run).read_text(encoding="utf-8")
    assert "no iteration was requested: this is the prior" in page
    assert "over all stages of the run" not in page


@pytest.mark.parametrize(
    ("error_std", "words"), [(0.4, "error bars too wide"), (3.0, "error bars too narrow")]
)
def test_wrong_error_bars_are_amber_and_nothing_is_green(
    tmp_path: Path, error_std: float, words: str
) -> None:
    run = make_run(tmp_path, map_step=None, error_std=error_std)
    page = page_of(run)
    assert f'<span class="pill bad">{words}</span>' in page
    assert "pill good" not in page
    assert "% of the held-out observations lie inside their 90 % error bars. Chance explains" in page


def test_few_points_are_not_called_well_calibrated(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path, map_step=None, test_count=12))
    assert '<span class="pill">too few test points to judge</span>' in page


def test_both_weightings_are_shown_where_they_differ(tmp_path: Path) -> None:
    run = make_run(tmp_path, map_step=None, drawn_by_area=False)
    text = Document(page_of(run)).text
    with xr.open_zarr(run, group="calibration", consolidated=False) as scores:
        for name in ("rmse", "crps"):
            by_area = f"{name.upper()}, by area {float(scores[f'{name}_area_weighted']):.3f} K"
            assert by_area in text
        inside = 100.0 * float(scores.coverage_area_weighted.sel(level=0.9))
    assert f"90 %, by area {inside:.1f} %" in text
    assert f"({inside:.1f} % by area)" in text
    assert "each test point is weighted by the area that it represents" in text
    assert "weighted by area" in [item.get_label() for item in _pit_axes(run).patches]


def _pit_axes(run: Path) -> Axes:
    return draw_charts(read_run(run))[0].figure.axes[0]


def test_points_drawn_by_area_need_one_weighting(document: Document) -> None:
    assert "by area" not in document.text.replace("weights by area", "")
    assert "drawn in proportion to area" in document.text


@pytest.mark.usefixtures("without_figures")
def test_one_solve_has_no_convergence_chart(tmp_path: Path) -> None:
    report = write_report(make_run(tmp_path, test_count=30, map_step=None, iterations=1))
    assert not (report.parent / "convergence.png").exists()
    page = Document(report.read_text(encoding="utf-8")).text
    assert "Convergence" not in page
    assert "Time taken" in page
    assert "Plan" in page


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=20, map_step=None, attributes={"format_version": 1})
    with pytest.raises(StoreError) as refusal:
        write_report(run)
    assert refusal.value.key == "format-of-run"


def test_what_was_not_recorded_is_left_out(tmp_path: Path) -> None:
    sparse = {
        "train_count": "many",
        "job": "",
        "plan": "[]",
        "status": "",
        "executor": "",
        "noise_variance": "",
    }
    run = make_run(
        tmp_path,
        test_count=30,
        map_step=None,
        iterations=1,
        attributes=sparse | {"provenance": '{"notes": ["a", 0.25], "empty": null}'},
    )
    text = Document(page_of(run)).text
    assert " Observations; error bars" in text
    assert "Notes a, 0.25" in text
    assert "status not recorded" in text
    assert text.count("not recorded") == 3
    for absent in ("Empty", "Executor", "including the noise"):
        assert absent not in text


FIT = {
    "where": "the whole field of 114,720 points, test points included",
    "points": 114_720,
    "method": "rings",
    "status": "converged",
    "status_advice": "The parameters are an <optimum>.",
    "log_likelihood": -192074.07,
    "standard_errors": {"lengthscale": 0.00031, "variance": 0.32, "noise_variance": None},
}


def test_a_fitted_prior_is_shown_with_its_standard_errors(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=30, map_step=None, attributes={"fit": json.dumps(FIT)})
    text = Document(page_of(run)).text
    assert "Prior, fitted to the whole field of 114,720 points, test points included" in text
    assert "lengthscale 0.05 ±0.00031 318.6 km (chord 0.05, Earth of 6371.0088 km)" in text
    assert "variance 22 ±0.32 K², of the field about its mean" in text
    assert "noise variance 0.5 unknown K², of one observation" in text
    assert "Maximum of the exact likelihood of the grid, log-likelihood −192,074.1. Converged: The" in text
    assert "<optimum>" in text


def test_a_fit_without_a_likelihood_has_none_shown(tmp_path: Path) -> None:
    fit = FIT | {"log_likelihood": None, "method": "pathwise"}
    run = make_run(tmp_path, test_count=30, map_step=None, attributes={"fit": json.dumps(fit)})
    text = Document(page_of(run)).text
    assert "its gradient estimated from samples. Converged" in text


def test_a_fit_by_conditionals_says_so(tmp_path: Path) -> None:
    fit = FIT | {"where": "the 10,000 observed points", "method": "vecchia"}
    run = make_run(tmp_path, test_count=30, map_step=None, attributes={"fit": json.dumps(fit)})
    text = Document(page_of(run)).text
    assert "Prior, fitted to the 10,000 observed points" in text
    assert "Vecchia's likelihood, by conditionals on neighbours, log-likelihood −192,074.1." in text


def test_a_stated_prior_has_no_table_of_its_fit(document: Document) -> None:
    assert "fitted" not in document.text
    assert "standard error unit" not in document.text


def test_stages_are_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    timings = {"Fit": 9.0, "Observations": 1.0, "Others": 2.0, "Points": 0.1, "Scores": 0.2, "Solve": 5.0}
    run = make_run(tmp_path, test_count=30, map_step=None, attributes={"timings": json.dumps(timings)})
    assert list(seconds_by_stage(read_run(run))) == [
        "Observations",
        "Points",
        "Fit",
        "Solve",
        "Scores",
        "Others",
    ]


@pytest.mark.exhaustive
def test_a_constant_field_and_a_perfect_prediction_are_drawn(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        test_count=30,
        map_step=30.0,
        field=lambda lon, lat, step: np.full(lon.shape, 280.0),
        error_std=0.0,
    )
    assert write_report(run).is_file()


@pytest.mark.exhaustive
def test_writing_twice_gives_the_same_page(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=20, map_step=None, iterations=1)
    first, again = write_report(run), write_report(str(run), tmp_path / "new" / "folder")
    assert again.read_bytes() == first.read_bytes()
    assert again.parent == tmp_path / "new" / "folder"


@pytest.mark.usefixtures("without_figures")
def test_a_run_elsewhere_is_reported_beside_itself_and_matplotlib_keeps_its_settings(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=20, map_step=None, iterations=1).rename(tmp_path / "moved.zarr")
    before = dict(mpl.rcParams)
    assert write_report(run) == tmp_path / "report" / "moved" / "report.html"
    assert dict(mpl.rcParams) == before


def test_no_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as refusal:
        write_report(tmp_path / "runs" / "none.zarr")
    assert refusal.value.key == "no-run"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_figures")
def test_a_directory_that_cannot_be_made_is_an_argument_error(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=20, map_step=None, iterations=1)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError) as refusal:
        write_report(run, tmp_path / "file" / "below")
    assert refusal.value.key == "not-writable"


@pytest.mark.usefixtures("without_figures")
def test_a_page_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path: Path) -> None:
    run = make_run(tmp_path, test_count=20, map_step=None, iterations=1)
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    with pytest.raises(ConfigurationError) as refusal:
        write_report(run, tmp_path / "out")
    assert refusal.value.key == "not-writable"
    assert not list((tmp_path / "out").glob(".report.html.*"))


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, cagp_dist.report; heavy = {'matplotlib', 'xarray', 'zarr', 'scipy', 'dask', 'numba'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
