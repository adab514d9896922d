"""Jobs of other variables than 2 metre temperature: right units and words from the file to the report."""

import re

import numpy as np
import pytest
import xarray as xr

from cagp_dist.report import write_report
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.store.group_dataset import check_group, variable_in
from cagp_dist.store.publish import verify_files
from cagp_dist.variables import T2M

pytestmark = pytest.mark.exhaustive

JOB = """
[observations]
source = "file:{path}"
{reading}

[design]
train = {{ kind = "random", count = 150, seed = 0 }}
test  = {{ kind = "random", count = 60, seed = 1 }}
map   = {{ kind = "grid", resolution_degrees = 15.0 }}

[prior]
lengthscale = 0.4
variance = {variance}
noise_variance = {noise}

[solver]
name = "cholesky"

[output]
root = "{root}"
"""


def field(name, level, spread, units, **attributes):
    lat, lon = np.arange(-85.0, 86.0, 10.0), np.arange(0.0, 360.0, 15.0)
    time = np.array(["2001-01-16"], dtype="datetime64[ns]")
    waves = np.cos(2 * np.deg2rad(lat))[:, None] + np.sin(2 * np.deg2rad(lon))[None]
    noise = np.random.default_rng(0).normal(0.0, 0.1, (1, lat.size, lon.size))
    values = (level + spread * (waves[None] + noise)).astype("float32")
    return xr.Dataset(
        {name: (("time", "lat", "lon"), values, {"units": units, **attributes})},
        coords={"time": time, "lat": lat, "lon": lon},
    )


def published(tmp_path, raw, reading, *, spread):
    raw.to_netcdf(tmp_path / "field.nc", engine="h5netcdf")
    text = JOB.format(
        path=tmp_path / "field.nc",
        root=tmp_path / "out",
        reading=reading,
        variance=spread**2,
        noise=0.02 * spread**2,
    )
    outcome = run(parse_job(text))
    verify_files(outcome.path)
    page = write_report(outcome.path, tmp_path / "report").read_text(encoding="utf-8")
    groups = {
        name: xr.open_zarr(outcome.path, group=name, consolidated=False).load()
        for name in ("posterior", "map", "calibration", "trace", "observations")
    }
    root = xr.open_zarr(outcome.path, consolidated=False).attrs
    return groups, root, page, re.sub(r"<[^>]+>", " ", page)


@pytest.mark.parametrize(
    ("name", "level", "spread", "there", "unit", "symbol"),
    [
        ("msl", 1010.0, 8.0, "hPa", "Pa", "Pa"),
        ("uas", 2.0, 4.0, "m/s", "m s-1", "m s⁻¹"),
        ("chlorophyll", 1e-3, 3e-4, "kg m-3", "kg m-3", "kg m⁻³"),
    ],
)
def test_a_job_of_another_variable_has_its_unit_everywhere(
    tmp_path, name, level, spread, there, unit, symbol
):
    scale = 100.0 if there == "hPa" else 1.0
    raw = field(name, level, spread, there, long_name="chlorophyll near the surface")
    groups, root, page, words = published(tmp_path, raw, f'variable = "{name}"', spread=scale * spread)
    for group in ("posterior", "map"):
        for kind in ("mean", "std", "predictive_std"):
            assert groups[group][f"{name}_{kind}"].attrs["units"] == unit
    for group in ("calibration", "trace"):
        assert groups[group].rmse.attrs["units"] == unit
    assert groups["observations"][name].attrs["units"] == unit
    variable = variable_in(groups["posterior"])
    assert (variable.name, variable.units) == (name, unit)
    for group, content in groups.items():
        check_group(group, content)
    observed = groups["posterior"][name].values
    np.testing.assert_allclose(observed.mean(), scale * level, atol=0.5 * scale * spread)
    assert float(groups["calibration"].rmse) < 0.5 * scale * spread
    assert root["title"] == f"{variable.long_name} with computation-aware uncertainty"
    assert "geospatial_vertical_min" not in root
    assert variable.heading in words
    assert re.search(rf"typical error \(RMSE\) at held-out points; [\d.e-]+ {symbol} for the prior", words)
    for wrong in (r"\bkelvin\b", r"\d K\b", r"\bK²", "emperature", "warmer", "colder", "Celsius", "t2m"):
        assert not re.search(wrong, words), wrong
    assert f"{symbol} (red: higher than predicted)" in page


def test_another_temperature_is_shown_in_celsius_and_kelvin(tmp_path):
    groups, _, page, words = published(
        tmp_path, field("tas", 10.0, 8.0, "degC"), 'variable = "tas"', spread=8.0
    )
    np.testing.assert_allclose(groups["posterior"].tas.values.mean(), 283.15, atol=4.0)
    assert groups["posterior"].tas_mean.attrs["long_name"] == "posterior mean of near-surface air temperature"
    assert "Near-surface air temperature, 16 January 2001" in words
    assert "degrees Celsius" in page
    assert "K²" not in words
    assert "t2m" not in words


def test_precipitation_is_published_as_it_was_transformed(tmp_path):
    raw = field("tp", 0.004, 0.001, "m")
    groups, _, _, words = published(tmp_path, raw, 'variable = "tp"\ntransform = "log1p"', spread=0.3)
    expected = np.log1p(1000.0 * raw.tp.values.astype(float))
    mean = groups["map"].tp_mean
    assert mean.attrs["units"] == "1"
    assert mean.attrs["transform"] == "log(1 + tp / 1 mm)"
    assert "Nothing is transformed back" in mean.attrs["comment"]
    assert expected.min() - 0.2 < float(mean.min()) < float(mean.max()) < expected.max() + 0.2
    assert "log(1 + total precipitation / 1 mm)" in words


def test_two_metre_temperature_is_published_as_ever(tmp_path):
    raw = field("t2m", 285.0, 8.0, "K")
    groups, root, page, words = published(tmp_path, raw, "", spread=8.0)
    assert variable_in(groups["posterior"]) == T2M
    assert root["title"] == "2 metre temperature with computation-aware uncertainty"
    assert root["geospatial_vertical_min"] == 2.0
    assert "Temperature at 2 m, 16 January 2001" in words
    assert "kelvin (red: warmer than predicted)" in page
    assert set(groups["posterior"].t2m_mean.attrs) == {
        "units", "standard_name", "cell_methods", "long_name", "ancillary_variables"
    }  # fmt: skip
