"""Numbers that decide where nobody says: one of each, with its reason."""

MOST_DENSE = 2_000
"""Points anywhere up to which the likelihood is exact, some seconds; beyond, it is Vecchia's."""

MOST_VALUES = 5_000_000
"""Points times times of a fit: beyond, evenly spread times are fitted to, which say nearly as much."""

NO_NUGGET = 1e-6
"""Nugget in units of the least known noise where none was found beside it."""

LEAST_FILLED = 0.5
"""Part of a grid that must be observed; with less, its points are better taken one by one."""
