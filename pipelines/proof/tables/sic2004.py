"""Gamma dose rates in Germany, the Spatial Interpolation Comparison of 2004."""

from pathlib import Path

import pandas as pd

from pipelines.proof.problems import Problem, Table, kriged, split_in_two, usual_peers


def problem(data: Path) -> Problem:
    """200 stations observed, 808 to predict."""
    train, valid = (pd.read_csv(data / "geostat" / f"sic2004_{part}.csv") for part in ("train", "valid"))
    rows, observed, wanted = split_in_two(train, valid)
    return Problem(rows, ("x", "y"), "routine", observed, wanted)


TABLE = Table(
    "sic2004",
    "SIC2004: gamma dose rates, routine",
    "Spatial Interpolation Comparison 2004 (BfS, Joint Research Centre); R package gstat",
    "Dose rates at 808 stations from 200 others.",
    "nSv/h",
    problem,
    {"`krige`, nothing set": kriged(), '`krige(transform="auto")`': kriged(transform="auto")},
    usual_peers(),
    {},
)
