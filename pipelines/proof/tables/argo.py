"""Temperatures of Argo floats."""

from pathlib import Path

import numpy as np

from pipelines.experiments.depth import profiles
from pipelines.proof.problems import Problem, Table, kriged, usual_peers

OBSERVED, HELD_OUT, SEED, DEPTH = 900, 600, 0, 100.0


def problem(data: Path) -> Problem:
    """900 floats of a week observed, 600 to predict, at 100 dbar."""
    rows = profiles(data / "geostat")
    rows = rows[rows["pressure (dbar)"] == DEPTH].reset_index(drop=True)
    chosen = np.random.default_rng(SEED).permutation(len(rows))[: OBSERVED + HELD_OUT]
    rows = rows.loc[chosen, ["longitude", "latitude", "temperature"]].reset_index(drop=True)
    observed = np.arange(len(rows)) < OBSERVED
    return Problem(rows, ("longitude", "latitude"), "temperature", observed[None], ~observed[None])


TABLE = Table(
    "argo",
    "Argo: temperature at 100 dbar",
    "Argo floats, January to March 2016; R package GpGp",
    "Temperature at 600 floats of a week from 900 others, all drawn at random, on the whole globe.",
    "degC",
    problem,
    {"`krige`, nothing set": kriged()},
    usual_peers(),
    {},
)
