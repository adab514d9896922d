"""Commands for runs that are published: `cagp export`."""

from pathlib import Path
from typing import Annotated

import typer

from cagp_dist.cli.display import reported_errors
from cagp_dist.cli.options import Debug, Output, examples

EXPORT_EXAMPLES = examples(
    "cagp export out --to netcdf",
    "cagp export out --to netcdf --group map --output map.nc",
    "cagp export out/runs/KEY.zarr --to csv --group posterior --output places",
)


def export(
    output: Output,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="netcdf or csv.", show_default=False)],
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Group of the run, such as map; may be repeated.",
            show_default="all that fit",
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="PATH",
            help="Folder, or a file if its name ends as the format does and there is one group.",
            show_default="OUT/export/KEY",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    debug: Debug = False,
) -> None:
    """Write the current run for other programs: CF NetCDF or CSV, each file with its history and licence."""
    with reported_errors(debug=debug):
        from cagp_dist.export import export_run
        from cagp_dist.service.run import find_run

        for path in export_run(find_run(output), to=to, groups=group, output=target, force=force):
            typer.echo(path)
