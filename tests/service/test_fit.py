"""Jobs that leave the numbers of their prior out: what they are fitted to, and what becomes of them."""

import dataclasses
import json
import re

import numpy as np
import pytest
import xarray as xr
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import observation_points
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.synthetic import Synthetic, open_synthetic
from cagp_dist.geometry import unit_sphere
from cagp_dist.likelihood.fit import fit as fit_likelihood
from cagp_dist.likelihood.fit_result import FitStatus, StandardErrors
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import sites_of_fit
from cagp_dist.pipeline.fitting import NO_NUGGET, grid_of_most
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.report.report_tables import fit_note
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.events import Event
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_fit import (
    fit_prior,
    fitted_to_sites,
    prior_table,
)
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.task import prepare_job

from ..jobs import job_text as written
from ..jobs import random_points

REGION = "grid_degrees = 10.0\narea = [70.0, -60.0, -70.0, 120.0]"
SETTINGS = Synthetic(cagp.Matern32(0.3, 22.0), noise_variance=1.0, seed=5)


def drawn():
    return open_synthetic(
        SETTINGS, selection=Selection(grid_degrees=10.0, times=["2020-01-01", "2020-01-02"])
    )


@pytest.fixture
def field():
    return drawn()


def text_of_job(folder):
    return written(
        **{
            "observations": {
                "source": "synthetic",
                "times": ["2020-01-01", "2020-01-02"],
                "grid_degrees": 10.0,
            },
            "observations.synthetic": {"lengthscale": 0.3, "noise_variance": 1.0, "seed": 5},
            "design": {
                "train": random_points(250, weight="equal"),
                "test": random_points(30, seed=1, weight="equal"),
            },
            "prior": {"mean": "harmonic-latitude", "kernel": "matern32"},
            "solver": None,
            "output": {"root": folder / "out"},
        }
    )


@pytest.fixture
def job_text(tmp_path):
    return text_of_job(tmp_path)


@pytest.fixture(scope="module")
def fitted_job(tmp_path_factory):
    """The job as it is prepared, and what is fitted to it."""
    prepared = prepare_job(parse_job(text_of_job(tmp_path_factory.mktemp("job"))), drawn())
    return prepared, fitted_in(prepared)


def fitted_in(prepared):
    said = []
    told = Execution(SerialExecutor(), progress=lambda part, text: said.append((part, text)))
    fitted = fit_prior(prepared, told)
    assert said
    assert all(part is None and text.startswith("likelihood ") for part, text in said)
    return fitted


def assert_within(fitted, *, standard_errors):
    """The numbers that the synthetic field was drawn from."""
    for (name, value, error), truth in zip(fitted.estimates(), (0.3, 22.0, 1.0), strict=True):
        assert abs(value - truth) < standard_errors * error, name


def test_a_whole_grid_is_found_without_its_poles(field):
    points = observation_points(field)
    grid, chosen, places = grid_of_most(points.north, points.east)
    np.testing.assert_array_equal(grid.latitude_degrees, np.arange(-80.0, 81.0, 10.0))
    assert grid.shape == (17, 36)
    np.testing.assert_array_equal(places, np.arange(17 * 36))
    np.testing.assert_array_equal(
        points.values[:, chosen].reshape(2, 17, 36), field.t2m.values[:, 1:-1].astype(float)
    )


def test_longitudes_may_begin_anywhere_and_latitudes_lie_anywhere(field):
    gaussian = field.isel(latitude=[1, 2, 4, 8, 13]).assign_coords(longitude=field.longitude + 3.7)
    points = observation_points(gaussian)
    grid, chosen, _ = grid_of_most(points.north, points.east)
    np.testing.assert_array_equal(grid.latitude_degrees, gaussian.latitude)
    assert (grid.n_longitudes, chosen.size) == (36, 5 * 36)


def test_a_grid_may_have_gaps(field):
    points = observation_points(field)
    kept = np.delete(np.arange(points.north.size), [3, 40, 250])
    latitude, longitude = points.north[kept], points.east[kept]
    grid, chosen, places = grid_of_most(latitude, longitude)
    assert (grid.shape, chosen.size) == ((17, 36), 17 * 36 - 3)
    np.testing.assert_array_equal(np.repeat(grid.latitude_degrees, 36)[places], latitude[chosen])
    np.testing.assert_array_equal(np.tile(np.arange(0.0, 360.0, 10.0), 17)[places], longitude[chosen])


