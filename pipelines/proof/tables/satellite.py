"""Land surface temperatures seen by a satellite, the comparison of Heaton et al."""

from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from pipelines.experiments.satellite import PUBLISHED
from pipelines.proof.problems import Peer, Problem, Published, Table, kriged, split_in_two, usual_peers

SOURCE = "Heaton et al. 2019, Table 3"


def problem(data: Path) -> Problem:
    """105,569 cells observed, 42,740 to predict."""
    with xr.open_dataset(data / "heaton" / "satellite_train.nc") as file:
        train = file["MaskTemp"].load()
    with xr.open_dataset(data / "heaton" / "satellite_true.nc") as file:
        truth = file["TrueTemp"].load()
    grid = np.meshgrid(truth["latitude"], truth["longitude"], indexing="ij")
    rows = pd.DataFrame(dict(zip(("latitude", "longitude"), (part.ravel() for part in grid), strict=True)))
    seen = rows.assign(temperature=train.values.ravel()).dropna()
    held_out = rows.assign(temperature=truth.where(train.isnull()).values.ravel()).dropna()
    together, observed, wanted = split_in_two(seen, held_out)
    return Problem(together, ("longitude", "latitude"), "temperature", observed, wanted)


TABLE = Table(
    "satellite",
    "Satellite: land surface temperature",
    "Heaton et al. (2019), *A Case Study Competition Among Methods for Analyzing Large Spatial Data*; "
    "MODIS, 4 August 2016",
    "Temperatures of 42,740 cells from 105,569 others; large clouds are held out.",
    "degC",
    problem,
    {"`krige`, nothing set": kriged()},
    usual_peers() | {"GPBoost, Matern 1/2": Peer("gpboost", "rough", matrices=0.0)},
    {
        name: Published({"MAE": mae, "RMSE": rmse, "CRPS": crps}, SOURCE)
        for name, (mae, rmse, crps, _, _) in PUBLISHED.items()
    },
)
