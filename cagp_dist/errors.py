"""Every error the package raises on purpose, with the exit code the command line gives it.

An error is data: its class, a key for programs, a text that says what came and what was expected, and
remedies. The door through which work came puts the remedies into its words: arguments of Python, or keys of
a job file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Self

from cagp_dist.remedies import Remedy, Setting, advice


class CagpError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns.

    Parameters
    ----------
    text : str
        What came, what was expected, and why it matters.
    key : str
        A short name of the fault for programs and tests, such as ``"levels-averaged"``.
    remedies : tuple of Remedy and Setting
        What to do, any of which helps; they are the end of ``str(error)``.
    """

    exit_code = 1

    def __init__(self, text: str = "", *, key: str = "", remedies: tuple[Remedy | Setting, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.key = key
        self.remedies = remedies
        self.in_job = False  # whether remedies are put into the words of a job file

    def __str__(self) -> str:
        return f"{self.text} {advice(self.remedies, in_job=self.in_job)}".strip()

    def told(
        self, *, before: str = "", after: str = "", text: str | None = None, in_job: bool | None = None
    ) -> Self:
        """Give a copy with more text around it, or another text, or in the words of another door."""
        error = copy(self)
        error.text = " ".join(filter(None, (before, self.text if text is None else text, after)))
        error.args = (error.text,)
        error.in_job = self.in_job if in_job is None else in_job
        return error


@contextmanager
def in_words_of_the_job() -> Iterator[None]:
    """Let the errors raised inside name the keys of a job file instead of the arguments of Python."""
    try:
        yield
    except CagpError as error:
        if not error.remedies or error.in_job:
            raise
        raise error.told(in_job=True) from error.__cause__


class ConfigurationError(CagpError, ValueError):
    """A job file or a command-line argument is wrong; nothing was started."""

    exit_code = 2


class ArgumentError(CagpError, ValueError):
    """An argument of a library call has the wrong shape, type or value."""

    exit_code = 2


class BudgetError(CagpError):
    """The planned work does not fit into the memory or disk that was allowed."""

    exit_code = 2


class ClusterError(CagpError):
    """The Dask cluster cannot be reached, started or kept."""

    exit_code = 2


class ClusterLostError(ClusterError):
    """A Dask cluster, its scheduler or its workers were lost on the way: another attempt may go on."""


class TimeLimitError(CagpError):
    """The time that was allowed is over; the same job may be started again."""

    exit_code = 75


class DataError(CagpError, ValueError):
    """Input data is missing, damaged or not what it says it is."""


class DamagedFileError(DataError):
    """A file cannot be decoded."""


class AbsentTimeError(DataError):
    """A source does not have a time that was asked for; it may come."""


class NotReadyError(DataError):
    """The data does not exist yet; the same job may succeed later."""

    exit_code = 75


class StoreError(CagpError):
    """A store on disk is damaged, incomplete or cannot be written."""


class DiskError(StoreError):
    """The disk cannot be written: it is full, or fails."""


class FullDiskError(DiskError, BudgetError):
    """A disk has too little space; the same job may be started again when there is more."""

    exit_code = 75


class BusyError(StoreError):
    """Another process works in the output folder; the same job may be started again."""

    exit_code = 75


class NumericalError(CagpError, ArithmeticError):
    """A computation left its domain: not positive definite, negative variance, not finite."""


class FitError(NumericalError):
    """A fit of the prior did not end well, and the job needs its numbers."""

    exit_code = 3