def gap(field):
    field.t2m[1, 4, 7] = np.nan
    return field


def half(field):
    field.t2m[:, 3:12, ::2] = np.nan
    field.t2m[:, 12:16, 1::2] = np.nan
    field.t2m[:, 1:3, :19] = np.nan
    field.t2m[:, 16:18, 5:31] = np.nan
    return field


@pytest.mark.parametrize(
    "change",
    [
        half,
        lambda field: field.isel(longitude=slice(1, None)),
        lambda field: field.isel(longitude=[0, 1, 2, 3, 5, 6]),
        lambda field: field.sel(longitude=slice(100, 200)),
        lambda field: field.isel(latitude=[0, -1]),
    ],
    ids=["half is missing", "one column less", "uneven columns", "region", "poles alone"],
)
def test_what_is_no_grid(field, change):
    points = observation_points(change(field.copy(deep=True)))
    assert grid_of_most(points.north, points.east) is None


def with_field(text):
    return text.replace("[prior]", '[prior]\nfit_to = "field"')


def test_a_grid_with_held_out_points_is_fitted_exactly(field, job_text, monkeypatch):
    monkeypatch.setattr(
        "cagp_dist.pipeline.fitting.MOST_FITTED_DENSE", 500
    )  # beyond, a dense factor is not used
    whole = job_text.replace(
        '{ kind = "random", count = 250, seed = 0, weight = "equal" }', '{ kind = "all" }'
    )
    prepared = prepare_job(parse_job(whole), field)
    assert prepared.design.train.size == 584
    fitted = fitted_in(prepared)
    assert fitted.attributes()["likelihood"] == (
        "exact, by the rings of the grid, 30 points of which are missing"
    )
    sites = sites_of_fit(prepared.points, np.sort(prepared.design.train))
    X = unit_sphere(prepared.points.north[sites.chosen], prepared.points.east[sites.chosen])
    y, N = (
        prepared.points.values[:, sites.chosen],
        null_space(cagp.mean_family("harmonic-latitude").basis_at(X).T),
    )
    kernel, noise = fitted.prior.kernel, fitted.prior.noise_variance
    distribution = multivariate_normal(
        np.zeros(N.shape[1]), N.T @ (kernel(X, X) + noise * np.eye(len(X))) @ N
    )
    expected = distribution.logpdf(y @ N).sum()
    assert fitted.result.log_likelihood == pytest.approx(expected, abs=1e-6)
    assert_within(fitted, standard_errors=4.0)


def fitted_directly(prepared, where, values):
    """The same from the library: REML beside a mean that is estimated."""
    return fit_likelihood(cagp.Matern32, where, values, mean=cagp.mean_family("harmonic-latitude"))


def test_the_observed_points_are_fitted_and_the_numbers_are_found(fitted_job):
    prepared, fitted = fitted_job
    assert_within(fitted, standard_errors=4.0)
    assert (fitted.where, fitted.fit_to) == ("the 250 observed points", "observed")
    assert (fitted.result.method, fitted.result.points) == ("dense", 250)
    direct = fitted_directly(prepared, prepared.X, prepared.y)
    np.testing.assert_allclose(
        [value for _, value, _ in fitted.estimates()],
        [direct.prior.kernel.lengthscale, direct.prior.kernel.variance, direct.prior.noise_variance],
        rtol=1e-3,  # the order of the points is another
    )


def with_known_noise(prepared, known):
    """The same job where the noise of half of the points is known to be so large, and is drawn."""
    points = prepared.points
    variance = np.where(np.arange(points.north.size) % 2, known, 0.02)
    drawn = np.sqrt(variance) * np.random.default_rng(0).standard_normal(points.values.shape)
    points = dataclasses.replace(points, values=points.values + drawn, noise_variance=variance)
    return dataclasses.replace(prepared, points=points)


