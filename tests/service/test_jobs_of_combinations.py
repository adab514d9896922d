"""Jobs with depths, shared errors, an ellipse and several variables together: what the call answers."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import unit_sphere
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.run import fit_job
from cagp_dist.service.verification import solve_again, verify_run

DEPTHS = np.array([10.0, 60.0])
JOB = """
[observations]
source = "table:{root}/rows.csv"
variable = {variable}
{columns}
[design]
test = {{ kind = "random", count = 5, seed = 3 }}
map = {{ kind = "grid", resolution_degrees = 5.0{depths} }}
[prior]
kernel = "matern32"
{prior}
[output]
root = "{root}/{out}"
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """36 places with two depths, seen by eight ships: two variables that go together."""
    root, generator = tmp_path_factory.mktemp("rows"), np.random.default_rng(8)
    places, n = generator.uniform([40.0, 0.0], [50.0, 15.0], (36, 2)).round(6), 72
    north, east = np.repeat(places, DEPTHS.size, axis=0).T
    kernel = cagp.Anisotropic(cagp.Matern32(0.08, 4.0), 3.0, 60.0, centre=(45.0, 7.5))
    kernel = kernel * cagp.Matern12(80.0, axis="depth")
    X = np.column_stack([unit_sphere(north, east), np.tile(DEPTHS, 36)])
    root_of = np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(n))
    first, second = root_of @ generator.standard_normal((n, 2)).T[0], root_of @ generator.standard_normal(n)
    ship = np.repeat(np.arange(36) % 8, DEPTHS.size)
    errors = generator.standard_normal((2, 8))[:, ship] + 0.3 * generator.standard_normal((2, n))
    table = pd.DataFrame({"lat": north, "lon": east, "pressure": X[:, 3], "ship": ship})
    table["ship"] = "S" + table["ship"].astype(str)
    table = table.assign(tracer=10.0 + first + errors[0], dye=5.0 + 0.7 * first + 0.7 * second + errors[1])
    table.loc[table.index[::6], "dye"] = np.nan
    table.to_csv(root / "rows.csv", index=False)
    return root, table


def job_of(rows, name, variable='"tracer"', prior="", deep=True):
    """Write a job; of one depth the table has that alone."""
    root, _ = rows
    columns = 'columns = { depth = "pressure" }' if deep else "where = { pressure = 10.0 }"
    depths = ", depths = [20.0, 50.0]" if deep else ""
    text = JOB.format(root=root, variable=variable, columns=columns, depths=depths, prior=prior, out=name)
    (root / f"{name}.toml").write_text(text)
    return root / f"{name}.toml", text


def call_beside(rows, groups, deep, **given):
    """Make the map of a job by a call, from the places that the job has not held out."""
    _, table = rows
    kept = table[np.isin(table["lat"], groups["observations"]["latitude"])]
    kept = kept if deep else kept[kept["pressure"] == 10.0].drop(columns="pressure")
    columns = {"depth": "pressure"} if deep else None
    to = groups["map"].to_dataset()[["latitude", "longitude", *["depth"] * deep]]
    return cagp.krige(kept, to=to, columns=columns, kernel="matern32", progress=False, **given)


