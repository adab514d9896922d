"""The object form: fitted once, asked many times, in scikit-learn's manners."""

import inspect
import pickle
import re

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline import map_samples as sampling

from ..joined import one_after_another

REGION = {"resolution": 10.0, "region": [30.0, 0.0, -10.0, 40.0]}
KNOWN = {"lengthscale": 0.8, "variance": 9.0, "noise_std": 0.5, "mean": 280.0}


@pytest.fixture(scope="module")
def model(stations):
    return cagp.Kriging(**KNOWN).fit(stations)


def test_it_predicts_what_krige_does(model, stations):
    result, once = model.predict(REGION), cagp.krige(stations, to=REGION, **KNOWN)
    np.testing.assert_array_equal(result["mean"], once["mean"])
    np.testing.assert_array_equal(result["std"], once["std"])


def test_arrays_in_arrays_out(stations, model):
    X = np.column_stack([stations["lat"], stations["lon"]])
    y = stations["temperature [K]"]
    by_arrays = cagp.Kriging(**KNOWN).fit(X, y)
    places = np.array([[1.0, 2.0], [-60.0, 190.0]])
    mean, std = by_arrays.predict(places, return_std=True)
    expected = model.predict({"lat": places[:, 0], "lon": places[:, 1]})
    np.testing.assert_array_equal(mean, expected["mean"])
    np.testing.assert_array_equal(std, expected["std"])
    np.testing.assert_array_equal(by_arrays.predict(places), mean)
    np.testing.assert_array_equal(by_arrays.predict(places.tolist()), mean)
    marked = cagp.Kriging(**KNOWN, missing=-99.0).fit(np.vstack([X, X[:2]]), [*y, -99.0, -99.0])
    np.testing.assert_array_equal(marked.predict(places), mean)
    several = cagp.Kriging(**KNOWN).fit(X, np.column_stack([y, y + 1.0]))
    assert several.predict(places, return_std=True)[1].shape == (2, 2)
    with pytest.raises(ArgumentError, match="sample") as refused:
        by_arrays.predict(places, return_cov=True)
    assert refused.value.key == "return-cov"
    assert 0.5 < by_arrays.score(X, y) < 1.0


def test_columns_that_the_mean_names_stand_behind_the_places_in_arrays(stations):
    table = {"lat": stations["lat"], "lon": stations["lon"], "value": stations["temperature [K]"]}
    beside = {"height": np.sin(table["lat"]), "coast": np.cos(table["lon"])}
    X = np.column_stack([table["lat"], table["lon"], *beside.values()])
    settings = {**KNOWN, "mean": ["constant", "height", "coast"]}
    model = cagp.Kriging(**settings).fit(X, table["value"])
    mean, std = model.predict(X[:5], return_std=True)
    places = {name: values[:5] for name, values in (table | beside).items() if name != "value"}
    expected = cagp.Kriging(**settings).fit(table | beside).predict(places)
    np.testing.assert_array_equal(mean, expected["mean"])
    np.testing.assert_array_equal(std, expected["std"])
    for columns in (3, 5):
        with pytest.raises(ArgumentError) as refused:
            model.predict(np.zeros((2, columns)))
        assert refused.value.key == "shapes"