def test_numbers_are_fitted_beside_the_known_noise_of_each_point(field, job_text):
    """What the field was drawn with comes on top of it."""
    prepared = with_known_noise(prepare_job(parse_job(job_text), field), 9.0)
    fitted = fitted_in(prepared)
    assert fitted.result.status.ok
    assert_within(fitted, standard_errors=4.0)
    chosen = sites_of_fit(prepared.points, np.sort(prepared.design.train)).chosen
    X = unit_sphere(prepared.points.north[chosen], prepared.points.east[chosen])
    N = null_space(cagp.mean_family("harmonic-latitude").basis_at(X).T)
    kernel, nugget = fitted.prior.kernel, fitted.prior.noise_number
    G = kernel(X, X) + np.diag(prepared.points.noise_variance[chosen] + nugget)
    distribution = multivariate_normal(np.zeros(N.shape[1]), N.T @ G @ N)
    expected = distribution.logpdf(prepared.points.values[:, chosen] @ N).sum()
    assert fitted.result.log_likelihood == pytest.approx(expected, abs=1e-4)
    *_, (low, high) = fitted.intervals()
    assert 0.0 < low < nugget < high
    assert (low + 0.02) * (high + 0.02) == pytest.approx((nugget + 0.02) ** 2)


def test_beside_a_known_noise_that_says_it_all_there_is_next_to_none(field, job_text):
    prepared = prepare_job(parse_job(job_text), field.isel(time=[0]))
    known = np.full(prepared.points.north.size, 9.0)
    known[prepared.design.train[0]] = 8.0
    fitted = fitted_in(
        dataclasses.replace(prepared, points=dataclasses.replace(prepared.points, noise_variance=known))
    )
    assert fitted.prior.noise_number == pytest.approx(8.0 * NO_NUGGET)


def spoiled(field, prepared):
    """The same field with other values at the points that were not observed."""
    points, other = prepared.points, field.copy(deep=True)
    hidden = np.setdiff1d(np.arange(points.north.size), prepared.design.train)
    values = xr.DataArray(np.arange(hidden.size) % 7.0 - 20.0, dims="point")
    for latitude, longitude, value in zip(points.north[hidden], points.east[hidden], values, strict=True):
        where = (
            {"latitude": latitude}
            if abs(latitude) == 90.0
            else {"latitude": latitude, "longitude": longitude}
        )
        other.t2m.loc[where] += float(value)
    return other


@pytest.mark.parametrize(
    "train",
    [
        '{ kind = "random", count = 250, seed = 0, weight = "equal" }',
        pytest.param('{ kind = "all" }', marks=pytest.mark.exhaustive),
        pytest.param('{ kind = "stride", step = 2 }', marks=pytest.mark.exhaustive),
    ],
)
def test_values_that_were_not_observed_are_not_read(field, job_text, train, monkeypatch):
    monkeypatch.setattr("cagp_dist.pipeline.fitting.MOST_FITTED_DENSE", 150)
    text = job_text.replace('{ kind = "random", count = 250, seed = 0, weight = "equal" }', train)
    job, whole = parse_job(text), parse_job(with_field(text))
    other = spoiled(field, prepare_job(job, field))
    fits = [fitted_in(prepare_job(job, each)) for each in (field, other)]
    assert fits[0].estimates() == fits[1].estimates()  # to the bit, standard errors too
    assert fits[0].result.log_likelihood == fits[1].result.log_likelihood
    assert fits[0].result.points <= prepare_job(job, field).design.train.size
    everything = [fitted_in(prepare_job(whole, each)).estimates() for each in (field, other)]
    assert everything[0] != everything[1]


def test_observed_points_that_are_a_grid_are_fitted_by_its_rings(field, job_text):
    text = job_text.replace('"random", count = 250, seed = 0, weight = "equal"', '"stride", step = 2')
    prepared = prepare_job(parse_job(text), field)
    fitted = fitted_in(prepared)
    inner = np.count_nonzero(np.abs(prepared.points.north[prepared.design.train]) < 90.0)
    assert (fitted.result.method, fitted.result.points) == ("rings", inner)
    assert fitted.where == f"the {prepared.design.train.size} observed points"
    assert_within(fitted, standard_errors=4.0)


