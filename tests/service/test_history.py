"""Jobs that learn the scale of their errors from earlier runs: what they use, refuse, and never see."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from cagp_dist.calibration.local_scale import LocalScale
from cagp_dist.calibration.past_errors import PastErrors
from cagp_dist.calibration.strata import surface_terms
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.predictive import Gaussian
from cagp_dist.service.history import with_history
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.known_errors import KnownErrors, known_errors
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare
from cagp_dist.store.arrays import read_group

from ..jobs import job_text, random_points
from .test_recalibration import solved

pytestmark = pytest.mark.usefixtures("one_blas_thread")

DAYS = [f"2020-01-{day:02d}" for day in range(1, 14)]
NUMBERS = {"lengthscale": 0.2, "variance": 1.0, "noise_variance": 2.0, "mean": "constant"}
DESIGN = {
    "train": random_points(500),
    "test": random_points(700, seed=1),
    "calibration": random_points(300, seed=2),
}
CHANGED = {
    "variable": (
        {"observations": {"variable": "sst"}},
        'its observations {"variable": "t2m"}, and of this one .*sst',
    ),
    "design": ({"design": {**DESIGN, "train": random_points(400)}}, r'its design .*"count": 500.*400'),
    "prior": ({"prior": {**NUMBERS, "variance": 3.0}}, r'its prior {"variance": 1.0}, and of this one .*3.0'),
    "solver": ({"solver": {"name": "gauss-seidel", "iterations": 2}}, "its solver .*block_size"),
}


def store(path, seed, *, step=6.0, days=DAYS, name="t2m"):
    """Noise whose scale is that of its place at all times, from 0.2 to 5 K."""
    rng = np.random.default_rng(seed)
    latitude, longitude = np.arange(-90.0 + step / 2, 90.0, step), np.arange(0.0, 360.0, step)
    first = rng.uniform(0.0, 2.0 * np.pi)
    phi, lam = np.deg2rad(latitude)[:, None], np.deg2rad(longitude)
    scale = np.exp(1.6 * np.cos(phi) * np.sin(2.0 * lam + first))
    values = 280.0 + scale * rng.standard_normal((len(days), latitude.size, longitude.size))
    field = (("time", "latitude", "longitude"), values.astype("f4"), {"units": "K"})
    coordinates = {"time": np.array(days, dtype="M8[ns]"), "latitude": latitude, "longitude": longitude}
    xr.Dataset({name: field}, coords=coordinates).to_zarr(path, zarr_format=3, consolidated=False)
    return path


def the_job(field, root, times, *, history=30, **tables):
    observations = {"source": f"zarr:{field}", "times": times, **tables.pop("observations", {})}
    return parse_job(
        job_text(
            **{
                "observations": observations,
                "design": DESIGN,
                "prior": NUMBERS,
                "solver": {"name": "block-gauss-seidel", "iterations": 2, "block_size": 200},
                "recalibration": {} if history is None else {"history": history},
                "output": {"root": root},
                **tables,
            }
        )
    )


def task_of(job):
    return with_history(prepare(job, ingest(job, report=lambda _: None)))


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """Twelve days in two runs of one folder, then the thirteenth with their errors and without."""
    return thirteen(tmp_path_factory.mktemp("days"), 2)


def thirteen(folder, seed):
    field = store(folder / "field.zarr", seed)
    first = run(the_job(field, folder / "out", DAYS[:8])).path
    second = run(the_job(field, folder / "out", DAYS[8:12])).path
    with_it = run(the_job(field, folder / "out", DAYS[12:])).path
    without = run(the_job(field, folder / "other", DAYS[12:], history=None)).path
    return folder, field, (first, second), with_it, without


def gains(with_it, without):
    """How much lower NLL and CRPS of each held-out value are with a history."""
    one, other = (read_group(path, "calibration") for path in (with_it, without))
    return [(other[name] - one[name]).values.ravel() for name in ("nll_of_value", "crps_of_value")]


def test_a_day_learns_the_scale_of_its_errors_from_those_before(days):
    """Of 700 values with independent noise: a gain by chance exceeds two standard errors in 2.3 %."""
    *_, with_it, without = days
    for gain in gains(with_it, without):
        assert gain.mean() > 2.0 * gain.std() / np.sqrt(gain.size)


@pytest.mark.exhaustive
def test_the_history_helps_on_average_over_fields(tmp_path):
    """By more than four standard errors of the mean over 2,800 values of four fields."""
    found = []
    for seed in range(4):
        (tmp_path / str(seed)).mkdir()
        found.append(gains(*thirteen(tmp_path / str(seed), seed)[-2:]))
    for gain in (np.concatenate(part) for part in zip(*found, strict=True)):
        assert gain.mean() > 4.0 * gain.std() / np.sqrt(gain.size)


def test_what_is_learnt_are_the_errors_of_earlier_times_at_the_same_places(days):
    folder, field, before, with_it, _ = days
    task = task_of(the_job(field, folder / "out", DAYS[12:]))
    history, errors = task.recalibration.history, [read_group(path, "errors") for path in before]
    assert history.times == tuple(f"{day}T00:00" for day in DAYS[:12])
    assert history.runs == tuple(sorted(path.stem for path in before))
    sizes = np.concatenate([np.abs(group.standardised_error) for group in errors])
    np.testing.assert_allclose(history.past.absolute_sums, sizes.sum(axis=0), rtol=1e-12)
    assert (history.past.counts == 12).all()
    assert not np.isin(task.design.calibration, np.concatenate([task.design.train, task.design.test])).any()
    # the errors are those of the solve, and the published scale is that of the method itself
    kept, columns, solution = task.design.calibration, task.columns, solved(task)
    last = solution.steps[-1]
    law = Gaussian(last.mean[:, columns.calibration], np.sqrt(last.std[:, columns.calibration] ** 2 + 2.0))
    values, X = task.points.values[:, kept], task.inputs_at(kept)
    own = read_group(with_it, "errors").standardised_error
    np.testing.assert_allclose(own, (values - law.location) / law.scale, rtol=1e-9)
    learnt = LocalScale(terms=surface_terms).fit(
        law, values, X, training=(task.inputs, task.targets.T), past=history.past
    )
    plain = Gaussian(last.mean[:, columns.test], np.sqrt(last.std[:, columns.test] ** 2 + 2.0))
    expected = learnt.scale(plain, task.inputs_at(task.design.test))
    np.testing.assert_allclose(read_group(with_it, "posterior").local_scale, expected, rtol=1e-7)
    root = read_group(with_it).attrs
    assert json.loads(root["recalibration_history"]) == {
        "times": list(history.times),
        "runs": list(history.runs),
        "sha256": history.sha256,
    }
    assert root["recalibration_statement"].endswith(
        " The errors of 12 earlier times there, 2020-01-01T00:00 to 2020-01-12T00:00, have a part in it."
    )
    said = read_group(before[0]).attrs["recalibration_statement"]
    assert said.endswith(
        "No earlier run of this job has errors at these places yet; later ones learn from this one."
    )


def test_the_key_of_a_run_knows_its_history_and_only_earlier_times_count(days):
    folder, field, before, with_it, _ = days
    root = folder / "out"
    again = run(the_job(field, root, DAYS[12:]))
    assert again.already_done
    assert again.path == with_it
    fewer = task_of(the_job(field, root, DAYS[12:], history=5))
    assert fewer.recalibration.history.times == tuple(f"{day}T00:00" for day in DAYS[7:12])
    assert set(fewer.recalibration.history.past.counts) == {5}
    ninth = task_of(the_job(field, root, DAYS[8:9]))  # the second run ends later
    assert ninth.recalibration.history.runs == (before[0].stem,)
    assert task_of(the_job(field, root, DAYS[3:5])).recalibration.history.times == ()
    elsewhere = task_of(the_job(field, folder / "nowhere", DAYS[12:]))
    keys = [task_of(the_job(field, root, DAYS[12:])).run_key, elsewhere.run_key]
    keys.append(task_of(the_job(field, root, DAYS[12:], history=None)).run_key)
    assert len(set(keys)) == 3
    part = task_of(the_job(field, root, DAYS[12:])).recalibration
    other = replace(part, history=replace(part.history, sha256="0" * 64))
    assert part.key() != other.key()


def test_no_held_out_value_has_a_part_in_laws_with_a_history(days, tmp_path):
    """Values at the test points of the day are permuted: nothing but the scores changes."""
    folder, field, _, with_it, _ = days
    task = task_of(the_job(field, folder / "out", DAYS[12:]))
    with xr.open_zarr(field, consolidated=False) as opened:
        changed = opened.load()
    where = task.points.latitude_degrees[task.design.test], task.points.longitude_degrees[task.design.test]
    row, column = (
        np.searchsorted(changed[name], at) for name, at in zip(("latitude", "longitude"), where, strict=True)
    )
    today = changed["t2m"].values[12]
    today[row, column] = np.random.default_rng(1).permutation(today[row, column])
    changed.drop_encoding().to_zarr(tmp_path / "field.zarr", zarr_format=3, consolidated=False)
    shutil.copytree(folder / "out" / "runs", tmp_path / "out" / "runs")
    permuted = run(the_job(tmp_path / "field.zarr", tmp_path / "out", DAYS[12:])).path
    assert permuted.stem != with_it.stem
    one, other = (read_group(path, "posterior") for path in (with_it, permuted))
    assert not np.array_equal(one.t2m, other.t2m)
    for name in ("t2m_mean", "t2m_std", "t2m_predictive_std", "t2m_quantile", "local_scale"):
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_a_fold_learns_nothing_of_the_past_of_its_own_places():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    law, folds = Gaussian(np.zeros((1, 400)), 1.0), np.arange(400) % 4
    values, sizes = np.exp(X[:, 2]) * rng.standard_normal((1, 400)), 10.0 * np.exp(X[:, 2])
    past = PastErrors(X, sizes, np.full(400, 10), "K")
    others = folds != 2
    expected = LocalScale().fit(
        law[:, others], values[:, others], X[others], past=past.at(others), groups=folds[others]
    )
    changed = replace(past, absolute_sums=np.where(others, sizes, 1e6))
    for history in (past, changed):
        found = KnownErrors(law, values, X, folds, past=history).teach(LocalScale(), without=2)
        assert found.regression.log_score == expected.regression.log_score
        np.testing.assert_array_equal(found.scale(law, X), expected.scale(law, X))


@pytest.mark.parametrize("changed", CHANGED)
def test_errors_of_another_job_are_refused(days, changed, tmp_path):
    folder, field, before, *_ = days
    tables, said = CHANGED[changed]
    if changed == "variable":
        field = store(tmp_path / "sst.zarr", 0, name="sst")
    with pytest.raises(ConfigurationError, match=said) as caught:
        task_of(the_job(field, folder / "out", DAYS[12:], **tables))
    assert f"the run {before[1].stem} in {folder / 'out'}, of 2020-01-12T00:00, is of another job: " in str(
        caught.value
    )
    assert str(caught.value).endswith("Give this job an [output] root of its own, or leave history out.")


def test_errors_of_another_grid_or_unit_and_damaged_ones_are_refused(days, tmp_path):
    folder, field, before, *_ = days
    finer = store(tmp_path / "finer.zarr", 0, step=5.0)
    with pytest.raises(
        ConfigurationError, match=r"has errors at 300 places, among which are \d+ of the 300 places"
    ):
        task_of(the_job(finer, folder / "out", DAYS[12:]))
    task = task_of(the_job(field, folder / "out", DAYS[12:]))
    variable = replace(task.points.variable, units="degC")
    with pytest.raises(ConfigurationError, match='its units "K", and of this one "degC"'):
        with_history(replace(task, points=replace(task.points, variable=variable)))
    shutil.copytree(folder / "out" / "runs", tmp_path / "out" / "runs")
    chunk = tmp_path / "out" / "runs" / before[1].name / "errors" / "standardised_error" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(StoreError, match=r"standardised_error.* is damaged"):
        task_of(the_job(field, tmp_path / "out", DAYS[12:]))


def test_stations_may_come_and_go(tmp_path):
    """Of a table, errors count where a place has them, as long as half of the places do."""
    rng = np.random.default_rng(4)
    latitude, longitude = np.degrees(np.arcsin(rng.uniform(-1.0, 1.0, 300))), rng.uniform(0.0, 360.0, 300)
    present = [np.arange(240), np.arange(20, 250), np.arange(185, 300)]
    rows = ["lat,lon,time,t2m (K)"]
    for day, some in zip(DAYS, present, strict=False):
        values = 280.0 + rng.standard_normal(some.size)
        rows += [f"{latitude[i]},{longitude[i]},{day},{value}" for i, value in zip(some, values, strict=True)]
    (tmp_path / "stations.csv").write_text("\n".join(rows))

    def job(day):
        observations = {"source": f"table:{tmp_path / 'stations.csv'}", "times": [day]}
        settings = {"design": {"test": {"kind": "folds", "count": 4}}, "solver": {"name": "cholesky"}}
        return parse_job(
            job_text(
                **{
                    "observations": observations,
                    "prior": NUMBERS,
                    "recalibration": {"history": 9},
                    "output": {"root": tmp_path / "out"},
                    **settings,
                }
            )
        )

    run(job(DAYS[0]))
    second = task_of(job(DAYS[1]))
    assert np.sort(second.recalibration.history.past.counts).tolist() == [0] * 10 + [1] * 220
    places = second.inputs_at(second.design.test)
    np.testing.assert_array_equal(second.recalibration.history.past.points, places)
    known = known_errors(second, solved(second), 2.0, nugget=2.0)
    assert known.past is second.recalibration.history.past
    with pytest.raises(ConfigurationError, match=r"are 55 of the 115 places .* expected half of them"):
        task_of(job(DAYS[2]))


def test_a_history_is_of_a_local_scale():
    with pytest.raises(ConfigurationError, match='history came with method = "kuleshov"'):
        the_job("field.zarr", "out", DAYS, recalibration={"method": "kuleshov", "history": 3})
