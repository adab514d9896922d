"""The built-in field: how smooth it is, what it is fitted with, and how well fits predict."""

import numpy as np
import pytest

import cagp_dist as cagp

from .scripts import printed_rows, script

pytestmark = pytest.mark.exhaustive


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
    sizes = {"held_out": 10, "random": 90, "stride": 2}
    for name, train, test in sample_grid.designs(grid, np.random.default_rng(4), **sizes):
        names.append(name)
        assert not (train & test).any()
        assert test.sum() == 10
        stride = 2 if name.startswith("strided") else 1
        *rows, exact = sample_grid.solve(field, prior, train, test, stride=stride)
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


def test_numbers_of_the_observed_points_predict_better_than_those_of_the_field(capsys):
    script("fit_density").main(["--quick"])
    observed, field = printed_rows(capsys.readouterr().out)[1:]
    assert (observed[2], field[2]) == ("observed", "field")
    assert float(observed[7]) < float(field[7]) - 0.5
    assert float(observed[3]) > 2.0 * float(field[3])


def test_a_sum_of_kernels_is_no_less_likely_than_one(capsys):
    script("sum_kernel").main(["--quick"])
    one, two = printed_rows(capsys.readouterr().out)[1:]
    assert (one[2], two[2]) == ("matern32", "matern32 + matern32")
    short, long = map(float, two[3].split("+"))
    assert short <= long
    assert float(two[8]) >= float(one[8]) - 1e-4