def test_all_times_are_fields_of_one_prior_and_said_to_be(fitted_job, field, job_text, monkeypatch):
    prepared, fitted = fitted_job
    assert fitted.times == fitted.attributes()["times"] == 2
    assert 1.5 < fitted.effective_times <= 2.0  # drawn independently
    assert "2 times as fields of one prior, worth" in fitted.line()
    alone = fitted_in(prepare_job(parse_job(job_text), field.isel(time=[0])))
    assert alone.times == alone.effective_times == 1
    assert "times" not in alone.line()
    # more values than a fit takes: evenly spread times
    monkeypatch.setattr("cagp_dist.pipeline.fitting.MOST_VALUES", 300)
    capped = fitted_in(prepared)
    assert capped.where == "the 250 observed points at 1 of 2 times, evenly spread"
    np.testing.assert_allclose(
        [value for _, value, _ in capped.estimates()], [value for _, value, _ in alone.estimates()], rtol=1e-9
    )


def test_a_noise_too_small_to_be_found_is_no_reason_to_stop(fitted_job):
    _, fitted = fitted_job
    assert not fitted.model.noise_is_negligible
    nugget = 1e-6 * fitted.prior.kernel.variance
    small = dataclasses.replace(fitted, model=dataclasses.replace(fitted.model, nugget=nugget))

    def ended(status, *, at_bound=(), spread=(0.1, 0.2, 5.0), error=1e-6, gradient_norm=0.01):
        result = dataclasses.replace(
            fitted.result,
            status=status,
            at_bound=at_bound,
            gradient_norm=gradient_norm,
            log_covariance=np.diag(np.square(spread)),
            standard_errors=StandardErrors(0.01, 1.0, error),
        )
        return dataclasses.replace(small, model=dataclasses.replace(small.model, result=result))

    flat, bound = FitStatus.FLAT, FitStatus.AT_BOUND
    unconverged = FitStatus.NOT_CONVERGED
    for fine in (
        ended(flat),
        ended(bound, at_bound=("noise_variance",), error=np.nan),
        ended(unconverged, spread=(0.1, 0.2, 2.0)),
    ):
        assert fine.ok
        assert "too small to be distinguished from zero" in fine.line()
        assert "does not depend on it" in fine.advice
        assert not fine.warning
    for wrong in (
        ended(flat, spread=(4.0, 0.2, 5.0)),  # the lengthscale is not known either
        ended(flat, error=1.0),  # the noise may be large
        ended(bound, at_bound=("noise_variance", "variance")),
        ended(unconverged, gradient_norm=5.0),  # a standard error away
        ended(unconverged, spread=(0.1, 0.2, 0.3)),  # the noise is known, and not reached
    ):
        assert not wrong.ok
        assert wrong.warning


def test_many_points_are_fitted_by_conditionals(field, job_text, monkeypatch):
    monkeypatch.setattr("cagp_dist.pipeline.fitting.MOST_FITTED_DENSE", 100)
    prepared = prepare_job(parse_job(job_text), field)
    fitted = fitted_in(prepared)
    assert (fitted.result.method, fitted.result.points) == ("vecchia", 250)
    assert fitted.where == "the 250 observed points"
    said = fitted.attributes()["likelihood"]
    assert said == "Vecchia's, by conditionals of groups of 20 on 180 neighbours"
    assert_within(fitted, standard_errors=4.0)
    monkeypatch.setattr("cagp_dist.likelihood.vecchia.conditionals.MOST_CONDITIONALS", 100)
    some = sites_of_fit(prepared.points, np.sort(prepared.design.train)).likelihood
    assert some == "Vecchia's, by a sample of 90 of 250 conditionals, in groups of 20 on 180 neighbours"


def test_the_whole_field_is_fitted_on_request_and_the_numbers_are_found(field, job_text):
    prepared = prepare_job(parse_job(with_field(job_text)), field)
    fitted = fitted_in(prepared)
    assert_within(fitted, standard_errors=4.0)
    assert fitted.where == "the whole field of 612 points, test points included"
    assert (fitted.attributes()["fit_to"], fitted.attributes()["where"]) == ("field", fitted.where)
    assert (fitted.result.method, fitted.result.points) == ("rings", 612)
    grid = cagp.LatLonGrid(np.arange(-80.0, 81.0, 10.0), 36)
    direct = fitted_directly(prepared, grid, field.t2m.values[:, 1:-1].astype(float))
    np.testing.assert_allclose(
        [value for _, value, _ in fitted.estimates()],
        [direct.prior.kernel.lengthscale, direct.prior.kernel.variance, direct.prior.noise_variance],
        rtol=1e-6,
    )
    assert fitted.result.log_likelihood == pytest.approx(direct.log_likelihood, rel=1e-9)


