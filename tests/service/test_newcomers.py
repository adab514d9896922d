"""A stranger adds a kernel, solver, mean, recalibration, source or format: one class or function, one line.

Each is registered while the test runs, and is then what it would be for users who write its name.
"""

import json
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS
from cagp_dist.errors import CagpError
from cagp_dist.export import FORMATS, Format, export_run
from cagp_dist.export.groups import GRIDDED
from cagp_dist.fields.sources import SOURCES, Source
from cagp_dist.kernels import KERNELS, ClosedForm, name_of
from cagp_dist.means import MEANS
from cagp_dist.predictive import Gaussian
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.solver_table import solver_table
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.stages import Sweep
from cagp_dist.solvers.registry import SOLVERS, solver_name
from cagp_dist.solvers.setting_metadata import ITERATIONS

from ..export.make_group import publish_run

GIVEN = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0}


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    return X, np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=60)


class Blend(ClosedForm):
    """Half of a Matern 1/2 and half of a 3/2 with the same decay: ``(1 + u / 2) exp(-u)``."""

    polynomial, scale = (1.0, 0.5), 1.0


def test_a_kernel(points, monkeypatch):
    monkeypatch.setitem(KERNELS, "blend", Blend)
    X, y = points
    kernel = cagp.fit("blend", X, y).prior.kernel
    assert isinstance(kernel, Blend)
    assert name_of(kernel) == "blend"
    lengthscale, variance = kernel.lengthscale, 0.5 * kernel.variance
    halves = cagp.Matern12(lengthscale, variance) + cagp.Matern32(3.0**0.5 * lengthscale, variance)
    np.testing.assert_allclose(kernel(X, X), halves(X, X), atol=1e-12 * kernel.variance)
    assert name_of(cagp.fit("matern52 + blend", X, y, starts=1).prior.kernel) == "matern52 + blend"


@dataclass(frozen=True)
class Backward(Affine):
    """Gauss-Seidel from the last point to the first."""

    iterations: int = field(metadata=ITERATIONS)

    label: ClassVar[str] = "backward Gauss-Seidel"
    points_per_block: ClassVar[None] = None

    def cycle(self, gram, *, executor, blocks):
        return (Sweep(whole_blocks=False, ascending=False),)


def test_a_solver(points, monkeypatch):
    monkeypatch.setitem(SOLVERS, "backward", Backward)
    solver = solver_table("backward", Backward).model_validate({"name": "backward", "iterations": 1}).build()
    assert solver == Backward(1)
    assert solver_name(solver) == "backward"
    X, y = points
    prior = cagp.Prior(cagp.Matern32(0.3), noise_variance=0.1)
    found = cagp.condition(prior, X, y, X[:5] + 0.01, solver=solver)
    turned = cagp.condition(prior, X[::-1], y[::-1], X[:5] + 0.01, solver=cagp.GaussSeidel(1))
    np.testing.assert_allclose(found.mean, turned.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, turned.variance, rtol=1e-9)


class Wave:
    """A level, and a wave once around the Earth."""

    coefficient_names = ("constant", "wave")

    def basis_at(self, X):
        return np.column_stack([np.ones(len(X)), X[:, 0]])


def test_a_mean(job_text, monkeypatch):
    """Jobs and calls know it, and say so where another name is unknown; what has no basis is refused."""
    monkeypatch.setitem(MEANS, "wave", Wave())
    assert parse_job(job_text.replace('mean = "quadratic-latitude"', 'mean = "wave"')).prior.mean == "wave"
    for ask in (
        lambda: parse_job(job_text.replace('mean = "quadratic-latitude"', 'mean = "waves"')),
        lambda: cagp.mean_family("waves"),
    ):
        with pytest.raises(CagpError, match="wave"):
            ask()
    monkeypatch.setitem(MEANS, "bare", Halved())
    with pytest.raises(CagpError) as refusal:
        cagp.mean_family("bare")
    assert refusal.value.key == "mean-type"
    field = open_tape(7).t2m
    found = cagp.krige(field, to=30.0, mean="wave", **GIVEN)
    same = cagp.krige(field, to=30.0, mean=cagp.BasisMean(Wave().basis_at, ("constant", "wave")), **GIVEN)
    assert found.drift_term.values.tolist() == ["constant", "wave"]
    np.testing.assert_allclose(found["mean"], same["mean"], rtol=1e-9)


class Halved:
    """All error bars were twice too wide."""

    def fit(self, distribution, observed, X):
        return self

    def __call__(self, distribution, X_new):
        return Gaussian(distribution.mean, 0.5 * distribution.std)


def open_tape(reel, *_):
    """Give a field of two times on a small grid."""
    latitude, longitude = np.arange(-60.0, 61.0, 20.0), np.arange(0.0, 360.0, 30.0)
    rows, columns = np.meshgrid(np.deg2rad(latitude), np.deg2rad(longitude), indexing="ij")
    values = 280.0 + float(reel) * np.cos(rows) * np.sin(columns)
    dims, times = ("time", "latitude", "longitude"), np.array(["2020-01-01"], dtype="datetime64[ns]")
    coordinates = {"time": times, "latitude": latitude, "longitude": longitude}
    attributes = {"units": "K", "standard_name": "air_temperature"}
    return xr.Dataset({"t2m": (dims, values[None], attributes)}, coordinates)


def test_a_source_and_a_recalibration(job_text, monkeypatch):
    monkeypatch.setitem(SOURCES, "tape", Source(open_tape, address="REEL"))
    monkeypatch.setitem(RECALIBRATIONS, "halved", Halved)
    assert parse_job(job_text.replace('"sample"', '"tape:7"')).observations.kind == "tape"
    found = cagp.krige("tape:7", to=30.0, recalibration="halved", **GIVEN)
    same = cagp.krige(open_tape(7).t2m, to=30.0, **GIVEN)
    np.testing.assert_array_equal(found["mean"], same["mean"])
    expected = 0.5 * np.hypot(same["std"], found.attrs["reference_noise_std"])
    np.testing.assert_allclose(found["predictive_std"], expected, rtol=1e-6)
    np.testing.assert_allclose(found["std"], 0.5 * same["std"], rtol=1e-6)


def write_json(group, path):
    """Write the mean of a map as nested lists."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(group["t2m_mean"].values.tolist()))
    return path


def json_files(name, group):
    """Name the one file of a group, and say how it is written."""
    yield name, partial(write_json, group)


def test_a_format(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "json", Format(".json", frozenset({GRIDDED}), "maps", json_files))
    run = publish_run(tmp_path, latitude=np.array([10.0, 20.0]), longitude=np.array([0.0, 5.0, 10.0]))
    (path,) = export_run(run, to="json", groups=["map"], output=tmp_path / "json")
    assert path.name == "map.json"
    found = json.loads(path.read_text())[0][0]
    np.testing.assert_allclose(found, 285.0 + np.array([0.0, 0.005, 0.01]), rtol=1e-6)
