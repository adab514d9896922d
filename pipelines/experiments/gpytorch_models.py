"""SVGP and CGGP as GPyTorch has them (the extra ``baselines``), with kernel and start that others have.

SVGP (Hensman et al. 2013) bounds the likelihood by inducing points and a normal distribution of the field
there, both of which are learnt from random batches. CGGP (Gardner et al. 2018) has conjugate gradients in
place of the Cholesky factor of the likelihood, and of the prediction. Matern 3/2 with a lengthscale for each
coordinate, mean zero, double precision.
"""

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.kernels import Kernel

if TYPE_CHECKING:
    import torch

BATCH = 1024
"""Cases of a batch of SVGP, as in Wenger et al. (2024)."""

TARGETS = 1000
"""Test cases that are predicted at a time."""

EVALUATIONS = 3
"""Of the likelihood for each step of L-BFGS, at most: a line search has several."""

LEAST_NOISE = 1e-4
"""Below which GPyTorch does not let a noise variance fall, unless it is told otherwise."""

MISSING = "What is compared with GPyTorch is left out: it is not installed (pip install '.[baselines]')."


class Predicted(NamedTuple):
    """Latent mean and variance at the test cases, the noise variance that was learnt, and what it took."""

    mean: Array
    variance: Array
    noise_variance: float
    steps: int
    seconds: float


def available() -> bool:
    """Whether GPyTorch is installed."""
    return find_spec("gpytorch") is not None


def svgp(
    X: Array,
    y: Array,
    X_test: Array,
    start: tuple[Kernel, float],
    *,
    inducing: Array,
    epochs: int,
    rate: float = 0.01,
    least_noise: float = LEAST_NOISE,
) -> Predicted:
    """Learn inducing points and hyperparameters by Adam, from batches in a random order; seed 0."""
    import gpytorch
    import torch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            distribution = CholeskyVariationalDistribution(len(inducing))
            super().__init__(VariationalStrategy(self, torch.from_numpy(inducing), distribution))
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), _covariance(start[0])

        def forward(self, points: "torch.Tensor") -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(points), self.covar_module(points)
            )

    torch.manual_seed(0)
    model, likelihood = Model().double(), _likelihood(start[1], least_noise)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    points, targets = torch.from_numpy(X), torch.from_numpy(y)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=rate)
    begun, steps = time.perf_counter(), 0
    for _ in range(epochs):
        for batch in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            loss = -bound(model(points[batch]), targets[batch])
            loss.backward()
            optimizer.step()
            steps += 1
    return _predicted(model, likelihood, X_test, steps, time.perf_counter() - begun)


def cggp(
    X: Array,
    y: Array,
    X_test: Array,
    start: tuple[Kernel, float],
    *,
    steps: int,
    least_noise: float = LEAST_NOISE,
) -> Predicted:
    """Learn hyperparameters by L-BFGS with a line search, for which all steps have the same probe vectors."""
    import gpytorch
    import torch

    model = _conditioned(X, y, _likelihood(start[1], least_noise), _covariance(start[0]))
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=steps, max_eval=EVALUATIONS * steps, line_search_fn="strong_wolfe"
    )
    evaluations = 0

    def closure() -> "torch.Tensor":
        nonlocal evaluations
        evaluations += 1
        torch.manual_seed(0)  # of the probe vectors
        optimizer.zero_grad()
        loss = -objective(model(model.train_inputs[0]), model.train_targets)
        loss.backward()
        return cast("torch.Tensor", loss)

    begun = time.perf_counter()
    if steps:
        optimizer.step(closure)
    return _predicted(model, model.likelihood, X_test, evaluations, time.perf_counter() - begun)


def _conditioned(X: Array, y: Array, likelihood: Any, covariance: Any) -> Any:
    """Model with mean zero that is conditioned on all observations at once."""
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(torch.from_numpy(X), torch.from_numpy(y), likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), covariance

        def forward(self, points: "torch.Tensor") -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(points), self.covar_module(points)
            )

    return Model().double()


def _covariance(kernel: Kernel) -> Any:
    import gpytorch
    import torch

    lengthscales = np.atleast_1d(np.asarray(kernel.lengthscale, dtype=float))
    made = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=len(lengthscales))
    ).double()
    made.base_kernel.lengthscale = torch.from_numpy(lengthscales)
    made.outputscale = kernel.variance
    return made


def _likelihood(noise_variance: float, least_noise: float) -> Any:
    import gpytorch

    constraint = gpytorch.constraints.GreaterThan(least_noise)
    made = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=constraint).double()
    made.noise = max(noise_variance, 2.0 * least_noise)
    return made


def _predicted(model: Any, likelihood: Any, X_test: Array, steps: int, seconds: float) -> Predicted:
    import torch

    model.eval()
    means, variances = [], []
    with torch.no_grad():
        for part in torch.from_numpy(X_test).split(TARGETS):
            distribution = model(part)
            means.append(distribution.mean.numpy())
            variances.append(distribution.variance.numpy())
    return Predicted(
        np.concatenate(means), np.concatenate(variances), float(likelihood.noise.item()), steps, seconds
    )
