"""The scripts behind docs/experiments.md, at sizes that take a second: what they measure, that they run."""

import dataclasses
import gzip
import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.spatial import cKDTree

import cagp_dist as cagp
from cagp_dist.predictive import Gaussian
from cagp_dist.store.arrays import read_group

REPOSITORY = Path(__file__).parents[1]
FIGURE_BYTES = 150_000


def script(name: str):
    """A module of ``pipelines.experiments``, which is no installed package."""
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    return importlib.import_module(f"pipelines.experiments.{name}")


@pytest.fixture(scope="module")
def split():
    return script("split").Split.make(14, np.random.default_rng(0), held_out=20)


@pytest.fixture(scope="module")
def values(split):
    return split.draw(np.random.default_rng(1), 1)[1][0]


def test_split_keeps_the_problem_the_same_on_coarser_grids(split):
    assert split.rings.grid.shape == (14, 28)
    assert len(split.test) == 20
    assert len(split.train) == 14 * 28 - 20
    assert split.prior.kernel.lengthscale == pytest.approx(0.041 * 180 / 14)


def test_held_out_points_are_drawn_by_area():
    grid_rows = []
    for seed in range(40):
        made = script("split").Split.make(12, np.random.default_rng(seed), held_out=20)
        grid_rows.append(made.rings.grid.latitude_degrees[np.nonzero(~made.observed)[0]])
    sine = np.sin(np.deg2rad(np.concatenate(grid_rows)))
    # uniform on the sphere: mean square of the sine 1/3, standard error sqrt(4/45/800) = 0.011; drawn from
    # all points of the grid alike it would be 1/2
    assert abs(np.mean(sine**2) - 1.0 / 3.0) < 0.05


def test_exact_posterior_is_that_of_cholesky(split, values):
    exact = split.exact(values)
    dense = cagp.condition(
        split.prior,
        split.train,
        values[split.observed],
        split.test,
        solver=cagp.Cholesky(),
        covariance="full",
    )
    np.testing.assert_allclose(exact.mean, dense.mean, atol=1e-9)
    np.testing.assert_allclose(exact.covariance, dense.covariance, atol=1e-9)


def test_conjugate_gradients_of_the_grid_are_those_of_condition(split, values):
    posterior = cagp.condition(
        split.prior,
        split.train,
        values[split.observed],
        split.test,
        solver=cagp.ConjugateGradient(12),
        covariance="full",
    )
    states = list(split.conjugate_gradients(values, iterations=12))
    for (mean, downdate), step in zip(states, posterior.trace[1:], strict=True):
        np.testing.assert_allclose(mean, step.mean, atol=1e-9)
        np.testing.assert_allclose(
            split.prior.kernel.variance - downdate.diagonal(), step.variance, atol=1e-9
        )
    prior = split.prior.kernel(split.test, split.test)
    np.testing.assert_allclose(prior - states[-1][1], posterior.covariance, atol=1e-9)


def test_held_out_scores_every_iteration(split, values):
    rows, seconds = script("held_out").solve(split, values)
    assert {name: len(found) for name, found in rows.items()} == {
        "Gauss-Seidel": 20,
        "block Gauss-Seidel": 5,
        "conjugate gradients": 80,
        "exact": 1,
    }
    assert min(seconds.values()) > 0.0
    sweeps = rows["Gauss-Seidel"]
    stated = [row.stated for row in sweeps]
    assert stated == sorted(stated, reverse=True)  # more sweeps never state more
    # chance lets 20 correlated squares differ from their variance, but not by a factor of two in their root
    assert 0.5 < sweeps[0].actual / sweeps[0].stated < 2.0
    [exact] = rows["exact"]
    assert exact.actual == exact.stated == 0.0
    assert sweeps[0].actual > 10.0 * sweeps[-1].actual
    first, twentieth = (sweep.score.nll - exact.score.nll for sweep in (sweeps[0], sweeps[-1]))
    assert abs(twentieth) < 0.25 * first
    last = rows["conjugate gradients"][-1]
    assert last.actual < 0.2 * last.stated  # conservative


