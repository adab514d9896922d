"""What is said of work before it begins: how it is done, and planned ways to have it faster."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.likelihood.duration import FitSize, fit_seconds
from cagp_dist.mapping import Observations, SolveSettings
from cagp_dist.mapping.fitted_model import FittedModel, faster_fits
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.map_solves import outlook_of, plan_solves
from cagp_dist.mapping.maps_at_times import outlook_of_times, predict_in_time
from cagp_dist.mapping.narration import Way
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

BYTES = 64 * 2**30
RNG = np.random.default_rng(0)
SCATTER = Observations.from_points(
    RNG.uniform(-60, 60, 30_000), RNG.uniform(0, 360, 30_000), np.ones((1, 30_000))
)
TARGETS = MapPoints(cagp.unit_sphere(np.linspace(-60.0, 60.0, 200_000), np.linspace(0.0, 3600.0, 200_000)))


def seconds_of(solver):
    """Seconds of a solve as it is planned, and by each way that is proposed."""
    settings = SolveSettings(ThreadExecutor(2), BYTES, solver=solver)
    solves = plan_solves(SCATTER, TARGETS, settings, kernel_parts=1)
    found = outlook_of(solves, iterations=50)
    return found.seconds, {way.text: way.seconds for way in found.faster}


def test_ways_to_a_faster_solve_are_those_of_this_solve_and_are_planned():
    near, ways = seconds_of("auto")
    demand = Demand(30_000, len(TARGETS.X), 1, False, 2, True, BYTES, bounds=True)
    few = ways["solver=cagp.Neighbours(32), with wider error bars"]
    assert few == pytest.approx(cagp.Neighbours(32).plan(demand).seconds)
    assert ways["a quarter of the targets"] < 0.5 * near
    assert not any("BlockGaussSeidel" in text or "auto" in text for text in ways)
    swept, ways = seconds_of("block-gauss-seidel")
    assert ways['solver="auto"'] == pytest.approx(near)
    assert ways["solver=cagp.BlockGaussSeidel(20), with wider error bars"] < 0.6 * swept
    assert "executor=CLIENT, a Dask cluster of 8 cores" in ways


def test_a_fit_says_which_numbers_would_spare_it():
    size = FitSize("vecchia", 100_000, 1, kernels=3)
    numbers, alone = faster_fits(size, ["variance"], 2, kilometres=True)
    assert numbers == ("lengthscale_km and noise_std where you know them", 0.0)
    assert alone.seconds == fit_seconds(size._replace(kernels=1), workers=2) < fit_seconds(size, workers=2)
    (numbers,) = faster_fits(size._replace(kernels=1), [], 2, kilometres=False)
    assert numbers == Way("lengthscale, variance and noise_std where you know them", 0.0)


PRODUCT = cagp.SpaceTime(cagp.Matern32(0.1, 1.0), cagp.Matern12(5.0))
MODES = "modes in space and time of 110 places at 60 times"
KERNELS = {
    "product": (PRODUCT, MODES),
    "metric": (cagp.SpaceTime(cagp.Matern32(0.1, 1.0), lengthscale_time=5.0), "nearest neighbours"),
    "sum": (PRODUCT + PRODUCT, "nearest neighbours"),
    "to be chosen": ("auto", f"{MODES} if the kernel is a product, else 32 to 128 nearest neighbours"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_outlook_of_maps_at_times_says_how_they_are_solved(name):
    kernel, expected = KERNELS[name]
    north, east = (np.tile(RNG.uniform(*ends, 110), 60) for ends in ((40.0, 60.0), (0.0, 20.0)))
    moments = np.datetime64("2024-01-01") + np.repeat(np.arange(60), 110).astype("timedelta64[h]")
    observed = Observations.from_points(north, east, RNG.standard_normal((1, 6600)))
    observed = observed.in_space_and_time(moments)
    targets = MapPoints(cagp.unit_sphere(north[:50], east[:50])).at_hours(np.arange(60.0))
    settings = SolveSettings(SerialExecutor())

    def text(**changed):
        own = replace(settings, **changed)
        return outlook_of_times(observed, targets, own, kernel=kernel).text

    assert expected in text()
    assert ("modes" in text()) == (name in ("product", "to be chosen"))
    for changed in ({"lead_hours": 0.0}, {"solver": cagp.Neighbours(32)}):
        assert "modes" not in text(**changed)
    if name == "product":
        learned = FittedModel(kernel, np.asarray(0.25), 0.0)
        assert predict_in_time(observed, learned, targets, settings).solvers == (text(),)
