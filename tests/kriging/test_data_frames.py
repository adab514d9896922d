"""Data frames beside arrays of values: columns by their names, however they are ordered."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

NUMBERS = {"lengthscale": 0.3, "variance": 9.0, "noise_std": 0.3}
PLACES = np.array([[48.1, 11.6], [52.5, 13.4], [50.1, 8.7], [53.6, 10.0], [51.3, 12.4], [47.4, 8.5]])
VALUES = np.array([21.0, 18.5, 20.2, 16.9, 19.0, 22.0])
SWAPPED = pd.DataFrame({"longitude": PLACES[:, 1], "latitude": PLACES[:, 0]})


def test_columns_are_found_by_name_in_fit_predict_and_score() -> None:
    by_arrays = cagp.Kriging(**NUMBERS).fit(PLACES, VALUES)
    by_names = cagp.Kriging(**NUMBERS).fit(SWAPPED, VALUES)
    for found, expected in zip(
        by_names.predict(SWAPPED, return_std=True), by_arrays.predict(PLACES, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    assert by_names.score(SWAPPED, VALUES) == by_arrays.score(PLACES, VALUES)


@pytest.mark.parametrize("scoring", [None, "neg_root_mean_squared_error"])
def test_scikit_learn_scores_data_frames_as_it_does_arrays(scoring: str | None) -> None:
    model = cagp.Kriging(**NUMBERS)
    found = cross_val_score(model, SWAPPED, VALUES, cv=2, scoring=scoring)
    np.testing.assert_array_equal(found, cross_val_score(model, PLACES, VALUES, cv=2, scoring=scoring))


def test_noise_that_drowns_the_field_is_named_and_not_the_coordinates() -> None:
    model = cagp.Kriging(**(NUMBERS | {"noise_std": 300.0})).fit(PLACES, VALUES)
    with pytest.warns(UserWarning, match=r"the noise is 300, 100 times the standard deviation of the field"):
        model.predict(PLACES)


def test_area_is_another_word_for_the_region_of_a_map() -> None:
    model, region = cagp.Kriging(**NUMBERS).fit(PLACES, VALUES), [52.0, 8.0, 50.0, 12.0]
    found = model.predict({"area": region, "resolution": 1.0})
    assert found.equals(model.predict({"region": region, "resolution": 1.0}))
    with pytest.raises(ArgumentError) as refused:
        model.predict({"area": region, "region": region})
    assert refused.value.key == "to-keys"


def test_masked_values_and_missing_cells_of_a_frame_are_gaps():
    """As NaN is; whatever holds places and values."""
    pandas = pytest.importorskip("pandas")
    X, y = np.random.default_rng(0).uniform(40.0, 50.0, (12, 2)), np.arange(12.0)
    settings = {"lengthscale": 0.05, "variance": 4.0, "noise_std": 0.5}
    there = np.arange(12) != 5
    expected = cagp.Kriging(**settings).fit(X[there], y[there]).predict(X)
    frame = pandas.DataFrame(X, columns=["lat", "lon"])
    for places in (X, frame):
        for values in (
            np.ma.masked_equal(y, 5.0),
            np.ma.masked_equal(np.arange(12), 5),
            pandas.Series(np.where(there, y, np.nan)),
            pandas.Series(np.arange(12), dtype="Int64").mask(~there),
        ):
            found = cagp.Kriging(**settings).fit(places, values).predict(X)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(**settings).fit(np.ma.masked_greater(X, 49.0), y)
    assert refusal.value.key == "masked-entries"
