"""PyKrige: ordinary and universal kriging; its own fit of the variogram, an ellipse by cross-validation."""

from functools import partial
from itertools import product

import numpy as np
from harness import ANGLES, Predicted, Seen, serve, squared_error
from pykrige.ok import OrdinaryKriging
from pykrige.uk import UniversalKriging

VARIOGRAM = "exponential"
SCALINGS = 1.5, 2.0, 3.0, 4.0, 6.0  # how much longer than wide


def ordinary(seen: Seen, *, angle: float = 0.0, scaling: float = 1.0) -> Predicted:
    """Ordinary kriging with the variogram that it fits; covariates are not used."""
    model = OrdinaryKriging(
        *seen.X.T,
        seen.y,
        variogram_model=VARIOGRAM,
        coordinates_type="geographic" if seen.geographic else "euclidean",
        anisotropy_angle=angle,
        anisotropy_scaling=scaling,
        exact_values=False,
    )
    mean, variance = model.execute("points", *seen.X_new.T)
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(np.asarray(variance), 0.0)))


def directed(seen: Seen) -> Predicted:
    """Do the same with the direction and ratio that predict held-out observations best, or with neither."""
    ellipses = [
        partial(ordinary, angle=angle, scaling=scaling) for angle, scaling in product(ANGLES, SCALINGS)
    ]
    return min([ordinary, *ellipses], key=lambda method: squared_error(method, seen))(seen)


def universal(seen: Seen) -> Predicted:
    """Universal kriging with the covariates as drifts."""
    model = UniversalKriging(
        *seen.X.T,
        seen.y,
        variogram_model=VARIOGRAM,
        drift_terms=["specified"],
        specified_drift=list(seen.U.T),
        exact_values=False,
    )
    mean, variance = model.execute("points", *seen.X_new.T, specified_drift_arrays=list(seen.U_new.T))
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(np.asarray(variance), 0.0)))


if __name__ == "__main__":
    serve({"ordinary": ordinary, "directed": directed, "universal": universal})
