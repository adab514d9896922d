"""Several variables in one call, against the formula written out, and what is refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, CagpError
from cagp_dist.geometry import unit_sphere
from cagp_dist.kriging import accessor

B = np.array([[4.0, 4.8], [4.8, 9.0]])
NOISE = np.array([0.2, 0.5])
GIVEN = cagp.Prior(cagp.Matern32(0.05) * cagp.Coregion(B), 0.5, 0.0)


def _simulated(n: int, seed: int, *, targets: int = 40) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate stations of which a third lacks the first variable, and places with the true values."""
    generator = np.random.default_rng(seed)
    places = generator.uniform([45.0, 0.0], [55.0, 15.0], (n + targets, 2))
    root = np.linalg.cholesky(
        np.kron(B, cagp.Matern32(0.05)(*(unit_sphere(*places.T),) * 2)) + 1e-9 * np.eye(2 * len(places))
    )
    fields = (root @ generator.standard_normal(len(root))).reshape(2, -1) + np.array([[10.0], [-3.0]])
    table = pd.DataFrame({"lat": places[:, 0], "lon": places[:, 1], "tmin": fields[0], "tmax": fields[1]})
    seen, wanted = table[:n].copy(), table[n:].reset_index(drop=True)
    seen[["tmin", "tmax"]] += generator.standard_normal((n, 2)) * np.sqrt(NOISE)
    seen.loc[: n // 3, "tmin"] = np.nan
    return seen, wanted


def _stacked(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Points with labels, and values, one variable after the other."""
    rows = [table[table[name].notna()] for name in ("tmin", "tmax")]
    labels = np.repeat([0.0, 1.0], [len(each) for each in rows])
    X = np.vstack([unit_sphere(each["lat"], each["lon"]) for each in rows])
    values = np.concatenate([each[name] for each, name in zip(rows, ("tmin", "tmax"), strict=True)])
    return np.column_stack([X, labels]), values


def _universal(G, K, prior, H, H_new, y):
    """Give mean and standard deviation by the dense formula of universal kriging."""
    W = np.linalg.solve(G, K.T).T
    A = H.T @ np.linalg.solve(G, H)
    c = np.linalg.solve(A, H.T @ np.linalg.solve(G, y))
    R = H_new - W @ H
    variance = prior - np.sum(W * K, axis=1) + np.sum(R * np.linalg.solve(A, R.T).T, axis=1)
    return H_new @ c + W @ (y - H @ c), np.sqrt(variance)


@pytest.mark.parametrize("goes_together", [False, True], ids=["own nuggets", "nuggets together"])
def test_the_map_is_that_of_the_dense_formula(goes_together: bool) -> None:
    table, places = _simulated(40, 1)
    model = cagp.Kriging(
        value=["tmin", "tmax"],
        nugget_correlation=goes_together,
        kernel="matern32",
        hyperparameters="plug-in",
        progress=False,
    ).fit(table)
    found = model.predict(places[["lat", "lon"]])

    X, y = _stacked(table)
    kernel, noise = model.prior_.kernel, np.asarray(model._learned.noise_variance)
    q = len(places)
    new = np.column_stack(
        [np.tile(unit_sphere(places["lat"], places["lon"]), (2, 1)), np.repeat([0.0, 1.0], q)]
    )
    if goes_together:  # columns are place and variable
        _, at = np.unique(X[:, :3], axis=0, return_inverse=True)
        X = np.column_stack([X[:, :3], at.ravel(), X[:, 3]])
        new = np.column_stack([new[:, :3], np.full(2 * q, -1.0), new[:, 3]])
    H, H_new = (
        np.column_stack([each[:, -1] == label for label in (0, 1)]).astype(float) for each in (X, new)
    )
    mean, std = _universal(kernel(X, X) + np.diag(noise), kernel(new, X), kernel.diagonal(new), H, H_new, y)

    for label, name in enumerate(("tmin", "tmax")):
        own = slice(label * q, (label + 1) * q)
        np.testing.assert_allclose(found[f"{name}_mean"], mean[own], rtol=0, atol=1e-8)
        np.testing.assert_allclose(found[f"{name}_std"], std[own], rtol=0, atol=1e-7)
    assert found.attrs["status"] == "exact"
    assert abs(found.attrs["correlation"] - 0.8) < 4.0 * found.attrs["correlation_tmin_tmax_standard_error"]


def test_few_values_have_error_bars_that_count_the_numbers() -> None:
    """The mean is that of the likeliest numbers; its mean square error is averaged over others by hand."""
    table, places = _simulated(30, 2)
    model = cagp.Kriging(value=["tmin", "tmax"], kernel="matern32", progress=False).fit(table)
    found, learned = model.predict(places[["lat", "lon"]]), model._learned
    X, y = _stacked(table)
    q = len(places)
    new = np.column_stack(
        [np.tile(unit_sphere(places["lat"], places["lon"]), (2, 1)), np.repeat([0.0, 1.0], q)]
    )
    H, H_new = (
        np.column_stack([each[:, -1] == label for label in (0, 1)]).astype(float) for each in (X, new)
    )

    def predicted(model):
        kernel, noise = model.kernel, np.asarray(model.noise_variance)
        G = kernel(X, X) + np.diag(noise)
        return _universal(G, kernel(new, X), kernel.diagonal(new), H, H_new, y)

    mean, plugged = predicted(learned)
    square = np.zeros(2 * q)
    for weight, other in learned.likely:
        its, std = predicted(other)
        square += weight * (std**2 + (its - mean) ** 2)
    assert sum(weight for weight, _ in learned.likely) == pytest.approx(1.0)
    for label, name in enumerate(("tmin", "tmax")):
        own = slice(label * q, (label + 1) * q)
        np.testing.assert_allclose(found[f"{name}_mean"], mean[own], rtol=0, atol=1e-8)
        np.testing.assert_allclose(found[f"{name}_std"], np.sqrt(square[own]), rtol=0, atol=1e-7)
    assert np.mean(np.sqrt(square)) > np.mean(plugged)
    assert "other probable sets of parameters" in found.attrs["hyperparameters"]
    # numbers of draws go with those of the fit: logarithms of lengthscales within three standard errors
    lengths = [np.log(other.lengthscales[0]) for _, other in learned.likely]
    assert abs(np.mean(lengths) - np.log(learned.lengthscales[0])) < 3.0 * np.std(lengths)


def test_error_bars_hold_and_are_shorter_than_alone() -> None:
    """Over 10 fields of 40 places with the numbers that made them.

    90 % bars of independent errors have a standard error of .015; neighbours go together, so that six times
    this is allowed.
    """
    alone = cagp.Prior(cagp.Matern32(0.05, B[0, 0]), 0.5, 0.0)
    inside, shorter = [], []
    for seed in range(10):
        table, places = _simulated(70, 10 + seed)
        table = table.assign(tmin=table["tmin"] - 10.0, tmax=table["tmax"] + 3.0)
        table.loc[:45, "tmin"] = np.nan
        given = {"to": places[["lat", "lon"]], "progress": False}
        both = cagp.krige(table, value=["tmin", "tmax"], prior=GIVEN, **given)
        one = cagp.krige(table, value="tmin", prior=alone, **given)
        inside.append(np.abs(both["tmin_mean"] + 10.0 - places["tmin"]) < 1.645 * both["tmin_std"])
        shorter.append(float((both["tmin_std"] / one["std"]).max()))
    assert abs(np.mean(inside) - 0.9) < 6 * 0.015
    assert max(shorter) < 1.0


@pytest.mark.exhaustive
def test_order_and_units_leave_the_map() -> None:
    """To a twentieth of an error bar: the searches end where the likelihood is flat."""
    table, places = _simulated(40, 4)
    other = table.assign(tmax=1000.0 * table["tmax"])
    given = {"kernel": "matern32", "progress": False, "to": places[["lat", "lon"]]}
    given["hyperparameters"] = "plug-in"
    first = cagp.krige(table, value=["tmin", "tmax"], **given)
    second = cagp.krige(other, value=["tmax", "tmin"], units={"tmax": "mK"}, **given)
    np.testing.assert_allclose(second["tmin_mean"], first["tmin_mean"], atol=0.03)
    np.testing.assert_allclose(second["tmax_std"], 1000.0 * first["tmax_std"], atol=30.0)
    assert second["tmax_mean"].attrs["units"] == "mK"
    assert second.attrs["correlation"] == pytest.approx(first.attrs["correlation"], abs=0.01)


def test_noise_and_means_are_given_by_variable() -> None:
    table, places = _simulated(30, 5)
    found = cagp.krige(
        table,
        to=places[["lat", "lon"]],
        value=["tmin", "tmax"],
        noise_std={"tmin": 0.5},
        mean={"tmin": 10.0, "tmax": "regional_linear"},
        kernel="matern32",
        hyperparameters="plug-in",
        progress=False,
    )
    assert np.isfinite(found["tmin_mean"]).all()
    assert found.attrs["noise_std_tmin"] >= 0.5
    far = cagp.Kriging(
        value=["tmin", "tmax"],
        mean={"tmin": 10.0, "tmax": -3.0},
        kernel="matern32",
        hyperparameters="plug-in",
        progress=False,
    ).fit(table)
    with pytest.warns(UserWarning, match="no observation is near"):
        prior = far.predict(pd.DataFrame({"lat": [-40.0], "lon": [170.0]}))
    assert prior["tmin_mean"].item() == pytest.approx(10.0, abs=1e-6)
    assert prior["tmax_mean"].item() == pytest.approx(-3.0, abs=1e-6)


def test_a_dataset_is_mapped_at_each_of_its_times() -> None:
    table, _ = _simulated(30, 6)
    times = pd.date_range("2024-01-01", periods=2)
    two = {
        name: (("time", "station"), np.stack([table[name], table[name] + 1.0])) for name in ("tmin", "tmax")
    }
    stations = xr.Dataset(
        two, {"latitude": ("station", table["lat"]), "longitude": ("station", table["lon"]), "time": times}
    )
    given = {"kernel": "matern32", "hyperparameters": "plug-in", "progress": False}
    found = cagp.krige(stations, to=2.0, value=["tmin", "tmax"], **given)
    assert found["tmin_mean"].dims == found["tmax_std"].dims == ("time", "latitude", "longitude")
    np.testing.assert_array_equal(found["time"], times)
    shift = found["tmax_mean"][1] - found["tmax_mean"][0]
    np.testing.assert_allclose(shift, 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"value": ["tmin"]}, "several-values"),
        ({"value": ["tmin", "tmin"]}, "several-values"),
        ({"value": ["tmin", "tmax"], "noise_std": {"wind": 1.0}}, "variable-unknown"),
        ({"value": "tmin", "noise_std": {"tmin": 1.0}}, "variable-unknown"),
        ({"value": ["tmin", "tmax"], "recalibration": "local-scale"}, "labels-with-others"),
        ({"value": ["tmin", "tmax"], "recalibration": "kuleshov", "prior": GIVEN}, "labels-with-others"),
        ({"value": ["tmin", "tmax"], "lengthscale_km": 100.0}, "labels-with-others"),
        ({"value": ["tmin", "tmax"], "kernel": "matern12 + matern32"}, "sum-of-variables"),
        ({"value": ["tmin", "tmax"], "mean": "climatology:nowhere.nc"}, "mean-of-variables"),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_what_does_not_go_together_is_refused(given: dict, key: str) -> None:
    table, places = _simulated(30, 7)
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(table, to=places[["lat", "lon"]], progress=False, **given)
    assert refused.value.key == key


def test_a_variable_that_was_never_observed_is_named() -> None:
    table, places = _simulated(30, 8)
    with pytest.raises(CagpError, match="tmin"):
        cagp.krige(
            table.assign(tmin=np.nan), to=places[["lat", "lon"]], value=["tmin", "tmax"], progress=False
        )


def test_what_else_a_model_of_several_variables_gives() -> None:
    """Samples, folds, a summary; and a model goes through pickle."""
    table, places = _simulated(30, 9)
    given = {"nugget_correlation": True, "hyperparameters": "plug-in", "progress": False}
    model = cagp.Kriging(value=["tmin", "tmax"], kernel="matern32", **given).fit(table)
    to = places[["lat", "lon"]]
    found = pickle.loads(pickle.dumps(model)).predict(to)
    xr.testing.assert_allclose(found, model.predict(to))
    # nuggets together are noise of an observation, and none of the field
    assert found.attrs["noise_std_tmax"] > 0.05
    draws = model.sample(to, size=400, seed=1)
    assert draws["tmin"].dims == ("sample", "place")
    spread = np.abs(draws["tmax"].mean("sample") - found["tmax_mean"]) / found["tmax_std"]
    assert float(spread.max()) < 5.0 / np.sqrt(400)
    left = model.cross_validate(5, by="station")
    assert left.sizes["scored"] == 2
    assert left["rmse"].sel(scored="tmin") > 0.0
    assert set(left["variable"].values) == {"tmin", "tmax"}
    assert model.summary().count("correlation") == 1
    assert "correlation tmin tmax 0." in model.summary()
    assert "at 30 places" in model.summary()
    assert "49 of 49 observed values" in model.summary()
    with pytest.raises(ArgumentError) as refused:
        model.variogram()
    assert refused.value.key == "variogram-of-columns"


def test_each_variable_is_drawn_with_its_own_observations() -> None:
    table, _ = _simulated(30, 9)
    given = {"prior": GIVEN, "progress": False}
    found = cagp.krige(table, to=1.0, value=["tmin", "tmax"], **given)
    model = cagp.Kriging(value=["tmin", "tmax"], **given).fit(table)
    for observations in (table, model):
        figure = found.cagp.plot(observations=observations)
        for panel, name in zip(figure.axes[::2], ("tmin", "tmax"), strict=False):
            assert name in panel.get_title(loc="left")
            seen = table[name].dropna()
            (dots,) = [each for each in panel.collections if len(each.get_offsets()) == len(seen)]
            np.testing.assert_allclose(np.sort(dots.get_array()), np.sort(seen))
    alone = cagp.Kriging(value="tmin", prior=cagp.Prior(cagp.Matern32(0.05, 4.0), 0.2, 10.0)).fit(table)
    for result, observations, drawn in ((found, alone, "tmax_mean"), (alone.predict(1.0), model, "mean")):
        with pytest.raises(ArgumentError) as refused:
            result.cagp.plot(drawn, observations=observations)
        assert refused.value.key == "other-variable"
    found.cagp.plot("tmin_mean", observations=alone)


def test_animations_of_several_variables_have_their_own_observations(tmp_path, monkeypatch) -> None:
    table, _ = _simulated(20, 9)
    days = pd.concat([table.assign(date="2024-01-01"), table.assign(date="2024-01-02")])
    found = cagp.krige(days, to=3.0, value=["tmin", "tmax"], prior=GIVEN, progress=False)
    shown = []
    monkeypatch.setattr(
        accessor, "draw_observed", lambda *given: shown.append((given[2].name, given[3].name))
    )
    found.cagp.animate(tmp_path / "page.html", ["tmin_mean", "tmax_mean"], observations=days)
    assert sorted(set(shown)) == [("tmax", "tmax_mean"), ("tmin", "tmin_mean")]


def test_a_variable_is_not_starved_by_gaps() -> None:
    """Of two times with other gaps one decides, where few places have both."""
    table, _ = _simulated(40, 11)
    full = table.assign(tmin=table["tmin"].fillna(10.0))
    days = [full.assign(date="2024-01-01"), full.assign(date="2024-01-02")]
    days[0].loc[:20, "tmax"] = np.nan
    days[1].loc[20:, "tmax"] = np.nan
    both = pd.concat(days, ignore_index=True)
    given = {"kernel": "matern32", "hyperparameters": "plug-in", "progress": False}
    model = cagp.Kriging(value=["tmin", "tmax"], **given).fit(both)
    assert model._learned.sites is not None
    assert model._learned.sites.times.size == 1
    assert model._learned.sites.chosen.size > 55
