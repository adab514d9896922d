"""GPBoost: Matern 3/2 or 1/2, fitted, exact or by Vecchia's approximation, and a likelihood of rain."""

import gpboost
import numpy as np
from harness import Predicted, Seen, serve, unit_vectors

MOST_EXACT, PREDICTING, DRAWS = 2_000, 60, 1_000


def _model(seen: Seen, likelihood: str, shape: float = 1.5) -> tuple[gpboost.GPModel, np.ndarray]:
    """Make the model, and the coordinates to predict at."""
    X, X_new = (unit_vectors(X) if seen.geographic else X for X in (seen.X, seen.X_new))
    settings = {"gp_approx": "none"} if len(X) <= MOST_EXACT else {"gp_approx": "vecchia"}
    model = gpboost.GPModel(
        gp_coords=X, cov_function="matern", cov_fct_shape=shape, likelihood=likelihood, **settings
    )
    if len(X) > MOST_EXACT:
        model.set_prediction_data(
            vecchia_pred_type="order_obs_first_cond_obs_only", num_neighbors_pred=PREDICTING
        )
    return model, X_new


def _basis(U: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(U)), U])


def gaussian(seen: Seen, shape: float = 1.5) -> Predicted:
    """Fit a constant mean, and covariates where there are some, beside the process."""
    model, X_new = _model(seen, "gaussian", shape)
    model.fit(y=seen.y, X=_basis(seen.U))
    found = model.predict(
        gp_coords_pred=X_new, X_pred=_basis(seen.U_new), predict_var=True, predict_response=True
    )
    return Predicted(np.asarray(found["mu"]), np.sqrt(np.asarray(found["var"])))


def rough(seen: Seen) -> Predicted:
    """Do the same with Matern 1/2."""
    return gaussian(seen, 0.5)


def gamma(seen: Seen) -> Predicted:
    """Amounts as a gamma distribution about the exponential of the process: values must be positive."""
    model, X_new = _model(seen, "gamma")
    model.fit(y=seen.y, X=_basis(seen.U))
    shape = float(np.asarray(model.get_aux_pars(format_pandas=False)).ravel()[0])
    found = model.predict(
        gp_coords_pred=X_new, X_pred=_basis(seen.U_new), predict_var=True, predict_response=False
    )
    rng = np.random.default_rng(0)
    mean, std = np.asarray(found["mu"])[:, None], np.sqrt(np.asarray(found["var"]))[:, None]
    middle = np.exp(mean + std * rng.standard_normal((len(mean), DRAWS)))
    draws = middle * rng.gamma(shape, 1.0 / shape, middle.shape)
    return Predicted(draws.mean(axis=1), draws.std(axis=1), draws)


if __name__ == "__main__":
    serve({"gaussian": gaussian, "rough": rough, "gamma": gamma})
