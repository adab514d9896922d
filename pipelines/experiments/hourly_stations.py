"""Hourly stations with nothing set against true numbers: a simulated month, and hours of ERA5.

    python -m pipelines.experiments.hourly_stations [--quick] [--output FOLDER] [--data FILE] [--draws 4]

40 stations in 46-55 N, 5-17 E report for 744 hours: weather with a metric Matern 3/2 of chord 0.04 and 7 h,
variance 3, a lasting offset of standard deviation 1 at every place, and noise of standard deviation 0.1. The
field is predicted at 60 places without a station, whose offsets nobody knows, at 15 hours: by
`cagp.Kriging(at=...)` with nothing set, and with the kernel and noise that were drawn from. Then the same
with 40 and 60 points of the British Isles, March 2019 (2 m temperature), where no true numbers are known.
Draws are exact: hours are equally spaced, so that the covariance of a longer period that closes in a circle
falls apart into one matrix of places for each frequency. Prints a table.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import Scores, scores
from pipelines.experiments.hours import stations
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.real_fields import UNITED_KINGDOM

LEVEL = 0.9
NOISE_STD = 0.1
WEATHER = cagp.SpaceTime(cagp.Matern32(0.04, 3.0), lengthscale_time=7.0)
LASTING = cagp.SpaceTime(cagp.Matern12(1e-4, 1.0), cagp.Matern12(1e6))
"""Offsets: of places 600 m apart nothing in common, of a month all but a thousandth."""

FAR = 30.0
"""Lengthscales in time beyond which weather has nothing in common."""


def drawn(places: pd.DataFrame, hours: int, rng: np.random.Generator) -> Array:
    """Weather and offsets at places, (T, n)."""
    X = cagp.unit_sphere(places["latitude"], places["longitude"])
    period = hours + int(FAR * WEATHER.hours)
    lags = np.minimum(np.arange(period), period - np.arange(period))
    apart = np.linalg.norm(X[:, None] - X, axis=-1) / WEATHER.space.lengthscale
    u = np.sqrt(3.0) * np.sqrt(apart**2 + (lags / WEATHER.hours)[:, None, None] ** 2)
    spectra = np.fft.fft(WEATHER.variance * (1.0 + u) * np.exp(-u), axis=0).real
    factors = np.linalg.cholesky(spectra + 1e-9 * np.eye(len(X)))
    white = np.fft.fft(rng.normal(size=(period, len(X))), axis=0, norm="ortho")
    weather = np.fft.ifft(np.einsum("fij,fj->fi", factors, white), axis=0, norm="ortho").real
    return np.asarray(weather[:hours] + np.sqrt(LASTING.variance) * rng.normal(size=len(X)))


def month(count: int, hours: int, seed: int) -> tuple[pd.DataFrame, Array]:
    """Places of the simulated month, and the field (T, n)."""
    rng = np.random.default_rng(seed)
    places = pd.DataFrame(
        {"latitude": rng.uniform(46.0, 55.0, count), "longitude": rng.uniform(5.0, 17.0, count)}
    )
    return places, drawn(places, hours, rng)


def scored(
    places: pd.DataFrame, values: Array, observed: int, at: Array, noise: float, **settings: object
) -> tuple[Scores, str, float]:
    """Scores at the places after the first ones, the kernel, and processor seconds of the fit."""
    times = pd.date_range("2019-03-01", periods=len(values), freq="h")
    errors = noise * np.random.default_rng(9).normal(size=(len(values), observed))
    table = pd.concat([places[:observed].assign(time=when) for when in times], ignore_index=True)
    table["temperature (K)"] = (values[:, :observed] + errors).ravel()
    worked = time.process_time()
    model = cagp.Kriging(at=times[at], progress=False, **settings).fit(table)
    seconds = time.process_time() - worked
    field = model.predict(places[observed:])
    mean, std = (field[name].values.ravel() for name in ("mean", "std"))
    found = scores(mean, std, values[at, observed:].ravel(), levels=(LEVEL,))
    kernel = str(field.attrs["kernel"]).replace("lengthscale", "l").replace("variance", "v")
    return found, kernel, seconds


def cases(
    data: Path, draws: int, sizes: tuple[int, int, int]
) -> Iterator[tuple[str, int, str, tuple[Scores, str, float]]]:
    """Yield what was predicted from what, and how well."""
    observed, predicted, hours = sizes
    at = np.linspace(hours // 10, hours - 1 - hours // 10, 15).round().astype(int)
    true = {"kernel": WEATHER + LASTING, "noise_std": NOISE_STD}
    for seed in range(draws):
        places, values = month(observed + predicted, hours, seed)
        for name, settings in (("nothing", {}), ("true numbers", true)):
            found = scored(places, values + 10.0, observed, at, NOISE_STD, **settings)
            yield "simulated month", seed, name, found
    if not data.exists():
        return
    for seed in range(draws):
        places, values = stations(data, observed + predicted, hours, seed=seed)
        yield "ERA5 hours", seed, "nothing", scored(places, values, observed, at, 0.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a table."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=UNITED_KINGDOM, help="GRIB of hours (%(default)s)")
    command.add_argument("--draws", type=int, default=4, help="of places and fields (%(default)s)")
    chosen = command.parse_args(arguments)
    draws, sizes = (1, (12, 6, 60)) if chosen.quick else (chosen.draws, (40, 60, 744))
    rows = []
    for what, seed, name, (found, kernel, seconds) in cases(chosen.data, draws, sizes):
        coverage = float(np.asarray(found.coverage).item())
        rows.append([what, str(seed), name, f"{found.crps:.3f}", f"{coverage:.3f}", f"{seconds:.0f}"])
        print(f"{' '.join(rows[-1])} {kernel}", flush=True)
    print_table(["data", "draw", "set", "CRPS", "90 % coverage", "processor seconds of the fit"], rows)


if __name__ == "__main__":
    main()