def test_a_region_is_fitted_at_its_observed_points(field, job_text):
    job = parse_job(job_text.replace("grid_degrees = 10.0", REGION).replace("count = 250", "count = 200"))
    regional = open_synthetic(
        SETTINGS,
        selection=Selection(grid_degrees=10.0, times=job.observations.times, area=job.observations.area),
    )
    prepared = prepare_job(job, regional)
    fitted = fitted_in(prepared)
    assert fitted.where == "the 200 observed points"
    assert (fitted.result.method, fitted.result.points) == ("dense", 200)
    assert_within(fitted, standard_errors=4.0)


def test_a_field_with_a_gap_is_fitted_point_by_point(field, job_text):
    fitted = fitted_in(prepare_job(parse_job(with_field(job_text)), gap(field)))
    whole = "the whole field of 614 points, test points included"  # both poles count
    assert fitted.where == f"613 of {whole}, at 2 of 2 times"
    assert (fitted.result.method, fitted.result.points) == ("dense", 613)
    assert_within(fitted, standard_errors=4.0)
    field.t2m[1, :12] = np.nan  # the whole grid of the first time says more
    job = parse_job(with_field(job_text))
    prepared = prepare_job(job, field)
    sites = sites_of_fit(prepared.points)
    assert (sites.method, sites.times.tolist(), sites.grid.shape) == ("rings", [0], (17, 36))
    assert fitted_to_sites(job.prior, prepared.points, sites) == f"612 of {whole}, at 1 of 2 times"


def test_the_fit_of_a_job_says_what_it_does_and_publishes_nothing(job_text, tmp_path):
    events: list[Event] = []
    fitted = fit_job(parse_job(job_text), observe=events.append)
    assert_within(fitted, standard_errors=4.0)
    assert [event.stage for event in events if event.kind == "done"] == ["Observations", "Points", "Fit"]
    texts = [event.text for event in events if event.stage == "Fit" and event.kind in ("note", "done")]
    assert texts[0] == "to the 250 observed points, on serial"
    assert texts[1] == "likelihood: exact"
    assert texts[2].startswith("converged, lengthscale 0.")
    assert not (tmp_path / "out" / "CURRENT").exists()
    assert list((tmp_path / "out" / "runs").iterdir()) == []


def test_numbers_of_the_job_are_not_looked_at(fitted_job, job_text):
    stated = job_text.replace(
        "[cluster]", "lengthscale = 1.5\nvariance = 1.0\nnoise_variance = 9.0\n[cluster]"
    )
    assert fit_job(parse_job(stated)).estimates() == fitted_job[1].estimates()


def test_the_table_can_be_pasted_into_the_job(job_text):
    job = parse_job(job_text.replace('"harmonic-latitude"', '"constant"').replace('"matern32"', '"matern52"'))
    fitted = fit_job(job)
    table = prior_table(job.prior, fitted)
    before, after = job_text.split("[prior]")
    pasted = parse_job(f"{before}{table}\n[cluster]{after.split('[cluster]')[1]}")
    assert (pasted.prior.kernel, pasted.prior.mean) == ("matern52", "constant")
    numbers = dataclasses.astuple(pasted.prior.numbers)
    np.testing.assert_allclose(numbers, [value for _, value, _ in fitted.estimates()], rtol=1e-5)


def test_a_mean_with_odd_characters_is_quoted(fitted_job, job_text):
    odd = 'climatology:a "b"\\ü.zarr'
    job = parse_job(job_text.replace('"harmonic-latitude"', f"'{odd}'"))
    text = job_text.split("[prior]")[0] + prior_table(job.prior, fitted_job[1])
    assert parse_job(text).prior.mean == odd