@pytest.mark.exhaustive
def test_actions_that_are_calibrated_state_their_errors_and_preconditioned_gradients_do_not(
    capsys, monkeypatch
):
    """Over 100 fields; a mean square of each has a variance of 2 at most: 4 sqrt(2 / 100) / 2 = 0.28."""
    actions = script("actions")
    drawn = actions.Drawn.make(0.3, points=150, targets=20, fields=100)
    for solver in (cagp.UnitVectors(20), cagp.PseudoInputs(10), cagp.KrylovActions(10), cagp.Cholesky()):
        errors, variances = drawn.solve(solver)
        assert errors.shape == variances.shape == (20, 100)
        assert abs(actions.rms(errors / np.sqrt(variances)) - 1.0) < 0.28
    few = actions.Drawn.make(0.3, points=150, targets=20, fields=4)
    errors, variances = few.solve(cagp.ConjugateGradient(10, "block-gauss-seidel", 30))
    exact, _ = few.solve(cagp.Cholesky())
    assert actions.rms(errors) < 1.1 * actions.rms(exact)
    assert actions.rms(errors / np.sqrt(variances)) < 0.7
    monkeypatch.setattr(actions, "LENGTHSCALES", (0.3,))
    actions.main(["--quick"])
    body = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[0].strip("| ") for line in body] == [name for name, _ in actions.SOLVERS]


@pytest.mark.exhaustive
def test_simulation_passes_what_is_calibrated_and_fails_conjugate_gradients(split, monkeypatch):
    simulation = script("simulation")
    monkeypatch.setattr(simulation, "DIRECTIONS", (5, 20))
    found = {
        (errors.solver, errors.iteration): errors
        for errors in simulation.simulate(split, np.random.default_rng(2), fields=40)
    }
    for key, errors in found.items():
        assert errors.projected.shape == (40,)
        assert errors.whitened.shape == (20 * 40,)
        deviation = np.sqrt(2.0 * 800) * (np.sqrt(np.mean(errors.whitened**2)) - 1.0)
        if key[0] == "conjugate gradients":
            assert deviation < -3.0, key
        else:
            assert abs(deviation) < 4.0, key
            assert np.abs(np.mean(errors.projected)) < 4.0 / np.sqrt(40.0), key
    everywhere = np.ones(20, dtype=bool)
    ratio, error = found["Gauss-Seidel", 1].ratio(everywhere)
    assert abs(ratio - 1.0) < 4.0 * error
    ratio, error = found["conjugate gradients", 20].ratio(everywhere)
    assert ratio < 1.0 - 10.0 * error


def test_gradient_of_known_fields():
    gradient_rms = script("smoothness").gradient_rms
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 721), 1440)
    x, _, z = grid.points.T.reshape(3, *grid.shape)
    per_100_km = 100.0 / 6371.0
    # |grad z|^2 = 1 - z^2 and |grad x|^2 = 1 - x^2, averaged over sin(lat)^2 <= 3/4
    assert gradient_rms(z, grid) == pytest.approx(np.sqrt(0.75) * per_100_km, rel=2e-3)
    assert gradient_rms(x, grid) == pytest.approx(np.sqrt(0.625) * per_100_km, rel=2e-3)


@pytest.mark.parametrize("n_longitudes", [15, 16])
def test_zonal_power_adds_up_to_the_variance_along_rings(n_longitudes):
    zonal_power = script("smoothness").zonal_power
    grid = cagp.LatLonGrid([-20.0, -5.0, 10.0, 50.0], n_longitudes)
    wave = np.cos(3.0 * np.deg2rad(grid.longitude_degrees))
    power = zonal_power(2.0 * np.ones((4, 1)) * wave, grid)
    assert power[2] == pytest.approx(2.0)
    assert np.delete(power, 2).max() < 1e-25
    field = np.random.default_rng(0).standard_normal(grid.shape)
    weights = np.cos(np.deg2rad([-20.0, -5.0, 10.0]))  # 50 N is outside
    assert zonal_power(field, grid).sum() == pytest.approx(np.average(field[:3].var(axis=1), weights=weights))


def test_means_on_the_whole_grid_pass_through_those_at_the_held_out_points(split, values):
    found = dict(script("smooth_means").means(split, values))
    exact = split.exact(values)
    held_out = ~split.observed
    np.testing.assert_allclose(found["exact", 0][held_out], exact.mean, atol=1e-6)
    posterior = cagp.condition(
        split.prior, split.train, values[split.observed], split.test, solver=cagp.GaussSeidel(2)
    )
    np.testing.assert_allclose(found["Gauss-Seidel", 2][held_out], posterior.mean, atol=1e-9)
    states = list(split.conjugate_gradients(values, iterations=20))
    np.testing.assert_allclose(found["conjugate gradients", 20][held_out], states[-1][0], atol=1e-9)


def test_whole_grid_states_what_it_does_not_know():
    whole_grid = script("whole_grid")
    truth, observed = whole_grid.draw_field(61, 0)
    judge, exact = whole_grid.run_exact(61, truth, observed)
    assert exact.actual == exact.stated == 0.0
    assert exact.coverage == pytest.approx(0.9, abs=0.05)
    rows = {case: whole_grid.run_case(case, 61, observed, judge) for case in whole_grid.cases()}
    for case, found in rows.items():
        assert len(found) == case.iterations
        assert found[-1].actual < found[0].actual
        assert found[0].seconds > 0.0
        if case.rings_per_block:
            assert 0.8 < found[0].actual / found[0].stated < 1.25, case
        else:
            assert found[40].actual < 0.7 * found[40].stated


