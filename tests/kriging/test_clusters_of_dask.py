"""What people pass as executor: clusters of Dask, and clients that are closed or asynchronous."""

import asyncio

import numpy as np
import pytest
from distributed import Client, LocalCluster

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

pytestmark = pytest.mark.cluster

STATIONS = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "value": [21.0, 18.5, 20.2]}
MODEL = cagp.Kriging(
    solver=cagp.BlockGaussSeidel(3, block_size=2), lengthscale=0.1, variance=9.0, noise_std=0.3
)


def mapped(executor: object) -> np.ndarray:
    model = MODEL.set_params(executor=executor).fit(STATIONS)
    return model.predict({"latitude": [50.0], "longitude": [10.0]})["mean"].values


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_cluster_is_taken_as_its_client_and_stays_open(adaptive: bool) -> None:
    workers = 0 if adaptive else 1
    with LocalCluster(n_workers=workers, processes=False, dashboard_address=None) as cluster:
        if adaptive:
            cluster.adapt(minimum=0, maximum=1, interval="50ms")
        np.testing.assert_array_equal(mapped(cluster), mapped("serial"))
        with Client(cluster) as client:
            assert client.submit(int).result() == 0
        executor: object = client
    with pytest.raises(ArgumentError, match="executor is a Client that was closed; expected an open one"):
        mapped(executor)


def test_an_asynchronous_client_is_called_one() -> None:
    async def attempt() -> None:
        async with Client(n_workers=1, processes=False, dashboard_address=None, asynchronous=True) as client:
            mapped(client)

    with pytest.raises(
        ArgumentError, match="executor is an asynchronous Client, whose calls are to be awaited"
    ):
        asyncio.run(attempt())
