"""Errors that observations share, against the formula written out, by simulation, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import unit_sphere
from cagp_dist.predictive import Gaussian

SHIPS = 15
OF_SHIPS = cagp.Prior(cagp.Matern32(0.05, 4.0) + cagp.SameLabel(2.25, axis="ship"), 0.25, 10.0)


def _simulated(n: int, seed: int, bias_std: float = 1.5) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Simulate rows of ships, places with the true field, and the errors of the ships."""
    generator = np.random.default_rng(seed)
    places = generator.uniform([45.0, 0.0], [55.0, 15.0], (n + 60, 2))
    P = unit_sphere(*places.T)
    root = np.linalg.cholesky(cagp.Matern32(0.05, 4.0)(P, P) + 1e-9 * np.eye(len(P)))
    field = 10.0 + root @ generator.standard_normal(len(P))
    ship, biases = np.arange(n) % SHIPS, bias_std * generator.standard_normal(SHIPS)
    table = pd.DataFrame({"lat": places[:, 0], "lon": places[:, 1], "sst": field})
    seen = table[:n].assign(ship=[f"S{number}" for number in ship])
    seen["sst"] += biases[ship] + 0.5 * generator.standard_normal(n)
    return seen, table[n:].reset_index(drop=True), biases


def test_the_map_and_the_errors_are_those_of_the_dense_formula_t46() -> None:
    table, places, _ = _simulated(90, 1)
    model = cagp.Kriging(value="sst", bias_by="ship", kernel="matern32", progress=False).fit(table)
    found = model.predict(places[["lat", "lon"]])

    field, shared = model.prior_.kernel.parts
    X, new = (unit_sphere(each["lat"], each["lon"]) for each in (table, places))
    F = (np.array(table["ship"])[:, None] == found["ship"].values).astype(float)
    space = cagp.Matern32(field.lengthscale, field.variance)
    noise = float(model.prior_.noise_variance)
    G = space(X, X) + shared.variance * F @ F.T + noise * np.eye(len(X))
    y, one = np.array(table["sst"]), np.ones((len(X), 1))
    K = np.vstack([space(new, X), shared.variance * F.T])
    H_new = np.concatenate([np.ones(len(new)), np.zeros(F.shape[1])])[:, None]
    prior = np.concatenate([np.full(len(new), field.variance), np.full(F.shape[1], shared.variance)])
    W = np.linalg.solve(G, K.T).T
    A = one.T @ np.linalg.solve(G, one)
    c = np.linalg.solve(A, one.T @ np.linalg.solve(G, y))
    R = H_new - W @ one
    mean = H_new @ c + W @ (y - c[0])
    std = np.sqrt(prior - np.sum(W * K, axis=1) + (R @ np.linalg.inv(A) @ R.T).diagonal())

    # the same by coefficients with a prior, math 25, the constant being one with hardly any
    P = np.linalg.inv(space(X, X) + noise * np.eye(len(X)))
    both = np.column_stack([one, F])
    prior_of = np.diag([1e-12, *np.full(F.shape[1], 1.0 / shared.variance)])
    coefficients = np.linalg.solve(both.T @ P @ both + prior_of, both.T @ P @ y)
    np.testing.assert_allclose(coefficients[1:], mean[len(new) :], atol=1e-6)

    biases = found.cagp.biases()
    np.testing.assert_allclose(found["mean"], mean[: len(new)], rtol=0, atol=1e-8)
    np.testing.assert_allclose(found["std"], std[: len(new)], rtol=0, atol=1e-8)
    np.testing.assert_allclose(biases["mean"], mean[len(new) :], rtol=0, atol=1e-8)
    np.testing.assert_allclose(biases["std"], std[len(new) :], rtol=0, atol=1e-7)
    assert found.attrs["bias_std"] == pytest.approx(np.sqrt(shared.variance))


def test_error_bars_of_biases_hold() -> None:
    """Over 40 fields with the numbers that made them.

    The ships of a field share its error, so that the part inside has a standard deviation of .18 from field
    to field (60 others), and .028 over 40.
    """
    inside = []
    for seed in range(40):
        table, places, biases = _simulated(60, 20 + seed)
        found = cagp.krige(
            table, to=places[:1][["lat", "lon"]], value="sst", bias_by="ship", prior=OF_SHIPS, progress=False
        )
        own = found.cagp.biases()
        true = biases[[int(name[1:]) for name in own["ship"].values]]
        inside.append(np.abs(own["mean"] - true) < 1.645 * own["std"])
    assert abs(np.mean(inside) - 0.9) < 3 * 0.028


def test_maps_are_better_with_the_ships() -> None:
    """Over 60 other fields the score is .73 of that without the ships, with a standard deviation of .13."""
    with_ships, without = [], []
    for seed in range(3):
        table, places, _ = _simulated(90, 80 + seed)
        given: dict[str, Any] = {"value": "sst", "kernel": "matern32", "progress": False}
        for scores, by in ((with_ships, "ship"), (without, None)):
            found = cagp.krige(table, to=places[["lat", "lon"]], bias_by=by, **given)
            scores.append(Gaussian(found["mean"].values, found["std"].values).crps(places["sst"]).mean())
    assert np.mean(with_ships) < (0.73 + 3 * 0.13 / np.sqrt(3)) * np.mean(without)