def test_alone_returns_the_result_and_the_peak_memory_of_another_process():
    result, gibibytes = script("whole_grid").alone(np.ones, (1 << 25,))
    assert result.sum() == 1 << 25
    assert 0.25 < gibibytes < 4.0


def test_right_parameters_score_better_than_wrong_ones():
    sample_field, fit_size = script("sample_field"), script("fit_size")
    grid = cagp.LatLonGrid(np.linspace(-85.0, 85.0, 19), 36)
    right = cagp.Prior(cagp.Matern32(0.5, 4.0), 0.2)
    wrong = cagp.Prior(cagp.Matern32(0.1, 1.0), 0.2)
    rings = cagp.RingGram(grid, right.kernel, noise_variance=right.noise_variance)
    field = sample_field.SampleField(grid, rings.sample(np.random.default_rng(0), noise=True))
    for judge in (fit_size.all_others, fit_size.between):
        good, bad = judge(field, right), judge(field, wrong)
        assert good[0] < bad[0]
        assert good[1] < bad[1] - 0.1
        assert good[2] < bad[2]
        assert abs(good[3] - 0.95) < 0.04
    n = grid.size
    density = -0.5 * (
        np.vdot(field.residual, rings.solve(field.residual)) + rings.logdet() + n * np.log(2 * np.pi)
    )
    assert fit_size.all_others(field, right)[4] == pytest.approx(density / n)


def test_sample_field_is_what_the_mean_leaves():
    field = script("sample_field").SampleField.about("quadratic-latitude")
    assert field.residual.shape == field.grid.shape == (239, 480)
    assert abs(np.average(field.residual, weights=field.grid.area_weights)) < 0.05
    coarse, values = field.strided(2)
    assert coarse.shape == values.shape == (120, 240)


def test_solvers_on_a_field_agree_on_what_is_exact():
    sample_field, sample_grid = script("sample_field"), script("sample_grid")
    grid = cagp.LatLonGrid(np.linspace(-84.0, 84.0, 15), 30)
    prior = cagp.Prior(cagp.Matern32(0.4, 4.0), 0.2)
    rings = cagp.RingGram(grid, prior.kernel, noise_variance=0.2)
    field = sample_field.SampleField(grid, rings.sample(np.random.default_rng(3), noise=True))
    names = []
    for name, train, test in sample_grid.designs(grid, np.random.default_rng(4), held_out=10, random=90):
        names.append(name)
        assert not (train & test).any()
        assert test.sum() == 10
        *rows, exact = sample_grid.solve(field, prior, train, test)
        assert exact.solver == "exact"
        assert len(rows) >= 7  # conjugate gradients may be through before 80 directions
        dense = cagp.condition(
            prior,
            grid.points[train.ravel()],
            field.residual[train],
            grid.points[test.ravel()],
            solver=cagp.Cholesky(),
        )
        assert exact.score.rmse == pytest.approx(np.sqrt(np.mean((dense.mean - field.residual[test]) ** 2)))
    assert names == ["strided, 120", "random, 90"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("held_out", ["held-out.png"]),
        ("smooth_means", ["means.png", "smooth-means.png"]),
        ("simulation", ["simulation.png"]),
        ("long_lengthscales", ["long-lengthscales.json", "long-lengthscales.png"]),
        ("hybrids", ["hybrids.json", "hybrids.png"]),
    ],
)
def test_scripts_print_tables_and_draw_figures(name, figures, tmp_path, capsys, monkeypatch):
    module = script(name)
    monkeypatch.setattr(module, "QUICK_LATITUDES", 14, raising=False)
    monkeypatch.setattr(module, "QUICK_FIELDS", 2, raising=False)
    module.main(["--quick", "--output", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("| "))
    body = [line for line in lines if line.startswith("| ") and line != head]
    assert len(body) >= 9
    assert all(line.count("|") == head.count("|") for line in body)
    assert sorted(path.name for path in tmp_path.iterdir()) == figures
    assert all(1_000 < (tmp_path / figure).stat().st_size < FIGURE_BYTES for figure in figures)


@pytest.mark.exhaustive
def test_the_first_experiment_of_the_paper_passes_what_it_passed_there(tmp_path, capsys, monkeypatch):
    h1 = script("h1_calibration")
    assert {"gauss-seidel", "random-actions", "conjugate-gradient"} <= h1.solvers().keys()
    monkeypatch.setattr(h1, "QUICK_FIELDS", 100)
    h1.main(["--quick", "--output", str(tmp_path)])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][1:]
    assert [row.split("|")[1].strip() for row in rows] == list(h1.solvers())
    saved = read_group(tmp_path / "h1.zarr")
    assert saved.sizes == {"solver": len(rows), "generator": 3, "field": 100}
    joint = saved.joint_std.values
    approximate = saved.solver.values == "conjugate-gradient"
    # 3 x 100 x 441 whitened errors: a standard error of 0.2 %
    assert np.abs(joint.mean(axis=1) - 1.0)[~approximate].max() < 4 * 0.002
    assert joint.mean(axis=1)[approximate] < 1.0 - 4 * 0.002
    assert 1_000 < (tmp_path / "h1.png").stat().st_size < FIGURE_BYTES
    plain = cagp.calibrate(
        h1.PRIOR,
        (generator := np.random.default_rng([2025, 2])).uniform(size=(400, 2)),
        np.stack(np.meshgrid(*2 * [np.linspace(0.0, 1.0, 21)]), axis=-1).reshape(-1, 2),
        solver=cagp.GaussSeidel(5),
        simulations=100,
        generator=generator,
    )
    np.testing.assert_allclose(saved.z.sel(solver="gauss-seidel").values[2], plain.z, rtol=1e-10)


