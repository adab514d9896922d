"""Whether an earlier run is of the same kind of job: the settings that it states, beside those of a job."""

import json
from collections.abc import Mapping

from cagp_dist.service.jobfile.tables import Job
from cagp_dist.text import without_secrets


def settings_of(job: Job, name: str, *, without: tuple[str, ...] = ()) -> dict[str, object]:
    """Give a table of the canonical form of a job, without some of its keys and without passwords."""
    table = json.loads(without_secrets(json.dumps(job.canonical()[name])))
    assert isinstance(table, dict)
    return {key: value for key, value in table.items() if key not in without}


def difference(ours: Mapping[str, object], said: str) -> str | None:
    """Say in what an earlier run differs from this job; None where it does not."""
    theirs = json.loads(said)
    for name, own in ours.items():
        other = theirs.get(name)
        if other == own:
            continue
        if isinstance(own, dict) and isinstance(other, dict):
            keys = [key for key in {**own, **other} if own.get(key) != other.get(key)]
            own, other = ({key: of.get(key) for key in keys} for of in (own, other))
        return f"its {name} {json.dumps(other)}, and of this one {json.dumps(own)}"
    return None
