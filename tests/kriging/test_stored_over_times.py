"""Maps at hours from a store of observations with their hours to a store: those of `condition`."""

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

WEATHER = cagp.SpaceTime(cagp.Matern32(0.3, 1.0), cagp.Matern12(20.0))


def test_a_map_at_hours_is_that_of_condition_in_each_order_of_axes(tmp_path):
    rng = np.random.default_rng(0)
    where = {
        "latitude": rng.uniform(-60, 60, 800),
        "longitude": rng.uniform(0, 360, 800),
        "hours": rng.uniform(0, 99, 800),
    }
    y = rng.normal(size=800)
    xr.Dataset({name: ("obs", each) for name, each in {**where, "sst": y}.items()}).to_zarr(
        tmp_path / "swath.zarr", consolidated=False
    )
    axes = {"hours": [10.0, 50.0], "latitude": np.arange(-60, 61, 30.0), "longitude": np.arange(0, 360, 60.0)}
    prior, solver = cagp.Prior(WEATHER, 0.1), cagp.Neighbours(16)
    settings = {"prior": prior, "value": "sst", "solver": solver, "executor": "serial"}
    hours, latitude, longitude = (each.ravel() for each in np.meshgrid(*axes.values(), indexing="ij"))
    Z = np.column_stack([cagp.unit_sphere(latitude, longitude), hours])
    X = np.column_stack([cagp.unit_sphere(where["latitude"], where["longitude"]), where["hours"]])
    for number, order in enumerate((list(axes), ["latitude", "longitude", "hours"])):
        to = {name: axes[name] for name in order}
        found = cagp.krige_store(
            tmp_path / "swath.zarr",
            to=to,
            output=tmp_path / f"map-{number}.zarr",
            chunks={name: len(each) for name, each in to.items()},  # one region
            **settings,
        )
        assert found["mean"].dims == tuple(order)
        turned = np.arange(Z.shape[0]).reshape([len(each) for each in axes.values()])
        turned = np.transpose(turned, [list(axes).index(name) for name in order]).ravel()
        exact = cagp.condition(prior, X, y, Z[turned], solver=solver)
        np.testing.assert_array_equal(found["mean"].values.ravel(), exact.mean)
        np.testing.assert_array_equal(found["std"].values.ravel(), np.sqrt(exact.variance))
    for to, kernel in ((axes, WEATHER.space), ({**axes, "hours": None}, WEATHER)):
        wanted = {name: each for name, each in to.items() if each is not None}
        with pytest.raises(ArgumentError) as refused:
            cagp.krige_store(
                tmp_path / "swath.zarr",
                to=wanted,
                output=tmp_path / "none.zarr",
                **settings | {"prior": cagp.Prior(kernel, 0.1)},
            )
        assert refused.value.key == "axes-of-kernel"
