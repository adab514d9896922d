"""PyKrige: ordinary and universal kriging; its own fit of the variogram, an ellipse by cross-validation."""

from itertools import product

import numpy as np
from harness import Predicted, Seen, serve
from pykrige.ok import OrdinaryKriging
from pykrige.uk import UniversalKriging

VARIOGRAM = "exponential"
ANGLES, SCALINGS = range(0, 180, 15), (1.5, 2.0, 3.0, 4.0, 6.0)  # degrees; how much longer than wide
FOLDS = 10


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
    fold = np.arange(len(seen.y)) % FOLDS

    def squared_error(angle: float, scaling: float) -> float:
        found = 0.0
        for k in range(FOLDS):
            train, test = fold != k, fold == k
            part = Seen(seen.X[train], seen.y[train], seen.U[train], seen.X[test], seen.U[test], False)
            found += float(np.sum((ordinary(part, angle=angle, scaling=scaling).mean - seen.y[test]) ** 2))
        return found

    angle, scaling = min([(0.0, 1.0), *product(ANGLES, SCALINGS)], key=lambda each: squared_error(*each))
    return ordinary(seen, angle=angle, scaling=scaling)


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
