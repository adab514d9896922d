"""A Dask cluster of worker processes on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster


@contextmanager
def local_cluster(workers: int) -> Iterator[Client]:
    """Client of a fresh cluster of ``workers`` processes with one thread each."""
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
