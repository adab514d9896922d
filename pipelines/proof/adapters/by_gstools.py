"""GSTools: a variogram fitted by least squares, then ordinary kriging, or with an external drift."""

from functools import partial

import gstools
import numpy as np
from harness import ANGLES, Predicted, Seen, serve, squared_error


def _fitted(seen: Seen, residual: np.ndarray) -> tuple[gstools.CovModel, tuple[np.ndarray, ...]]:
    """Fit its exponential model, with a nugget, to the bins that it chooses."""
    where = (seen.X[:, 1], seen.X[:, 0]) if seen.geographic else tuple(seen.X.T)
    new = (seen.X_new[:, 1], seen.X_new[:, 0]) if seen.geographic else tuple(seen.X_new.T)
    centre, values = gstools.vario_estimate(where, residual, latlon=seen.geographic)
    model = gstools.Exponential(dim=2) if not seen.geographic else gstools.Exponential(latlon=True)
    model.fit_variogram(centre, values, nugget=True, max_eval=100_000)
    return model, where, new


def ordinary(seen: Seen) -> Predicted:
    """Ordinary kriging; covariates are not used."""
    model, where, new = _fitted(seen, seen.y)
    mean, variance = gstools.krige.Ordinary(model, where, seen.y)(new)
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(variance, 0.0)))


def along(seen: Seen, angle: float) -> Predicted:
    """Ordinary kriging with variograms along and across a direction, in degrees; their ratio is fitted."""
    where, turned = tuple(seen.X.T), np.radians(angle)
    axes = gstools.rotated_main_axes(dim=2, angles=turned)
    lags, values = gstools.vario_estimate(where, seen.y, direction=axes, angles_tol=np.pi / 8)
    model = gstools.Exponential(dim=2, anis=0.5, angles=turned)
    model.fit_variogram(lags, values, nugget=True)
    mean, variance = gstools.krige.Ordinary(model, where, seen.y)(tuple(seen.X_new.T))
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(variance, 0.0)))


def directed(seen: Seen) -> Predicted:
    """Do so along the direction that predicts held-out observations best, or along none."""
    methods = [ordinary, *(partial(along, angle=angle) for angle in ANGLES)]
    return min(methods, key=lambda method: squared_error(method, seen))(seen)


def external(seen: Seen) -> Predicted:
    """Kriging with covariates as external drifts; the variogram is that of what least squares leaves."""
    basis = np.column_stack([np.ones(len(seen.y)), seen.U])
    residual = seen.y - basis @ np.linalg.lstsq(basis, seen.y, rcond=None)[0]
    model, where, new = _fitted(seen, residual)
    krige = gstools.krige.ExtDrift(model, where, seen.y, seen.U.T)
    mean, variance = krige(new, ext_drift=seen.U_new.T)
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(variance, 0.0)))


if __name__ == "__main__":
    serve({"ordinary": ordinary, "directed": directed, "external": external})
