"""Land surface temperatures seen by a satellite, the comparison of Heaton et al."""

from pathlib import Path

import pandas as pd

from pipelines.experiments.satellite import PUBLISHED, read
from pipelines.proof.problems import Peer, Problem, Published, Table, kriged, split_in_two, usual_peers

SOURCE = "Heaton et al. 2019, Table 3"


def problem(data: Path) -> Problem:
    """105,569 cells observed, 42,740 to predict."""
    train, places, truth = read(data / "heaton", slice(None))
    seen = train.to_series().dropna().rename("temperature").reset_index()
    held_out = pd.DataFrame(places | {"temperature": truth})
    together, observed, wanted = split_in_two(seen, held_out)
    return Problem(together, ("longitude", "latitude"), "temperature", observed, wanted)


TABLE = Table(
    "satellite",
    "Satellite: land surface temperature",
    "Heaton et al. (2019), *A Case Study Competition Among Methods for Analyzing Large Spatial Data*; "
    "MODIS, 4 August 2016",
    "Temperatures of 42,740 cells from 105,569 others; large clouds are held out. GPBoost conditions on its "
    "default of 20 neighbours, and predicts from 60. More is on [another "
    "page](peers.md#satellite-temperatures-a-public-benchmark).",
    "degC",
    problem,
    {"`krige`, nothing set": kriged()},
    usual_peers() | {"GPBoost, Matern 1/2": Peer("gpboost", "rough", matrices=0.0)},
    {
        name: Published({"MAE": mae, "RMSE": rmse, "CRPS": crps}, SOURCE)
        for name, (mae, rmse, crps, _, _) in PUBLISHED.items()
    },
)
