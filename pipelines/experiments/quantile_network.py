"""Recalibration by a small network that is trained with the pinball loss [Kuleshov & Deshpande 2022].

The other methods that need no place move the probabilities of all distributions by one curve. The network
sees mean and standard deviation of a distribution, and may move those of wide distributions otherwise than
those of narrow ones. It is trained with PyTorch, which the extra ``baselines`` brings.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.order_statistics import calibration_scores, check_resolved
from cagp_dist.calibration.recalibration.sharp import table_with_tails
from cagp_dist.checks import check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.extras import from_extra
from cagp_dist.predictive import Gaussian, QuantileTable

LEVELS = tuple(round(0.05 * k, 2) for k in range(1, 20))

Layers = tuple[tuple[Array, Array], ...]
"""Weights (out, in) and biases (out,) of the layers."""


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A network that was trained; a call gives the distributions of other points.

    Attributes
    ----------
    levels : array, shape (L,)
    layers : tuple of pairs of arrays
        Weights (out, in) and biases (out,); rectified linear units between the layers.
    centre, scale : array, shape (2,)
        Of mean and logarithm of the standard deviation at the calibration points, which enter standardised.
    losses : array, shape (epochs,)
        Mean pinball loss at the calibration points before each step, in the unit of the observations.
    """

    levels: Array
    layers: Layers
    centre: Array
    scale: Array
    losses: Array

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None = None) -> QuantileTable:
        """Laws of new points, of the shape of ``law``; where they are makes no difference."""
        values = (_features(distribution.mean, distribution.std) - self.centre) / self.scale
        for weight, bias in self.layers[:-1]:
            values = np.maximum(values @ weight.T + bias, 0.0)
        weight, bias = self.layers[-1]
        last = values @ weight.T + bias
        last[..., 1:] = np.logaddexp(0.0, last[..., 1:])
        factors = np.moveaxis(np.cumsum(last, axis=-1), -1, 0)
        return table_with_tails(
            self.levels, distribution.mean + distribution.std * factors, distribution.mean
        )


@dataclass(frozen=True)
class QuantileNetwork:
    """Recalibration by a network of two hidden layers, with the pinball loss [Kuleshov & Deshpande 2022].

    The quantile of level ``p_k`` is ``mean + std (a_1 + softplus(a_2) + ... + softplus(a_k))``, so that
    quantiles never cross, with the outputs a of the network. It starts as the distribution that was
    predicted, in place of the pretraining of the paper, and goes down the mean of the pinball loss over all
    levels and calibration points by steps of Adam over all points at once. Beyond the levels, tails as of
    `cagp_dist.calibration.recalibration.sharp.table_with_tails`.

    **Nothing is guaranteed at new points**, and the more it is trained (``epochs`` times ``rate``), the
    closer it fits the calibration points. With some hundred of them a rate of 0.01 makes intervals far too
    short and the CRPS worse than that of one curve; 800 allow it.

    Parameters
    ----------
    levels : tuple of float
        Levels of the quantiles, ascending.
    width : int
        Units of each hidden layer.
    epochs : int
        Steps.
    rate : float
        Learning rate of Adam.
    seed : int
        Of the first weights. PyTorch's own generator is left as it was.

    Raises
    ------
    ConfigurationError
        If PyTorch is not installed.
    ArgumentError
        If settings are out of range, there are too few calibration points for a level, or all have the same
        standardised error.

    Examples
    --------
    Errors half as large as was said where little was said, and twice as large elsewhere:

    >>> import numpy as np
    >>> from cagp_dist.predictive import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> std = rng.choice([1.0, 4.0], size=2000)
    >>> errors = std * np.where(std < 2.0, 0.5, 2.0) * rng.standard_normal(2000)
    >>> fitted = QuantileNetwork(rate=0.01).fit(Gaussian(np.zeros(2000), std), errors)  # doctest: +SKIP
    >>> fitted(Gaussian([0.0, 0.0], [1.0, 4.0])).interval(0.9)[1].round(0)  # doctest: +SKIP
    array([ 1., 13.])
    """

    levels: tuple[float, ...] = LEVELS
    width: int = 32
    epochs: int = 200
    rate: float = 3e-4
    seed: int = 0

    def fit(self, distribution: Gaussian, observed: ArrayLike, X: ArrayLike | None = None) -> FittedNetwork:
        """Train with predictions of N calibration points and their values, each (N,) or (T, N).

        Cost: ``epochs * N * (width^2 + width L)`` times a few flops; 200 steps with 500 points and 25 levels
        take about a second.
        """
        levels = np.asarray(self.levels, dtype=np.float64)
        if levels.ndim != 1 or levels.size < 2 or bool(np.any(np.diff(levels) <= 0.0)):
            raise ArgumentError(
                f"levels are {np.array2string(levels, threshold=8)}; expected at least two in ascending "
                "order.",
                key="levels",
            )
        check_count("width", self.width, least=1)
        check_count("epochs", self.epochs, least=0)
        check_positive("rate", self.rate)
        check_count("seed", self.seed, least=0)
        check_resolved(levels, calibration_scores(distribution, observed).size)
        torch = _torch()
        values = np.asarray(observed, dtype=np.float64)
        there = ~np.isnan(values)
        mean, std = distribution.mean[there], distribution.std[there]
        features = _features(mean, std)
        centre, scale = features.mean(axis=0), features.std(axis=0)
        scale = np.where(scale > 1e-9 * np.maximum(1.0, np.abs(centre)), scale, 1.0)
        layers, losses = self._train(torch, (features - centre) / scale, (values[there] - mean) / std, std)
        return FittedNetwork(levels, layers, centre, scale, losses)

    def _train(self, torch: Any, features: Array, scores: Array, std: Array) -> tuple[Layers, Array]:
        start = ndtri(np.asarray(self.levels))
        sizes = (features.shape[1], self.width, self.width, start.size)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layers = [torch.nn.Linear(inner, outer, dtype=torch.float64) for inner, outer in pairwise(sizes)]
        with torch.no_grad():
            layers[-1].weight.zero_()
            first = np.concatenate([start[:1], np.log(np.expm1(np.diff(start)))])
            layers[-1].bias.copy_(torch.from_numpy(first))
        x, z, scale, level = map(
            torch.from_numpy, (features, scores[:, None], std[:, None], np.array(self.levels))
        )
        optimiser = torch.optim.Adam(
            [number for layer in layers for number in layer.parameters()], lr=self.rate
        )
        losses = np.empty(self.epochs)
        for epoch in range(self.epochs):
            values = x
            for layer in layers[:-1]:
                values = torch.relu(layer(values))
            last = layers[-1](values)
            gaps = torch.nn.functional.softplus(last[:, 1:])
            error = z - torch.cumsum(torch.cat([last[:, :1], gaps], dim=1), dim=1)
            loss = (scale * torch.maximum(level * error, (level - 1.0) * error)).mean()
            losses[epoch] = loss.item()
            optimiser.zero_grad()
            (loss / scale.mean()).backward()
            optimiser.step()
        return tuple(
            (layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in layers
        ), losses


def _features(mean: Array, std: Array) -> Array:
    return np.stack([mean, np.log(std)], axis=-1)


def _torch() -> Any:
    return from_extra("baselines", "torch", "a quantile network")