def test_many_rows_by_neighbours_have_error_bars_near_those_of_the_posterior() -> None:
    table, places, _ = _simulated(200, 3)
    given: dict[str, Any] = {
        "value": "sst",
        "bias_by": "ship",
        "prior": OF_SHIPS,
        "to": places[["lat", "lon"]],
        "progress": False,
    }
    exact = cagp.krige(table, **given)
    near = cagp.krige(table, solver=cagp.Neighbours(32), **given)
    np.testing.assert_allclose(near["std"], exact["std"], rtol=0.02)
    np.testing.assert_allclose(near["bias_ship_std"], exact["bias_ship_std"], rtol=0.02)
    errors = (near["mean"] - places["sst"]) / near["std"]
    assert abs(float((errors**2).mean()) - 1.0) < 4 * np.sqrt(2.0 / 20)  # as 20 independent ones


def test_a_row_without_a_name_shares_no_error() -> None:
    table, places, _ = _simulated(90, 4)
    table.loc[[3, 40], "ship"] = None
    field = cagp.Matern32(0.05, 4.0)
    prior = cagp.Prior(field + cagp.SameLabel(2.25, axis="ship"), 0.25, 10.0)
    found = cagp.krige(
        table, to=places[["lat", "lon"]], value="sst", bias_by="ship", prior=prior, progress=False
    )
    X, new = (unit_sphere(each["lat"], each["lon"]) for each in (table, places))
    F = (np.array(table["ship"])[:, None] == found["ship"].values).astype(float)
    G = field(X, X) + 2.25 * F @ F.T + 0.25 * np.eye(90)
    assert not F[[3, 40]].any()
    residual = np.linalg.solve(G, table["sst"] - 10.0)
    np.testing.assert_allclose(found["mean"], 10.0 + field(new, X) @ residual, atol=1e-8)
    np.testing.assert_allclose(found["bias_ship"], 2.25 * F.T @ residual, atol=1e-8)


@pytest.mark.parametrize(
    ("column", "given", "key"),
    [
        ("A", {}, "one-group"),
        (None, {}, "groups-of-one"),
        ("", {}, "no-groups"),
        ("ship", {"bias_by": "vessel"}, "no-column"),
        ("ship", {"hyperparameters": "integrate"}, "labels-with-others"),
        ("ship", {"prior": cagp.Prior(cagp.Matern32(0.05, 4.0), 0.25, 10.0)}, "kernel-of-axes"),
        ("ship", {"solver": "rings"}, "no-rings"),
        ("ship", {"at": "observed"}, "labels-with-others"),
        ("ship", {"recalibration": "local-scale"}, "labels-with-others"),
        ("ship", {"recalibration": "kuleshov", "prior": OF_SHIPS}, "labels-with-others"),
        ("ship", {"bias_by": ["ship", "ship"]}, "bias-by"),
        ("ship", {"nugget_correlation": True}, "nugget-correlation"),
    ],
    ids=[
        "one group",
        "a group for each",
        "no group",
        "no column",
        "integrated",
        "prior without groups",
        "rings",
        "at",
        "scale",
        "scale of a prior",
        "twice",
        "one",
    ],
)
def test_what_tells_no_bias_is_refused(column: str | None, given: dict[str, Any], key: str) -> None:
    table, places, _ = _simulated(45, 5)
    if column != "ship":
        names = [f"row {number}" if column is None else column for number in range(len(table))]
        table = table.assign(ship=names)
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(
            table, to=places[["lat", "lon"]], **{"value": "sst", "bias_by": "ship", "progress": False} | given
        )
    assert refused.value.key == key


def test_a_result_without_biases_says_so() -> None:
    table, places, _ = _simulated(45, 6)
    plain = cagp.krige(table, to=places[["lat", "lon"]], value="sst", kernel="matern32", progress=False)
    with pytest.raises(ArgumentError) as refused:
        plain.cagp.biases()
    assert refused.value.key == "no-biases"


def test_what_else_a_model_with_groups_gives() -> None:
    table, places, _ = _simulated(60, 7)
    model = cagp.Kriging(value="sst", bias_by="ship", noise_std=0.3, kernel="matern32", progress=False).fit(
        table
    )
    to = places[["lat", "lon"]]
    found = model.predict(to)
    mean, std = model.predict(to.to_numpy(), return_std=True)
    np.testing.assert_allclose(mean, found["mean"], rtol=1e-12)
    np.testing.assert_allclose(std, found["std"], rtol=1e-9)
    assert model.sample(to, size=3)["sst"].shape == (3, len(to))
    field, _ = model.prior_.kernel.parts
    assert found.attrs["prior_std"] == pytest.approx(np.sqrt(field.variance))
    assert "bias std" in model.summary()


@pytest.mark.filterwarnings("ignore:the fit ended", "ignore:.*the error bars are those of the prior")
def test_groups_in_mere_noise_are_no_reason_to_fail() -> None:
    """A fit without groups may end at a lengthscale that one with groups does not look at."""
    for seed in (4, 5):
        table, _, _ = _simulated(80, seed)
        table["sst"] = 10.0 + np.random.default_rng(seed).standard_normal(80)
        found = cagp.krige(table, to=5.0, value="sst", bias_by="ship", kernel="matern32", progress=False)
        assert np.isfinite(found["std"]).all()
