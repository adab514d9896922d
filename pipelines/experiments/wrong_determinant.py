"""The evidence lower bound with the determinant that GPyTorch's code for it had until 24 July 2025.

The columns of S do not overlap, so ``log|S'S|``, half of which the bound adds for each field, is the sum of
the logarithms of their squared lengths d_j. The code had the logarithm of their sum instead: with T fields

    wrong = ELBO + T (log sum_j d_j - sum_j log d_j) / 2

The ELBO itself depends on the span of S alone, and what is added on the lengths alone: hyperparameters and
spans that climb one climb the other. But S is drawn towards zero, where the wrong one grows without limit.
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.solvers.actions.block_sparse import block_sums


class WrongDeterminant:
    """An objective of hyperparameters and actions that is no bound; see the module and `Objective`.

    Parameters
    ----------
    data : ProjectedData
        Observations, and the blocks of actions.
    """

    def __init__(self, data: ProjectedData) -> None:
        self._data, self._bound = data, Elbo(data)

    @property
    def size(self) -> int:
        """Hyperparameters and points."""
        return self._bound.size

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return self._bound.names

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate; raises what `Elbo` raises."""
        value, gradient = self._bound(vector)
        layout, fields = self._data.layout, self._data.fields
        first = self._data.hyperparameters.size
        entries = vector[first:][layout.order]
        lengths = block_sums((entries**2)[:, None], layout.edges)[:, 0]
        added = 0.5 * (np.log(lengths.sum()) - np.log(lengths).sum())
        gradient[first + layout.order] += (
            fields * entries * (1.0 / lengths.sum() - 1.0 / lengths[layout.block_of])
        )
        return value + fields * float(added), gradient
