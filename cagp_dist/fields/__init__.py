"""Observations from wherever they are: fields in one canonical form for jobs, objects as they are for calls.

- The registry of sources: `sources`. The built-in field: `sample`; made-up ones: `synthetic`.
- Climate Data Store: `cds`, with `cds_cache` and `cds_client`.
- Files: `local_files` has them decoded by a child process (`_decode`, with `grib`, `calendars`, `sniff`).
- Stores and tables: `remote`, `stations`. What is selected: `selection`.
- Any xarray object: `axes` tells what its axes are; `gridded` lays fields out and loads them; `points` makes
  tables of points; `groups` chooses among groups. Then `canonical` is the form of jobs, with `damage`, and
  `observed_objects` what calls are given.
- For priors: `climatology`, `covariates`, `bilinear`.
"""
