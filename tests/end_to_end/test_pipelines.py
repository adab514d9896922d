"""The thin mains: exit codes, and the same run as the command line makes."""

import importlib
import importlib.util
import logging
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist.store.publish import output_lock

from ..jobs import job_text
from ..sources import save, temperature

PIPELINES = Path(__file__).parents[2] / "pipelines"


def text_of(folder: Path, **tables) -> str:
    """The exact solve of one time of a small field."""
    standard = {
        "observations": {"source": f"zarr:{folder}/field.zarr", "times": ["2020-01-01"]},
        "design": {"train": {"kind": "all"}, "test": {"kind": "stride", "step": 3, "offset": 1}},
        "prior": {"mean": "constant", "lengthscale": 0.5, "variance": 60.0, "noise_variance": 1.0},
        "solver": {"name": "cholesky"},
        "output": {"root": folder / "out"},
    }
    return job_text(**{**standard, **tables})


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"pipeline_{name}", PIPELINES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture
def job(tmp_path):
    latitude, longitude = np.arange(-78.75, 90.0, 22.5), np.arange(0.0, 360.0, 30.0)
    values = np.random.default_rng(3).normal(280.0, 8.0, (1, 8, 12))
    save(temperature(values, latitude=latitude, longitude=longitude), tmp_path / "field.zarr")
    path = tmp_path / "job.toml"
    path.write_text(text_of(tmp_path))
    return str(path)


def test_ingest_then_regress(job, tmp_path, capsys, caplog):
    caplog.set_level(logging.INFO)
    assert load("ingest")([job]) == 0
    assert "1 time added" in caplog.text
    assert not (tmp_path / "out" / "CURRENT").exists()
    assert load("regress")([job]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.stem == (tmp_path / "out" / "CURRENT").read_text().strip()

    # the exact posterior, written down plainly
    observed = xr.open_zarr(path, group="observations").load()
    test = xr.open_zarr(path, group="posterior").load()
    assert (observed.sizes["point"], test.sizes["point"]) == (84, 12)

    def unit(group):
        phi, lam = np.deg2rad(group.latitude.values), np.deg2rad(group.longitude.values)
        return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)

    def kernel(A, B):
        u = np.sqrt(3.0) * np.linalg.norm(A[:, None] - B[None], axis=2) / 0.5
        return 60.0 * (1.0 + u) * np.exp(-u)

    X, X_new, y = unit(observed), unit(test), observed.t2m.values[0]
    G = kernel(X, X) + np.eye(len(X))
    of_constant, weights = np.linalg.solve(G, np.ones(len(X))), np.linalg.solve(G, kernel(X, X_new))
    m0 = of_constant @ y / of_constant.sum()  # ordinary kriging
    variance = 60.0 - np.einsum("ij,ij->j", kernel(X, X_new), weights)
    variance += (1.0 - weights.sum(axis=0)) ** 2 / of_constant.sum()
    np.testing.assert_allclose(test.t2m_mean.values[0], m0 + weights.T @ (y - m0), rtol=1e-10)
    np.testing.assert_allclose(test.t2m_std.values[0], np.sqrt(variance), rtol=1e-9)


def test_daily_says_what_became_of_each_time(job, tmp_path, capsys):
    assert load("daily")([job]) == 0
    assert capsys.readouterr().out == "2020-01-01T00:00: exact, in version 1 of the series\n"
    assert load("daily")([job]) == 0
    assert capsys.readouterr().out == "2020-01-01T00:00: in the series already\n"
    assert xr.open_zarr(tmp_path / "out" / "series.zarr", group="scores").sizes["time"] == 1
    with output_lock(tmp_path / "out"):
        assert load("daily")([job]) == 75
    assert "is in use by" in capsys.readouterr().err
    assert load("daily")([]) == 2
    assert load("daily")([str(tmp_path / "none.toml")]) == 2
    assert "there is no job file" in capsys.readouterr().err
    Path(job).write_text(text_of(tmp_path).replace("field.zarr", "none.zarr"))
    assert load("daily")([job, "--log", "json"]) == 6
    assert "failed: 2020-01-01T00:00:00: refused" in capsys.readouterr().out


