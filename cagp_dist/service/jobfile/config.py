"""Reads and checks job files."""

import re
import textwrap
import tomllib
from pathlib import Path

from pydantic import ValidationError

from cagp_dist.arrays import Times
from cagp_dist.digest import open_regular
from cagp_dist.errors import ConfigurationError
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.explain import explain_mistakes, first_place
from cagp_dist.service.jobfile.job import Job, KeepTable
from cagp_dist.service.jobfile.observations_table import ObservationsTable
from cagp_dist.service.jobfile.times_key import (
    LATEST,
    Newest,
    TimeRule,
    Window,
    parse_short_times,
    written_times,
)
from cagp_dist.service.jobfile.times_key import times as times_of
from cagp_dist.store.retention import Retention
from cagp_dist.text import without_secrets

# A job file that lists ten thousand times is smaller; a larger file is something else
MOST_BYTES = 256 * 2**10
# Parts of a dotted key: no key of a job has more than four, and parsing takes the square of their number
DEEPEST_KEY = 16

_DEEP_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*+((?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16})""", re.MULTILINE
)


def load_job(path: Path | str) -> Job:
    """Read and check a job file."""
    try:
        with open_regular(Path(path)) as stream:  # no more of it than is needed
            content = stream.read(MOST_BYTES + 1)
        _check_size(len(content), str(path))
        text = content.decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no job file at {path}; expected a TOML file. `cagp example` prints one to start from.",
            key="no-file",
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the job file {path} cannot be read ({error}); expected a TOML text file in UTF-8.",
            key="unreadable",
        ) from error
    return parse_job(text, name=str(path))


def parse_job(text: str, *, name: str = "job") -> Job:
    """Check the text of a job file; ``name`` is what the error messages call it."""
    _check_size(len(text.encode()), name)
    if (deep := _DEEP_KEY.search(text)) is not None:
        line = text.count("\n", 0, deep.start(1)) + 1
        raise ConfigurationError(
            f"{name}, line {line}: a key has more than {DEEPEST_KEY} parts, {deep[1][:40]}...; expected a "
            "job file, whose keys have four at most. `cagp example` prints one to start from.",
            key="too-many-parts",
        )
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also integers of thousands of digits
        raise ConfigurationError(
            f"{name} is not valid TOML: {without_secrets(_syntax(text, error))}", key="not-toml"
        ) from error
    try:
        job = Job.model_validate(tables)
    except ValidationError as error:
        text = explain_mistakes(Job, tables, error, name=name)
        raise ConfigurationError(text, key=first_place(Job, error)) from error
    job._text = text
    return job


def _check_size(size: int, name: str) -> None:
    if size > MOST_BYTES:
        raise ConfigurationError(
            f"{name} is larger than {MOST_BYTES // 2**10} KiB; expected a job file, which has a few. Write "
            'many times as a rule, such as times = { from = "2017-01-01", to = "2017-12-31", every = "1h" }.',
            key="too-large",
        )


def _syntax(text: str, error: Exception) -> str:
    """Give the parser's message and the line it speaks of."""
    if isinstance(error, RecursionError):
        return "its arrays or tables are nested too deeply."
    found = re.search(r"at line (\d+)", str(error))
    lines = text.splitlines()
    before = lines[: int(found[1]) - 1] if found else []
    begun = any(line.strip() and not line.lstrip().startswith("#") for line in before)
    if found is None or int(found[1]) > len(lines) or not begun:
        return f"{error}."  # where nothing was understood it is another file, whose lines are not shown
    return f"{error}.\n  line {found[1]}: {lines[int(found[1]) - 1].strip()[:80]}"


def changed(job: Job, table: str, **settings: object) -> Job:
    """Replace settings of a table of a job by others, which were checked."""
    return job.model_copy(update={table: getattr(job, table).model_copy(update=settings)})


