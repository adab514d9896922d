"""Which transform the values of a job have, chosen by what it observes as a call chooses."""

from typing import NamedTuple

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
    if transformed.points.limits is not None:
        check_seen(transformed.task.observed)
    return TransformedJob(transformed, found)
