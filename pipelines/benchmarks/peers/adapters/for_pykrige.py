"""PyKrige: ordinary kriging on longitude and latitude, with all points or the nearest ones."""

import numpy as np
from harness import Array, Clock, Prediction, Problem, serve
from pykrige.ok import OrdinaryKriging

CLOSEST = 100


def variogram(parameters: list[float], degrees: Array) -> Array:
    """Variogram of Matern-3/2 on the chord, of great-circle distance in degrees."""
    variance, lengthscale, noise_variance = parameters
    chord = 2.0 * np.sin(np.deg2rad(degrees) / 2.0)
    scaled = np.sqrt(3.0) * chord / lengthscale
    return noise_variance + variance * (1.0 - (1.0 + scaled) * np.exp(-scaled))


def _degrees(X: Array) -> tuple[Array, Array]:
    return np.rad2deg(np.arctan2(X[:, 1], X[:, 0])), np.rad2deg(np.arcsin(np.clip(X[:, 2], -1.0, 1.0)))


def _krige(problem: Problem, clock: Clock, **how: object) -> Prediction:
    with clock("build"):
        model = OrdinaryKriging(
            *_degrees(problem.X),
            problem.y,
            variogram_model="custom",
            variogram_parameters=[problem.variance, problem.lengthscale, problem.noise_variance],
            variogram_function=variogram,
            coordinates_type="geographic",
            exact_values=False,
        )
    with clock("solve"):
        mean, variance = model.execute("points", *_degrees(problem.X_test), **how)
    # its variance is that of a new observation, nugget included
    return Prediction(np.asarray(mean), np.sqrt(np.asarray(variance)))


def ordinary_kriging(problem: Problem, clock: Clock) -> Prediction:
    """Global ordinary kriging."""
    return _krige(problem, clock, backend="vectorized")


def moving_window(problem: Problem, clock: Clock) -> Prediction:
    """Ordinary kriging with the nearest points alone."""
    return _krige(problem, clock, backend="loop", n_closest_points=min(CLOSEST, len(problem.X)))


if __name__ == "__main__":
    serve({"ordinary-kriging": ordinary_kriging, "moving-window": moving_window})
