"""Observations from wherever they are: fields in one canonical form for jobs, objects as they are for calls.

- The registry of sources: `sources`; by their names in calls: `named_sources`. What is selected: `selection`.
- Sources: `sample`, `synthetic`, `stations`, the folders `files` (decoded by a child process) and `stores`.
- Tables: the folder `tables`. Which column or coordinate says what, if it is said: `column_roles`.
- Any xarray object: `axes` tells what its axes are, with `coordinates` and `calendars`; `gridded` lays fields
  out and loads them; `points` makes tables of points; `groups` chooses among groups.
- Every value: `missing` finds what is none, `quantities` what cannot be averaged.
- Then `canonical` is the form of jobs, and `observed_objects` what calls are given.
- For priors: `climatology`, `covariates`, `bilinear`.
"""
