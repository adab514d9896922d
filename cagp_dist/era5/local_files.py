"""Fields from files: GRIB, NetCDF of the old and the new layout, zips of them; decoded in a child process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

import numpy as np
import xarray as xr

import cagp_dist
from cagp_dist.arrays import Times
from cagp_dist.digest import file_sha256, open_regular
from cagp_dist.era5.calendars import named
from cagp_dist.era5.canonical import assemble
from cagp_dist.era5.selection import Choice, FileSelection
from cagp_dist.era5.sniff import HEAD_BYTES, file_kind
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.variables import variable_of

DECODE_SECONDS = 600.0
"""Time a child process has for one file; a year of global hourly GRIB decodes in about 300 s."""

_SECRETS = ("CDSAPI_KEY", "ECMWF_DATASTORES_KEY")


def open_file(
    path: str | os.PathLike[str],
    *,
    scratch: Path,
    time_limit_seconds: float = DECODE_SECONDS,
    **selection: Unpack[FileSelection],
) -> xr.Dataset:
    """Decode the selected part of a file into canonical form.

    The format is told by the first bytes, whatever the name says.  Decoding happens in a child process with
    a time limit: a file that crashes or hangs its decoder is an error, not the end of this process.
    """
    where = Path(path)
    check_file(where)
    with scratch_folder(scratch) as folder:
        job: dict[str, object] = {
            "path": os.fspath(where.absolute()),
            "folder": folder,
            "selection": selection,
        }
        run_child(job, str(where), time_limit_seconds)
        field = decoded(Path(folder))
    field.attrs |= {"source": named(f"file:{where}", field), "source_sha256": file_sha256(where)}
    return field


def file_times(
    path: str | os.PathLike[str],
    *,
    variable: str = "t2m",
    level: float | None = None,
    select: Mapping[str, Choice] | None = None,
    scratch: Path,
    time_limit_seconds: float = DECODE_SECONDS,
) -> Times:
    """List the times of a file; no value of its field is decoded."""
    where = Path(path)
    check_file(where)
    with scratch_folder(scratch) as folder:
        job: dict[str, object] = {
            "path": os.fspath(where.absolute()),
            "folder": folder,
            "selection": {"variable": variable, "level": level, "select": select},
            "times_only": True,
        }
        run_child(job, str(where), time_limit_seconds)
        return np.asarray(np.load(Path(folder) / "time.npy", allow_pickle=False))


def check_file(path: Path) -> None:
    """Raise `DataError` unless a path is a file whose first bytes can be decoded."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected one file. Write zarr:{path} if it is a Zarr store.")
    try:
        with open_regular(path) as stream:
            file_kind(stream.read(HEAD_BYTES), name=str(path))
    except OSError as error:
        raise DataError(
            f"cannot read {path} ({error.strerror}); expected a GRIB or NetCDF file. Check the path; it is "
            f"relative to {Path.cwd()}."
        ) from error


def decoded(folder: Path) -> xr.Dataset:
    """Read the field that a child process has left in a folder."""
    values, time, latitude, longitude = (
        np.load(folder / f"{name}.npy", allow_pickle=False)
        for name in ("values", "time", "latitude", "longitude")
    )
    found = json.loads((folder / "variable.json").read_text())
    variable = variable_of(found["name"], found["attributes"])
    return assemble(values, time, latitude, longitude, variable).assign_attrs(found["field"])


def scratch_folder(scratch: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the arrays on their way, which is removed with its context."""
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="decode-", dir=scratch)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write to the cache folder {scratch} ({error.strerror}); choose one that can be written."
        ) from error


def run_child(job: Mapping[str, object], what: str, time_limit_seconds: float) -> None:
    """Decode in a child process; what goes wrong there is raised here, naming ``what``."""
    package = os.fspath(Path(cagp_dist.__file__).parents[1])
    environment = {key: value for key, value in os.environ.items() if key not in _SECRETS}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "cagp_dist.era5._decode"],
            input=json.dumps({**job, "parent": os.getpid()}),
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=time_limit_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"decoding {what} took longer than {time_limit_seconds:g} s and was stopped. The file is "
            "damaged, or holds far more than was selected: split it."
        ) from error
    if child.returncode == 0:
        return
    _raise_told(Path(str(job["folder"])), what)
    raise DataError(
        f"the decoder of {what} {_ending(child.returncode)}. The file is damaged or does not fit into "
        f"memory; fetch it again or select less. It said: {_last_line(child.stderr)}"
    )


def _raise_told(folder: Path, what: str) -> None:
    """Raise the error that the child has written down, if it came so far."""
    answer = folder / "error.json"
    if answer.exists():
        told = json.loads(answer.read_text())
        kind = ConfigurationError if told["kind"] == ConfigurationError.__name__ else DataError
        raise kind(f"{what}: {told['message']}")


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    return f"was ended by {signal.Signals(-returncode).name}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing"
