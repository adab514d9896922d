"""Which runs of an output stay, by the rule of a job or of a command."""

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cagp_dist.errors import ArgumentError


@dataclass(frozen=True)
class Retention:
    """What stays; a run goes that any of these says goes, but never the current one."""

    days: float | None = None  # since it was made
    runs: int | None = None  # so many of the newest
    total: int | None = None  # bytes of all runs together; the oldest go first
    finals_only: bool = False  # runs of preliminary fields go when the final ones have a run of the same job

    def __post_init__(self) -> None:
        if self.runs is not None and self.runs < 1:
            raise ArgumentError(f"keep is {self.runs}; expected at least 1 run to keep.", key="keep")


@dataclass(frozen=True)
class KeptRun:
    """What decides whether a run stays."""

    key: str
    made: datetime
    job: str = ""  # what it asks for, and the times of the run: the same of a preliminary and a final field
    preliminary: bool = False
    first: str = ""  # time, ISO 8601
    last: str = ""
    previous: str = ""  # key of the run that it continues from, if there is one
    chain: str = ""  # kind of job whose runs continue from each other; empty where none continue from the run


def beyond(
    rule: Retention,
    runs: Iterable[KeptRun],
    *,
    current: str | None,
    sizes: Callable[[], Mapping[str, int]],
    since: str | None = None,
    now: datetime | None = None,
) -> list[str]:
    """List the keys of the runs that a rule does not keep, oldest first.

    ``since`` keeps the runs of that time (ISO 8601) and later ones. Where runs continue from each other, the
    last in time of each kind stays, from which the next one goes on, and so do the runs that those which stay
    have gone on from.
    Bytes are asked for only where the rule has a total.
    """
    oldest_first = sorted(runs, key=lambda run: (run.made, run.key))
    finals = {run.job: run.made for run in oldest_first if not run.preliminary}
    superseded = {
        run.key
        for run in oldest_first
        if rule.finals_only and run.preliminary and run.made < finals.get(run.job, run.made)
    }
    in_time = sorted(oldest_first, key=lambda run: run.last)
    stays = {current, *{run.chain: run.key for run in in_time if run.chain}.values()}
    if since is not None:
        stays |= {run.key for run in oldest_first if run.last >= since} - superseded
    gone = set(superseded)
    if rule.days is not None:
        first = (now or datetime.now(UTC)) - timedelta(days=rule.days)
        gone |= {run.key for run in oldest_first if run.made < first}
    if rule.runs is not None:
        gone |= {run.key for run in oldest_first[: -rule.runs]}
    gone -= stays
    if rule.total is not None:
        size = sizes()
        left = sum(size[run.key] for run in oldest_first if run.key not in gone)
        for run in oldest_first:
            if left > rule.total and run.key not in gone | stays:
                gone.add(run.key)
                left -= size[run.key]
    gone -= {run.previous for run in oldest_first if run.key not in gone}
    return [run.key for run in oldest_first if run.key in gone]


def about_run(key: str, document: Mapping[str, Any]) -> KeptRun:
    """Read what decides from the metadata of a run, the ``zarr.json`` of its root."""
    # what reads stores; a rule of a job file needs none of it
    from cagp_dist.store.batches import PRELIMINARY
    from cagp_dist.store.published_variables import ERRORS_OF, JOB, PREVIOUS_RUN, STATE

    attributes, groups = document["attributes"], document.get("consolidated_metadata", {}).get("metadata", {})
    kinds = [groups[STATE]["attributes"].get(ERRORS_OF, "")] if STATE in groups else []
    times = [str(attributes.get(f"time_coverage_{end}", "")) for end in ("start", "end")]
    return KeptRun(
        key,
        datetime.fromisoformat(str(attributes["date_created"])).astimezone(UTC),
        job=" ".join([_asked_for(str(attributes.get(JOB, key))), *times]),
        preliminary=PRELIMINARY in attributes,
        first=times[0],
        last=times[1],
        previous=json.loads(attributes.get(PREVIOUS_RUN, "{}")).get("run") or "",
        chain=next(iter(kinds), ""),
    )


def _asked_for(text: str) -> str:
    """Give what a job asks for, without its times, which a command may have replaced, and comments."""
    try:
        tables = tomllib.loads(text)
        tables.get("observations", {}).pop("times", None)
    except (ValueError, AttributeError):
        return text
    return json.dumps(tables, sort_keys=True, default=str)
