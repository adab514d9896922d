"""PyKrige: ordinary kriging, universal kriging with covariates; its own fit of the variogram."""

import numpy as np
from harness import Predicted, Seen, serve
from pykrige.ok import OrdinaryKriging
from pykrige.uk import UniversalKriging

VARIOGRAM = "exponential"


def ordinary(seen: Seen) -> Predicted:
    """Ordinary kriging with the variogram that it fits; covariates are not used."""
    model = OrdinaryKriging(
        *seen.X.T,
        seen.y,
        variogram_model=VARIOGRAM,
        coordinates_type="geographic" if seen.geographic else "euclidean",
        exact_values=False,
    )
    mean, variance = model.execute("points", *seen.X_new.T)
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(np.asarray(variance), 0.0)))


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
    serve({"ordinary": ordinary, "universal": universal})
