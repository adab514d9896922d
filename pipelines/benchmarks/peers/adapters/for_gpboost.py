"""GPBoost: Vecchia's approximation, for predictions with given numbers and for fits."""

import gpboost
import numpy as np
from harness import Array, Clock, Fit, Prediction, Problem, serve

PREDICTING, FITTING, UNUSED = 60, 20, 2
"""Neighbours of a prediction, as the comparison has them; of a fit, its default; and of observed points where
they are not used: predictions from observed points alone are the same, and a model is made sooner."""


def _model(problem: Problem, neighbours: int) -> gpboost.GPModel:
    return gpboost.GPModel(
        gp_coords=problem.X,
        cov_function="matern",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=min(neighbours, len(problem.X) - 1),
        num_parallel_threads=problem.threads,
        likelihood="gaussian",
    )


def _numbers(problem: Problem) -> Array:
    return np.array([problem.noise_variance, problem.variance, problem.lengthscale])


def vecchia(problem: Problem, clock: Clock) -> Prediction:
    """Predictions from the nearest observed points."""
    with clock("build"):
        model = _model(problem, UNUSED)
        model.set_prediction_data(
            vecchia_pred_type="order_obs_first_cond_obs_only",
            num_neighbors_pred=min(PREDICTING, len(problem.X)),
        )
    with clock("predict"):
        found = model.predict(
            y=problem.y,
            gp_coords_pred=problem.X_test,
            cov_pars=_numbers(problem),
            predict_var=True,
            predict_response=True,
        )
    return Prediction(np.asarray(found["mu"]), np.sqrt(np.asarray(found["var"])))


def fit(problem: Problem, clock: Clock) -> Fit:
    """Maximum of Vecchia's likelihood with its default optimiser."""
    return _fitted(problem, clock, FITTING)


def fit_60(problem: Problem, clock: Clock) -> Fit:
    """Estimate the same with the neighbours of a prediction."""
    return _fitted(problem, clock, PREDICTING)


def _fitted(problem: Problem, clock: Clock, neighbours: int) -> Fit:
    with clock("build"):
        model = _model(problem, neighbours)
    with clock("solve"):
        model.fit(y=problem.y, params={"init_cov_pars": _numbers(problem)})
    noise_variance, variance, lengthscale = np.asarray(model.get_cov_pars(format_pandas=False)).ravel()[:3]
    return Fit(float(lengthscale), float(variance), float(noise_variance), 0)


if __name__ == "__main__":
    serve({"vecchia": vecchia, "fit": fit, "fit-60": fit_60})
