"""Rain of a month in Colorado."""

from pathlib import Path

import numpy as np
import pandas as pd

from pipelines.proof.problems import Problem, Table, kriged, usual_peers

FOLDS, SEED = 10, 0


def problem(data: Path) -> Problem:
    """286 gauges in ten random folds."""
    rows = pd.read_csv(data / "geostat" / "colorado_1989_11.csv").rename(columns={"elevation_m": "elevation"})
    rows = rows[["longitude", "latitude", "elevation", "precipitation"]].dropna().reset_index(drop=True)
    fold = np.random.default_rng(SEED).permutation(np.arange(len(rows)) % FOLDS)
    wanted = fold == np.arange(FOLDS)[:, None]
    return Problem(rows, ("longitude", "latitude"), "precipitation", ~wanted, wanted)


TABLE = Table(
    "colorado",
    "Colorado: rain of a month, a third of the gauges dry",
    "National Center for Atmospheric Research; R package fields (November 1989)",
    "Rain at 286 gauges in ten random folds, each from the nine others, to which everything is fitted again; "
    "without and with elevation.",
    "cm",
    problem,
    {
        "`krige`, nothing set": kriged(),
        '`krige(transform="auto")`': kriged(transform="auto"),
        '`krige(transform="auto", mean="elevation")`': kriged(transform="auto", covariates=["elevation"]),
    },
    {name: peer for name, peer in usual_peers("elevation").items() if "universal" not in name},
    {},
)
