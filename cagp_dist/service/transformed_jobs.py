"""Which transform the values of a job have, chosen by what it observes as a call chooses."""

from typing import NamedTuple

from cagp_dist.errors import DataError
from cagp_dist.pipeline.censoring import check_seen
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.transform_choice import Compared, transform_of_values
from cagp_dist.service.task import PreparedJob


class TransformedJob(NamedTuple):
    """A job whose points have transformed values, and what the choice was by."""

    prepared: PreparedJob
    by: Compared  # without likelihoods where there was nothing to compare

    def line(self) -> str:
        """Say which it is, and how the others compare."""
        transform = self.prepared.points.transform
        compared = self.by.text()
        said = "none" if transform is None else transform.text
        return f"{said}; log-likelihoods: {compared}" if len(self.by.log_likelihoods) > 1 else said


def transformed_job(prepared: PreparedJob, execution: Execution) -> TransformedJob:
    """Transform the values of a job as it asks; what it holds out has no part in the choice."""
    asked, task = prepared.job.prior.transform, prepared.task
    with Narrator(shown=False) as told:
        found = transform_of_values(task.observed, asked, task.model, execution, narrator=told)
    transformed = prepared.transformed(found.chosen)
    points, test = transformed.points, transformed.design.test
    if points.limits is not None:
        check_seen(transformed.task.observed)
        if not (points.present & ~points.limits)[:, test].any():
            raise DataError(
                f"all {test.size:,} test points are below their limits of detection, so that no error is "
                "known; hold out more places, or draw others: [design] test count and seed.",
                key="nothing-to-score",
            )
    return TransformedJob(transformed, found)
