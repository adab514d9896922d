"""A quantity as it is analysed and published: its name, unit and plausible range, and the words for it."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cagp_dist.arrays import Array

UNCHECKED = "not checked"
"""Value of the attribute ``plausible_range`` of a field whose values may be anything."""

_COMMENT = (
    "All numbers are in transformed units, and so are the prior, the error bars and the scores. Nothing is "
    "transformed back: expm1 of a mean is the median of the quantity in {unit}, not its mean."
)


@dataclass(frozen=True)
class Log1p:
    """The transform ``log(1 + x / 1 unit)`` of a quantity that is not negative and mostly small.

    What lies below 0 within the plausible range is rounding of packed files: 0.
    """

    units: str  # of the quantity, as `Variable.units`
    low: float
    high: float
    factor: float  # how many of ``unit`` are one of ``units``
    unit: str  # what the quantity is measured by, such as ``mm``

    def __call__(self, values: "Array") -> "Array":
        """Transform values of any shape; NaN stays."""
        import numpy as np  # names of variables are needed by the help of the command, which shall be quick

        return np.asarray(np.log1p(np.maximum(values, 0.0) * self.factor), dtype=np.float64)


@dataclass(frozen=True)
class Variable:
    """A quantity as it is analysed and published."""

    name: str  # in jobs, and in front of ``_mean`` and ``_std`` in published runs
    long_name: str
    units: str = ""  # as CF writes them, such as ``m s-1``; empty if they are not known
    standard_name: str = ""
    low: float = -inf  # what values can be; infinite where nothing is known or nothing is to be checked
    high: float = inf
    names: tuple[str, ...] = ()  # others of it in files
    grib: tuple[int, ...] = ()  # numbers in ECMWF's parameter table, which GRIB files carry instead of names
    cds: str = ""  # name in requests to the Climate Data Store
    transform: Log1p | None = None  # of the values of a file, before anything else is done with them
    vector: bool = False  # component along the local east or north, which is no one value at a pole
    checked: bool = True  # whether values outside the plausible range are refused

    @property
    def is_temperature(self) -> bool:
        """Whether it is a temperature in kelvin, as opposed to a difference of two."""
        return self.units == "K" and self.low > 0.0

    @property
    def file_units(self) -> str:
        """Unit of the values before the transform."""
        return self.units if self.transform is None else self.transform.units

    @property
    def file_range(self) -> tuple[float, float]:
        """Plausible range of the values before the transform."""
        if self.transform is None:
            return self.low, self.high
        return self.transform.low, self.transform.high

    def attributes(self) -> dict[str, str]:
        """CF attributes of the field; `variable_of` is the inverse."""
        found = {"standard_name": self.standard_name, "long_name": self.long_name, "units": self.units}
        if self.transform is not None:
            found |= {
                "transform": f"log(1 + {self.name} / 1 {self.transform.unit})",
                "comment": _COMMENT.format(unit=self.transform.unit),
            }
        if not self.checked:
            found["plausible_range"] = UNCHECKED
        return {key: text for key, text in found.items() if text}

    @property
    def heading(self) -> str:
        """What a page about it is called."""
        if self.name == "t2m" and self.is_temperature:
            return "Temperature at 2 m"
        return self.long_name[:1].upper() + self.long_name[1:]

    @property
    def noun(self) -> str:
        """What one value of it is called within a sentence."""
        return "temperature" if self.is_temperature else self.long_name

    @property
    def comparatives(self) -> tuple[str, str]:
        """What more of it and less of it are called."""
        return ("warmer", "colder") if self.is_temperature else ("higher", "lower")
