"""What a map was made with, in a few lines of text."""

from math import sqrt

import numpy as np

from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, kilometres_of_chord
from cagp_dist.kriging.dataset import BEYOND
from cagp_dist.kriging.given import LONGEST_CHORD
from cagp_dist.kriging.learning import Learned
from cagp_dist.kriging.observations import Observations
from cagp_dist.likelihood.result import OwnNumbers, each


def summary(observed: Observations, learned: Learned) -> str:
    """Write kernel, noise and fit; see `Kriging.summary`."""
    kernel, result = learned.kernel, learned.result
    unit = f" {observed.attributes['units']}" if "units" in observed.attributes else ""
    noise = np.sqrt(learned.noise_variance)
    shown = f"{noise:.4g}" if noise.ndim == 0 else f"{noise.min():.4g} to {noise.max():.4g}"
    seen = (~np.isnan(observed.values)).any(axis=0)
    lines = [
        f"Kriging of {observed.name}: {observed.count:,} observations at {int(seen.sum()):,} places, "
        f"{len(observed.values)} field{'s' if len(observed.values) != 1 else ''}, "
        f"{observed.dropped_missing:,} missing",
        f"kernel       {' + '.join(type(part).__name__ for part in kernel.parts)}",
        *(
            f"lengthscale  {kilometres_of_chord(chord):.4g} km (chord {chord:.4g}, Earth of "
            f"{EARTH_RADIUS_KILOMETRES} km)"
            if chord <= LONGEST_CHORD
            else f"lengthscale  chord {chord:.4g}. {BEYOND}"
            for chord in learned.lengthscales
        ),
        f"prior std    {sqrt(kernel.variance):.4g}{unit}",
        f"noise std    {shown}{unit}",
        f"prior mean   {learned.mean if isinstance(learned.mean, (str, int, float)) else 'given'}",
    ]
    if result is None:
        return "\n".join([*lines, "fit          none: every number was given"])
    errors = result.standard_errors
    return "\n".join(
        [
            *lines,
            f"fit          {result.status.value}, to {learned.fitted_to} ({result.method})",
            f"             standard errors: lengthscale {_numbers(errors.lengthscale)}, variance "
            f"{_numbers(errors.variance)}, noise variance {_numbers(errors.noise_variance)}",
        ]
    )


def _numbers(errors: OwnNumbers) -> str:
    """Write standard errors; what was held fixed has none."""
    return " and ".join("none" if np.isnan(error) else f"{error:.2g}" for error in each(errors))