def test_figures_of_the_documentation_are_small_and_used():
    text = "".join(page.read_text() for page in (REPOSITORY / "docs").rglob("*.md"))
    for figure in (REPOSITORY / "docs" / "figures").iterdir():
        assert figure.stat().st_size < FIGURE_BYTES, figure.name
        assert f"figures/{figure.name}" in text


@pytest.fixture(scope="module")
def scattered():
    """A tenth of the points of the limits experiment."""
    return script("limits").Points.draw(np.random.default_rng(0), 400, 50, block=50)


def test_two_levels_and_hybrids_bring_long_lengthscales_down_for_the_same_price():
    """A tenth of the points of the experiment, one lengthscale of it."""
    module = script("long_lengthscales")
    points = script("limits").Points.draw(np.random.default_rng(0), 400, 50, block=50)
    found = {
        row.method: row for row in module.rows(points, 1.0, block=50, generator=np.random.default_rng(1))
    }
    assert found["block Gauss-Seidel, m = 5"].median > 1.5
    assert found["two-level sweeps, k = 24, m = 4"].median < module.GOAL
    assert found["3 sweeps, then 40 gradients"].median < module.GOAL


def test_a_hybrid_beats_its_parts_with_as_many_products():
    """A smaller problem than that of the experiment, one lengthscale of it."""
    module = script("hybrids")
    points = script("limits").Points.draw(np.random.default_rng(0), 300, 30, block=30)
    prior = cagp.Prior(cagp.Matern32(0.5), module.NOISE_VARIANCE)
    y = module.fields_of(points, prior, np.random.default_rng(1), fields=4)
    exact, spread = module.solved(points, prior, y, cagp.Cholesky())
    solvers = module.methods(16, 30)
    error = {
        name: np.sqrt(np.mean(((module.solved(points, prior, y, solvers[name])[0] - exact) / spread) ** 2))
        for name in ("conjugate gradients", "block Gauss-Seidel", "sweeps, then preconditioned")
    }
    assert error["sweeps, then preconditioned"] < 0.9 * error["block Gauss-Seidel"]
    assert error["sweeps, then preconditioned"] < 0.5 * error["conjugate gradients"]


def test_long_lengthscales_need_more_sweeps(scattered):
    limits = script("limits")
    short, long = (
        limits.stated_over_exact(scattered, lengthscale, sweeps=5, block=50) for lengthscale in (0.1, 1.0)
    )
    for ratio in (short, long):
        assert ratio.shape == (6, 50)
        assert ratio.min() > 1.0 - 1e-9
        assert np.diff(ratio, axis=0).max() < 1e-9  # equal sweeps: math 1.4
    assert np.median(short[5]) < 1.01
    assert np.median(long[5]) > 1.5


def test_an_unfinished_solve_depends_on_the_prior_mean_more_than_the_exact_one(scattered):
    limits = script("limits")
    order = np.argsort(scattered.observed[:, 2])  # from south to north
    points = limits.Points(scattered.observed[order], scattered.predicted)
    fields = limits.draw_fields(points, 0.5, np.random.default_rng(1), fields=40)
    share = {
        (name, offset): limits.coverage(points, 0.5, solver, fields, offset=offset)
        for name, solver in (("exact", cagp.Cholesky()), ("sweep", cagp.GaussSeidel(1)))
        for offset in (0.0, 10.0)
    }
    # 40 fields of at least ten independent places each: a standard error of at most 0.3 / 20 = 0.015
    assert abs(share["exact", 0.0] - 0.9) < 0.06
    assert abs(share["sweep", 0.0] - 0.9) < 0.06
    assert share["exact", 10.0] > 0.84
    assert share["sweep", 10.0] < 0.6


