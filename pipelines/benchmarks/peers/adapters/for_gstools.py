"""GSTools: simple kriging, by the inverse of the dense matrix."""

import gstools
import numpy as np
from harness import Array, Clock, Fit, Prediction, Problem, serve

CHUNK = 1000
BINS = np.linspace(0.0, 0.5, 51)
SAMPLED_POINTS = 3000


class Matern32(gstools.CovModel):
    """Matern-3/2 in closed form: ``gstools.Matern(nu=1.5)`` evaluates Bessel functions, much slower."""

    def cor(self, h: Array) -> Array:
        """Correlation at the scaled distance ``h = sqrt(3) r / lengthscale``."""
        return (1.0 + h) * np.exp(-h)

    def default_rescale(self) -> float:
        """Factor of r / len_scale."""
        return float(np.sqrt(3.0))


def simple_kriging(problem: Problem, clock: Clock) -> Prediction:
    """Krige with all points and a known mean; the nugget is the noise."""
    gstools.config.NUM_THREADS = problem.threads
    with clock("build"):
        model = Matern32(
            dim=3, var=problem.variance, len_scale=problem.lengthscale, nugget=problem.noise_variance
        )
    with clock("solve"):
        kriging = gstools.krige.Simple(model, problem.X.T, problem.y, mean=0.0, pseudo_inv=False)
    with clock("predict"):
        mean, variance = kriging(problem.X_test.T, chunk_size=CHUNK)
    # its variance is that of a new observation: the sill, nugget included, minus what is explained
    return Prediction(mean, np.sqrt(variance))


def fit(problem: Problem, clock: Clock) -> Fit:
    """Least squares on the empirical variogram, as its documentation does; no likelihood."""
    with clock("solve"):
        centre, values = gstools.vario_estimate(
            tuple(problem.X.T), problem.y, BINS, sampling_size=SAMPLED_POINTS, sampling_seed=0
        )
        model = Matern32(
            dim=3, var=problem.variance, len_scale=problem.lengthscale, nugget=problem.noise_variance
        )
        model.fit_variogram(centre, values)
    return Fit(model.len_scale, model.var, model.nugget, 0)


if __name__ == "__main__":
    serve({"simple-kriging": simple_kriging, "fit": fit})
