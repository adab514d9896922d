"""`cagp check`: what it prints and writes, of a table and of a job."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app


@pytest.fixture
def table(tmp_path: Path) -> Path:
    latitude, longitude = np.repeat(np.arange(46.0, 52.0), 6), np.tile(np.arange(6.0, 12.0), 6)
    values = 20.0 - (latitude - 46.0) + 0.2 * np.sin(9.0 * longitude)
    values[8] *= 10.0
    frame = pd.DataFrame({"lat": latitude, "lon": longitude, "reading": values})
    frame.to_csv(tmp_path / "stations.csv", index=False)
    return tmp_path / "stations.csv"


def test_flags_of_a_table_are_printed_written_and_drawn(table: Path) -> None:
    flags, drawn = table.with_name("flags.csv"), table.with_name("flags.png")
    found = CliRunner().invoke(app, ["check", str(table), "--output", str(flags), "--map", str(drawn)])
    assert found.exit_code == 0, found.output
    assert "1 of 36 values are flagged (rate 0.05)" in found.output
    assert "divide by 10: " in found.output
    rows = pd.read_csv(flags)
    assert np.flatnonzero(rows.flag).tolist() == [8]
    assert list(rows.columns) == ["lat", "lon", "reading", "flag", "expected", "expected_std", "suggestion"]
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_a_job_says_itself_what_is_checked(table: Path) -> None:
    job = table.with_name("job.toml")
    job.write_text(
        f'[observations]\nsource = "table:{table}"\nvariable = "reading"\n'
        '[design]\ntrain = { kind = "random", count = 30, seed = 0 }\n'
        f'[prior]\nkernel = "matern32"\nlengthscale = 0.1\nvariance = 4.0\nnoise_variance = 0.1\n'
        f'[output]\nroot = "{table.parent}/out"\n'
    )
    found = CliRunner().invoke(app, ["check", str(job), "--rate", "0.01"])
    assert found.exit_code == 0, found.output
    assert "1 of 36 values are flagged (rate 0.01)" in found.stdout
    refused = CliRunner().invoke(app, ["check", str(job), "--value", "reading"])
    assert refused.exit_code == 2
    assert "--value is of tables" in refused.output
