"""GPyTorch: Cholesky, conjugate gradients on a stored matrix, and KeOps, which stores none."""

from contextlib import ExitStack
from dataclasses import replace

import gpytorch
import torch
from harness import Clock, Fit, Prediction, Problem, serve

CG_TOLERANCE = 1e-3
CG_ITERATIONS = 1000
LARGEST_CHOLESKY = 10  # below every problem here; with 1, KeOps kernels fail on the diagonal
COMPILED_POINTS = 300


class Model(gpytorch.models.ExactGP):
    """Zero mean and a scaled Matern-3/2 kernel."""

    def __init__(self, problem: Problem, *, keops: bool = False) -> None:
        torch.set_num_threads(problem.threads)
        X, y = torch.from_numpy(problem.X), torch.from_numpy(problem.y)
        super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
        kernels = gpytorch.kernels.keops if keops else gpytorch.kernels
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernels.MaternKernel(nu=1.5))
        self.double()
        self.covar_module.base_kernel.lengthscale = problem.lengthscale
        self.covar_module.outputscale = problem.variance
        self.likelihood.noise = problem.noise_variance

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Distribution of the field at X."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))


def _predict(model: Model, problem: Problem, clock: Clock) -> Prediction:
    X_test = torch.from_numpy(problem.X_test)
    model.eval()
    with torch.no_grad():
        with clock("solve"):  # the first prediction makes and keeps what depends on the data alone
            model.likelihood(model(X_test[:2])).mean  # noqa: B018
        with clock("predict"):
            predicted = model.likelihood(model(X_test))
            return Prediction(predicted.mean.numpy(), predicted.stddev.numpy())


def cholesky(problem: Problem, clock: Clock) -> Prediction:
    """Exact, by a dense factor."""
    exact = gpytorch.settings.fast_computations(False, False, False)
    with exact, gpytorch.settings.max_cholesky_size(len(problem.X) + 1):
        with clock("build"):
            model = Model(problem)
        return _predict(model, problem, clock)


def conjugate_gradient(problem: Problem, clock: Clock) -> Prediction:
    """Conjugate gradients on a stored matrix; variances by its Lanczos approximation (LOVE)."""
    return _iterate(problem, clock, keops=False)


def keops(problem: Problem, clock: Clock) -> Prediction:
    """Solve in the same way, with KeOps in place of a stored matrix."""
    part = replace(problem, X=problem.X[:COMPILED_POINTS], y=problem.y[:COMPILED_POINTS])
    _iterate(part, Clock(), keops=True)  # compiles once for each number of columns; that is not measured
    return _iterate(problem, clock, keops=True)


def _iterate(problem: Problem, clock: Clock, *, keops: bool) -> Prediction:
    with ExitStack() as stack:
        stack.enter_context(gpytorch.settings.max_cholesky_size(LARGEST_CHOLESKY))
        stack.enter_context(gpytorch.settings.eval_cg_tolerance(CG_TOLERANCE))
        stack.enter_context(gpytorch.settings.max_cg_iterations(CG_ITERATIONS))
        stack.enter_context(gpytorch.settings.fast_pred_var())
        with clock("build"):
            model = Model(problem, keops=keops)
        return _predict(model, problem, clock)


def fit(problem: Problem, clock: Clock) -> Fit:
    """Exact marginal likelihood by Cholesky, L-BFGS with a strong Wolfe line search."""
    evaluations = 0
    exact = gpytorch.settings.fast_computations(False, False, False)
    with exact, gpytorch.settings.max_cholesky_size(len(problem.X) + 1), clock("solve"):
        model = Model(problem)
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        X, y = model.train_inputs[0], model.train_targets
        optimizer = torch.optim.LBFGS(
            model.parameters(), max_iter=100, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
        )

        def closure() -> torch.Tensor:
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = -objective(model(X), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    kernel = model.covar_module
    lengthscale, variance = kernel.base_kernel.lengthscale.item(), kernel.outputscale.item()
    return Fit(lengthscale, variance, model.likelihood.noise.item(), evaluations)


if __name__ == "__main__":
    serve(
        {
            "cholesky": cholesky,
            "conjugate-gradient": conjugate_gradient,
            "keops": keops,
            "fit": fit,
        }
    )
