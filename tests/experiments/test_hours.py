"""Maps from all hours against maps of each hour, on real fields."""

import pytest

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
