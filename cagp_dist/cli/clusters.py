"""What the `cagp` command does for those who run a Dask cluster of their own."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from cagp_dist.cli.display import reported_errors
from cagp_dist.cli.options import Debug, examples

CERTIFICATES_EXAMPLES = examples("cagp certificates ~/cagp-cluster")

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Folder for them; all machines of the cluster must see it.", show_default=False
    ),
]


def certificates(folder: Folder, debug: Debug = False) -> None:
    """Make what scheduler, workers and jobs of a Dask cluster need to speak with each other in secret.

    A certificate with its private key, cluster.pem, which you alone can read: who has the file may connect,
    nobody else. It is kept as long as it is valid, and made again in its last week. dask.yaml names it; a
    Dask process that is started with DASK_CONFIG set to that file encrypts all connections.
    """
    with reported_errors(debug=debug):
        from cagp_dist.runtime.certificates import make_certificates

        typer.echo(f"export DASK_CONFIG={quote(str(make_certificates(folder).with_name('dask.yaml')))}")
