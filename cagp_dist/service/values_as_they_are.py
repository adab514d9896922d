"""What a job says of its values: which are left out, which count less, and what would help the others."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from cagp_dist.fields.checked import CheckedObservations
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.robust_fit import looks_wrong
from cagp_dist.pipeline.transform_choice import advice_of_means, advice_of_values, has_many_zeros
from cagp_dist.runtime import Executor
from cagp_dist.service.task import PreparedJob, prepare_job
from cagp_dist.store.earlier import EarlierRuns
from cagp_dist.store.published_variables import QUANTILE_LEVEL

SHOWN = 20  # flags that are named in a sentence


def without_flagged(
    prepared: PreparedJob,
    found: CheckedObservations,
    field: xr.Dataset,
    fit_field: xr.Dataset | None,
    earlier: EarlierRuns,
) -> PreparedJob:
    """Prepare a job once more without the values that are flagged; its name is that of what was read.

    The places that are held out are drawn among those that have values then: flagged ones are not scored.
    """
    if not found.checked.count:
        return replace(prepared, flags=found, named=prepared.run_key)
    again = prepare_job(prepared.job, field, fit_field, earlier=earlier, flagged=found.checked.flagged)
    return replace(again, flags=found, named=prepared.run_key, simulations=prepared.simulations)


def words_of_values(prepared: PreparedJob, model: FittedModel, executor: Executor) -> dict[str, str]:
    """Say what would help values that are not normal, and whether some look wrong, as attributes."""
    observed, prior = prepared.task.observed, prepared.job.prior
    found: dict[str, str] = {}
    if prepared.variables or prior.is_previous:
        return found
    if not prior.transforms:
        found["values_advice"] = advice_of_values(observed, model, in_job=True)
    rain = not prior.transforms and has_many_zeros(observed)
    if prior.outliers == "keep" and prepared.recalibration.method == "none" and not rain:
        said = looks_wrong(observed, model, executor)
        found["suspicious_values"] = said and (
            f'{said} Look at them first: `cagp check` lists them. outliers = "robust" in [prior] gives them '
            'less weight, and quality = "flag" in [observations] leaves them out.'
        )
    return {name: said for name, said in found.items() if said}


def words_of_means(prepared: PreparedJob, groups: Mapping[str, xr.Dataset]) -> dict[str, str]:
    """Say where means of transformed values come from a tail that no value shows, as an attribute."""
    points = prepared.task.observed  # not those that are held out
    name = points.variable.name
    found = [group for group in groups.values() if {f"{name}_mean", f"{name}_quantile"} <= set(group)]
    if points.transform is None or not found:
        return {}
    mean, likely = (
        np.concatenate([np.ravel(each) for each in parts])
        for parts in (
            [group[f"{name}_mean"].values for group in found],
            [group[f"{name}_quantile"].sel({QUANTILE_LEVEL: 0.95}).values for group in found],
        )
    )
    said = advice_of_means(mean, likely, points, in_job=True)
    return {"values_advice": said} if said else {}


def outliers_said(model: FittedModel) -> dict[str, object]:
    """Say how many values count less, as a call does."""
    found = model.outliers
    if found is None:
        return {}
    said = found.attributes(wider=model.excess is not None)
    if model.excess is not None:
        of = "outlier_probability of group observations is that of being wrong."
        said["outlier_comment"] = f"{said['outlier_comment']} {of}"
    return said


def flags_said(found: CheckedObservations | None) -> dict[str, object]:
    """Say how many values were left out, and which."""
    if found is None:
        return {}
    count, rate = found.checked.count, found.checked.rate
    said = f"{count:,} of {found.points.count:,} values contradict the others"
    if count:
        said += f", and are neither used nor scored: {which_flagged(found)}"
    return {"flagged": count, "flag_rate": rate, "flagged_statement": f"{said}."}


def which_flagged(found: CheckedObservations) -> str:
    """Name flagged values, the worst first."""
    rows = found.worst()
    texts = []
    for _, row in rows.head(SHOWN).iterrows():
        name = row.get("station_name") or ", ".join(f"{row[axis]:g}" for axis in found.points.space.axes)
        at = f" at {row['time']:%Y-%m-%d %H:%M}" if "time" in row and found.points.fields > 1 else ""
        helps = f"; {row['suggestion']}" if row["suggestion"] else ""
        texts.append(f"{name}{at} {row['observed']:.4g} (expected {row['expected']:.4g}{helps})")
    more = len(rows) - SHOWN
    return ", ".join(texts) + (f" and {more:,} more" if more > 0 else "")
