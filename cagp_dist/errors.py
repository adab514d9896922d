"""Every error the package raises on purpose, with the exit code the command line gives it.

The text of an error says what came, what was expected and what to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from cagp_dist.remedies import Remedy, advice


class CagpError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns.

    The text ends with the remedies, which are called otherwise in Python and in a job file.
    """

    exit_code = 1

    def __init__(self, text: str = "", *, remedies: tuple[Remedy, ...] = ()) -> None:
        super().__init__(f"{text} {advice(remedies)}".strip())
        self.text = text
        self.remedies = remedies


@contextmanager
def in_words_of_the_job() -> Iterator[None]:
    """Let the errors raised inside name the keys of a job file instead of the arguments of Python."""
    try:
        yield
    except CagpError as error:
        if error.remedies:
            error.args = (f"{error.text} {advice(error.remedies, in_job=True)}",)
        raise


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


class BusyError(StoreError):
    """Another process works in the output folder; the same job may be started again."""

    exit_code = 75


class NumericalError(CagpError, ArithmeticError):
    """A computation left its domain: not positive definite, negative variance, not finite."""


class FitError(NumericalError):
    """A fit of the prior did not end well, and the job needs its numbers."""

    exit_code = 3
