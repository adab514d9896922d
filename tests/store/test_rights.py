"""The words that go with what is made from the data of others."""

import numpy as np
import pytest

from cagp_dist.fields.stores.remote import PUBLIC_STORES
from cagp_dist.store.rights import rights_of

TIMES = np.array(["2018-12-31T12:00", "2020-01-01T00:00"], dtype="datetime64[s]")
COPERNICUS = (
    "Contains modified Copernicus Climate Change Service information 2018-2020. Neither the European "
    "Commission nor ECMWF is responsible for any use that may be made of the Copernicus information or data "
    "it contains."
)


@pytest.mark.parametrize(
    "source",
    [
        "cds:reanalysis-era5-single-levels",
        "zarr:arco-era5",
        *(f"zarr:{address}" for address in PUBLIC_STORES.values()),
    ],
)
def test_era5_carries_the_words_of_copernicus(source):
    rights = rights_of(source, TIMES)
    assert rights.attribution == COPERNICUS
    assert rights.license.startswith("CC-BY-4.0")


def test_an_unknown_source_leaves_the_licence_to_its_provider():
    rights = rights_of("file:/data/mine.nc", TIMES)
    assert rights.license.startswith("that of the observations, file:/data/mine.nc")
    assert rights.attribution.endswith(COPERNICUS)


def test_own_data_claims_nothing():
    assert "Copernicus" not in rights_of("sample", TIMES).attribution
    assert rights_of("synthetic", TIMES).license == "none: synthetic data"