@pytest.mark.parametrize(
    ("status", "at_bound"),
    [
        (FitStatus.FLAT, ()),
        (FitStatus.AT_BOUND, ("lengthscale", "variance")),
    ],
)
def test_a_fit_that_does_not_end_well_is_a_warning_as_in_a_call(
    fitted_job, job_text, status, at_bound, monkeypatch, caplog
):
    """The run has numbers, status and what to do; and so has its report."""
    job, (_, good) = parse_job(job_text), fitted_job
    assert not good.warning
    result = dataclasses.replace(
        good.result,
        status=status,
        at_bound=at_bound,
        log_likelihood=None,
        standard_errors=StandardErrors(np.nan, np.nan, 0.1),
    )
    bad = dataclasses.replace(good, model=dataclasses.replace(good.model, result=result))
    assert status.value in bad.warning
    assert all(name in bad.warning for name in at_bound)
    monkeypatch.setattr("cagp_dist.service.run.fit_prior", lambda *_, **__: bad)
    path = run(job).path
    assert bad.warning in caplog.text
    published = read_run(path)
    assert published.attributes.table("fit")["status"] == status.value
    assert status.meaning in fit_note(published)
    told = bad.attributes()
    assert told["log_likelihood"] is None
    assert told["standard_errors"] == {"lengthscale": None, "variance": None, "noise_variance": 0.1}
    without = dataclasses.replace(good.result, log_covariance=np.full((3, 3), np.nan))
    nothing = dataclasses.replace(good, model=dataclasses.replace(good.model, result=without))
    unknown = nothing.attributes()["intervals"]
    assert unknown == {name: [None, None] for name in told["standard_errors"]}
    low, high = good.intervals()[-1]
    for known in (0.5 * low, 2.0 * low):  # a nugget beside it is the rest, at least nothing
        total = dataclasses.replace(good.result.prior, noise_variance=1e-3 + known)
        result = dataclasses.replace(good.result, prior=total)
        beside = dataclasses.replace(good.model, nugget=1e-3, result=result)
        ends = dataclasses.replace(good, model=beside).intervals()
        factor = high / good.prior.noise_number
        expected = max((1e-3 + known) / factor - known, 0.0), (1e-3 + known) * factor - known
        assert ends[-1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("-", "-", "the 250 observed points"),
        ("[prior]", '[prior]\nfit_to = "field"', "the whole field of 612 points, test points included"),
        ("grid_degrees = 10.0", REGION, "the 250 observed points"),
    ],
)
def test_a_plan_says_what_will_be_fitted(job_text, old, new, said, tmp_path):
    lines = plan_job(parse_job(job_text.replace(old, new))).lines()
    text, _, work = lines[0].partition(": about ")
    assert text == f"the parameters of [prior] are fitted first, to {said}"
    assert re.fullmatch(r"\d\S* flops, \d+ tasks, peak memory about \d\S* [KMG]iB", work)
    assert lines[-1].startswith("in all ")
    assert not (tmp_path / "out").exists()
    numbers = "[prior]\nlengthscale = 0.3\nvariance = 22.0\nnoise_variance = 1.0\n"
    stated = plan_job(parse_job(job_text.replace("[prior]", numbers))).lines()
    assert not any("fitted" in line for line in stated)


@pytest.mark.parametrize(
    ("change", "said"),
    [(str, "the 250 observed points"), (with_field, "the whole field, test points included")],
)
def test_a_plan_of_a_field_that_was_not_read_says_what_will_be_fitted(job_text, change, said):
    far = job_text.replace('"synthetic"', '"zarr:somewhere.zarr"').replace("[observations.synthetic]", "[zz]")
    far = far.split("[zz]")[0] + "[design]" + far.split("[design]")[1]
    first = plan_job(parse_job(change(far))).lines()[0]
    assert first.startswith(f"the parameters of [prior] are fitted first, to {said}")
    assert ("flops" in first) == (change is str)  # how many points a whole field has is not known


def test_a_synthetic_field_without_times_has_one_whatever_else_is_stored(job_text, monkeypatch):
    fit_job(parse_job(job_text))
    bare = parse_job(job_text.replace('times = ["2020-01-01", "2020-01-02"]\n', ""))
    first = ingest(bare, report=print)
    assert first.time.values.tolist() == np.array(["2001-01-01"], dtype="datetime64[ns]").tolist()
    monkeypatch.setattr("cagp_dist.fields.synthetic.open_synthetic", None)
    xr.testing.assert_identical(ingest(bare, report=print), first)