def with_scheduler(job: Job, scheduler: str | None, *, insecure: bool = False) -> Job:
    """Replace where a job is done, as ``--scheduler`` and ``--insecure`` ask."""
    try:
        checked = values.scheduler(scheduler)
    except ValueError as error:
        raise ConfigurationError(f'--scheduler "{scheduler}": {error}.', key="option-scheduler") from error
    asked: dict[str, object] = {} if checked is None else {"scheduler": checked}
    return changed(job, "cluster", **asked, **({"insecure": True} if insecure else {}))


def with_runtime(job: Job, *, attempts: int | None = None, total_seconds: float | None = None) -> Job:
    """Replace settings of ``[runtime]`` that are not None, as ``--attempts`` and ``--time-limit`` ask."""
    asked = {"attempts": attempts, "total_seconds": total_seconds}
    return changed(job, "runtime", **{key: value for key, value in asked.items() if value is not None})


def with_output(job: Job, root: str) -> Job:
    """Replace where a job publishes, as ``--output`` asks."""
    try:
        values.output(root)
    except ValueError as error:
        raise ConfigurationError(f"--output: {error}.", key="option-output") from error
    return changed(job, "output", root=root)


def parse_keep(text: str) -> Retention:
    """Read which runs stay, as ``--keep`` has it; its form is that of ``keep`` of ``[output]``."""
    try:
        return KeepTable.model_validate(values.keep(text)).rule()
    except ValueError as error:
        said = f"expected {values.EXPECTED_KEEP}" if isinstance(error, ValidationError) else error
        raise ConfigurationError(f'--keep "{text}": {said}.', key="option-keep") from error


def with_times(job: Job, text: str) -> Job:
    """Replace the times of a job, as ``--times`` asks; its text says so.

    A window without a step or clock times has those of the job, so that it means as many times a day.
    """
    try:
        found, rule = parse_short_times(text), job.observations.times
        has_steps = rule != times_of(LATEST)
        if (
            isinstance(found, Window)
            and found.needs_source
            and isinstance(rule, Window | Newest)
            and has_steps
        ):
            found = found.in_steps_of(rule)
        return _noted(_with_times(job, found), job, f"--times {text}")
    except ValueError as error:
        raise ConfigurationError(f'--times "{text}": {error}.', key="option-times") from error


def with_listed_times(job: Job, moments: Times) -> Job:
    """Put the times (T,) that a rule came to in its place; the text of the job says which."""
    listed = _written(moments)
    note = f"[observations] times = {written_times(listed)}"
    return _noted(_with_times(job, listed), job, note, about="The times of this run:")


def with_fit_times(job: Job, moments: Times) -> Job:
    """Put the times that a rule came to in the place of ``fit_times``; as `with_listed_times`."""
    listed = _written(moments)
    note = f"[prior] fit_times = {written_times(listed)}"
    about = "The times that the prior of this run was fitted to:"
    return _noted(changed(job, "prior", fit_times=listed), job, note, about=about)


def job_of_fit_times(job: Job) -> Job | None:
    """Give the job that observes the times which the prior is fitted to; None if they are its own."""
    if job.prior.fit_times is None:
        return None
    return changed(_with_times(job, job.prior.fit_times), "design", window_hours=None)


def _written(moments: Times) -> tuple[str, ...]:
    return tuple(values.instant_of(str(time.astype("datetime64[us]"))) for time in moments)


def _with_times(job: Job, found: tuple[str, ...] | TimeRule | None) -> Job:
    ObservationsTable.check_times_of_source(job.observations.source, found)
    return changed(job, "observations", times=found)


def _noted(replaced: Job, job: Job, note: str, *, about: str = "") -> Job:
    """Give a job the text of the one that it was made of, with a comment on lines of its own."""
    lines = textwrap.wrap(note, 100, break_long_words=False, break_on_hyphens=False)
    lines = [about, *lines] if about else lines
    replaced._text = "\n".join([job.text.rstrip("\n"), *(f"# {line}" for line in lines), ""])
    return replaced
