"""Maps from all hours against maps of each hour, on real fields."""

from types import SimpleNamespace

import numpy as np
import pytest

import cagp_dist as cagp

from .scripts import REPOSITORY, printed_rows, script

FIELDS = REPOSITORY.parent / "shared" / "data" / "fields" / "era5_2t_2019-03_hourly_0p25_uk.grib"


@pytest.mark.exhaustive
@pytest.mark.skipif(not FIELDS.exists(), reason="the fields of the British Isles are not there")
def test_hours_inform_each_other_on_real_fields(capsys):
    """Dropped hours gain a quarter of the CRPS, held-out stations lose nothing; 20 points, 12 hours."""
    script("hours").main(["--quick", "--data", str(FIELDS)])
    _, *rows = printed_rows(capsys.readouterr().out)
    crps = {(row[0], row[1]): float(row[3]) for row in rows}
    for how in ("neighbours", "exactly"):
        for what in ("a fifth of all hours", "a day at half of the stations"):
            assert crps[what, f"all hours, {how}"] < 0.75 * crps[what, "each hour"]
        held_out = "a fifth of the stations"
        assert crps[held_out, f"all hours, {how}"] < 1.02 * crps[held_out, "each hour"]


@pytest.mark.exhaustive
def test_stations_with_nothing_set_are_scored(capsys):
    """Of a small month every way has a row, and none is far from the true numbers."""
    script("hourly_stations").main(["--quick", "--data", "none"])
    _, *rows = printed_rows(capsys.readouterr().out)
    assert [row[2] for row in rows] == ["nothing", "true numbers"]
    nothing, true = (float(row[3]) for row in rows)
    assert nothing < 1.5 * true


@pytest.mark.exhaustive
def test_rules_in_time_are_compared(capsys):
    """Each rule takes one of the fits; errors of stations left out are those of folds by the package."""
    module = script("time_rules")
    module.main(["--quick", "--data", "none"])
    _, *rows = printed_rows(capsys.readouterr().out)
    assert [row[1] for row in rows] == ["likelihood", *(f"CRPS, {name}" for name in module.ERRORS)]
    assert all(0.0 <= float(row[2].rstrip("%")) < 50.0 for row in rows)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(size=(20, 2)), np.zeros(20), rng.uniform(0.0, 9.0, 20)])
    prior = cagp.Prior(cagp.SpaceTime(cagp.Matern32(0.3), lengthscale_time=4.0), 0.1, module.MEAN)
    y, places = rng.normal(size=20), np.repeat(np.arange(5), 4)
    left = module.by_other_stations(SimpleNamespace(prior=prior), X, y, places)
    others = places != 2
    alone = cagp.condition(prior, X[others], y[others], X[~others], solver=cagp.Cholesky())
    np.testing.assert_allclose(left.mean[~others], y[~others] - alone.mean)
    np.testing.assert_allclose(left.std[~others] ** 2, alone.variance + 0.1)
