"""What depths mapped together are worth, beside one depth at a time: temperatures of Argo floats.

    python -m pipelines.experiments.depth [--quick] [--data FOLDER]

The profiles of some days are split at random into observed and held-out ones; of these no depth is observed.
Temperatures at 100, 150 and 200 dbar are mapped by `cagp_dist.krige` at the held-out floats: each depth from
its own observations, all together by one kernel of space and depth, and as three variables, of which each has
a variance, a mean and a noise of its own. Observed floats have all three depths, or one of them, drawn at
random. Prints root mean square error, CRPS and how many held-out temperatures intervals of 90 % hold, noise
included, over draws of the split.

The table is ``argo2016.csv.gz`` of the folder ``--data``, from the R package GpGp.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.predictive import Gaussian
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

DATA = Path("../shared/data/geostat")
DEPTHS = (100, 150, 200)
WAYS = ("each alone", "together", "as variables")
FIRST_DAY, DAYS, SPLITS, OBSERVED, HELD_OUT = 736330.0, 7.0, 3, 900, 600
QUICK_OBSERVED = 100
SETTINGS = {"value": "temperature", "kernel": "matern32", "progress": False}


def profiles(folder: Path = DATA) -> pd.DataFrame:
    """Profiles of the days, a row for each depth; ``profile`` numbers them."""
    wide = pd.read_csv(folder / "argo2016.csv.gz")
    wide = wide[(wide["day"] >= FIRST_DAY) & (wide["day"] < FIRST_DAY + DAYS)]
    wide = wide.drop_duplicates(["lat", "lon"]).reset_index(drop=True)
    parts = [
        pd.DataFrame(
            {
                "latitude": wide["lat"],
                "longitude": (wide["lon"] + 180.0) % 360.0 - 180.0,
                "pressure (dbar)": float(depth),
                "temperature": wide[f"temp{depth}"],
                "profile": wide.index,
            }
        )
        for depth in DEPTHS
    ]
    return pd.concat(parts, ignore_index=True)


def split(
    rows: pd.DataFrame, generator: np.random.Generator, *, observed: int, one_depth: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw profiles that are observed, with all depths or one of them, and those that are held out."""
    order = generator.permutation(rows["profile"].max() + 1)
    seen = rows[rows["profile"].isin(order[:observed])]
    if one_depth:
        seen = seen.sample(frac=1.0, random_state=generator).drop_duplicates("profile").sort_index()
    return seen, rows[rows["profile"].isin(order[observed : observed + HELD_OUT])]


def of_variables(seen: pd.DataFrame, wanted: pd.DataFrame) -> tuple[Array, Array]:
    """Mean and standard deviation of an observation at rows, whose depths are variables that go together."""
    axes, depth = ["latitude", "longitude"], "pressure (dbar)"
    wide = seen.pivot_table(index=axes, columns=depth, values="temperature")
    wide.columns = [f"temperature_{level:g}" for level in wide.columns]
    places = wanted[axes].drop_duplicates().reset_index(drop=True)
    settings = {**SETTINGS, "value": [*wide.columns]}
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
        found = cagp.krige(wide.reset_index(), to=places, **settings)
    at = pd.MultiIndex.from_frame(places).get_indexer(pd.MultiIndex.from_frame(wanted[axes]))
    mean, std = np.empty((2, len(wanted)))
    for level in DEPTHS:
        rows, name = (wanted[depth] == level).to_numpy(), f"temperature_{level:g}"
        mean[rows] = found[f"{name}_mean"].values[at[rows]]
        noise = float(found.attrs[f"noise_std_{name}"])
        std[rows] = np.hypot(found[f"{name}_std"].values[at[rows]], noise)
    return mean, std


def mapped(seen: pd.DataFrame, wanted: pd.DataFrame, way: str) -> tuple[Array, Array]:
    """Mean and standard deviation of an observation at rows: depths together, or each by itself."""
    if way == WAYS[2]:
        return of_variables(seen, wanted)
    together = way == WAYS[1]
    mean, std = np.empty((2, len(wanted)))
    axes = ["latitude", "longitude", "pressure (dbar)"]
    for depth in (None,) if together else DEPTHS:
        own, rows, settings = seen, np.full(len(wanted), True), {"columns": {"depth": "pressure (dbar)"}}
        if depth is not None:
            own = seen[seen["pressure (dbar)"] == depth]
            rows, settings = (wanted["pressure (dbar)"] == depth).to_numpy(), {}
        kept = axes if depth is None else axes[:2]
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
            found = cagp.krige(
                own[[*kept, "temperature"]],
                to=wanted.loc[rows, kept].reset_index(drop=True),
                **settings,
                **SETTINGS,
            )
        mean[rows] = found["mean"].values
        std[rows] = np.hypot(found["std"].values, float(found.attrs["noise_std"]))
    return mean, std


def rows_of_table(*, splits: int, observed: int, folder: Path = DATA) -> Iterator[Sequence[str]]:
    """Lines of the table: each way."""
    every = profiles(folder)
    for one_depth in (False, True):
        scores: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
        for number in range(splits):
            seen, wanted = split(every, np.random.default_rng(number), observed=observed, one_depth=one_depth)
            truth = wanted["temperature"].to_numpy()
            for way, own in scores.items():
                mean, std = mapped(seen, wanted, way)
                predicted = Gaussian(mean, std)
                low, high = predicted.quantile([0.05, 0.95])
                rmse = float(np.sqrt(np.mean((mean - truth) ** 2)))
                inside = float(np.mean((low <= truth) & (truth <= high)))
                own.append((rmse, float(predicted.crps(truth).mean()), inside))
        for way, own in scores.items():
            means, errors = np.mean(own, axis=0), np.std(own, axis=0, ddof=1) / np.sqrt(splits)
            yield (
                "one" if one_depth else "three",
                way,
                *(f"{mean:.3f} ± {error:.3f}" for mean, error in zip(means, errors, strict=True)),
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Map and print."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=DATA, help="folder of the table (%(default)s)")
    chosen = command.parse_args(arguments)
    splits, observed = (2, QUICK_OBSERVED) if chosen.quick else (SPLITS, OBSERVED)
    print(f"{observed} observed and {HELD_OUT} held-out profiles, {splits} splits\n")
    head = ("depths of a float", "maps", "RMSE [K]", "CRPS [K]", "90 % intervals hold")
    print_table(head, rows_of_table(splits=splits, observed=observed, folder=chosen.data))


if __name__ == "__main__":
    main()
