"""Tasks of fields of a grid that are Markov in time: each wavenumber falls apart into modes (math 21).

With the noise D the same at all times, ``D^-1/2 K_k D^-1/2 = V diag(mu) V'`` makes the modes ``V' D^-1/2 y``
of fields y independent of each other: each is a state of one or two numbers, of unit variance times mu, that
is observed with noise of variance one. States are kept as weights ``a`` of the kernel, ``f = K a``, for these
need no division by mu, which may be zero::

    forecast  a <- F a,                      P <- F P F' + I - F F'
    update    a <- a + P_0 (z - mu a_0) / S,  P <- P - P_0 P_0' mu / S,   z = V' D^-1/2 y,  S = 1 + mu P_00

Backwards in time the adjoint states of [Bierman 1973] need no inverse of P either.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.kernels import Parameters
from cagp_dist.latlon.tasks import gram_range
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.tiling import Range


class SectorModes(NamedTuple):
    """Eigenvalues and scaled eigenvectors of one sector, for a range of wavenumbers."""

    mu: Array  # (span, size): prior variance over noise
    W: Array  # (span, size, size): ``D^-1/2 V``
    noise: Array  # (size,)

    def of(self, columns: Array) -> Array:
        """``V' D^-1/2 columns`` of columns (span, size, r)."""
        return np.asarray(self.W.transpose(0, 2, 1) @ columns)

    def states(self, weights: Array) -> Array:
        """States of weights (span, size, r): ``V' D^1/2 weights``."""
        return self.of(self.noise[:, None] * weights)

    def field(self, states: Array) -> Array:
        """Columns of the field, ``K_k`` times the weights, of states (span, size, r)."""
        return np.asarray(self.noise[:, None] * (self.W @ (self.mu[..., None] * states)))

    def variance(self, covariance: Array, weights: Array) -> Array:
        """Sum over wavenumbers of the variance by row (size,), of variances (span, size) of states."""
        roots = self.noise[:, None] * self.W
        return np.asarray(np.einsum("k,kpi,ki->p", weights, roots**2, self.mu * covariance, optimize=True))


RangeModes = list[SectorModes]
"""Of a range of wavenumbers, for each sector."""


class SeriesStep(NamedTuple):
    """A time of a series."""

    transition: Array  # (m, m): of the state, from the time before
    column: int | None  # which of the fields was observed then
    out: int | None  # which of the results it is


def modes_range(parameters: Parameters, wavenumbers: Wavenumbers, span: Range, noise: Array) -> RangeModes:
    """Eigenvalues and eigenvectors of a range of wavenumbers; 9 P^3 flops for each, or a quarter of that."""
    blocks = gram_range(parameters, wavenumbers, span, np.zeros_like(noise))
    found = []
    for block, own in zip(blocks, wavenumbers.by_ring(noise), strict=True):
        root = 1.0 / np.sqrt(own)
        mu, V = np.linalg.eigh(root[:, None] * block * root)
        found.append(SectorModes(np.maximum(mu, 0.0), root[:, None] * V, own))
    return found


def forecast_states(states: Array, covariance: Array, transition: Array) -> tuple[Array, Array]:
    """Carry states (m, ...) and their covariance (m, m, ...) on; far ahead they are those of the prior."""
    ahead = np.einsum("ij,jl...,ml->im...", transition, covariance, transition, optimize=True)
    new = np.eye(len(transition)) - transition @ transition.T
    ahead += new.reshape(*new.shape, *(1,) * (covariance.ndim - 2))
    return np.tensordot(transition, states, axes=1), ahead


def update_states(states: Array, covariance: Array, z: Array, mu: Array) -> tuple[Array, Array]:
    """Observe modes z (span, size, 2)."""
    gain = covariance[:, 0] / (1.0 + mu * covariance[0, 0])
    states = states + gain[..., None] * (z - mu[..., None] * states[0])
    return states, covariance - mu * gain[:, None] * covariance[None, 0]