@pytest.mark.exhaustive
def test_numbers_of_the_observed_points_predict_better_than_those_of_the_field(capsys):
    script("fit_density").main(["--quick"])
    body = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines()][2:]
    (observed, field) = (row for row in body if len(row) > 1)
    assert (observed[2].strip(), field[2].strip()) == ("observed", "field")
    assert float(observed[7]) < float(field[7]) - 0.5
    assert float(observed[3]) > 2.0 * float(field[3])


@pytest.mark.exhaustive
def test_fit_density_without_blocks_is_the_fit_of_all_points():
    density = script("fit_density")
    task, dense = density.fitted_task(300, 0, "observed")
    together = density.fitted_at_once(task)
    assert together.result.method == "pathwise"
    for (name, value, error), (_, other, _) in zip(dense.estimates(), together.estimates(), strict=True):
        assert abs(value - other) < error, name


@pytest.mark.exhaustive
def test_a_sum_of_kernels_is_no_less_likely_than_one(capsys):
    script("sum_kernel").main(["--quick"])
    body = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines()][2:]
    one, two = ([cell.strip() for cell in row] for row in body if len(row) > 1)
    assert (one[2], two[2]) == ("matern32", "matern32 + matern32")
    short, long = map(float, two[3].split("+"))
    assert short <= long
    assert float(two[8]) >= float(one[8]) - 1e-4


@pytest.mark.exhaustive
def test_other_programs_read_the_cells_that_were_published(tmp_path, capsys):
    if not all(map(shutil.which, ("cdo", "gdalinfo", "gdalwarp"))):
        pytest.skip("cdo and gdal-bin are not installed")
    script("exported_maps").main(["--quick", "--output", str(tmp_path)])
    lines = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    differences = {line[0].strip(): [float(number) for number in line[2:]] for line in lines[1:]}
    assert list(differences) == ["Europe", "Africa", "Pacific", "Arctic", "Antarctic"]
    for xarray, cdo, gdal in differences.values():
        assert xarray == 0.0
        assert cdo < 1e-9
        assert gdal < 3.1e-5  # a float32 near 300 K, printed with one digit
    assert 1_000 < (tmp_path / "export.png").stat().st_size < FIGURE_BYTES


def test_a_map_that_is_shifted_is_an_error():
    place = {"latitude": [0.0, 2.0], "longitude": [-1.0, 1.0]}
    here = xr.DataArray(np.arange(4.0).reshape(2, 2), coords=place, dims=tuple(place))
    difference = script("exported_maps").difference
    assert difference(here.assign_coords(longitude=[359.0, 1.0])[::-1], here) == 0.0
    assert difference(here + 0.5, here) == 0.5
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        difference(here.assign_coords(longitude=[0.0, 2.0]), here)


def test_conjugate_gradients_overtake_where_they_stay_ahead():
    overtaken = script("crossings").overtaken
    leader = np.zeros((40, 3))
    follower = np.ones((40, 3))
    follower[3:8, 0] = -1.0  # for five iterations only
    follower[20:, 0] = follower[30:, 1] = -1.0
    assert overtaken(leader, follower).tolist() == [21, 31, 41]


def test_curves_of_crossings_are_those_of_condition():
    crossings = script("crossings")
    X = np.random.default_rng(0).uniform(size=(40, 2))
    setting = crossings.Setting.make(cagp.Matern32(0.3), X, side=4, fields=3)
    curves, fields = setting.solved(12), setting.drawn.fields
    for name, solver in (
        ("Gauss-Seidel", cagp.GaussSeidel(12)),
        ("conjugate gradients", cagp.ConjugateGradient(12)),
        ("exact", cagp.Cholesky()),
    ):
        posterior = cagp.condition(
            fields.prior, X, fields.y[:, 1], fields.X_test, solver=solver, covariance="full"
        )
        error = posterior.mean - fields.latent[:, 1]
        found, w = curves[name], setting.drawn.direction
        assert found.rmse.shape == found.nll.shape == found.z.shape == (12, 3)
        assert found.rmse[-1, 1] == pytest.approx(np.sqrt(np.mean(error**2)))
        assert found.z[-1, 1] == pytest.approx(w @ error / np.sqrt(w @ posterior.covariance @ w))
        spread = posterior.variance + 0.01
        density = -0.5 * np.log(2.0 * np.pi * spread) - 0.5 * (error**2 + 0.01) / spread
        assert found.nll[-1, 1] == pytest.approx(-density.mean())