def test_synthetic_fields_are_drawn_once(job_text, monkeypatch, tmp_path):
    job = parse_job(job_text)
    first = fit_job(job)
    monkeypatch.setattr("cagp_dist.fields.synthetic.open_synthetic", None)  # what is stored is kept
    assert fit_job(job).estimates() == first.estimates()
    assert plan_job(job).size.observed == 250
    monkeypatch.undo()
    other = parse_job(job_text.replace("seed = 5", "seed = 6"))
    assert fit_job(other).estimates() != first.estimates()
    stores = list((tmp_path / "out" / "observations").glob("synthetic-*.zarr"))
    assert len(stores) == 2
    with xr.open_zarr(next(stores[0].glob("2020*")), consolidated=False) as batch:
        assert batch.attrs["source"] == "synthetic"


SUM = cagp.Matern32(0.12, 8.0) + cagp.Matern32(0.8, 20.0)


@pytest.fixture
def sum_text(job_text):
    return job_text.replace('"matern32"', '"matern32 + matern32"', 1)


@pytest.mark.exhaustive
def test_a_sum_is_fitted_and_its_table_can_be_pasted_into_the_job(sum_text):
    times = [f"2020-01-{day:02}" for day in range(1, 9)]
    drawn = open_synthetic(
        Synthetic(SUM, noise_variance=0.5, seed=2), selection=Selection(grid_degrees=6.0, times=times)
    )
    prepared = prepare_job(parse_job(with_field(sum_text)), drawn)
    fitted = fitted_in(prepared)
    assert fitted.result.status.ok
    truth = {
        "lengthscale_1": 0.12,
        "lengthscale_2": 0.8,
        "variance_1": 8.0,
        "variance_2": 20.0,
        "noise_variance": 0.5,
    }
    assert [name for name, _, _ in fitted.estimates()] == list(truth)
    for name, value, error in fitted.estimates():
        # the mean of the job takes a part of the long lengthscale away
        assert abs(value - truth[name]) < (4.0 * error if name != "variance_2" else 12.0), name
    assert "lengthscale 2 0." in fitted.line()
    errors, intervals = (fitted.attributes()[name] for name in ("standard_errors", "intervals"))
    assert [np.size(errors[name]) for name in ("lengthscale", "variance", "noise_variance")] == [2, 2, 1]
    assert [np.shape(intervals[name]) for name in errors] == [(2, 2), (2, 2), (2,)]
    ends = [*intervals["lengthscale"], *intervals["variance"], intervals["noise_variance"]]
    for (low, high), (_, value, error) in zip(ends, fitted.estimates(), strict=True):
        assert low * high == pytest.approx(value**2)  # symmetric on the log scale
        assert np.log(high / low) == pytest.approx(2.0 * 1.959964 * error / value, rel=1e-6)  # delta method
    table = prior_table(prepared.job.prior, fitted)
    before, _, after = sum_text.partition("[prior]")
    pasted = parse_job(before + table + after.partition("[cluster]")[2].join(("\n[cluster]", "")))
    assert pasted.prior.kernel == "matern32 + matern32"
    values = [value for _, value, _ in fitted.estimates()]
    assert pasted.prior.numbers.lengthscale == pytest.approx(tuple(values[:2]), rel=1e-5)
    assert pasted.prior.numbers.variance == pytest.approx(tuple(values[2:4]), rel=1e-5)


def test_a_run_with_a_sum_says_all_its_numbers(sum_text, tmp_path):
    numbers = "lengthscale = [0.12, 0.8]\nvariance = [8.0, 20.0]\nnoise_variance = 0.5"
    outcome = run(parse_job(sum_text.replace("[prior]", f"[prior]\n{numbers}", 1)))
    with xr.open_zarr(outcome.path, consolidated=False) as root:
        said = json.loads(root.attrs["prior"])
    assert said["kernel"] == "matern32 + matern32"
    assert (said["lengthscale"], said["variance"]) == ([0.12, 0.8], [8.0, 20.0])
    page = write_report(outcome.path).read_text()
    assert "lengthscale 0.12 + 0.8" in page
    assert "variance 8 + 20" in page


