"""What a search for hyperparameters may maximise: a function of one vector, with its gradient (math 9, 11).

It begins with the logarithms of the hyperparameters, in the order of `Numbering.names`; what else is learned
follows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Kernel
from cagp_dist.likelihood.numbering import Families, Model

if TYPE_CHECKING:
    from cagp_dist.profiles import CompiledProfile


class Objective(Protocol):
    """A lower bound of the log likelihood, or what stands in its place, as a function to be maximised."""

    @property
    def size(self) -> int: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate at a vector (size,): the value, in nats, and its gradient (size,)."""


class KernelArrays(NamedTuple):
    """The parts of a kernel as arrays, in the order of the model; see `cagp_dist.compiled`."""

    families: "tuple[CompiledProfile, ...]"
    shares: "tuple[CompiledProfile, ...]"
    inverse_lengthscales: Array  # (m, p)
    variances: Array  # (m,)


@dataclass(frozen=True)
class Hyperparameters:
    """Logarithms of hyperparameters in a vector, and what they stand for."""

    model: Model  # Families of the parts, and whether each coordinate has a lengthscale of its own
    coordinates: int  # p, of the points

    @classmethod
    def of(cls, kernel: Families | Model, X: Array, *, anisotropic: bool) -> "Hyperparameters":
        """Name those of a family, or several, at points X (n, p)."""
        model, p = Model.of(kernel), X.shape[1]
        return cls(Model(model.families, p) if anisotropic else model, p)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, as in `FitResult.standard_errors`."""
        return self.model.numbering.names

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.names)

    def read(self, vector: Array) -> tuple[Kernel, float]:
        """Kernel and noise variance of a vector."""
        logarithms = np.asarray(vector[: self.size], dtype=np.float64)
        with np.errstate(over="ignore"):
            values = np.exp(logarithms)
        if not (np.isfinite(values).all() and (values > 0.0).all()):
            said = ", ".join(
                f"{name} {value:.3g}" for name, value in zip(self.names, logarithms, strict=True)
            )
            raise ArgumentError(
                f"the logarithms of the hyperparameters are {said}; expected finite numbers.",
                key="not-finite",
            )
        lengthscales, variances, noise_variance = self.model.numbering.grouped(values.tolist())
        return self.model.kernel(lengthscales, variances), noise_variance

    def write(self, kernel: Kernel, noise_variance: float) -> Array:
        """Give the vector of a kernel of this model and a noise variance: the inverse of `read`."""
        own = [
            part.inverse_lengthscales(self.coordinates)
            if self.model.coordinates
            else part.inverse_lengthscales(1)
            for part in kernel.parts
        ]
        variances = [part.variance for part in kernel.parts]
        return np.log([*(1.0 / inverse for each in own for inverse in each), *variances, noise_variance])

    def arrays(self, kernel: Kernel) -> KernelArrays:
        """Give the parts of a kernel as arrays, every coordinate with its lengthscale."""
        from cagp_dist.profiles import Part

        return KernelArrays(
            tuple(part.profile(Part.VALUE) for part in kernel.parts),
            tuple(part.profile(Part.SHARE) for part in kernel.parts),
            np.array([part.inverse_lengthscales(self.coordinates) for part in kernel.parts]),
            np.array([float(part.variance) for part in kernel.parts]),
        )

    def gradient(self, by_kernel: Array, by_noise: float) -> Array:
        """Put derivatives in the order of the vector. Shapes: ``by_kernel`` (m, p + 1); returns (size,)."""
        by_lengthscale = by_kernel[:, :-1]
        if self.model.coordinates is None:
            by_lengthscale = by_lengthscale.sum(axis=1, keepdims=True)
        return np.concatenate([by_lengthscale.ravel(), by_kernel[:, -1], [by_noise]])