def test_robustness_is_that_of_condition_field_by_field(scattered):
    limits, robustness = script("limits"), script("robustness")
    points = limits.Points(scattered.observed[:80], scattered.predicted[:10])
    drawn = robustness.Fields(points, *limits.draw_fields(points, 0.2, np.random.default_rng(3), fields=3))
    cells = robustness.conjugate_gradients(drawn, iterations=(4,))[4]
    assert len(cells) == len(robustness.CASES)
    for cell, offset, lengthscale in zip(
        cells, (0.0, 3.0, 10.0, 0.0, 0.0), (0.2, 0.2, 0.2, 0.1, 0.4), strict=True
    ):
        error, std = [], []
        for y, latent in zip(drawn.observed.T + offset, drawn.latent.T + offset, strict=True):
            posterior = cagp.condition(
                limits.prior_of(lengthscale),
                points.observed,
                y,
                points.predicted,
                solver=cagp.ConjugateGradient(4),
            )
            error.append(posterior.mean - latent)
            std.append(np.sqrt(posterior.variance))
        z = np.divide(error, std)
        assert cell.scale == pytest.approx(np.sqrt(np.mean(z**2)))
        assert cell.coverage == pytest.approx(np.mean(np.abs(z) <= 1.6448536))
        assert cell.rmse == pytest.approx(np.sqrt(np.mean(np.square(error))))
    # the same numbers from a solve for each field, as hybrids have them: theirs is a list of one part
    alone = robustness.one_by_one(drawn.first(3), cagp.Hybrid([cagp.ConjugateGradient(4)]))
    for cell, other in zip(cells, alone, strict=True):
        assert cell.scale == pytest.approx(other.scale)
        assert cell.rmse == pytest.approx(other.rmse)
    [right, *_] = robustness.solved(drawn, cagp.GaussSeidel(2), np.arange(80)[::-1], iterations=(1, 2))[2]
    posterior = cagp.condition(
        limits.prior_of(0.2),
        points.observed[::-1],
        drawn.observed[::-1],
        points.predicted,
        solver=cagp.GaussSeidel(2),
    )
    z = (posterior.mean - drawn.latent) / np.sqrt(posterior.variance)[:, None]
    assert right.scale == pytest.approx(np.sqrt(np.mean(z**2)))


def test_every_registered_solver_is_compared():
    from cagp_dist.solvers.registry import SOLVERS

    compared = script("solvers_compared")
    names = {name for name, kind in SOLVERS.items() if not kind.needs_grid}
    assert names <= set(compared.solvers(points=40, block=8))


@pytest.mark.exhaustive
def test_solvers_are_compared_with_the_exact_posterior():
    rows = script("solvers_compared").compare(0.2, 40, 5, block=8)
    exact, sweeps = rows["cholesky"], rows["block-gauss-seidel"]
    assert exact.distance < 1e-9
    assert exact.bars == pytest.approx(1.0)
    assert exact.iterations == "1"
    assert sweeps.bars > 1.0
    assert rows["mixed-actions"].iterations == "60 + 20"
    for name, row in rows.items():
        assert row.peak_bytes > 0, name
        assert row.bars > 1.0 - 1e-9, name


@pytest.fixture(scope="module")
def regression_set(tmp_path_factory):
    """A set of 120 cases, one column constant, written as those of the collection are."""
    folder, generator = tmp_path_factory.mktemp("uci"), np.random.default_rng(0)
    X = np.column_stack([generator.uniform(-3.0, 3.0, (120, 2)), np.full(120, 7.0)])
    y = 50.0 + 4.0 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * generator.standard_normal(120)
    held_out = (np.arange(120)[:, None] + np.arange(3)) % 4 == 0
    for name, rows in (("concrete", np.column_stack([X, y])), ("concrete.test_mask", 1 * held_out)):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, rows, delimiter=",")
    return folder


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
    assert np.abs(chosen["two runs"][1] - chosen["conjugate gradients"][1]).max() > 1e-6


@pytest.mark.exhaustive
def test_sets_print_tables_and_draw_a_figure(regression_set, tmp_path, capsys):
    uci = script("uci")
    uci.main(["--quick", "--data", str(regression_set), "--output", str(tmp_path)])
    assert "concrete: 90 training, 30 test cases, 2 columns, splits: 2" in capsys.readouterr().out
    assert xr.open_zarr(tmp_path / "uci-iterations.zarr", consolidated=False).sizes["split"] == 2


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
    """Quantiles of normal laws have their scores; shares below them are counted level by level."""
    sharp, generator = script("sharp"), np.random.default_rng(0)
    law = Gaussian(generator.standard_normal(200), np.exp(generator.standard_normal(200)))
    y = law.sample(generator, 1)[0]
    found = dict(zip(sharp.SCORES, sharp.scored(law.quantile(sharp.LEVELS), law.mean, y), strict=True))
    lower, upper = law.interval(0.95)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    assert found["std"] == pytest.approx(law.std.mean(), rel=1e-6)
    assert found["nll"] == pytest.approx(-law.log_density(y).mean(), rel=1e-9)
    assert found["crps"] == pytest.approx(law.crps(y).mean(), rel=1e-5)
    assert found["width"] == pytest.approx(np.mean(upper - lower), rel=1e-9)
    assert found["interval"] == pytest.approx(np.mean(upper - lower + 40.0 * outside), rel=1e-9)
    shares = [np.mean(law.cdf(y) <= level) for level in sharp.LEVELS]
    assert found["ece"] == pytest.approx(np.mean((shares - sharp.LEVELS) ** 2), abs=1e-12)


