"""Whose data a run is made from, and what its owners ask to be said."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Times

_ERA5_STORES = (
    "cds:",
    "zarr:arco-era5",
    "zarr:weatherbench2",
    "zarr:gs://gcp-public-data-arco-era5/",
    "zarr:gs://weatherbench2/datasets/era5/",
)
_NOT_LIABLE = (
    "Neither the European Commission nor ECMWF is responsible for any use that may be made of the Copernicus "
    "information or data it contains."
)


@dataclass(frozen=True)
class Rights:
    """Licence and attribution of the observations, in words."""

    license: str
    attribution: str


def rights_of(source: str, times: Times) -> Rights:
    """Say under which licence observations come, and which words go with what is made from them."""
    years = np.unique(times[~np.isnat(times)].astype("datetime64[Y]")).astype(str)
    span = "-".join(dict.fromkeys(years[[0, -1]])) if years.size else ""
    copernicus = f"Contains modified Copernicus Climate Change Service information {span}. {_NOT_LIABLE}"
    if source == "sample":
        return Rights(
            "Apache-2.0",
            "Made from an analysis of the European Centre for Medium-Range Weather Forecasts (ECMWF), 27 "
            'April 2017 12 UTC, as distributed with the Python package "metview" under Apache-2.0.',
        )
    if source == "synthetic":
        return Rights(
            "none: synthetic data", "Made from fields that were drawn from a prior; nothing was measured."
        )
    if source.startswith(_ERA5_STORES):
        return Rights("CC-BY-4.0, as of ERA5 in the Copernicus Climate Data Store", copernicus)
    return Rights(
        f"that of the observations, {source}, which this file does not know; see their provider",
        f"Made from {source}. If that is ERA5 or another Copernicus product: {copernicus}",
    )
