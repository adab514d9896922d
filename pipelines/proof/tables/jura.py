"""Cadmium in the topsoil of the Swiss Jura."""

import time
from pathlib import Path

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.predictive import Gaussian
from pipelines.proof.problems import Answer, Problem, Published, Table, kriged, split_in_two, usual_peers

OTHERS = ["Ni", "Zn"]
QUOTED = "as quoted in the literature on several outputs"


def problem(data: Path) -> Problem:
    """259 places observed, 100 to predict."""
    train, valid = (pd.read_csv(data / "geostat" / f"jura_{part}.csv") for part in ("train", "valid"))
    rows, observed, wanted = split_in_two(train, valid)
    return Problem(rows, ("x_km", "y_km"), "Cd", observed, wanted)


def with_other_metals(problem: Problem) -> Answer:
    """Predict cadmium from itself, and from nickel and zinc, which are known at all places."""
    wanted = problem.wanted[0]
    seen = problem.rows.assign(Cd=problem.rows["Cd"].where(~wanted))
    began, worked = time.perf_counter(), time.process_time()
    found = cagp.krige(
        seen[[*problem.axes, "Cd", *OTHERS]],
        to=problem.rows.loc[wanted, [*problem.axes]],
        columns=dict(zip(("x", "y"), problem.axes, strict=True)),
        value=["Cd", *OTHERS],
        progress=False,
    )
    mean = found["Cd_mean"].values
    std = np.hypot(found["Cd_std"].values, found.attrs["noise_std_Cd"])
    return Answer(Gaussian(mean, std), mean, mean, time.perf_counter() - began, time.process_time() - worked)


TABLE = Table(
    "jura",
    "Jura: cadmium in soil",
    "Goovaerts (1997), *Geostatistics for Natural Resources Evaluation*; R package gstat",
    "Cadmium at 100 places of validation, from 259 others; nickel and zinc are known at all 359.",
    "mg/kg",
    problem,
    {
        "`krige`, nothing set": kriged(),
        '`krige(transform="auto")`': kriged(transform="auto"),
        '`krige(value=["Cd", "Ni", "Zn"])`': with_other_metals,
    },
    usual_peers(),
    {
        "cokriging with nickel and zinc": Published({"MAE": 0.51}, QUOTED),
        "the best Gaussian process of several outputs": Published({"MAE": 0.46}, QUOTED),
    },
)