@pytest.mark.exhaustive
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
    saved = xr.open_zarr(tmp_path / "out" / "sharp.zarr", consolidated=False)
    assert saved.sizes["repetition"] == 1
    assert np.isnan(saved["nll"].sel(law="sharp, three-way")).all()  # 22 of 44 cases are fewer than 40
    assert np.isfinite(saved["nll"].sel(law=["sharp", "Kuleshov", "Vovk", "Marx", "plain"])).all()
    with pytest.raises(SystemExit, match=r"does not have wine\.csv\.gz"):
        sharp.main(["--data", str(tmp_path), "--sets", "wine"])


def test_beliefs_about_a_sine_are_those_of_condition_and_their_variance_has_two_parts():
    itergp = script("itergp")
    problem = itergp.Sine.draw(2, np.random.default_rng(1), points=60, targets=10)
    prior = cagp.Prior(cagp.Matern32(0.8, 1.3), 0.01)
    solves = itergp.Solves(prior, problem, seed=3, most=12)
    found = solves.beliefs(12)
    assert tuple(found) == itergp.METHODS

    def condition(solver, y=problem.y):
        return cagp.condition(prior, problem.X, y, problem.X_test, solver=solver)

    for name, solver, products in (
        (itergp.RUN, cagp.ConjugateGradient(12), 12),
        (itergp.PSEUDO, cagp.PseudoInputs(12, placement="random", seed=3), 12),
        (itergp.SUBSET, cagp.UnitVectors(12, order="random", seed=3), 0),
        ("exact", cagp.Cholesky(), 0),
    ):
        posterior, belief = condition(solver), found[name]
        np.testing.assert_allclose(belief.mean, posterior.mean, atol=1e-8)
        np.testing.assert_allclose(belief.variance, posterior.variance, atol=1e-8)
        np.testing.assert_allclose(belief.computational, posterior.computational_variance, atol=1e-8)
        assert belief.products == products, name
    for i, own in enumerate(prior.kernel(problem.X_test, problem.X)):
        separate = condition(cagp.ConjugateGradient(12), y=own).variance[i]
        assert found[itergp.EACH].variance[i] == pytest.approx(separate, abs=1e-9)
    assert (found[itergp.TWO_RUNS].products, found[itergp.EACH].products) == (24, 12 * 11)
    for name in (itergp.TWO_RUNS, itergp.EACH):
        np.testing.assert_array_equal(found[name].mean, found[itergp.RUN].mean)
        assert found[name].computational is None
    for name, belief in found.items():
        rmse, nll, _, least, gap, share = itergp.scored(problem, belief, solves.exact.variance, 0.01)
        assert least > 1.0 - 1e-9, name
        assert np.isfinite([rmse, nll]).all()
        if belief.computational is not None:
            assert gap < 1e-9, name
            assert 0.0 <= share < 1.0


def test_blocks_of_all_points_are_exact_whatever_the_order(scattered):
    limits, blocks = script("limits"), script("block_sizes")
    points = limits.Points(scattered.observed[:60], scattered.predicted[:8])
    prior = limits.prior_of(0.4)
    y, latent = limits.draw_fields(points, 0.4, np.random.default_rng(5), fields=30)
    exact = cagp.condition(prior, points.observed, y[:, 0], points.predicted, solver=cagp.Cholesky()).variance
    bars = {}
    for name, order in blocks.orders(points.observed, np.random.default_rng(6)).items():
        for size in (1, 60):
            found = blocks.measured(
                prior, points.observed[order], y[order], points, latent, size=size, exact=exact
            )
            bars[name, size] = found["bars"].values
            # whitened errors of 240 independent numbers: a standard error of 1 / sqrt(480) = 0.046
            assert np.abs(found["u"].values - 1.0).max() < 0.2
    for name in ("k-d", "latitude", "random"):
        np.testing.assert_allclose(bars[name, 60], 1.0, rtol=1e-9)
        assert bars[name, 1][0] > bars[name, 1][1] > 1.0