@pytest.mark.parametrize(
    ("deep", "prior", "given"),
    [
        (True, 'bias_by = "ship"', {"bias_by": "ship"}),
        pytest.param(True, 'anisotropy = "fit"', {"anisotropy": "fit"}, marks=pytest.mark.exhaustive),
        pytest.param(
            False,
            'bias_by = "ship"\nanisotropy = "fit"',
            {"bias_by": "ship", "anisotropy": "fit"},
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["ships at depths", "ellipse at depths", "ellipse and ships"],
)
def test_a_job_and_a_call_of_one_variable_agree(rows, tmp_path, deep, prior, given):
    name = "".join(filter(str.isalnum, prior)) + str(deep)
    path, text = job_of(rows, name, prior=prior, deep=deep)
    run = cagp.run(path).path
    groups = xr.open_datatree(run, engine="zarr", consolidated=False)
    found = call_beside(rows, groups, deep, value="tracer", **given)
    np.testing.assert_allclose(groups["map"]["tracer_mean"], found["mean"], atol=1e-8)
    np.testing.assert_allclose(groups["map"]["tracer_std"], found["std"], atol=1e-8)
    if "bias_by" in given:
        order = found["ship"].values.tolist()
        at = [groups["biases"]["group"].values.tolist().index(ship) for ship in order]
        np.testing.assert_allclose(groups["biases"]["bias"][at], found["bias_ship"], atol=1e-8)
    verify_run(run)
    assert solve_again(run, points=4) < 1e-9
    # the numbers that were fitted are numbers of a job
    settings = load_job(path)
    start, end = text.index("[prior]"), text.index("[output]")
    again = path.with_name("given.toml")
    again.write_text(text[:start] + prior_table(settings.prior, fit_job(settings)) + "\n" + text[end:])
    maps = xr.open_zarr(cagp.run(again).path, group="map")
    np.testing.assert_allclose(maps["tracer_mean"], found["mean"], atol=1e-4)  # six digits of the numbers


@pytest.mark.exhaustive
def test_a_job_and_a_call_of_two_variables_at_depths_with_ships_agree(rows, tmp_path):
    path, _ = job_of(rows, "both", '["tracer", "dye"]', 'bias_by = "ship"')
    outcome = cagp.run(path)
    groups = xr.open_datatree(outcome.path, engine="zarr", consolidated=False)
    found = call_beside(rows, groups, True, value=["tracer", "dye"], bias_by="ship")
    for name, biases in (("tracer", groups["biases"]), ("dye", groups["biases_dye"])):
        np.testing.assert_allclose(groups["map"][f"{name}_mean"], found[f"{name}_mean"], atol=1e-8)
        np.testing.assert_allclose(groups["map"][f"{name}_std"], found[f"{name}_std"], atol=1e-8)
        at = [biases["group"].values.tolist().index(ship) for ship in found["ship"].values]
        np.testing.assert_allclose(biases["bias"][at], found[f"{name}_bias_ship"], atol=1e-8)
        np.testing.assert_allclose(biases["bias_std"][at], found[f"{name}_bias_ship_std"], atol=1e-8)
    said = json.loads(groups.attrs["prior"])["bias_std"]
    assert said["dye"] == pytest.approx([found.attrs["bias_std_dye"]])
    held_out = groups["posterior"]
    assert held_out.sizes["point"] == 10
    # what is held out are readings: the field there, and the error of their ship
    _, table = rows
    places = pd.DataFrame({name: held_out[name].values for name in ("latitude", "longitude", "depth")})
    at = places.rename(columns={"latitude": "lat", "longitude": "lon", "depth": "pressure"})
    ships = at.merge(table.drop_duplicates(["lat", "lon"])[["lat", "lon", "ship"]], how="left")["ship"]
    kept = table[np.isin(table["lat"], groups["observations"]["latitude"])]
    there = cagp.krige(
        kept,
        to=places,
        columns={"depth": "pressure"},
        kernel="matern32",
        progress=False,
        value=["tracer", "dye"],
        bias_by="ship",
    )
    for name in ("tracer", "dye"):
        errors = dict(zip(there["ship"].values, there[f"{name}_bias_ship"].values, strict=True))
        reading = there[f"{name}_mean"].values + [errors[ship] for ship in ships]
        np.testing.assert_allclose(held_out[f"{name}_mean"].squeeze(), reading, atol=1e-8)
    verify_run(outcome.path)
    assert read_run(outcome.path, "dye").biases.mean.shape == (1, 8)
    assert write_report(outcome.path, tmp_path).is_file()


def test_what_structure_does_not_hold_is_refused_by_name(rows):
    refused = {
        'anisotropy = "fit"\ndepth_kernel = "metric"': "metric",
        'bias_by = "ship"\ntime_kernel = "auto"': "time_kernel",
        'background = "file:guess.nc:tracer"': "background",
    }
    for prior, named in refused.items():
        path, _ = job_of(rows, "refused", prior=prior)
        with pytest.raises(ConfigurationError, match=named):
            load_job(path)
