"""GSTools: a variogram fitted by least squares, then ordinary kriging, or with an external drift."""

from contextlib import suppress

import gstools
import numpy as np
from harness import Predicted, Seen, serve


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


def directed(seen: Seen) -> Predicted:
    """Ordinary kriging with variograms along and across the direction in which its model fits them best."""
    where, found = tuple(seen.X.T), {}
    for angle in np.radians(range(0, 180, 15)):
        axes = gstools.rotated_main_axes(dim=2, angles=angle)
        lags, values = gstools.vario_estimate(where, seen.y, direction=axes, angles_tol=np.pi / 8)
        model = gstools.Exponential(dim=2, anis=0.5, angles=angle)
        with suppress(RuntimeError):  # of fits that do not converge
            *_, explained = model.fit_variogram(lags, values, nugget=True, return_r2=True)
            found[explained] = model
    mean, variance = gstools.krige.Ordinary(found[max(found)], where, seen.y)(tuple(seen.X_new.T))
    return Predicted(np.asarray(mean), np.sqrt(np.maximum(variance, 0.0)))


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
