"""`cagp check`: values of a table or a job that all others contradict."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cagp_dist.cli.display import Display, reported_errors
from cagp_dist.cli.options import Debug, argument, examples, option
from cagp_dist.text import in_one_line

if TYPE_CHECKING:
    from cagp_dist.fields.checked import CheckedObservations

SHOWN = 20  # flags that are printed, the worst first

CHECK_EXAMPLES = examples(
    "cagp check stations.csv --value TMAX",
    "cagp check stations.csv --value TMAX --mean elevation --rate 0.01",
    "cagp check job.toml --output flags.csv --map flags.png",
)


def check_command(
    observations: Annotated[
        Path, argument(metavar="FILE", help="Table of observations, CSV or Parquet, or a job file, JOB.toml.")
    ],
    rate: Annotated[
        float, typer.Option(metavar="SHARE", help="False flags, as a share of all flags, to aim at.")
    ] = 0.05,
    output: Annotated[
        Path | None, option(metavar="FILE.csv", help="Write all rows with their flags to this file.")
    ] = None,
    map_: Annotated[
        Path | None, option("--map", metavar="FILE.png", help="Draw a map of the flags to this file.")
    ] = None,
    value: Annotated[
        str | None, option(metavar="COLUMN", help="For a table: column of the values, if there are several.")
    ] = None,
    mean: Annotated[
        str | None,
        option(metavar="TERM", help="For a table: trend, or a column such as the elevation of each place."),
    ] = None,
    times: Annotated[
        bool,
        typer.Option("--all-times", help="For a table: let values of all times predict each other."),
    ] = False,
    debug: Debug = False,
) -> None:
    """List observations that disagree with their neighbours, the worst first, and what would make them right.

    Each value is predicted from all others. For a table, --output writes all its rows, with the columns flag,
    expected, expected_std and suggestion. A job file already says what its observations are, and what is
    known of kernel, noise and mean.
    """
    with reported_errors(debug=debug):
        given = {"--value": value, "--mean": mean, "--all-times": times or None}
        if observations.suffix == ".toml":
            found = _of_job(observations, rate, [name for name, said in given.items() if said is not None])
            table = None
        else:
            from cagp_dist.kriging import Kriging
            from cagp_dist.kriging.checking import checked_by, table_as_it_is, with_flags

            model = Kriging(value=value, mean=mean, at="observed" if times else None)
            found = checked_by(model, str(observations), rate)
            table = with_flags(table_as_it_is(str(observations)), found)
        _show(found)
        if output is not None:
            rows = found.dataset().to_dataframe() if table is None else table
            rows.to_csv(output, index=False)
            typer.echo(output)
        if map_ is not None:
            found.draw().savefig(map_, dpi=150)
            typer.echo(map_)


def _of_job(path: Path, rate: float, given: list[str]) -> "CheckedObservations":
    """Check the observations of a job."""
    from cagp_dist.cli.options import loaded_job
    from cagp_dist.errors import ConfigurationError
    from cagp_dist.service.run import check_job

    if given:
        raise ConfigurationError(
            f"{' and '.join(given)} is of tables, and {path} is a job, which says that itself; leave it out.",
            key="check-of-job",
        )
    with Display() as display:
        return check_job(loaded_job(path, None), rate, observe=display)


def _show(found: "CheckedObservations") -> None:
    """Print what is flagged, the worst first."""
    checked = found.checked
    typer.echo(f"{checked.count:,} of {found.points.count:,} values are flagged (rate {checked.rate:g})")
    if checked.count:
        worst = found.worst()
        shown = worst[:SHOWN].map(lambda cell: in_one_line(cell) if isinstance(cell, str) else cell)
        shown = shown.rename(columns=in_one_line)
        typer.echo(shown.to_string(index=False, float_format=lambda number: f"{number:.5g}"))
        if len(worst) > SHOWN:
            typer.echo(f"... and {len(worst) - SHOWN:,} others, which --output writes")
