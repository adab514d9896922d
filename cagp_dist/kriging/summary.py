"""What a map was made with, in a few lines of text."""

from collections.abc import Iterator, Mapping
from math import sqrt

import numpy as np

from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, kilometres_of_chord
from cagp_dist.kriging.given_numbers import LONGEST_CHORD
from cagp_dist.kriging.learning import FittedModel
from cagp_dist.kriging.map_dataset import BEYOND, INTERVAL
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.likelihood.fit_result import FitResult, each
from cagp_dist.likelihood.numbering import NAMES, Numbering
from cagp_dist.text import counted


def summary(observed: ObservedObject, learned: FittedModel) -> str:
    """Write kernel, noise and fit; see `Kriging.summary`."""
    kernel, result = learned.kernel, learned.result
    unit = f" {observed.attributes['units']}" if "units" in observed.attributes else ""
    noise = np.sqrt(learned.noise_variance)
    shown = f"{noise:.4g}" if noise.ndim == 0 else f"{noise.min():.4g} to {noise.max():.4g}"
    seen = (~np.isnan(observed.values)).any(axis=0)
    lines = [
        f"Kriging of {observed.name}: {counted(observed.count, 'observation')} at "
        f"{counted(int(seen.sum()), 'place')}, {counted(len(observed.values), 'field')}, "
        f"{observed.dropped_missing:,} missing",
        f"kernel       {_kernel(learned)}",
        *(
            f"lengthscale  {kilometres_of_chord(chord):.4g} km (chord {chord:.4g}, Earth of "
            f"{EARTH_RADIUS_KILOMETRES} km)"
            if chord <= LONGEST_CHORD
            else f"lengthscale  chord {chord:.4g}. {BEYOND}"
            for chord in learned.lengthscales
        ),
        f"prior std    {sqrt(kernel.variance):.4g}{unit}",
        f"noise std    {shown}{unit}",
        f"prior mean   {'given' if callable(learned.mean) else learned.mean_text}",
    ]
    if result is None:
        return "\n".join([*lines, "fit          none: every number was given"])
    return "\n".join(
        [
            *lines,
            f"fit          {result.status.value}, to {learned.fitted_to} ({result.method})",
            f"             standard errors: {', '.join(_errors(result, learned.held))}",
            f"numbers      {learned.numbers}",
            *_intervals(learned),
        ]
    )


def _intervals(learned: FittedModel) -> Iterator[str]:
    """Write between which ends numbers lie that are integrated over."""
    if learned.integrated is not None:
        ends = learned.integrated.quantiles(INTERVAL)
        said = (f"{name.replace('_', ' ')} {low:.3g} to {high:.3g}" for name, (low, high) in ends.items())
        yield f"             {1.0 - 2.0 * INTERVAL[0]:.0%} of probability: {', '.join(said)}"


def _kernel(learned: FittedModel) -> str:
    """Name the kernel, and say from what it was chosen."""
    if learned.result is not None and learned.result.choice is not None:
        return learned.result.choice.line()
    return " + ".join(part.family.__name__ for part in learned.kernel.parts)


def _errors(result: FitResult, held: Mapping[str, str]) -> Iterator[str]:
    """Write the standard errors of each kind of number, and why one has none."""
    names = Numbering(len(result.prior.kernel.parts)).names
    for kind in NAMES:
        own = [name for name in names if name.startswith(kind)]
        written = []
        for name, error in zip(own, each(getattr(result.standard_errors, kind)), strict=True):
            why = held.get(kind, "it is at its bound" if name in result.at_bound else "it is not determined")
            written.append(f"none ({why})" if np.isnan(error) else f"{error:.2g}")
        yield f"{kind.replace('_', ' ')} {' and '.join(written)}"
