"""Several variables as the points of one field, which a job is about.

The points are all places of any variable, once for each: those of the first variable, then those of the
second, in the same order, and NaN where a variable was not observed. A coordinate says which variable each
is of, so that the values have no unit of their own. `cagp_dist.fields.canonical` reads them again.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from cagp_dist.digest import joint_sha256
from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.canonical import (
    MISSING,
    VALUES,
    VARIABLES,
    field_variable,
    labels_of,
    limits_of,
    observation_points,
)
from cagp_dist.fields.gridded import LABEL, PLACE
from cagp_dist.kernels import DEPTH, VARIABLE
from cagp_dist.pipeline import Observations
from cagp_dist.pipeline.labels import rows_at_places
from cagp_dist.pipeline.observations import beside_limits
from cagp_dist.store.batches import PRELIMINARY


def together(fields: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put fields in canonical form, each of one variable, together as points; `DataError` if they cannot.

    `ConfigurationError` where values are limits of detection.
    """
    variables = [field_variable(field) for field in fields]
    limits = [each for field in fields if (each := limits_of(field)) is not None]
    if limits:
        count = sum(int(each.sum()) for each in limits)
        raise ConfigurationError(beside_limits(count, {"several variables": True}), key="limits-with-others")
    found = Observations.together([observation_points(field, gaps="keep") for field in fields], axis=VARIABLE)
    labels, space = found.beside[VARIABLE].astype(np.intp), found.space
    of_all = np.column_stack(rows_at_places(found))
    places, first, of = np.unique(of_all, axis=0, return_index=True, return_inverse=True)
    n = len(places)
    at = labels * n + of.reshape(-1)
    values = np.full((found.fields, len(fields) * n), np.nan)
    values[:, at] = found.values
    coordinates: dict[str, Any] = {
        "time": ("time", found.times),
        **dict(space.mapping),
        VARIABLE: (PLACE, np.repeat([variable.name for variable in variables], n)),
    }
    if found.noise_variance is not None:
        noise = np.zeros(values.shape[1])
        noise[at] = np.sqrt(found.noise_variance)
        coordinates["noise_std"] = PLACE, noise
    for (name, about), axis in zip(space.axes.items(), (found.north, found.east), strict=True):
        everywhere = np.tile(axis[first], len(fields))
        coordinates[name] = PLACE, everywhere, {k: v for k, v in about.items() if k != "axis"}
    if DEPTH in found.beside:
        about = fields[0][DEPTH].attrs
        coordinates[DEPTH] = PLACE, np.tile(found.beside[DEPTH][first], len(fields)), about
    every = [labels_of(field) for field in fields]
    for label in every[0]:
        texts = np.full(values.shape[1], "", dtype=object)
        own = [
            np.array([*names, ""])[np.minimum(codes.astype(np.intp), len(names))]
            for codes, names in (each[label] for each in every)
        ]
        texts[at] = np.concatenate(own)
        coordinates[label] = PLACE, texts.astype(str), LABEL
    said = [{"name": variable.name, **variable.attributes()} for variable in variables]
    early = [field.attrs[PRELIMINARY] for field in fields if PRELIMINARY in field.attrs]
    names = " and ".join(variable.long_name for variable in variables)
    return xr.Dataset(
        {VALUES: (("time", PLACE), values, {"long_name": names})},
        coords=coordinates,
        attrs={
            "source": fields[0].attrs["source"],
            "source_sha256": joint_sha256([str(field.attrs["source_sha256"]) for field in fields]),
            "dropped_missing": found.dropped_missing,
            "notes": [note for field in fields for note in field.attrs.get("notes", [])],
            VARIABLES: json.dumps(said),
            MISSING: found.missing_places,
            **({PRELIMINARY: early[0]} if early else {}),
        },
    )