def test_time_to_accuracy_scores_what_it_times():
    module = script("time_to_accuracy")
    rows = {(row.solver, row.number): row for row in module.compare(40, fields=2)}
    assert len(rows) == 19
    exact = rows["exact", 40]
    assert all(row.seconds > 0.0 for row in rows.values())
    assert rows["conjugate gradients", 40].rmse == pytest.approx(exact.rmse, rel=1e-6)
    assert rows["Gauss-Seidel", 20].rmse == pytest.approx(exact.rmse, rel=0.05)
    assert rows["subset of the data", 4].nll > rows["subset of the data", 32].nll > exact.nll - 0.05


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("crossings", ["crossings.png", "crossings.zarr"]),
        ("robustness", ["robustness.zarr"]),
        ("block_sizes", ["block-sizes.png", "block-sizes.zarr"]),
        ("solvers_compared", ["solvers-compared.zarr"]),
        ("time_to_accuracy", ["time-to-accuracy.png", "time-to-accuracy.zarr"]),
        ("itergp", ["itergp.png", "itergp.zarr"]),
    ],
)
def test_scripts_save_what_they_print(name, written, tmp_path, capsys):
    script(name).main(["--quick", "--output", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    for path in tmp_path.glob("*.zarr"):
        assert all(np.isfinite(values).any() for values in xr.open_zarr(path, consolidated=False).values())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) >= 9


@pytest.fixture(scope="module")
def global_fields():
    return script("real_fields").global_fields(np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["random", "blocks"])
def test_parts_of_a_real_field_are_disjoint_and_blocks_are_apart(global_fields, kind):
    fields = script("real_fields")
    parts = fields.Parts.drawn(global_fields, (3000, 500, 500), np.random.default_rng(1), kind)
    everything = np.concatenate([parts.observed, parts.calibration, parts.test])
    assert np.unique(everything).size == everything.size == 4000
    X = cagp.unit_sphere(*global_fields.places)
    apart = cKDTree(X[parts.observed]).query(X[parts.test])[0]
    # points of the 0.75-degree grid and their neighbours; a third of a block of 10 degrees is further away
    assert np.median(apart) < 0.03 if kind == "random" else np.median(apart) > 0.03
    # drawn by area: the mean square of the sine is 1/3, with a standard error of sqrt(4 / 45 / 3000) = 0.005
    sine = np.sin(np.deg2rad(global_fields.places[0][parts.observed]))
    assert abs(np.mean(sine**2) - 1.0 / 3.0) < (0.03 if kind == "random" else 0.1)


def test_numbers_of_a_real_field_know_of_what_is_observed_alone(global_fields):
    """Values that are not observed are changed: prior, mean and laws of the other fields stay to the bit."""
    real = script("real_field")
    counts = (150, 100, 20)
    problem = real.Problem.drawn(global_fields, counts, 0, "random")
    values = global_fields.values.copy()
    values[:, problem.parts.test] += 100.0
    changed = real.Problem.drawn(dataclasses.replace(global_fields, values=values), counts, 0, "random")
    np.testing.assert_array_equal(changed.parts.observed, problem.parts.observed)
    np.testing.assert_array_equal(changed.mean, problem.mean)
    for before, after in zip(problem.solved(), changed.solved(), strict=True):
        np.testing.assert_array_equal(after.test.mean, before.test.mean)
        np.testing.assert_array_equal(after.values, before.values)
        np.testing.assert_array_equal(after.law.std, before.law.std)
    np.testing.assert_array_equal(changed.roughness(), problem.roughness())


@pytest.mark.exhaustive
def test_a_local_scale_is_better_on_the_real_field_and_nothing_on_fields_of_the_prior(tmp_path, capsys):
    """With 1,100 points observed; at full size the log score gains 0.85 nats."""
    script("real_field").main(["global", "--quick", "--output", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "real-field-global-blocks.zarr",
        "real-field-global-random.zarr",
        "real-field.png",
    ]
    found = read_group(tmp_path / "real-field-global-random.zarr").isel(seed=0)
    nll = {
        tuple(str(found[name].values[row]) for name in ("field", "solver", "method")): float(found.nll[row])
        for row in range(found.sizes["row"])
    }
    for solver in ("exact, leave-one-out", "exact", "block Gauss-Seidel, m = 2", "block Gauss-Seidel, m = 5"):
        assert nll["built-in", solver, "local-scale"] < nll["built-in", solver, "none"] - 0.25
        assert nll["of known scale", solver, "local-scale"] < nll["of known scale", solver, "none"] - 0.1
        in_model = nll["drawn from the prior", solver, "local-scale"]
        assert in_model < nll["drawn from the prior", solver, "none"] + 0.02
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]) > 100
