"""Damage to what comes from outside: fields in NetCDF and GRIB files, and job files."""

import time
from collections import Counter
from pathlib import Path

import numpy as np

from cagp_dist.errors import ConfigurationError, DamagedFileError, DataError
from cagp_dist.fields.gridded import AbsentVariableError
from cagp_dist.service.jobfile.config import load_job

from ..fields.test_damage import temperature
from ..jobs import job_text
from ..regional import EUROPE
from ..service.damaged_jobs import damaged_job
from .processes import lines
from .rows import Row

JOB_SECONDS = 10.0
"""What reading a job file may take."""

DECODE_SECONDS = 60.0
"""Until the next copy is decoded, or the first; `tests.fields.fuzzed` allows half of it for each."""

NAMED = (
    *(f"refused {each.__name__}" for each in (DataError, DamagedFileError, AbsentVariableError)),
    "crashed",
)
"""Errors of the parent: what is there makes no sense, or has another name; and the child died."""

CHECKED = "netcdf-4"
"""The format in which values have checksums, and neither axes nor the index of what is where."""

AXIS_DEGREES = 0.03
"""By which an axis without a checksum may be off: more is out of line, and refused."""


def damaged_files(count: int, rng: np.random.Generator, folder: Path, *, kind: str) -> Row:
    """Decode damaged copies of a file: refused by name, the same data, or values that damage left near."""
    row = Row(f"{kind} files damaged")
    source, copies = _source(kind, folder), folder / "copies"
    copies.mkdir()
    found: Counter[str] = Counter()
    given = (source.resolve(), copies.resolve(), count, rng.integers(2**31))
    for line in lines(row, "-m", "tests.fields.fuzzed", *given, seconds=DECODE_SECONDS):
        row.begin(count)
        way, outcome = line.split(" ", 1)
        found[outcome.split()[0]] += 1
        if outcome == "same":
            row.count(same=True)
        elif outcome.startswith("other"):
            allowed = way in ("flip", "header") and (kind != CHECKED or _values_are_right(outcome))
            row.expect(allowed, f"{way}: taken for other data, {outcome}")
        else:
            row.named_errors += outcome in NAMED
            row.expect(outcome in NAMED, f"{way}: {outcome}")
    row.must_have("files", row.runs, at_least=count)
    row.must_have("refused by name", row.named_errors, at_least=count // 4)
    if found["crashed"]:
        row.notes.append(f"{found['crashed']} children died, which is an error of the parent by name")
    if found["other"]:
        what = "made values missing, or changed" if kind == CHECKED else "changed values or"
        row.notes.append(f"{found['other']} flips, which no checksum shows, {what} an axis")
    return row


def _values_are_right(outcome: str) -> bool:
    """Whether values at times are those of the whole file, or missing, and the axes near."""
    far = dict(word.split("=") for word in outcome.split()[1:] if "=" in word)
    right = far.get("values") == far.get("time") == "0"
    return right and all(float(far[axis]) < AXIS_DEGREES for axis in ("latitude", "longitude"))


def _source(kind: str, folder: Path) -> Path:
    if kind == "grib":
        return EUROPE
    path = folder / "field.nc"
    if kind == CHECKED:
        temperature(units="K").to_netcdf(path, engine="h5netcdf", encoding={"t2m": {"zlib": True}})
    else:
        temperature(units="K").to_netcdf(path, engine="scipy")
    return path


def damaged_job_files(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Read damaged job files: each is a job, or refused by the name of the file, in time."""
    row, path = Row("job files damaged"), folder / "job.toml"
    good = job_text(output={"root": "out"}).encode()
    for number in range(count):
        row.begin(count)
        path.write_bytes(damaged_job(good, number, rng))
        began = time.process_time()  # which nobody else takes
        try:
            load_job(path)
            row.count(same=True)
        except ConfigurationError as error:
            row.named_errors += 1
            row.expect(str(path) in str(error), str(error))
        row.expect(time.process_time() - began < JOB_SECONDS, "reading took too long")
    row.must_have("refused by name", row.named_errors, at_least=count // 4)
    return row
