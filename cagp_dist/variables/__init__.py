"""Physical quantities by the names that files give them: unit, long name, plausible range, transform."""

from cagp_dist.variables.names import (
    canonical_name,
    described,
    range_error,
    variable_named,
    variable_of,
)
from cagp_dist.variables.table import T2M, VARIABLES
from cagp_dist.variables.variable import UNCHECKED, Log1p, Variable

__all__ = [
    "T2M",
    "UNCHECKED",
    "VARIABLES",
    "Log1p",
    "Variable",
    "canonical_name",
    "described",
    "range_error",
    "variable_named",
    "variable_of",
]
