"""Zinc in the soil along the Meuse."""

from pathlib import Path

import numpy as np
import pandas as pd

from pipelines.proof.problems import Problem, Table, kriged, leave_one_out, usual_peers


def problem(data: Path) -> Problem:
    """155 places, each predicted from the others; the logarithm of zinc."""
    rows = pd.read_csv(data / "geostat" / "meuse.csv")
    rows = rows[rows["in.meuse155"]].reset_index(drop=True)
    rows = rows.assign(log_zinc=np.log(rows["zinc"]), root_distance=np.sqrt(rows["dist.m"]))
    return Problem(rows, ("x", "y"), "log_zinc", *leave_one_out(rows))


TABLE = Table(
    "meuse",
    "Meuse: zinc in soil",
    "Rikken & Van Rijn (1993); R package sp, the 155 places of its data set `meuse`",
    "The logarithm of zinc at each of 155 places from the 154 others, to which everything is fitted again; "
    "without and with the square root of the distance from the river as a covariate.",
    "log(mg/kg)",
    problem,
    {
        "`krige`, nothing set": kriged(),
        '`krige(mean="root_distance")`': kriged(covariates=["root_distance"]),
    },
    usual_peers("root_distance"),
    {},
)
