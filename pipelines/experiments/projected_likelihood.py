"""The log likelihood of projected data alone [Wenger et al. 2024, eq. 9], no bound of it.

With the names of `cagp_dist.likelihood.learned.elbo`, and the columns of S scaled to H = I:

    -2 L = |w|^2 + T log|M| - T log|H| + i T log 2 pi
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import single_threaded_blas


class ProjectedLikelihood:
    """The log likelihood of the projected data S'b alone, by hyperparameters and actions.

    It does not see what S leaves out: maximised over S it learns actions that are easily explained, and
    overestimates the noise [Wenger et al. 2024, S3].
    """

    def __init__(self, data: ProjectedData) -> None:
        self._data = data
        self.names, self.size = data.hyperparameters.names, data.size
        self.fingerprint = f"ProjectedLikelihood {data.fingerprint}"

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate at logarithms of hyperparameters and entries of S."""
        with single_threaded_blas():
            seen = self._data.at(vector)
            i, T, w = self._data.actions, self._data.fields, seen.solution
            twice = float(np.vdot(w, w)) + T * (seen.log_determinant + i * np.log(2.0 * np.pi))
            gradient = self._data.gradient(
                seen,
                by_matrix=np.zeros((i, i)),
                by_inverted=T * np.eye(i) - w @ w.T,
                by_projected=2.0 * w,
            )
        return -0.5 * twice, -0.5 * gradient
