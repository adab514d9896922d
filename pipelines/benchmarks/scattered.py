"""Measured cases of scattered points: kriging from neighbours, and fits by Vecchia's likelihood.

Points are drawn uniformly on the sphere; Matern 3/2, lengthscale 0.04, noise a fortieth of the variance.
"""

import numpy as np
from scipy.sparse import eye_array, vstack

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.gram.targets import joined_targets
from cagp_dist.gram.vecchia_factor import vecchia_factor
from cagp_dist.runtime import ExecutorLike, given_or_threads, open_executor
from pipelines.benchmarks.measuring import Figures, exponents, named, on_sphere, peak_mebibytes, timed

PRIOR = cagp.Prior(cagp.Matern32(0.04, 1.0), 0.024, mean=0.0)
MAP = 64_800
"""Targets of a map of one degree."""

FEW, MANY, MOST = 100_000, 1_000_000, 10_000_000
SHARE = 10
"""Observations for each target, where targets grow with them."""

FITTED, FITTED_MANY = 10_000, 1_000_000
NUGGET, DRAWN_FROM = 1e-6, 30
"""Of fields that are drawn: a noise that keeps points apart, and neighbours that each point is drawn from."""


def scattered() -> Figures:
    """10^5 and 10^6 points observed, a map of 64,800 targets; and how time grows with both."""
    _solved(5_000, 500)  # compiled
    figures: Figures = {}
    for n in (FEW, MANY):
        figures |= _named(_solved(n, MAP), n, MAP)
    return figures | _grown([FEW // 4, FEW, 4 * FEW])


def neighbours() -> Figures:
    """Map 64,800 targets among 10^6 points, serial, by threads and by two Dask workers, to the bit.

    Beside it a k-d tree of SciPy, built and asked for 64 neighbours of each target, in the same process.
    """
    from distributed import Client, LocalCluster
    from scipy.spatial import cKDTree

    X, targets, y = (
        on_sphere(MANY, seed=0),
        on_sphere(MAP, seed=1),
        np.random.default_rng(2).standard_normal(MANY),
    )
    found: list[cagp.Posterior] = []

    def solve(executor: ExecutorLike) -> None:
        found.append(cagp.condition(PRIOR, X, y, targets, solver=cagp.Neighbours(), executor=executor))

    with (
        open_executor("local", workers=2) as threads,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        ways = {
            "tree": lambda: cKDTree(X).query(targets, 64),
            "serial": lambda: solve("serial"),
            "threads": lambda: solve(threads),
            "dask": lambda: solve(client),
        }
        for way in ways.values():  # compiled
            way()
        runs = [{name: timed(way)[0] for name, way in ways.items()} for _ in range(3)]
    if not all(np.array_equal(each.mean, found[0].mean) for each in found):
        raise SystemExit("executors give different bits")
    least = {
        name: {figure: min(run[name][figure] for run in runs) for figure in runs[0][name]} for name in ways
    }
    figures = {f"{figure}_{name}": value for name, own in least.items() for figure, value in own.items()}
    del figures["processor_seconds_dask"]  # of this process alone
    return {
        **figures,
        "times_tree": least["serial"]["processor_seconds"] / least["tree"]["processor_seconds"],
        "ratio_threads": least["serial"]["seconds"] / least["threads"]["seconds"],
        "ratio_dask": least["serial"]["seconds"] / least["dask"]["seconds"],
    }


def scattered_large() -> Figures:
    """10^6 points and 10^6 targets, 10^7 and 64,800, and the exponent up to 10^7: minutes, and 3 GiB."""
    _solved(5_000, 500)
    figures: Figures = {}
    for n, q in ((MANY, MANY), (MOST, MAP)):
        figures |= _named(_solved(n, q), n, q)
    return figures | _grown([FEW, MANY, MOST])


def shared_errors() -> Figures:
    """Map 64,800 targets from 10^5 points of 1,000 ships anywhere, and find the errors of the ships."""
    return _of_ships(FEW, 1_000)


def shared_errors_large() -> Figures:
    """Map them from 10^6 points of 10,000 ships, each pair of which met."""
    return _of_ships(MANY, 10_000)


def scattered_fit() -> Figures:
    """Fit lengthscale, variance and noise variance to a field at 10,000 points."""
    return _fitted(FITTED)


def scattered_fit_large() -> Figures:
    """Fit them to 10^6 points."""
    return _fitted(FITTED_MANY)


def field(X: Array, *, seed: int = 0) -> Array:
    """Draw observations (n,) of a field of the prior."""
    return drawn(PRIOR, X, seed=seed)


def drawn(prior: cagp.Prior, X: Array, *, seed: int = 0) -> Array:
    """Draw observations (n,), by Vecchia's factor of the field without noise."""
    rng = np.random.default_rng(seed)
    with given_or_threads(None, None) as (executor, _):
        factor = vecchia_factor(prior.kernel, X, NUGGET, neighbours=DRAWN_FROM, executor=executor)
    noise = np.sqrt(prior.noise_number) * rng.standard_normal(len(X))
    return factor.draw(rng.standard_normal(len(X))) + noise


def _solved(n: int, q: int) -> Figures:
    X, targets, y = on_sphere(n, seed=0), on_sphere(q, seed=1), np.random.default_rng(2).standard_normal(n)
    return timed(lambda: cagp.condition(PRIOR, X, y, targets, solver=cagp.Neighbours()))[0]


def _of_ships(n: int, ships: int) -> Figures:
    figures: Figures = {}
    for count, groups in ((5_000, 50), (n, ships)):  # compiled before it is measured
        X, targets = on_sphere(count, seed=0), on_sphere(MAP if count == n else 500, seed=1)
        y, ship = np.random.default_rng(2).standard_normal(count), np.arange(count) % groups
        alone, labels = np.full(len(targets), -1.0), np.arange(groups)
        errors = cagp.LinearFunctionals(
            np.vstack(
                [np.column_stack([X[:groups], labels]), np.column_stack([X[:groups], 0.0 * labels - 1.0])]
            ),
            vstack([eye_array(groups), -eye_array(groups)]),
        )
        wanted = joined_targets([np.column_stack([targets, alone]), errors])
        prior = cagp.Prior(PRIOR.kernel + cagp.SameLabel(4.0 * PRIOR.noise_number, axis="ship"), 0.024, 0.0)
        rows = np.column_stack([X, ship])
        solver = cagp.Neighbours()
        without, _ = timed(lambda: cagp.condition(PRIOR, X, y, targets, solver=solver))  # noqa: B023
        figures, _ = timed(lambda: cagp.condition(prior, rows, y, wanted, solver=solver))  # noqa: B023
        figures["times_alone"] = figures["processor_seconds"] / without["processor_seconds"]
    return figures | {"peak_mebibytes": peak_mebibytes()}


def _fitted(n: int) -> Figures:
    for count in (3_000, n):  # compiled before it is measured
        X = on_sphere(count, seed=0)
        y = field(X)
        figures, found = timed(lambda: cagp.fit(cagp.Matern32, X, y, mean=0.0))  # noqa: B023
    prior = found.prior
    numbers = prior.kernel.lengthscale, prior.kernel.variance, prior.noise_number
    truth = PRIOR.kernel.lengthscale, PRIOR.kernel.variance, PRIOR.noise_number
    off = np.log(np.divide(numbers, truth)) / np.sqrt(np.diag(found.log_covariance))
    return {**figures, "evaluations": found.evaluations, "standard_errors_off": float(abs(off).max())}


def _grown(counts: list[int]) -> Figures:
    """Exponent of seconds in the number of points and targets, which grow together."""
    return exponents(counts, [_solved(n, n // SHARE) for n in counts])


def _named(figures: Figures, n: int, q: int) -> Figures:
    """Add sizes to the names, and the most memory that this process has held so far."""
    return named({**figures, "peak_mebibytes": peak_mebibytes()}, f"{n}_{q}")
