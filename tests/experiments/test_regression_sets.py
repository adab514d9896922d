"""Sets of cases for regression: standardised, split, scored and compared."""

import gzip
import shutil

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.predictive import Gaussian
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout

from .scripts import FIGURE_BYTES, printed_rows, script

pytestmark = pytest.mark.exhaustive


def test_cases_are_standardised_by_the_training_cases(regression_set):
    cases = script("uci").Cases.read(regression_set, "concrete", split=1, train=60, test=20)
    assert cases.X.shape == (60, 2)
    assert cases.X_test.shape == (20, 2)
    np.testing.assert_allclose(cases.X.std(axis=0), 1.0)
    assert abs(cases.y.mean()) < 1e-12
    assert 2.0 < cases.y.std() < 5.0  # centred, not scaled
    assert np.abs(cases.X_test).max() < 3.0


def test_scores_of_sets_are_those_of_condition(regression_set):
    uci = script("uci")
    cases = uci.Cases.read(regression_set, "concrete", split=0, train=60, test=20)
    found, chosen = uci.iterations(cases, count=8), uci.actions(cases, count=8)
    prior = cases.fitted(cagp.Matern32)
    exact = cagp.condition(prior, cases.X, cases.y, cases.X_test, solver=cagp.Cholesky())
    rmse = np.sqrt(np.mean((exact.mean - cases.y_test) ** 2))
    for name, scores in found.items():
        assert scores.shape == (2, 8), name
    np.testing.assert_allclose(found["exact"][0], rmse)
    assert found["Gauss-Seidel"][0, -1] < found["Gauss-Seidel"][0, 0]
    np.testing.assert_array_equal(chosen["two runs"][0], chosen["conjugate gradients"][0])
    matern = cases.fitted(cagp.Matern12)
    points = cases.X[np.random.default_rng(0).permutation(len(cases.X))[:8]]
    cross, own = (matern.kernel(points, other) for other in (cases.X, points))
    S = np.linalg.solve(own + cross @ cross.T / matern.noise_number, cross @ cases.y) / matern.noise_number
    error = matern.kernel(cases.X_test, points) @ S - cases.y_test
    np.testing.assert_allclose(chosen["inducing points"][0, -1], np.sqrt(np.mean(error**2)), rtol=1e-5)
    assert np.abs(chosen["two runs"][1] - chosen["conjugate gradients"][1]).max() > 1e-6