@pytest.mark.exhaustive
def test_fit_prints_a_prior_that_regress_takes(tmp_path, capsys):
    drawn = {
        "source": "synthetic",
        "grid_degrees": 15.0,
        "synthetic": {"lengthscale": 0.4},
        "times": ["2020-01-01"],
    }
    path = tmp_path / "job.toml"
    text = text_of(tmp_path, observations=drawn, prior={"kernel": "matern32", "mean": "constant"})
    path.write_text(text)
    assert load("fit")([str(path)]) == 0
    table = capsys.readouterr().out
    assert load("regress")([str(path)]) == 0
    without = Path(capsys.readouterr().out.strip())
    given = '[prior]\nkernel = "matern32"\nmean = "constant"\n'
    assert given in text
    path.write_text(text.replace(given, table))
    assert load("regress")([str(path)]) == 0
    pasted = Path(capsys.readouterr().out.strip())
    assert without != pasted  # another job, with nearly the same result: six digits were printed
    means = [xr.open_zarr(run, group="posterior").t2m_mean.values for run in (without, pasted)]
    np.testing.assert_allclose(*means, rtol=1e-6)
    assert "fit" in xr.open_zarr(without).attrs
    assert "fit" not in xr.open_zarr(pasted).attrs


def test_fit_exits_with_3_when_it_does_not_end_well(job, capsys, monkeypatch, caplog):
    from cagp_dist.likelihood.fit_result import FitStatus

    monkeypatch.setattr(FitStatus, "ok", False)
    assert load("fit")([job]) == 3
    assert "the fit of the prior to the 84 observed points" in caplog.text
    assert "[prior]" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ingest", "regress", "fit", "calibrate"])
def test_mistakes_have_their_exit_codes(name, job, tmp_path, caplog, capsys):
    main = load(name)
    assert main(["--help"]) == 0
    assert f"python -m pipelines.{name} JOB.toml" in capsys.readouterr().out
    assert main([]) == 2
    assert f"usage: python -m pipelines.{name} JOB.toml" in caplog.text
    assert main([str(tmp_path / "none.toml")]) == 2
    assert "there is no job file" in caplog.text
    Path(job).write_text(text_of(tmp_path).replace("field.zarr", "none.zarr"))
    assert main([job]) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("solver", "code", "status"),
    [
        pytest.param("cholesky", 0, "consistent", marks=pytest.mark.exhaustive),
        ('conjugate-gradient"\niterations = "5', 4, "too-wide"),
    ],
)
def test_calibrate_publishes_what_simulations_find(job, tmp_path, capsys, caplog, solver, code, status):
    Path(job).write_text(text_of(tmp_path).replace('"cholesky"', f'"{solver}"').replace('"5"', "5"))
    assert load("calibrate")([job, "many"]) == 2
    assert load("calibrate")([job, "500"]) == code
    path = Path(capsys.readouterr().out.strip())
    assert xr.open_zarr(path).attrs["simulation_status"] == status
    assert xr.open_zarr(path, group="simulation").sizes["simulation"] == 500
    assert ("The error bars are too wide" in caplog.text) == (code == 4)


def test_regress_exits_with_3_when_the_solve_is_ill_conditioned(job, tmp_path, caplog):
    text = text_of(tmp_path).replace("noise_variance = 1.0", "noise_variance = 1e-11")
    Path(job).write_text(
        text.replace("lengthscale = 0.5", 'kernel = "squared-exponential"\nlengthscale = 1.0')
    )
    assert load("regress")([job]) == 3
    assert "ill-conditioned" in caplog.text
    assert not (tmp_path / "out" / "CURRENT").exists()
