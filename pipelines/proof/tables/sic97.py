"""Rain in Switzerland, the Spatial Interpolation Comparison of 1997."""

from pathlib import Path

import pandas as pd

from pipelines.proof.problems import Peer, Problem, Table, kriged, split_in_two, usual_peers


def problem(data: Path) -> Problem:
    """100 gauges observed, 367 to predict."""
    train, valid = (pd.read_csv(data / "geostat" / f"sic97_{part}.csv") for part in ("train", "valid"))
    rows, observed, wanted = split_in_two(train, valid)
    return Problem(rows, ("x_km", "y_km"), "rain_tenth_mm", observed, wanted)


TABLE = Table(
    "sic97",
    "SIC97: rain of a day",
    "Spatial Interpolation Comparison 1997 (rain of 8 May 1986, Switzerland); R package geoR",
    "Rain at 367 gauges from 100 others.",
    "0.1 mm",
    problem,
    {
        "`krige`, nothing set": kriged(),
        '`krige(anisotropy="fit")`': kriged(anisotropy="fit"),
        '`krige(transform="auto")`': kriged(transform="auto"),
        '`krige(transform="auto", anisotropy="fit")`': kriged(transform="auto", anisotropy="fit"),
        '`krige(mean="elevation")`': kriged(covariates=["elevation"]),
        '`krige(transform="auto", mean="elevation")`': kriged(transform="auto", covariates=["elevation"]),
    },
    usual_peers("elevation")
    | {
        "PyKrige, ellipse by cross-validation": Peer("pykrige", "directed"),
        "GSTools, directional variograms by cross-validation": Peer("gstools", "directed"),
        "GPBoost, gamma likelihood": Peer("gpboost", "gamma", matrices=0.0),
    },
    {},
)
