"""GPBoost on hours of stations: fits and predictions by Vecchia's approximation.

Called as ``python hours_by_gpboost.py KERNEL PROBLEM.npz ANSWER.npz``; points are hours and unit vectors.
"""

import sys
import time

import gpboost
import numpy as np

FITTING, PREDICTING = 20, 60
"""Neighbours of a fit, its default, and of predictions, as in the other tables."""


def main() -> None:
    """Fit to what is told, predict what is not, and write both with what it took."""
    kernel, problem, answer = sys.argv[1:]
    with np.load(problem) as stored:
        X, y, X_test = stored["X"], stored["y"], stored["X_test"]
    started, worked = time.perf_counter(), time.process_time()
    model = gpboost.GPModel(
        gp_coords=X,
        cov_function=kernel,
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=FITTING,
        num_parallel_threads=1,
        likelihood="gaussian",
    )
    model.fit(y=y)
    fitted = time.process_time() - worked
    model.set_prediction_data(
        vecchia_pred_type="order_obs_first_cond_obs_only", num_neighbors_pred=PREDICTING
    )
    found = model.predict(gp_coords_pred=X_test, predict_var=True, predict_response=True)
    np.savez(
        answer,
        mean=np.asarray(found["mu"]),
        std=np.sqrt(np.asarray(found["var"])),
        seconds=time.perf_counter() - started,
        fit_processor_seconds=fitted,
        processor_seconds=time.process_time() - worked,
        numbers=np.asarray(model.get_cov_pars(format_pandas=False)).ravel(),
    )


if __name__ == "__main__":
    main()
