"""Physical quantities by the names that files give them: unit, long name, plausible range, transform."""

from cagp_dist.variables.variable import T2M, UNCHECKED, VARIABLES, Transform, Variable
from cagp_dist.variables.variable_names import (
    bare,
    canonical_name,
    describe_variable,
    field_name,
    log1p_of,
    range_error,
    variable_named,
    variable_of,
)

__all__ = [
    "T2M", "UNCHECKED", "VARIABLES", "Transform", "Variable", "bare", "canonical_name", "describe_variable",
    "field_name", "log1p_of", "range_error", "variable_named", "variable_of"
]  # fmt: skip
