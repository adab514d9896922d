"""Fields that are fetched: from Zarr stores and the Climate Data Store."""