@one_after_another
@pytest.mark.parametrize(
    ("X", "y", "key"),
    [
        (np.zeros((3, 3)), np.zeros(3), "shapes"),
        (np.zeros((3, 2)), np.zeros(4), "shapes"),
        (np.full((3, 2), np.nan), np.zeros(3), "shapes"),
        (np.zeros((2, 2)), [1.0, np.inf], "infinite"),
        (np.zeros((2, 2)), np.full(2, np.nan), "nothing-observed"),
    ],
)
def test_arrays_of_other_shapes_are_refused(X, y, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(**KNOWN).fit(X, y)
    assert refusal.value.key == key


def test_parameters_are_stored_as_they_came_and_can_be_changed():
    kernel = cagp.Matern12(0.3)
    model = cagp.Kriging(kernel=kernel, noise_std="err")
    assert model.get_params()["kernel"] is kernel
    assert model.set_params(noise_std=0.2) is model
    assert model.get_params()["noise_std"] == 0.2
    assert repr(model) == f"Kriging(kernel={kernel!r}, noise_std=0.2)"
    assert repr(cagp.Kriging(variance=np.array([1.0, 2.0]))) == "Kriging(variance=array([1., 2.]))"
    with pytest.raises(ArgumentError) as refused:
        cagp.Kriging(noise_std="err").fit(np.zeros((1, 2)), [1.0])
    assert refused.value.key == "noise-std"
    again = cagp.Kriging(**model.get_params())
    assert again.get_params() == model.get_params()
    with pytest.raises(ArgumentError) as refused:
        model.set_params(noise=1.0)
    assert refused.value.key == "parameter-unknown"
    with pytest.raises(ArgumentError) as refused:
        model.predict(1.0)
    assert refused.value.key == "not-fitted"


def test_all_arguments_of_krige_are_settings_but_those_that_are_named():
    others = [
        name for name in inspect.signature(cagp.krige).parameters if name not in cagp.Kriging().get_params()
    ]
    named = re.search(r"All those of `krige` except (.*)\.", cagp.Kriging.__doc__)[1]
    assert re.findall(r"``(\w+)``", named) == others


def test_scikit_learn_can_clone_and_cross_validate_it(stations):
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    model = cagp.Kriging(**KNOWN)
    copy = base.clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    X = np.column_stack([stations["lat"], stations["lon"]])
    y = np.asarray(stations["temperature [K]"])
    search = selection.GridSearchCV(model, {"noise_std": [0.5, 50.0]}, cv=3, scoring="r2")
    assert search.fit(X, y).best_params_ == {"noise_std": 0.5}


@pytest.mark.parametrize("most", [4000, 0], ids=["covariance", "pathwise"])
def test_samples_have_the_mean_and_covariance_of_the_posterior(model, stations, prior, most, monkeypatch):
    """By the full covariance, and pathwise as of more targets."""
    monkeypatch.setattr(sampling, "MOST_SAMPLED", most)
    size = 4000
    draws = model.sample(REGION, size, seed=1)["temperature"]
    assert draws.dims == ("sample", "latitude", "longitude")
    assert draws.attrs["units"] == "K"
    flat = draws.values.reshape(size, -1)
    X = cagp.unit_sphere(stations["lat"], stations["lon"])
    latitude, longitude = np.meshgrid(draws.latitude, draws.longitude, indexing="ij")
    expected = cagp.condition(
        prior,
        X,
        stations["temperature [K]"],
        cagp.unit_sphere(latitude.ravel(), longitude.ravel()),
        solver=cagp.Cholesky(),
        covariance="full",
    )
    std = np.sqrt(expected.variance)
    # five standard errors of 16 means, and of 136 covariances
    assert (np.abs(flat.mean(axis=0) - expected.mean) < 5.0 * std / np.sqrt(size)).all()
    error = np.abs(np.cov(flat.T) - expected.covariance)
    assert (error < 5.0 * np.sqrt(2.0 / size) * np.outer(std, std)).all()
    again = model.sample(REGION, size, seed=1)["temperature"]
    np.testing.assert_array_equal(draws, again)
    assert not np.array_equal(draws[0], model.sample(REGION, seed=2)["temperature"][0])


@pytest.mark.parametrize(
    ("solver", "noise", "status"),
    [
        ("cholesky", 0.5, "exact"),
        ("cholesky", 1e-6, "ill-conditioned"),
        (cagp.BlockGaussSeidel(2, block_size=16), 0.5, "completed"),
    ],
)
def test_samples_of_many_targets_say_how_their_solves_ended(stations, solver, noise, status, monkeypatch):
    monkeypatch.setattr(sampling, "MOST_SAMPLED", 0)
    numbers = {**KNOWN, "kernel": cagp.SquaredExponential(2.0, 60.0), "noise_std": noise}
    del numbers["lengthscale"], numbers["variance"]
    draws = cagp.Kriging(**numbers, solver=solver).fit(stations).sample(REGION, 3, seed=1)
    assert draws.attrs["status"] == status


def test_a_whole_globe_is_sampled(model):
    """64,800 targets, of which no covariance would fit into memory: 33 GB."""
    globe = {"resolution": 1.0, "region": [90, -180, -90, 180]}
    draws = model.sample(globe, 6)["temperature"]
    assert draws.dims == ("sample", "latitude", "longitude")
    assert draws.shape == (6, 180, 360)
    expected = model.predict(globe)
    squares = ((draws - expected["mean"]) / expected["std"]) ** 2
    # six draws of some tens of independent places: chi-squared with more than 100 degrees of freedom
    assert abs(squares.mean() - 1.0) < 5.0 * np.sqrt(2.0 / 100)


@pytest.mark.parametrize("solver", ["auto", "block-gauss-seidel", cagp.RandomActions(20)], ids=str)
def test_fields_of_a_grid_are_sampled_pathwise_each_with_its_gaps(truth, gappy, prior, solver, monkeypatch):
    """Mean and variance of 400 draws within five standard errors, for two times with different gaps."""
    monkeypatch.setattr(sampling, "MOST_SAMPLED", 0)
    fields = truth.copy()
    fields[0] = gappy
    model = cagp.Kriging(prior=prior, solver=solver).fit(fields)
    drawn, expected = model.sample(None, 400, seed=3), model.predict(None)
    draws = drawn["tas"]
    assert draws.shape == (400, *fields.shape)
    z = (draws - expected["mean"]) / expected["std"]
    assert np.abs(z.mean("sample")).max() < 5.0 / np.sqrt(400)
    assert np.abs((z**2).mean("sample") - 1.0).max() < 5.0 * np.sqrt(2.0 / 400)
    assert ("RandomActions" in drawn.attrs["solver"]) == (not isinstance(solver, str))


def test_more_folds_than_blocks_name_what_to_lower(model):
    with pytest.raises(ArgumentError) as refusal:
        model.cross_validate(500, blocks_degrees=None)
    assert refusal.value.key == "few-blocks"


def test_blocks_are_lower_in_a_small_region():
    """Of 5 degrees there is one; of 1.25, half of whose rows are empty, there are as many as folds."""
    latitude, longitude = (each.ravel() for each in np.meshgrid([0.1, 1.3, 2.6, 3.9], [0.1, 1.3, 2.6]))
    table = {"lat": latitude, "lon": longitude, "value": latitude - longitude}
    small = cagp.Kriging(kernel="matern32", lengthscale=0.05, variance=4.0, noise_std=0.5).fit(table)
    scores = small.cross_validate(8)
    assert scores.attrs["blocks_degrees"] == 1.25
    assert set(scores.fold.values) == set(range(8))
    with pytest.raises(ArgumentError) as refusal:
        small.cross_validate(8, blocks_degrees=6.0)
    assert refusal.value.key == "few-blocks"
    assert 1 < np.unique(small.cross_validate(None, blocks_degrees=2.0).fold).size < 12


@pytest.mark.parametrize("blocks_degrees", [20.0, None])
def test_cross_validation_predicts_each_fold_from_the_others(model, stations, prior, blocks_degrees):
    result = model.cross_validate(4, blocks_degrees=blocks_degrees, seed=3)
    X = cagp.unit_sphere(stations["lat"], stations["lon"])
    y = np.asarray(stations["temperature [K]"])
    fold = result.fold.values
    assert set(fold) == {0, 1, 2, 3}
    for number in range(4):
        out = fold == number
        expected = cagp.condition(prior, X[~out], y[~out], X[out], solver=cagp.Cholesky())
        np.testing.assert_allclose(result["mean"][out], expected.mean, atol=1e-9)
        np.testing.assert_allclose(result["std"][out] ** 2, expected.variance, atol=1e-9)
    error = result.observed - result["mean"]
    assert float(result.rmse) == pytest.approx(float(np.sqrt((error**2).mean())))
    np.testing.assert_allclose(result.predictive_std**2, result["std"] ** 2 + 0.25)
    inside = np.abs(error / result.predictive_std) <= 1.6448536
    assert float(result.coverage.sel(level=0.9)) == pytest.approx(float(inside.mean()))
    assert result.pit.min() > 0.0
    assert result.observed.attrs["units"] == "K"
    assert result.station_name.values.tolist() == stations["id"]


def test_cross_validation_of_several_times_with_gaps(truth):
    given = truth.copy()
    given[0, :3] = np.nan
    result = cagp.Kriging(**KNOWN).fit(given).cross_validate(3, blocks_degrees=30.0)
    assert result["mean"].dims == ("time", "observation")
    there = np.isfinite(result.observed)
    assert int(there.sum()) == int(np.isfinite(given).sum())
    assert (np.isfinite(result.pit) == there).all()


def test_a_notebook_shows_the_summary_and_no_markup_of_the_data():
    table = {"latitude": [1.0, 2.0], "longitude": [3.0, 4.0], "value": [5.0, 6.0]}
    model = cagp.Kriging(**KNOWN)
    assert "Kriging of" not in model._repr_html_()
    assert "Kriging of value: 2 observations at 2 places" in model.fit(table)._repr_html_()
    assert "<img" not in cagp.Kriging(value="<img src=x>")._repr_html_()


def test_the_summary_says_what_was_learned(model, truth):
    text = model.summary()
    assert "60 observations at 60 places, 0 missing" in text
    assert "lengthscale  5244 km (chord 0.8, Earth of 6371.0088 km)" in text
    assert "noise std    0.5 K" in text
    assert "every number was given" in text
    fitted = cagp.Kriging().fit(truth).summary()
    assert "at 198 places and 2 times" in fitted
    assert "fit          converged, to 198 of 198 observed places, 2 of 2 fields (rings)" in fitted


def test_the_summary_says_why_a_number_has_no_standard_error(truth):
    def errors(**settings):
        model = cagp.Kriging(kernel="matern32", **settings).fit(truth)
        (line,) = [line for line in model.summary().splitlines() if "standard errors: " in line]
        assert model.fit_result_.status.ok
        return line.split("standard errors: ")[1]

    number = r"\d[\d.e+-]*"
    pattern = rf"lengthscale {number} km, variance {number}, noise variance "
    assert re.fullmatch(pattern + number, errors())
    fitted = cagp.Kriging(kernel="matern32", noise_std=0.5, nugget_std=0.0).fit(truth)
    chord, error = fitted.prior_.kernel.lengthscale, fitted.fit_result_.standard_errors.lengthscale
    ends = (2.0 * 6371.0088 * np.arcsin(0.5 * (chord + side * 1e-6)) for side in (-1.0, 1.0))
    said = float(
        re.search(r"lengthscale ([\d.e+-]+) km, variance", fitted.summary().partition("errors: ")[2])[1]
    )
    assert said == pytest.approx(error * float(np.diff([*ends])[0]) / 2e-6, rel=0.05)  # two digits
    assert re.fullmatch(pattern + r"none \(it was given\)", errors(noise_std=0.5))
    assert errors(lengthscale=0.8, noise_std=0.5).startswith("lengthscale none (it was given), variance ")
    none = r"none \(no nugget was found beside the known noise\)"
    assert re.fullmatch(pattern + none, errors(noise_std=0.8, nugget_std=None))


def test_a_fit_that_did_not_end_well_warns(stations):
    few = {name: column[:6] for name, column in stations.items()}
    with pytest.warns(UserWarning, match=r"the fit ended (flat|at-bound|not-converged): ") as said:
        cagp.Kriging(hyperparameters="plug-in").fit(few)
    assert "Give one of the numbers (lengthscale_km, variance, noise_std" in str(said[0].message)
    assert "bounds" not in str(said[0].message)


def test_a_client_of_dask_is_an_executor(stations):
    distributed = pytest.importorskip("distributed")
    solver = cagp.BlockGaussSeidel(2, block_size=20)
    here = cagp.krige(stations, to=REGION, solver=solver, **KNOWN)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        there = cagp.krige(stations, to=REGION, solver=solver, executor=client, **KNOWN)
        assert client.status == "running"
    np.testing.assert_array_equal(here["mean"], there["mean"])
    assert "Dask cluster" in there.attrs["executor"]


def test_a_noise_that_is_too_small_to_be_found_is_no_reason_to_warn():
    latitude, longitude = np.arange(-60.0, 61.0, 6.0), np.arange(0.0, 360.0, 6.0)
    rings = cagp.RingGram(
        cagp.LatLonGrid.from_axes(latitude, longitude), cagp.Matern32(0.8, 4.0), noise_variance=1e-7
    )
    field = rings.sample(np.random.default_rng(1), noise=True)
    given = xr.DataArray(field, dims=("lat", "lon"), coords={"lat": latitude, "lon": longitude})
    model = cagp.Kriging(kernel="matern32", mean=0.0).fit(given)  # a warning would be an error
    assert not model.fit_result_.status.ok
    assert model.prior_.noise_variance < 1e-3


def test_targets_far_from_all_observations_are_told_and_misspelled_keys_refused():
    near = cagp.Kriging(lengthscale_km=200.0, variance=4.0, noise_std=0.3).fit(
        np.array([[50.0, -3.0], [55.0, -1.0]]), np.array([1.0, 2.0])
    )
    with pytest.warns(UserWarning, match=r"no observation is near any target.* within \[55, -3, 50, -1\]"):
        near.predict(np.array([[-3.0, 50.0], [-1.0, 55.0]]))
    near.predict(np.array([[-3.0, 50.0], [51.0, -3.0]]))  # one of them is near
    with pytest.raises(ArgumentError) as refused:
        near.predict({"resolutoin": 1.0})
    assert refused.value.key == "to-keys"


def _few(times, seed=0):
    """Stations (12, 2) and fields (12, T) with a gap in the last one."""
    rng = np.random.default_rng(seed)
    X, y = rng.uniform([40.0, 0.0], [55.0, 20.0], (12, 2)), 5.0 + rng.standard_normal((12, times))
    y[3, -1] = np.nan
    return X, y


GIVEN = {"lengthscale_km": 500.0, "variance": 1.0, "noise_std": 0.3, "kernel": "matern32", "progress": False}


def test_each_observation_is_left_out_of_fields_with_gaps():
    model = cagp.Kriging(**GIVEN).fit(*_few(2))
    alone, slow = model.cross_validate(None), model.cross_validate(12, blocks_degrees=None)
    np.testing.assert_allclose(alone["mean"].values[0], slow["mean"].values[0], rtol=1e-8)
    there = ~np.isnan(slow["observed"].values)
    np.testing.assert_allclose(alone["pit"].values[there], slow["pit"].values[there], rtol=1e-6)
    assert np.isfinite(alone["crps"])
    assert alone.attrs["comment"].startswith("Each place is predicted from the other folds")


def test_a_known_mean_goes_with_solvers_that_follow_the_data_of_several_fields():
    X, y = _few(3)
    at = np.array([[48.0, 10.0]])
    for mean in (0.0, lambda points: np.zeros(len(points))):
        found = cagp.Kriging(**GIVEN, mean=mean, solver=cagp.ConjugateGradient(12)).fit(X, y).predict(at)
        exact = cagp.Kriging(**GIVEN, mean=mean, solver="cholesky").fit(X, y).predict(at)
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_as_many_fields_as_points_of_a_grid_with_gaps():
    rng, latitude, longitude = np.random.default_rng(1), [-40.0, 0.0, 40.0], [0.0, 90.0, 180.0, 270.0]
    values = 5.0 + rng.standard_normal((12, 3, 4))
    values[2, 1, 1] = np.nan
    fields = xr.DataArray(
        values, {"month": range(12), "lat": latitude, "lon": longitude}, ("month", "lat", "lon")
    )
    fields["month"].attrs["standard_name"] = "realization"
    field = cagp.krige(fields, solver="rings", **GIVEN)
    dense = cagp.krige(fields, solver="cholesky", **GIVEN)
    np.testing.assert_allclose(field["std"], dense["std"], rtol=1e-9)


def test_a_model_comes_back_from_a_pickle_with_its_prior():
    prior = cagp.Prior(cagp.Matern32(0.1), 0.1)
    model = pickle.loads(pickle.dumps(cagp.Kriging(prior=prior, progress=False)))
    assert model.fit(*_few(1)).prior_ == prior
