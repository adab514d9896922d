"""Real fields: what is observed and held out, and what corrects their error bars."""

import dataclasses

import numpy as np
import pytest
from scipy.spatial import cKDTree

import cagp_dist as cagp
from cagp_dist.store.arrays import read_group

from .scripts import printed_rows, script


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
    assert len(printed_rows(capsys.readouterr().out)) > 100
