"""Commands for published runs: `cagp list`, `open`, `view`, `prune`, `drift`, ...; and `certificates`."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from cagp_dist.cli.display import reported_errors, show_runs
from cagp_dist.cli.options import Debug, Output, OutputFolder, Root, argument, option
from cagp_dist.text import in_one_line

Certificates = Annotated[
    Path,
    argument(metavar="DIR", help="Folder for the certificate; all machines of the cluster must see it."),
]

DRIFTED = 4


def list_all(root: Root, debug: Debug = False) -> None:
    """List the runs of an output folder with times, source, solver, status and scores; * is the current one.

    The column "made" is in UTC, and "status" says how the solve ended. "error bars" says whether held-out
    values lie inside them as often as they should: consistent (no fault found), undecided (too few values to
    tell), too-narrow, too-wide, or wrong-shape (too narrow at some levels, such as 99 %, and too wide at
    others). The first digits of a key are enough to name a run: `cagp open OUT/KEY`.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.published_runs import list_runs

        show_runs(list_runs(root))


def open_report(
    output: Output,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or only print the path.")
    ] = True,
    debug: Debug = False,
) -> None:
    """Print the path of the report of the current run, and open it if there is a display.

    If the report does not exist yet, it is written first.
    """
    with reported_errors(debug=debug):
        from cagp_dist.report import report_page, write_report
        from cagp_dist.service.run import find_run

        run = find_run(output)
        page = report_page(run)
        if not page.exists():
            write_report(run)
        typer.echo(page)
        if browser and _has_display():
            import webbrowser

            webbrowser.open(page.as_uri())


def prune_command(
    root: Root,
    keep: Annotated[
        str,
        option(
            metavar="RULE",
            help='Which runs stay: 30 (the newest 30), "90d" (of the last 90 days), "50GiB" (the newest that '
            'fit), "finals" (no preliminary run if there is the final one), or several: "90d, finals".',
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and stop.")] = False,
    debug: Debug = False,
) -> None:
    """Remove old runs of an output folder, with their reports; the current run always stays.

    Observations and exported files are not touched. A job whose run was removed runs again when you call
    it. Exit code 75 means that another process is writing there.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.jobfile.config import parse_keep
        from cagp_dist.service.published_runs import pruned

        for line in pruned(root, parse_keep(keep), dry=dry_run):
            typer.echo(line)


def unpack_command(
    run: Annotated[
        Path,
        argument(metavar="OUT/KEY", help="A packed run; the first digits are enough."),
    ],
    debug: Debug = False,
) -> None:
    """Unpack a run that an earlier version packed into one file, OUT/packed/KEY.zip.

    The run is then in OUT/runs again, for all commands. Every file is compared with its checksum.
    """
    with reported_errors(debug=debug):
        from cagp_dist.store.packed import unpack_run

        typer.echo(unpack_run(run.parent, run.name))


def drift_command(
    root: OutputFolder,
    last: Annotated[
        int, typer.Option(metavar="N", help="How many of the newest times to check, at least 12.")
    ] = 30,
    debug: Debug = False,
) -> None:
    """Check whether the error bars of the last times of a series still hold; exit code 4 means they do not.

    Errors at held-out observations are compared with the error bars, and with the range that chance explains.
    Several variables have a line each. Nominally, one check in a hundred is a false alarm. In simulations, up
    to 2.2 % of the checks of 30 times were false alarms, and up to 6 % of those of 12, the fewest allowed.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.drift_check import drift_of_series

        found = drift_of_series(root, last=last)
        for line in found.lines():
            typer.echo(in_one_line(line))
        if found.alarm:
            raise typer.Exit(DRIFTED)


def index(root: Root, debug: Debug = False) -> None:
    """Write one page over all runs of an output folder: small maps, scores, and scores by date."""
    with reported_errors(debug=debug):
        from cagp_dist.report.index import write_index

        typer.echo(write_index(root))


def _has_display() -> bool:
    """Whether a browser would show; on Linux, a text browser would take over the terminal otherwise."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def export(
    output: Output,
    to: Annotated[str, option(metavar="FORMAT", help="netcdf, csv, geotiff or zarr.")],
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Group of the run, such as map; may be repeated.",
            show_default="all groups that FORMAT can hold",
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="PATH",
            help="Folder; or a file, if the name has the ending of the format and there is only one group.",
            show_default="OUT/export/KEY",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    debug: Debug = False,
) -> None:
    """Export the current run as NetCDF, CSV, GeoTIFF, or Zarr for GDAL, each with history and licence."""
    with reported_errors(debug=debug):
        from cagp_dist.export import export_run
        from cagp_dist.service.run import find_run

        for path in export_run(find_run(output), to=to, groups=group, output=target, force=force):
            typer.echo(path)


def view(
    output: Output,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port of 127.0.0.1; 0 takes a free one.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page, or only print its address.")
    ] = True,
    export_to: Annotated[
        Path | None,
        option(
            "--export",
            metavar="FOLDER",
            help="Write the page and the run to a folder for any web server, and stop.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show a run as a page in the browser: its maps at all times, and the value at any place.

    Only this machine can reach the page, until you press Ctrl-C. It needs no network. For an output folder,
    it shows the current run, and says when a newer one is published.
    """
    with reported_errors(debug=debug):
        from cagp_dist.errors import ArgumentError
        from cagp_dist.view import export_page, serve

        if export_to is not None:
            if port or not browser:
                raise ArgumentError(
                    "--export writes files and serves no page; expected it without --port and --no-browser.",
                    key="export-and-serve",
                )
            typer.echo(export_page(output, export_to))
            return
        with serve(output, port=port) as page:
            typer.echo(page.url)
            if browser and _has_display():
                import webbrowser

                webbrowser.open(page.url)
            with suppress(KeyboardInterrupt):
                page.wait()


def certificates(folder: Certificates, debug: Debug = False) -> None:
    """Make the certificate with which scheduler, workers and jobs of a Dask cluster encrypt connections.

    The file cluster.pem has the certificate and its private key. Only you can read it, and only holders of
    the file may connect. It is kept while it is valid, and made again in its last week. dask.yaml names it:
    a Dask process that is started with DASK_CONFIG set to dask.yaml encrypts all connections.
    """
    with reported_errors(debug=debug):
        from cagp_dist.runtime.certificates import make_certificates

        typer.echo(f"export DASK_CONFIG={quote(str(make_certificates(folder).with_name('dask.yaml')))}")
