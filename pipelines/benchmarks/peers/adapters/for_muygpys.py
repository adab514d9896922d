"""MuyGPyS: kriging of every target from its nearest observed points, in NumPy."""

import numpy as np
from harness import Clock, Prediction, Problem, serve
from MuyGPyS.gp import MuyGPS
from MuyGPyS.gp.deformation import DifferenceIsotropy, l2
from MuyGPyS.gp.hyperparameter import FixedScale, Parameter
from MuyGPyS.gp.kernels import Matern
from MuyGPyS.gp.noise import HomoscedasticNoise
from MuyGPyS.neighbors import NN_Wrapper

NEIGHBOURS = 60
AT_ONCE = 2000
"""Targets of a batch, whose matrices are there together: 60 x 60 x 3 differences for each."""


def nearest(problem: Problem, clock: Clock) -> Prediction:
    """Krige every target from the 60 nearest points."""
    k = min(NEIGHBOURS, len(problem.X) - 1)
    mean, variance = np.empty(len(problem.X_test)), np.empty(len(problem.X_test))
    with clock("build"):
        neighbours = NN_Wrapper(problem.X, k, nn_method="exact", algorithm="kd_tree", n_jobs=problem.threads)
        apart = DifferenceIsotropy(metric=l2, length_scale=Parameter(problem.lengthscale))
        model = MuyGPS(
            kernel=Matern(smoothness=Parameter(1.5), deformation=apart),
            noise=HomoscedasticNoise(problem.noise_variance / problem.variance),
            scale=FixedScale(),
        )
    with clock("predict"):
        for start in range(0, len(problem.X_test), AT_ONCE):
            here = np.arange(start, min(start + AT_ONCE, len(problem.X_test)))
            near, _ = neighbours.get_nns(problem.X_test[here])
            within = model.kernel(apart.pairwise_tensor(problem.X, near))
            across = model.kernel(apart.crosswise_tensor(problem.X_test, problem.X, here, near))
            mean[here] = model.posterior_mean(within, across, problem.y[near])
            variance[here] = model.posterior_variance(within, across)
    return Prediction(mean, np.sqrt(problem.variance * variance + problem.noise_variance))


if __name__ == "__main__":
    serve({"nearest": nearest})