def test_sets_print_tables_and_draw_a_figure(regression_set, tmp_path, capsys):
    uci = script("uci")
    uci.main(["--quick", "--data", str(regression_set), "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "concrete: 90 training, 30 test cases, 2 columns, splits: 2" in printed
    saved = xr.open_zarr(tmp_path / "uci-actions.zarr", consolidated=False).nll.sel(set="concrete")
    one, other = (saved.sel(solver="inducing points") - saved.sel(solver="pseudo-inputs")).values[:, 9]
    less = f"{(one + other) / 2:.3f} ± {abs(one - other) / 2:.3f}"  # of two splits
    assert next(row for row in printed_rows(printed) if row[:2] == ["concrete", "NLL"])[2] == less
    assert xr.open_zarr(tmp_path / "uci-iterations.zarr", consolidated=False).sizes["split"] == 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_learnt_actions_are_compared(regression_set, tmp_path, capsys):
    learned = script("learned_actions")
    given = ["--quick", "--data", str(regression_set), "--sets", "concrete", "--output", str(tmp_path)]
    learned.main([*given, "--methods", *learned.METHODS])
    printed = capsys.readouterr().out
    head, *rows = printed_rows(printed)
    there = [row[1] for row in rows if len(row) == len(head)]
    left_out = [] if learned.gpytorch_models.available() else ["SVGP", "CGGP"]
    assert there == [name for name in learned.METHODS if name not in left_out]
    assert (learned.gpytorch_models.MISSING in printed) == bool(left_out)
    saved = xr.open_zarr(tmp_path / "learned-actions.zarr", consolidated=False).isel(set=0)
    assert saved.sizes == {"split": 2, "method": len(learned.METHODS)}
    for name in saved.data_vars:
        assert np.isfinite(saved[name].sel({"method": there}).values).all()
        assert np.isnan(saved[name].sel({"method": left_out}).values).all()
    for score in learned.SCORES:  # all of these cases are among the first 1,000
        subset, exact = saved[score].sel({"method": ["subset", "exact"]}).values.T
        np.testing.assert_array_equal(subset, exact)
    # The target has deviation 1, the noise in it 0.03.
    assert (
        saved.rmse.sel(
            {"method": ["exact", "SGPR", "ELBO", "projected", "CG-ELBO", "CG-projected", "wrong-determinant"]}
        )
        < 0.1
    ).all()
    assert (tmp_path / "learned-actions.png").stat().st_size < FIGURE_BYTES


def test_methods_can_be_chosen_and_a_figure_needs_an_objective(regression_set, tmp_path, capsys):
    learned = script("learned_actions")
    given = ["--quick", "--data", str(regression_set), "--sets", "concrete", "--output", str(tmp_path)]
    learned.main([*given, "--methods", "SGPR", "subset"])
    head, *rows = printed_rows(capsys.readouterr().out)
    assert [row[1] for row in rows if len(row) == len(head)] == ["subset", "SGPR"]
    learned.main([*given, "--methods", "subset", "SGPR", "--least-noise", "0.02"])
    noise = xr.open_zarr(tmp_path / "learned-actions.zarr", consolidated=False).noise_variance
    np.testing.assert_allclose(noise.sel({"method": ["subset", "SGPR"]}), 0.02)  # which is 0.001 in truth
    capsys.readouterr()
    assert [path.name for path in tmp_path.iterdir()] == ["learned-actions.zarr"]
    learned.main([*given, "--methods", "projected"])
    assert {row[1] for row in printed_rows(capsys.readouterr().out)[1:]} >= {"projected"}
    assert (tmp_path / "learned-actions.png").stat().st_size < FIGURE_BYTES


def test_methods_that_need_too_much_memory_are_left_out_and_that_is_said(
    regression_set, tmp_path, capsys, monkeypatch
):
    learned = script("learned_actions")
    monkeypatch.setattr(learned, "MOST_EXACT", 50)
    given = ["--quick", "--data", str(regression_set), "--sets", "concrete", "--output", str(tmp_path)]
    learned.main([*given, "--methods", "subset", "exact"])
    printed = capsys.readouterr().out
    assert "left out with more than 50 training cases: exact (--cases 50 takes as many)" in printed
    learned.main([*given, "--methods", "exact", "--cases", "50"])
    assert "left out" not in capsys.readouterr().out


def test_adam_takes_the_place_of_the_other_search(regression_set, tmp_path, capsys):
    """All of its steps are taken, the first as long as the rate in every entry; L-BFGS goes elsewhere."""
    learned = script("learned_actions")
    cases = script("uci").Cases.read(regression_set, "concrete", split=0, train=60, test=20)
    problem = learned.Problem(cases, learned.Sizes(8, 8, 4, 1, learning_rate=0.05), SerialExecutor())
    way, _ = problem.learnt("ELBO")
    assert way.steps == 4
    first = np.abs(way.vectors[1] - way.vectors[0])
    np.testing.assert_allclose(first[4:], 0.05, rtol=1e-3)  # but for epsilon beside small gradients
    other, _ = learned.Problem(cases, learned.Sizes(8, 8, 4, 1), SerialExecutor()).learnt("ELBO")
    assert np.abs(other.vectors[1] - way.vectors[1]).max() > 0.01
    given = ["--quick", "--data", str(regression_set), "--sets", "concrete", "--output", str(tmp_path)]
    learned.main([*given, "--methods", "ELBO", "--adam", "0.1"])
    head, *rows = printed_rows(capsys.readouterr().out)
    assert [row[1] for row in rows if len(row) == len(head)] == ["ELBO"]
    noise = [float(row[3]) for row in rows if row[1:3] in (["ELBO", "0"], ["ELBO", "1"])]
    assert abs(np.log(noise[1] / noise[0])) == pytest.approx(0.1, abs=0.01)  # printed to three digits


def test_the_way_of_learnt_actions_begins_with_means_of_blocks_and_climbs(regression_set):
    learned = script("learned_actions")
    cases = script("uci").Cases.read(regression_set, "concrete", split=0, train=60, test=20)
    problem = learned.Problem(cases, learned.Sizes(8, 8, 4, 1), SerialExecutor())
    way, scored = problem.learnt("ELBO")
    assert list(way.vectors) == [0, 1, 2, 4]
    assert (way.steps, way.end.shape) == (4, (4 + 60,))
    np.testing.assert_array_equal(way.vectors[0][4:], 1.0)
    data = ProjectedData(
        cagp.Matern32,
        problem.X,
        problem.y[:, None],
        layout=BlockLayout.of(problem.X, 8),
        executor=SerialExecutor(),
        memory_limit_bytes=2**30,
        anisotropic=True,
    )
    bounds = [Elbo(data)(vector)[0] for vector in way.vectors.values()]
    assert (np.diff(bounds) > 0.0).all()
    kernel = cagp.Matern32(tuple(np.exp(way.end[:2]).tolist()), float(np.exp(way.end[2])))
    solver = cagp.SparseActions(8, values=way.end[4:])
    found = cagp.condition(
        cagp.Prior(kernel, noise := float(np.exp(way.end[3]))),
        problem.X,
        problem.y,
        problem.X_test,
        solver=solver,
    )
    distribution = Gaussian(found.mean, np.sqrt(found.variance + noise))
    density = -np.mean(distribution.log_density(problem.y_test))
    np.testing.assert_allclose(scored[4].scores[0], density, rtol=1e-9)


def test_sets_splits_and_cases_can_be_chosen(regression_set, tmp_path, capsys):
    uci = script("uci")
    given = ["--quick", "--data", str(regression_set), "--output", str(tmp_path)]
    few = ["--splits", "1", "--cases", "40", "--sweeps", "0", "--actions", "3"]
    uci.main([*given, "--sets", "concrete", *few])
    assert "concrete: 40 training, 30 test cases, 2 columns, splits: 1" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["uci-actions.zarr"]  # the other one is left out
    saved = xr.open_zarr(tmp_path / "uci-actions.zarr", consolidated=False)
    assert (saved.sizes["split"], saved.sizes["iteration"]) == (1, 3)
    with pytest.raises(SystemExit, match=r"has none of yacht\.csv\.gz\. Give their folder with --data"):
        uci.main([*given, "--sets", "yacht"])
    with pytest.raises(SystemExit, match=r"has no yacht\.csv\.gz"):
        uci.main([*given, "--sets", "concrete", "yacht"])
    with pytest.raises(SystemExit, match=r"has none of concrete\.csv\.gz, bike\.csv\.gz"):
        uci.main(["--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"concrete has 3 splits; lower --splits, which asks for more"):
        uci.main([*given, "--splits", "4"])
    with pytest.raises(SystemExit, match="2"):
        uci.main([*given, "--splits", "0"])
    assert "--splits is 0; expected at least 1." in capsys.readouterr().err


def test_laws_of_quantiles_are_scored_as_the_laws_that_they_are_of():
    """Quantiles of normal distributions have their scores; shares below them are counted level by level."""
    sharp, generator = script("sharp"), np.random.default_rng(0)
    distribution = Gaussian(generator.standard_normal(200), np.exp(generator.standard_normal(200)))
    y = distribution.sample(generator, 1)[0]
    found = dict(
        zip(
            sharp.SCORES, sharp.scored(distribution.quantile(sharp.LEVELS), distribution.mean, y), strict=True
        )
    )
    lower, upper = distribution.interval(0.95)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    assert found["std"] == pytest.approx(distribution.std.mean(), rel=1e-6)
    assert found["nll"] == pytest.approx(-distribution.log_density(y).mean(), rel=1e-9)
    assert found["crps"] == pytest.approx(distribution.crps(y).mean(), rel=1e-5)
    assert found["width"] == pytest.approx(np.mean(upper - lower), rel=1e-9)
    assert found["interval"] == pytest.approx(np.mean(upper - lower + 40.0 * outside), rel=1e-9)
    shares = [np.mean(distribution.cdf(y) <= level) for level in sharp.LEVELS]
    assert found["ece"] == pytest.approx(np.mean((shares - sharp.LEVELS) ** 2), abs=1e-12)


def test_sharp_and_recalibrated_laws_of_a_set_are_compared(regression_set, tmp_path, capsys):
    """Split 3 : 1 : 1; half of 44 calibration cases are too few for a three-way split at level 0.025."""
    sharp = script("sharp")
    shutil.copy(regression_set / "concrete.csv.gz", tmp_path / "yacht.csv.gz")
    cases = sharp.Cases.read(tmp_path, "yacht", repetition=0)
    assert [part.shape for part in cases.X] == [(72, 2), (24, 2), (24, 2)]
    np.testing.assert_allclose(cases.y[0].std(), 1.0)
    many = np.random.default_rng(0).standard_normal((240, 3))
    with gzip.open(tmp_path / "housing.csv.gz", "wt") as file:
        np.savetxt(file, many, delimiter=",")
    sharp.main(["--quick", "--data", str(tmp_path), "--sets", "housing", "--output", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "| housing | sharp |" in printed
    assert "(.003)" in printed
    assert "nan" not in printed  # distributions that are not there have no row
    saved = xr.open_zarr(tmp_path / "out" / "sharp.zarr", consolidated=False)
    assert saved.sizes["repetition"] == 1
    assert float(saved["shares"].max()) <= 1.0 + 1e-9
    assert np.isnan(
        saved["nll"].sel(distribution="sharp, three-way")
    ).all()  # 22 of 44 cases are fewer than 40
    assert np.isfinite(saved["nll"].sel(distribution=["sharp", "Kuleshov", "Vovk", "Marx", "plain"])).all()
    with pytest.raises(SystemExit, match=r"has none of wine\.csv\.gz"):
        sharp.main(["--data", str(tmp_path), "--sets", "wine"])