def update_range(
    modes: RangeModes,
    weights: Sequence[Array],
    covariances: Sequence[Array],
    columns: Sequence[Array],
    transition: Array,
) -> list[tuple[Array, Array]]:
    """Weights (span, size, 2 m) and covariances (m, m, span, size) after a forecast and an observation."""
    found = []
    m = len(transition)
    for mode, own, covariance, seen in zip(modes, weights, covariances, columns, strict=True):
        states = _by_state(mode.states(own), m)
        states, covariance = update_states(
            *forecast_states(states, covariance, transition), mode.of(seen), mode.mu
        )
        found.append((mode.W @ _side_by_side(states), covariance))
    return found


def projected_modes(modes: RangeModes, columns: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Modes ``V' D^-1/2 y`` of columns (span, size, 2 T), and mu."""
    return [(mode.of(seen), mode.mu) for mode, seen in zip(modes, columns, strict=True)]


def series_log_density(z: Array, mu: Array, counts: Array, transitions: Sequence[Array]) -> float:
    """Log density of modes (span, size, 2 T), ``counts`` fold, but for what no kernel in time changes."""
    m = len(transitions[0])
    states, covariance = np.zeros((m, *mu.shape, 2)), np.zeros((m, m, *mu.shape))
    covariance[range(m), range(m)] = 1.0
    total = 0.0
    for t, transition in enumerate(transitions):
        states, covariance = forecast_states(states, covariance, transition)
        seen, spread = z[..., 2 * t : 2 * t + 2], 1.0 + mu * covariance[0, 0]
        surprise = ((seen - mu[..., None] * states[0]) ** 2).sum(axis=-1) / spread
        total -= 0.5 * float(counts @ (surprise + np.log(spread)).sum(axis=1))
        states, covariance = update_states(states, covariance, seen, mu)
    return total


def innovation_range(
    modes: RangeModes,
    weights: Sequence[Array],
    covariances: Sequence[Array],
    columns: Sequence[Array],
    transition: Array,
    counts: Array,
) -> list[tuple[Array, Array]]:
    """``G^-1 b`` (span, size, 2) of what was not expected, and the weighted sum of ``diag(G^-1)``."""
    found = []
    for mode, own, covariance, seen in zip(modes, weights, covariances, columns, strict=True):
        states = _by_state(mode.states(own), len(transition))
        states, covariance = forecast_states(states, covariance, transition)
        inverse = 1.0 / (1.0 + mode.mu * covariance[0, 0])
        solved = inverse[..., None] * (mode.of(seen) - mode.mu[..., None] * states[0])
        diagonal = np.einsum("k,kpi,ki->p", counts, mode.W**2, inverse, optimize=True)
        found.append((mode.W @ solved, diagonal))
    return found


def innovation_blocks_range(
    modes: RangeModes, covariances: Sequence[Array], transition: Array, rows: Sequence[Indices]
) -> list[Array]:
    """``G_k^-1`` of a forecast at some rows of each sector, (l_s, l_s, span)."""
    found = []
    for mode, covariance, chosen in zip(modes, covariances, rows, strict=True):
        ahead = forecast_states(np.zeros((len(transition), 1)), covariance, transition)[1]
        W = mode.W[:, chosen]
        scaled = W / (1.0 + mode.mu * ahead[0, 0])[:, None]
        found.append(np.ascontiguousarray((scaled @ W.transpose(0, 2, 1)).transpose(1, 2, 0)))
    return found


def field_range(modes: RangeModes, weights: Sequence[Array]) -> list[Array]:
    """Fields ``K_k weights``, columns (span, size, r)."""
    return [mode.field(mode.states(own)) for mode, own in zip(modes, weights, strict=True)]


def variance_range(modes: RangeModes, covariances: Sequence[Array], weights: Array) -> list[Array]:
    """Weighted sum over wavenumbers of the variance by row of each sector."""
    return [mode.variance(own, weights) for mode, own in zip(modes, covariances, strict=True)]


def explained_range(
    modes: RangeModes, covariances: Sequence[Array], weights: Array, columns: Sequence[Array]
) -> Array:
    """Sum up the explained variance (r / 2,) of targets with covariances columns (span, size, r)."""
    total = np.zeros(columns[0].shape[2])
    for mode, own, seen in zip(modes, covariances, columns, strict=True):
        known = np.divide(1.0 - own, mode.mu, out=np.zeros_like(own), where=mode.mu > LEAST * mode.mu.max())
        total += np.einsum("k,ki,kir->r", weights, known, mode.of(seen) ** 2, optimize=True)
    return np.asarray(total.reshape(-1, 2).sum(axis=1))


LEAST = 1e-15
"""Part of the largest mu below which a mode is rounding."""


def smooth_range(
    parameters: Parameters,
    wavenumbers: Wavenumbers,
    span: Range,
    noise: Array,
    columns: Sequence[Array],
    steps: Sequence[SeriesStep],
) -> list[tuple[Array, Array]]:
    """Smooth columns (span, size, 2 T): results (span, size, 2 A), and variances (A, size)."""
    found = []
    kept = sum(step.out is not None for step in steps)
    for mode, seen in zip(modes_range(parameters, wavenumbers, span, noise), columns, strict=True):
        means, variances = _smoothed(mode, mode.of(seen), steps, kept)
        count = wavenumbers.weights[span[0] : span[1]]
        by_row = np.stack([mode.variance(each, count) for each in variances])
        found.append((mode.field(np.concatenate(list(means), axis=-1)), by_row))
    return found


def _smoothed(mode: SectorModes, z: Array, steps: Sequence[SeriesStep], kept: int) -> tuple[Array, Array]:
    """Mean (A, span, size, 2) and variance (A, span, size) of the first number of each state."""
    m, mu = len(steps[0].transition), mode.mu
    states = np.zeros((m, *mu.shape, 2))
    covariance = np.zeros((m, m, *mu.shape))
    covariance[range(m), range(m)] = 1.0
    ahead = []
    for step in steps:
        states, covariance = forecast_states(states, covariance, step.transition)
        ahead.append((states, covariance))
        if step.column is not None:
            seen = z[..., 2 * step.column : 2 * step.column + 2]
            states, covariance = update_states(states, covariance, seen, mu)
    means, variances = np.empty((kept, *mu.shape, 2)), np.empty((kept, *mu.shape))
    adjoint, information = np.zeros((m, *mu.shape, 2)), np.zeros((m, m, *mu.shape))
    for step, (states, covariance) in zip(reversed(steps), reversed(ahead), strict=True):
        if step.column is not None:
            S = 1.0 + mu * covariance[0, 0]
            C = np.zeros((m, m, *mu.shape))
            C[range(m), range(m)] = 1.0
            C[:, 0] -= mu * covariance[:, 0] / S
            adjoint = np.einsum("ji...,j...r->i...r", C, adjoint)
            seen = z[..., 2 * step.column : 2 * step.column + 2]
            adjoint[0] -= (seen - mu[..., None] * states[0]) / S[..., None]
            information = np.einsum("ji...,jl...,lm...->im...", C, information, C)
            information[0, 0] += mu / S
        if step.out is not None:
            means[step.out] = states[0] - np.einsum("j...,j...r->...r", covariance[0], adjoint)
            used = np.einsum("i...,ij...,j...->...", covariance[0], information, covariance[0])
            variances[step.out] = np.maximum(covariance[0, 0] - used, 0.0)
        adjoint = np.tensordot(step.transition.T, adjoint, axes=1)
        information = np.einsum("ji,jl...,lm->im...", step.transition, information, step.transition)
    return means, variances


def _by_state(columns: Array, m: int) -> Array:
    """Split columns (span, size, 2 m) into states (m, span, size, 2)."""
    return np.moveaxis(columns.reshape(*columns.shape[:2], m, 2), 2, 0)


def _side_by_side(states: Array) -> Array:
    """Put states (m, span, size, 2) side by side."""
    return np.concatenate(list(states), axis=-1)
