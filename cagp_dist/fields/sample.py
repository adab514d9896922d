"""The field that comes with the package: ECMWF's analysis of 2017-04-27T12:00 at 0.75 degrees."""

from importlib.resources import as_file, files
from pathlib import Path

import xarray as xr

from cagp_dist.digest import file_sha256
from cagp_dist.errors import DataError
from cagp_dist.fields.files.local_files import open_file
from cagp_dist.fields.selection import EVERYTHING, Selection

SAMPLE_FILE = "ecmwf_2t_2017-04-27T12_0p75_global.nc"
SAMPLE_TIME = "2017-04-27T12:00"
SAMPLE_SHA256 = "80cbe25ca79229778675775c105d881358eccd0f813818a8780c83fe1e2fbd91"
"""Of the GRIB file of ECMWF whose values these are to the bit: runs state it, and their keys hold it."""

STORED_SHA256 = "50d5a8b50bcaab61091ff1e4f66544b67d9c088526f26ed8a18622b962d376de"
"""Of the NetCDF file that the field is stored in, so that it is read without a decoder of GRIB."""


def open_sample(selection: Selection = EVERYTHING, *, scratch: Path) -> xr.Dataset:
    """Read the built-in field, 241 x 480 points."""
    with as_file(files("cagp_dist.fields") / "data" / SAMPLE_FILE) as path:
        if not path.exists() or file_sha256(path) != STORED_SHA256:
            raise DataError(
                f"the built-in sample {path} is absent or damaged; install the package again.", key="damaged"
            )
        field = open_file(path, selection, scratch=scratch)
    field.attrs |= {"source": "sample", "source_sha256": SAMPLE_SHA256}
    return field
