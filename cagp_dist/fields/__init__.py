"""Fields from wherever they are, in one canonical form.

- The registry of sources: `sources`. The built-in field: `sample`; made-up ones: `synthetic`.
- Climate Data Store: `cds`, with `cds_cache` and `cds_client`.
- Files: `local_files` has them decoded by a child process (`_decode`, with `grib`, `calendars`, `sniff`).
- Stores and tables: `remote`, `stations`. What is selected: `selection`.
- The form: `axis_layout`, `canonical`, `damage`. For priors: `climatology`, `covariates`, `bilinear`.
"""