def with_fit_times(text, times):
    return text.replace("[prior]", f"[prior]\nfit_times = {times}")


def test_numbers_may_be_fitted_to_other_times(field, job_text):
    """They are those of the job at these times, whatever the values at its own times are."""
    later = open_synthetic(
        SETTINGS, selection=Selection(grid_degrees=10.0, times=["2020-02-01", "2020-02-02", "2020-02-03"])
    )
    job = parse_job(with_fit_times(job_text, json.dumps(["2020-02-01", "2020-02-02", "2020-02-03"])))
    prepared = prepare_job(job, field, later)
    fitted = fitted_in(prepared)
    alone = fitted_in(prepare_job(parse_job(job_text), later))
    assert fitted.estimates() == alone.estimates()
    assert (fitted.times, fitted.where) == (
        3,
        "the 250 observed points, with the values of 3 times in fit_times",
    )
    other = field.copy(deep=True)
    other.t2m.values[:] = other.t2m.values[:, ::-1].copy()
    assert fitted_in(prepare_job(job, other, later)).estimates() == fitted.estimates()


def test_a_place_without_values_at_the_times_of_the_fit_is_left_out(field, job_text):
    job = parse_job(with_fit_times(job_text, '["2020-01-01", "2020-01-02"]'))
    prepared = prepare_job(job, field, field)
    latitude, longitude = (
        degrees[prepared.design.train[:40]] for degrees in (prepared.points.north, prepared.points.east)
    )
    row, column = np.searchsorted(field.latitude, latitude), np.searchsorted(field.longitude, longitude)
    later = field.copy(deep=True)
    later.t2m.values[:, row, column] = np.nan
    assert prepare_job(job, field, later).to_fit.fitted_to.there.size == 210
    later.t2m.values[:] = np.nan
    later.t2m.values[:, row, column] = 280.0
    of_the_others = dataclasses.replace(prepared.design, train=prepared.design.train[40:])
    apart = dataclasses.replace(prepared, fit_points=observation_points(later), design=of_the_others)
    with pytest.raises(DataError) as refusal:
        _ = apart.to_fit
    assert refusal.value.key == "nothing-at-fit-times"


def test_a_run_fits_to_other_times_and_its_name_depends_on_them(job_text):
    rule = '{ from = "2020-02-01", to = "2020-02-02", every = "1d" }'
    job = parse_job(with_fit_times(job_text, rule))
    assert "to the 250 observed points, with the values of 2 times in fit_times: about" in plan_job(job).fit
    events: list[Event] = []
    attributes = xr.open_zarr(run(job, observe=events.append).path).attrs
    assert json.loads(attributes["fit"])["where"].endswith(" 2 times in fit_times")
    assert any("2 times of the fit: 2020-02-01T00:00 to 2020-02-02" in event.text for event in events)
    assert '# [prior] fit_times = ["2020-02-01T00:00", "2020-02-02T00:00"]' in attributes["job"]
    # other values there give another run
    own, february, march = (
        open_synthetic(
            SETTINGS, selection=Selection(grid_degrees=10.0, times=[f"2020-0{month}-01", f"2020-0{month}-02"])
        )
        for month in (1, 2, 3)
    )
    listed = parse_job(with_fit_times(job_text, '["2020-02-01", "2020-02-02"]'))
    one, other = (prepare_job(listed, own, later) for later in (february, march))
    assert one.run_key != other.run_key
    digest = json.loads(attributes["provenance"])["fit_content_sha256"]
    assert digest == one.provenance["fit_content_sha256"] != other.provenance["fit_content_sha256"]
    assert "fit_times" not in parse_job(job_text).canonical()["prior"]


def test_times_of_a_fit_that_are_none_are_refused(job_text):
    numbers = "lengthscale = 1.5\nvariance = 1.0\nnoise_variance = 9.0\n[cluster]"
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(with_fit_times(job_text, '"2020-02"').replace("[cluster]", numbers))
    assert refusal.value.key == "prior"
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(with_fit_times(job_text, "3"))
    assert refusal.value.key == "prior.fit_times"
