"""Gamma dose rates in Germany, the Spatial Interpolation Comparison of 2004."""

from functools import partial
from pathlib import Path

import pandas as pd

from pipelines.proof.problems import Problem, Table, kriged, split_in_two, usual_peers


def problem(data: Path, value: str = "routine") -> Problem:
    """200 stations observed, 808 to predict."""
    train, valid = (pd.read_csv(data / "geostat" / f"sic2004_{part}.csv") for part in ("train", "valid"))
    rows, observed, wanted = split_in_two(train, valid)
    return Problem(rows, ("x", "y"), value, observed, wanted)


SOURCE = "Spatial Interpolation Comparison 2004 (BfS, Joint Research Centre); R package gstat"

TABLE = Table(
    "sic2004",
    "SIC2004: gamma dose rates, routine",
    SOURCE,
    "Dose rates at 808 stations from 200 others.",
    "nSv/h",
    problem,
    {
        "`krige`, nothing set": kriged(),
        '`krige(transform="auto")`': kriged(transform="auto"),
        '`krige(kernel="matern12")`': kriged(kernel="matern12"),
    },
    usual_peers(),
    {},
)

JOKER = Table(
    "joker",
    "SIC2004: gamma dose rates, an accident",
    SOURCE,
    "Dose rates at 808 stations from 200 others. Two of the 200 are amid an accident (the *joker*).",
    "nSv/h",
    partial(problem, value="joker"),
    {
        "`krige`, nothing set": kriged(),
        '`krige(transform="auto")`': kriged(transform="auto"),
        '`krige(outliers="robust")`': kriged(outliers="robust"),
        '`krige(transform="log", outliers="robust")`': kriged(transform="log", outliers="robust"),
    },
    usual_peers(),
    {},
)
