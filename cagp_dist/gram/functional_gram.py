"""The Gram matrix of linear functionals that were observed, such as means over areas."""

from functools import cached_property
from typing import cast

from cagp_dist.arrays import Array
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import ExactSolve, check_noise
from cagp_dist.gram.targets import Targets
from cagp_dist.kernels import Kernel
from cagp_dist.runtime import Executor


class FunctionalGram:
    """``G = W' k(nodes, nodes) W + diag(noise_variance)`` of n functionals: 8 n^2 bytes, once asked for."""

    def __init__(self, kernel: Kernel, X: LinearFunctionals, *, noise_variance: Array) -> None:
        check_noise(noise_variance, n=len(X))
        # what asks for the rows of X and their covariances takes functionals as well
        self.kernel, self.X, self.noise_variance = kernel, cast(Array, X), noise_variance

    @cached_property
    def dense(self) -> DenseGram:
        """The matrix itself."""
        return DenseGram(self.kernel, self.X, noise_variance=self.noise_variance)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return len(self.X), len(self.X)

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns``."""
        return self.dense @ columns

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G @ columns``, in this process."""
        return self.dense.product(columns, executor=executor)

    def cross(
        self, targets: Targets, columns: Array, *, executor: Executor, product: Array | None = None
    ) -> Array:
        """Covariances of targets with the functionals, times columns (n, r)."""
        return self.dense.cross(targets, columns, executor=executor)

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        return self.dense.diagonal()

    def exact(self, *, executor: Executor) -> ExactSolve:
        """Solves by the Cholesky factor."""
        return self.dense.exact(executor=executor)
