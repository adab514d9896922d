"""Fields of any variable: names, units, levels and transforms of other people's files, ingested right."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import canonical, joined_times, observation_points
from cagp_dist.fields.observed_objects import read
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source
from cagp_dist.fields.tables import read_table
from cagp_dist.remedies import Setting
from cagp_dist.variables import (
    T2M,
    VARIABLES,
    canonical_name,
    describe_variable,
    field_name,
    log1p_of,
    variable_named,
    variable_of,
)
from cagp_dist.variables.units import conversion, symbol

from ..joined import one_after_another
from .fields import raw_dataset


def cmip(name, values, *, units="K", **attributes):
    """A monthly field as CMIP lays it out: lat and lon with bounds, south first, times mid-month."""
    time = np.array(["2001-01-16T12:00", "2001-02-15T00:00"], dtype="datetime64[ns]")
    lat, lon = np.array([-45.0, 0.0, 45.0]), np.array([0.0, 90.0, 180.0, 270.0])
    return xr.Dataset(
        {
            name: (("time", "lat", "lon"), values, {"units": units, **attributes}),
            "lat_bnds": (("lat", "bnds"), np.stack([lat - 22.5, lat + 22.5], axis=1)),
            "time_bnds": (("time", "bnds"), np.stack([time, time], axis=1)),
        },
        coords={"time": time, "lat": lat, "lon": lon, "height": 2.0},
    )


def drawn(level, spread, *, seed=3, shape=(2, 3, 4)):
    return np.random.default_rng(seed).normal(level, spread, shape).astype("float32")


@pytest.mark.parametrize(
    ("name", "units", "level", "spread", "expected_units", "scale"),
    [
        ("tas", "K", 280.0, 5.0, "K", (1.0, 0.0)),
        ("tas", "degC", 10.0, 5.0, "K", (1.0, 273.15)),
        ("tos", "degrees_Celsius", 15.0, 2.0, "K", (1.0, 273.15)),
        ("temperature", "Kelvin", 250.0, 5.0, "K", (1.0, 0.0)),
        ("psl", "Pa", 1e5, 500.0, "Pa", (1.0, 0.0)),
        ("psl", "hPa", 1e3, 5.0, "Pa", (100.0, 0.0)),
        ("uas", "m s**-1", 0.0, 5.0, "m s-1", (1.0, 0.0)),
        ("uas", "m/s", 0.0, 5.0, "m s-1", (1.0, 0.0)),
        ("zg", "m", 5500.0, 50.0, "m", (1.0, 0.0)),
        ("zosga", "mm", 3.0, 0.5, "mm", (1.0, 0.0)),
        ("chlorophyll", "", 3.0, 0.5, "", (1.0, 0.0)),
    ],
)
def test_a_variable_is_a_name_in_the_file_and_comes_in_its_own_unit(
    name, units, level, spread, expected_units, scale
):
    values = drawn(level, spread)
    field = canonical(cmip(name, values, units=units), selection=Selection(value=name))
    assert list(field.data_vars) == [name]
    assert field[name].attrs.get("units", "") == expected_units
    expected = (scale[0] * values.astype(float) + scale[1]).astype("float32")
    np.testing.assert_array_equal(field[name], expected)
    assert observation_points(field).variable == variable_of(name, field[name].attrs)


@pytest.mark.parametrize(
    ("asked", "there", "published"),
    [
        ("2m_temperature", "t2m", "t2m"),
        ("t2m", "2m_temperature", "t2m"),
        ("2t", "T2M", "t2m"),
        ("msl", "mean_sea_level_pressure", "msl"),
        ("mean_sea_level_pressure", "msl", "msl"),
        ("temperature", "temperature", "temperature"),
        ("swh", "SWH", "swh"),
    ],
)
def test_known_quantities_have_one_name_and_all_their_spellings(asked, there, published):
    known = variable_named(asked)
    level = 1e5 if known.units == "Pa" else 280.0
    raw = raw_dataset().rename(t2m=there)
    raw[there] = raw[there] - 280.0 + level
    raw[there].attrs["units"] = known.units
    assert list(canonical(raw, selection=Selection(value=asked)).data_vars) == [published]


def test_names_that_differ_by_case_alone_are_told_apart():
    raw = raw_dataset()
    raw = raw.assign(SM=raw.t2m * 0.0, sm=raw.t2m * 0.0 + 1.0)
    assert float(canonical(raw, selection=Selection(value="sm")).sm.max()) == 1.0
    assert float(canonical(raw, selection=Selection(value="SM")).SM.max()) == 0.0


@one_after_another
@pytest.mark.parametrize(
    "name",
    [
        *("", "a b", "a/b", "a\\b", "../x", ".zattrs", "zarr.json", "time", "longitude", "_x", "a\0b"),
        *("a\nb", "a\x1b[31mb", "a\x9b31mb", "a\x07", "a\u202eb", "a\u2028b", "a\ud800"),
        *("a" * 201, "é" * 101),
    ],
)
def test_a_name_that_no_array_can_have_is_refused(name):
    with pytest.raises(ConfigurationError) as refusal:
        canonical_name(name)
    assert refusal.value.key == "variable-name"
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("column", "name"),
    [("depth / width [m]", "depth_width"), ("a\x1b[31mb\n\u202ec", "a_[31mb_c"), ("\x1b", "\x1b")],
)
def test_a_column_gives_a_field_a_name_that_it_can_have(column, name):
    assert field_name(column) == name


def test_what_is_there_is_named_without_bounds_and_how_to_take_it():
    raw = cmip("temperature", drawn(280.0, 5.0))
    with pytest.raises(DataError) as absent:
        canonical(raw)
    assert absent.value.key == "absent-variable"
    assert absent.value.remedies == (Setting("value", "temperature", "to take it"),)
    with pytest.raises(DataError) as absent:
        canonical(cmip("pr", drawn(1.0, 0.1)).assign(psl=raw.temperature), selection=Selection(value="tas"))
    assert absent.value.key == "absent-variable"
    assert absent.value.remedies == (Setting("value", "pr"),)


def test_values_are_converted_to_units_that_are_asked_for_unless_those_of_the_file_cannot_be():
    values, celsius = drawn(280.0, 5.0), Selection(value="tas", units="degC")
    right = canonical(cmip("tas", values, units="K"), selection=celsius)
    np.testing.assert_array_equal(right.tas, values)
    wrong = canonical(cmip("tas", values - 270.0, units="K"), selection=celsius)
    np.testing.assert_allclose(wrong.tas, values.astype(float) + 3.15, rtol=1e-6)
    assert ["converted" in right.notes[0], "not plausible" in wrong.notes[0]] == [True, True]
    knots = Selection(value="gust", units="knots")
    gusts = canonical(cmip("gust", values, units="m/s"), selection=knots).gust
    np.testing.assert_allclose(gusts, values * 1.943844, rtol=1e-6)
    anomalies = Selection(value="tas_anomaly", units="degF")
    found = canonical(cmip("tas_anomaly", values, units="K"), selection=anomalies)
    np.testing.assert_allclose(found.tas_anomaly, 1.8 * values, rtol=1e-6)
    with pytest.raises(DataError) as refused:
        canonical(cmip("gust", values, units="m/s"), selection=Selection(value="gust", units="hPa"))
    assert refused.value.key == "units"
    assert canonical(cmip("ph", values, units=""), selection=Selection(value="ph", units="1")).ph.units == "1"


@pytest.mark.parametrize(
    ("name", "units", "own"),
    [
        ("lnChl", "mg m-3", "1"),
        ("chl_log10", "mg m-3", "1"), ("t_zscore", "K", "1"),
        ("rain_pct", "mm", "%"), ("sqrt_rain", "mm", ""), ("logger_temp", "degC", "degC"),
        ("tas_anomaly", "K", "K"),        ("mixing_ratio", "g kg-1", "g kg-1"), ("rh_percent", "%", "%"),
    ],
)  # fmt: skip
def test_units_are_not_those_of_what_values_were_made_of(name, units, own):
    assert describe_variable(name, {"units": units})[0].units == own
    assert read_table({"lat": [1.0], "lon": [2.0], f"{name} ({units})": [3.0]}).units == own


def test_a_unit_at_the_end_of_a_name_is_stated():
    rows = {"lat": [1.0], "lon": [2.0]}
    assert read_table({**rows, "tmax_K": [300.0]}, units="degC").values == pytest.approx([26.85])
    assert read_table({**rows, "rain_mm": [3.0]}, units="cm").values == pytest.approx([0.3])
    assert read_table({**rows, "wind_k": [3.0]}, units="m s-1").values == [3.0]
    assert read({**rows, "rain_tenth_mm": [30.0]}, units="0.1 mm").points.units == "0.1 mm"
    with pytest.raises(DataError):
        read_table({**rows, "rain_mm": [3.0]}, units="hPa")


@pytest.mark.parametrize(
    ("name", "value", "units"),
    [
        ("t2m_degC", 11.0, "degC"), ("soil_temp_5cm_deg_C", 11.0, "degC"), ("TMAX_F", 51.0, "degF"),
        ("water_temp_C", 11.0, "degC"), ("t2m_K", 284.0, "K"), ("sst_kelvin", 284.0, "K"),
        ("rain_mm", 3.0, "mm"), ("p_hPa", 1013.0, "hPa"),
        ("flux_K", 284.0, ""), ("t_c", 11.0, ""), ("temp_f", 51.0, ""), ("wind_ms", 3.0, ""),
        ("npp_pa", 3.0, ""), ("emissions_kt", 3.0, ""), ("degC", 11.0, ""),
        ("t2m_K", 11.0, ""),  # which it cannot be in
        ("temp_anomaly_degC", 1.0, ""), ("log_rain_mm", 1.0, ""), ("t2m_degC (K)", 284.0, "K"),
        ("soil_moisture_10_cm", 0.3, ""), ("t_850_hPa", 284.0, ""), ("days_over_10_mm", 3.0, ""),
        ("n_days_tmax_gt_30_degC", 3.0, ""),  # a depth, a level, thresholds
        ("rain_tenth_mm", 30.0, ""), ("tmax_10ths_degC", 110.0, ""),
        ("t2_degC", 11.0, "degC"), ("rr24_mm", 3.0, "mm"), ("temp_1_air_degC", 11.0, "degC"),
    ],
)  # fmt: skip
def test_a_unit_that_a_name_ends_in_is_that_of_the_result_where_it_can_be_nothing_else(name, value, units):
    table = {"lat": [1.0], "lon": [2.0], name: [value]}
    assert read(table, value=name).points.units == units
    field = xr.DataArray([[value]], {"lat": [1.0], "lon": [2.0]}, name=name.partition(" ")[0])
    if "(" not in name:
        assert read(field).points.units == units


@pytest.mark.parametrize(
    ("name", "units", "factor"),
    [
        ("wind_speed_10_kmh", "m s-1", 1.0 / 3.6), ("wind_10_mph", "m s-1", 0.44704),
        ("gust_10_kts", "m s-1", 1852.0 / 3600.0), ("snow_24_cm", "mm", 10.0), ("rain_24_mm", "cm", 0.1),
        ("rain_tenth_mm", "mm", 1.0), ("rain_tenths_mm", "mm", 1.0), ("tmax_10ths_degC", "degC", 1.0),
        ("rain_hundredths_cm", "mm", 1.0),  # the unit is not that of the numbers
    ],
)  # fmt: skip
def test_a_number_before_the_unit_that_a_name_ends_in_does_not_hide_it(name, units, factor):
    found = read_table({"lat": [1.0], "lon": [2.0], name: [20.0]}, units=units)
    assert found.values == pytest.approx([20.0 * factor])


def test_a_unit_that_is_not_one_of_the_quantity_is_refused():
    with pytest.raises(DataError) as refused:
        canonical(cmip("psl", drawn(14.5, 0.1), units="psi"), selection=Selection(value="psl"))
    assert refused.value.key == "units"


@pytest.mark.parametrize(
    ("name", "units", "level", "meant"),
    [
        ("psl", "Pa", 1000.0, "hPa"),
        ("tas", "K", 10.0, "degC"),
        ("tas", "degC", 280.0, None),
        ("uas", "m s-1", 500.0, None),
    ],
)
def test_values_that_cannot_be_are_refused_with_unit_and_way_out(name, units, level, meant):
    raw = cmip(name, drawn(level, 3.0), units=units)
    with pytest.raises(DataError) as refused:
        canonical(raw, selection=Selection(value=name))
    assert refused.value.key == "range"
    ways = {remedy.name: remedy.value for remedy in refused.value.remedies}
    assert ways == ({} if meant is None else {"units": meant}) | {"missing": -9999, "check_range": False}
    assert 'say where={"check_range": False} if the values are right' in str(refused.value)
    in_job = str(refused.value.told(in_job=True))
    assert "write check_range = false in [observations] if the values are right" in in_job
    field = canonical(raw, selection=Selection(value=name, check_range=False))
    assert field[name].attrs["plausible_range"] == "not checked"
    assert not variable_of(name, field[name].attrs).checked


@pytest.mark.parametrize("attribute", ["long_name", "standard_name"])
def test_of_an_anomaly_in_celsius_nothing_is_added_to(attribute):
    values = drawn(0.5, 1.0)
    raw = cmip("temperature", values, units="degree C", **{attribute: "Air Surface Temperature Anomaly"})
    field = canonical(raw, selection=Selection(value="temperature"))
    np.testing.assert_array_equal(field.temperature, values)
    variable = variable_of("temperature", field.temperature.attrs)
    assert (variable.units, variable.is_temperature, variable.low) == ("degC", False, -np.inf)
    with pytest.raises(DataError) as refusal:
        canonical(raw.rename(temperature="t2m"))
    assert refusal.value.key == "anomaly"


def test_precipitation_is_transformed_if_that_is_asked_for_and_says_so(tmp_path):
    """In millimetres, whatever the file has, by either door; else it is what it was."""
    metres = np.abs(drawn(0.0, 0.01)).astype("float32")
    metres[0, 0, 0], metres[0, 1, 1], metres[1, 2, 2] = 0.0, -2e-10, np.nan
    raw = raw_dataset(latitude=(20.0, 10.0, 0.0)).rename(t2m="tp")
    raw["tp"] = raw.tp.copy(data=metres).assign_attrs(units="m")
    field = canonical(raw, selection=Selection(value="total_precipitation"))
    np.testing.assert_allclose(field.tp, metres[:, ::-1], rtol=1e-6)
    assert (field.tp.attrs["units"], "transform" in field.tp.attrs) == ("m", False)
    with pytest.raises(DataError) as refusal:
        canonical(raw.assign(tp=raw.tp.where(raw.tp.notnull(), -0.5)), selection=Selection(value="tp"))
    assert refusal.value.key == "range"
    expected = np.log1p(1000.0 * np.maximum(metres.astype(float), 0.0))[:, ::-1]
    cmip("pr", metres, units="kg m-2 s-1").to_netcdf(tmp_path / "pr.nc", engine="h5netcdf")
    for number, scale in enumerate((1.0, 1000.0)):
        other = raw.assign(tp=(scale * raw.tp).assign_attrs(units="mm" if number else "m"))
        other.to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
        there = open_source(f"file:{tmp_path / f'{number}.nc'}", variable="tp", transform="log1p")
        np.testing.assert_allclose(there.tp, expected, rtol=1e-6)
        assert there.tp.attrs["units"] == "1"
        assert there.tp.attrs["transform"] == "log(1 + tp / 1 mm)"
        assert "Nothing is transformed back" in there.tp.attrs["comment"]
        observed = read(other.tp, transform="log1p")
        np.testing.assert_allclose(np.nansum(observed.points.values), np.nansum(expected), rtol=1e-6)
        assert observed.attributes["transform"] == "log(1 + tp / 1 mm)"
        published = variable_of("tp", there.tp.attrs)
        assert published.attributes() == there.tp.attrs
    rate = open_source(f"file:{tmp_path / 'pr.nc'}", variable="pr", transform="log1p")
    np.testing.assert_allclose(rate.pr, np.log1p(86400.0 * np.maximum(metres.astype(float), 0.0)), rtol=1e-6)
    with pytest.raises(DataError) as refused:
        log1p_of(np.array([1.0, -2.0]), "depth", {"units": "m"})
    assert refused.value.key == "transform-negative"


def test_a_component_of_the_wind_has_no_value_at_a_pole():
    raw = raw_dataset(latitude=(90.0, 0.0, -90.0)).rename(t2m="u10")
    raw["u10"] = (raw.u10 - 280.0).assign_attrs(units="m s**-1")
    points = observation_points(canonical(raw, selection=Selection(value="u10")))
    assert points.north.tolist() == [0.0] * 4
    assert (points.merged_pole_copies, points.dropped_missing) == (6, 2)


def test_parts_are_joined_and_must_be_one_quantity():
    whole = canonical(cmip("tas", drawn(280.0, 5.0)), selection=Selection(value="tas"))
    parts = [whole.isel(time=[1]), whole.isel(time=[0])]
    xr.testing.assert_identical(joined_times(parts), whole)
    other = parts[0].copy()
    other.tas.attrs = {"units": "degF", "long_name": "tas"}
    with pytest.raises(DataError) as refusal:
        joined_times([parts[1], other])
    assert refusal.value.key == "parts"


def test_attributes_of_every_known_variable_come_back():
    for name, variable in VARIABLES.items():
        found = variable_of(name, variable.attributes())
        assert found == variable
        assert variable.low < variable.high
        assert canonical_name(name) == name
        assert describe_variable(name, {})[1] == (1.0, 0.0)
    assert T2M.attributes() == {
        "standard_name": "air_temperature",
        "long_name": "2 metre temperature",
        "units": "K",
    }


@pytest.mark.parametrize("dimension", ["level", "plev", "isobaricInhPa", "pressure_level"])
def test_a_level_is_chosen_by_its_value_and_needs_no_choice_if_it_is_the_only_one(dimension):
    values = drawn(250.0, 5.0, shape=(2, 3, 3, 4))
    levels = np.array([500.0, 850.0, 1000.0])
    pascal = dimension == "plev"
    raw = cmip("ta", drawn(0.0, 1.0))
    raw["ta"] = (("time", dimension, "lat", "lon"), values, {"units": "K"})
    raw = raw.assign_coords({dimension: levels * (100.0 if pascal else 1.0)}).drop_vars("height")
    raw[dimension].attrs["units"] = "Pa" if pascal else "hPa"
    field = canonical(raw, selection=Selection(value="ta", where={"level": 850}))
    np.testing.assert_array_equal(field.ta, values[:, 1])
    assert field.ta.attrs["long_name"] == "air temperature at 850 hPa"
    there = "50000, 85000, 100000 Pa" if pascal else "500, 850, 1000 hPa"
    with pytest.raises(DataError, match=f"'ta' has 3 levels along '{dimension}': {there}") as several:
        canonical(raw, selection=Selection(value="ta"))
    first = float(raw[dimension][0])
    assert (several.value.key, several.value.remedies) == (
        "several-levels",
        (Setting("where", {"level": first}),),
    )
    with pytest.raises(DataError, match=f"level 700 is not in 'ta', which has along '{dimension}': {there}"):
        canonical(raw, selection=Selection(value="ta", where={"level": 700}))
    single = raw.isel({dimension: [2]})
    np.testing.assert_array_equal(canonical(single, selection=Selection(value="ta")).ta, values[:, 2])
    np.testing.assert_array_equal(
        canonical(raw.isel({dimension: 2}), selection=Selection(value="ta", where={"level": 1000})).ta,
        values[:, 2],
    )
    with pytest.raises(DataError) as refusal:
        canonical(single, selection=Selection(value="ta", where={"level": 850}))
    assert refusal.value.key == "not-there"


def test_a_field_without_levels_has_none_to_choose():
    with pytest.raises(DataError) as refusal:
        canonical(raw_dataset(), selection=Selection(where={"level": 850}))
    assert refusal.value.key == "no-level"


@pytest.mark.parametrize(
    ("units", "target", "expected"),
    [
        ("0.1 degC", "K", (0.1, 273.15)),
        ("0.1 K", "K", (0.1, 0.0)),
        ("100 Pa", "Pa", (100.0, 0.0)),
        ("1e-3", "K", None),
        ("0.1 furlong", "K", None),
    ],
)
def test_a_number_before_a_unit_multiplies(units, target, expected):
    assert conversion(units, target) == expected


@one_after_another
@pytest.mark.parametrize(
    ("units", "target", "expected"),
    [
        ("MPa", "Pa", (1e6, 0.0)),
        ("mPa", "Pa", (1e-3, 0.0)),
        ("℃", "K", (1.0, 273.15)),
        ("ºC", "K", (1.0, 273.15)),
        ("0.1 ℃", "K", (0.1, 273.15)),
        ("grados Celsius", "K", (1.0, 273.15)),
        ("°F", "K", (5.0 / 9.0, 459.67 * 5.0 / 9.0)),
        ("F", "K", (5.0 / 9.0, 459.67 * 5.0 / 9.0)),
        ("kt", "m s-1", (1852.0 / 3600.0, 0.0)),
        ("mi/h", "m s-1", (0.44704, 0.0)),
        ("inHg", "Pa", (3386.389, 0.0)),
        ("mm Hg", "Pa", (133.3224, 0.0)),
        ("inches", "m", (0.0254, 0.0)),
        ("m s⁻¹", "m s-1", (1.0, 0.0)),
        ("knots", "Pa", None),
        ("mpa", "mPa", None),  # either
        ("MPA", "Pa", None),
        ("pA", "Pa", None),
        ("Mm", "m", None),
        ("Mm d-1", "kg m-2 s-1", None),
        ("mW/m2", "MW m-2", None),
        ("MW/m2", "MW m-2", (1.0, 0.0)),
        ("MM", "m", (1e-3, 0.0)),
        ("MM/DAY", "kg m-2 s-1", (1.0 / 86400.0, 0.0)),
        ("M/S", "m s-1", (1.0, 0.0)),
        ("Km h-1", "m s-1", (1.0 / 3.6, 0.0)),
        ("G/KG", "kg kg-1", (1e-3, 0.0)),
        ("k", "K", (1.0, 0.0)),
        ("Celsius", "K", (1.0, 273.15)),
        ("DEGC", "K", (1.0, 273.15)),
        ("Deg_C", "K", (1.0, 273.15)),
        ("°c", "K", (1.0, 273.15)),
        ("c", "K", (1.0, 273.15)),
        ("HPA", "Pa", (100.0, 0.0)),
        ("hpa", "Pa", (100.0, 0.0)),
        ("Mb", "Pa", (100.0, 0.0)),
        ("MB", "Pa", (100.0, 0.0)),
        ("mbar", "Pa", (100.0, 0.0)),
        ("Mbar", "Pa", None),
        ("PA", "Pa", (1.0, 0.0)),
        ("Pascal", "Pa", (1.0, 0.0)),
    ],
)
def test_case_tells_prefixes_apart_and_nothing_else(units, target, expected):
    assert conversion(units, target) == expected


@one_after_another
@pytest.mark.parametrize(
    ("units", "published"),
    [
        ("m s**-1", "m s-1"),
        ("J m**-2", "J m-2"),
        ("kg/m^2/s", "kg m-2 s-1"),
        ("m**3 m**-3", "m3 m-3"),
        ("degrees Celsius", "degC"),
        ("kelvin", "K"),
        ("Proportion", "1"),
        ("~", "1"),
        ("1/s", "s-1"),
        ("psu", "psu"),
        ("deg / 100 km", "deg / 100 km"),
        ("", ""),
    ],
)
def test_units_are_published_as_cf_writes_them(units, published):
    """Also those of a store that was written before they were."""
    assert describe_variable("any", {"units": units})[0].units == published
    assert variable_of("any", {"units": units}).units == published


@pytest.mark.parametrize(
    ("units", "shown"),
    [
        ("ug m-3", "µg m⁻³"),
        ("umol m-2 s-1", "µmol m⁻² s⁻¹"),
        ("unit", "unit"),
        ("m2", "m²"),
        ("degC", "°C"),
        ("1", ""),
    ],
)
def test_units_are_shown_with_raised_powers_and_micro(units, shown):
    assert symbol(units) == shown


def test_a_number_before_the_unit_that_a_job_states_scales_any_variable():
    variable, scale = describe_variable("TMAX", {}, units="0.1 degC")
    assert (variable.units, scale) == ("degC", (0.1, 0.0))
    variable, scale = describe_variable(
        "salinity", {"units": "0.001 kg m-3"}
    )  # a file's own number stays in it
    assert (variable.units, scale) == ("0.001 kg m-3", (1.0, 0.0))


def decimal_years(years, units="year A.D."):
    raw = cmip("tas", np.full((2, 3, 4), 280.0)).isel(time=[0] * len(years)).drop_vars(["time", "time_bnds"])
    return raw.assign_coords(time=("time", years, {"units": units}))


@pytest.mark.parametrize("units", ["year A.D.", "years", "decimal year", "Year"])
def test_decimal_years_become_times_to_the_hour(units):
    found = canonical(
        decimal_years([2019.0, 2019.5, 2020.5, 2020.0 + 59 / 366], units), selection=Selection(value="tas")
    )
    expected = ["2019-01-01T00", "2019-07-02T12", "2020-02-29T00", "2020-07-02T00"]
    np.testing.assert_array_equal(found.time.values, np.array(expected, dtype="datetime64[ns]"))


def test_other_numbers_are_no_times():
    with pytest.raises(DataError) as refusal:
        canonical(decimal_years([2019.0], "fortnights"), selection=Selection(value="tas"))
    assert refusal.value.key == "no-dates"
    with pytest.raises(DataError) as refusal:
        canonical(decimal_years([3.0, 2019.0]), selection=Selection(value="tas"))
    assert refusal.value.key == "years"
