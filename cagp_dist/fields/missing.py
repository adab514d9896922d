"""Numbers that are no observations: packed ones, those that are stated to be missing, and usual marks.

Every source takes its values through `observations`: xarray objects, files, Zarr stores, tables, arrays and
drift fields. What a variable states is done: packed values are decoded, and ``_FillValue``,
``missing_value`` and what lies outside ``valid_range`` count as missing (CF 1.11, 2.5.1 and 8.1). An xarray
object without encoding was computed and may have kept the range of its source: what lies outside is refused.
What is not stated but looks like a mark of what is missing, such as -9999 among temperatures, is refused.
"""

import logging
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Marks, Mask
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.remedies import Setting
from cagp_dist.text import counted

logger = logging.getLogger(__name__)

Floats: TypeAlias = NDArray[np.floating]
Attributes: TypeAlias = Mapping[Hashable, Any] | Mapping[str, Any]

ROUNDING = 1e-6  # relative rounding of a float32 number that marks missing values, such as 1e20
ZERO_FILL = "cagp_zero_fill"  # attribute of a Zarr 2 variable with ``fill_value`` 0, the default

_STATED = ("_FillValue", "missing_value", "fmissing_value", "nodata", "nodatavals")
_OF_RAIN = re.compile(r"precip|rain|snow|\btp\b|\bpr\b", re.IGNORECASE)

_PLAUSIBLE = (99.0, 99.9, 99.99, 999.0, -127.0, -128.0, 127.0, 255.0, -32.768, 32.767, 65.535)
_NINES = (-99.0, -99.9, -99.99, -999.0, -999.9, -999.99, 999.9, 999.99, -888.8, -888.0)
_SHORT = (-32768.0, -32767.0, 32767.0, 65535.0)
_LONG = (-(2.0**31), -(2.0**31) + 1.0, 2.0**31 - 1.0, 2.0**32 - 1.0)
_HUGE = (*(10.0**power for power in range(10, 39)), 9.969209968386869e36, 9.99e8, 9.999e20, 9.99e33, 2e30,
         float(np.finfo(np.float32).max), float(np.finfo(np.float64).max), 2.0**63, 2.0**64)  # fmt: skip
_LARGE = (
    *(sign * (10.0**digits - 1.0) for digits in range(4, 10) for sign in (-1.0, 1.0)),
    *(sign * number for number in (9999.9, 9999.99, 99999.9) for sign in (-1.0, 1.0)),
    *(-7777.0, -8888.0, *_SHORT, *_LONG),
    *(number / 10.0**power for number in _LONG for power in (1, 2, 3)),
    *(sign * number for number in _HUGE for sign in (-1.0, 1.0)),
)
_SUSPECTED: Mapping[float, float] = {
    **dict.fromkeys(_PLAUSIBLE, 10.0),
    **dict.fromkeys((*_NINES, *(number / 10.0**power for number in _SHORT for power in (1, 2))), 2.0),
    **dict.fromkeys(_LARGE, 1.0),
}
"""Usual marks, and how many ranges of the other values away from them each is suspected."""

_USUAL = np.array(list(_SUSPECTED))
_APART = np.array(list(_SUSPECTED.values()))

SPREAD_SHARE = 0.1
"""Least range of the other values, as a share of the largest: of few equal ones, none is far from them."""


def observations(
    values: ArrayLike,
    attributes: Attributes | None = None,
    *,
    what: str,
    encoding: Attributes | None = None,
    missing: Marks = None,
    noun: str = "value",
) -> Floats:
    """Give numbers as observations: decoded, NaN where one is missing; what looks like none is refused."""
    told, stored = attributes or {}, encoding or {}
    there, packing = _held(values, told, what)
    given = [] if missing is None else np.atleast_1d(missing).tolist()
    if texts := [mark for mark in given if isinstance(mark, str)]:
        raise ArgumentError(
            f"missing is {texts[0]!r}, and {what} has numbers; expected a number, or numbers. Texts are for "
            "cells of tables.",
            key="missing",
        )
    there = without_marks(there, [*_stated(told, what), *given])
    if packing.changes:
        there = packing.decoded(there)
    else:
        packing = _Packing.of(stored, what)
    there = _within(there, told, stored, packing, what, computed=encoding is not None and not encoding)
    if missing is None or np.ndim(missing) == 0:
        if 0.0 not in given:
            _check_zeros(there, told, stored, what, noun)
        _check_marks(there, packing, what, noun)
    return there


def unpacked(values: ArrayLike, attributes: Attributes, *, what: str) -> Array:
    """Decode packed values by the attributes of their variable, and nothing else, as axes need."""
    held, packing = _held(values, attributes, what)
    return np.asarray(packing.decoded(held) if packing.changes else held, dtype=np.float64)


def _held(values: ArrayLike, told: Attributes, what: str) -> tuple[Floats, "_Packing"]:
    """Numbers as a variable holds them, and how its attributes say that they are packed."""
    raw, packing = np.asarray(values), _Packing.of(told, what)
    if raw.dtype.kind == "i" and _is_unsigned(told):
        raw = raw.astype(f"u{raw.dtype.itemsize}")
    if packing.changes and raw.dtype.kind == "f":
        raise DataError(
            f"{what} has floating numbers, and its attributes state {packing}, so that it cannot be told "
            "whether these are packed. Open the source with mask_and_scale=True, or, if they are decoded, "
            "delete the attributes scale_factor and add_offset.",
            key="packing",
        )
    return raw if raw.dtype.kind == "f" else raw.astype(np.float64), packing


def without_marks(values: Floats, marks: Sequence[float]) -> Floats:
    """Write NaN where a number stands that marks what is missing."""
    for mark in marks:
        found = _are(values, mark)
        if found.any():
            values = np.where(found, np.nan, values).astype(values.dtype, copy=False)
    return values


def _are(values: Floats, mark: float) -> Mask:
    """Which numbers are a mark, also one that was rounded to single precision."""
    with np.errstate(over="ignore", invalid="ignore"):  # float32 values, a float64 mark
        if values.dtype.itemsize < 8:
            return np.asarray(np.abs(values - mark) <= ROUNDING * abs(mark))
        rounded = float(np.float32(mark))
    return np.asarray((values == mark) | ((values == rounded) & np.isfinite(rounded)))


@dataclass(frozen=True)
class _Packing:
    """The number that was observed is ``scale * packed + offset``."""

    scale: float = 1.0
    offset: float = 0.0

    @classmethod
    def of(cls, stated: Attributes, what: str) -> "_Packing":
        """Read it from attributes or an encoding."""
        scale, offset = (_numbers(stated, key, what) for key in ("scale_factor", "add_offset"))
        return cls(scale[0] if scale else 1.0, offset[0] if offset else 0.0)

    @property
    def changes(self) -> bool:
        """Whether it does anything."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def decoded(self, packed: Floats) -> Floats:
        """Give the numbers that were observed, in double precision."""
        return self.scale * packed.astype(np.float64) + self.offset

    def packed(self, number: float) -> float:
        """Whole number that stands for an observation."""
        return float(np.rint((number - self.offset) / self.scale)) if self.scale else number

    def __str__(self) -> str:
        return f"scale_factor {self.scale:g} and add_offset {self.offset:g}"


def _is_unsigned(stated: Attributes) -> bool:
    return str(stated.get("_Unsigned", "")).lower() == "true"


def _numbers(stated: Attributes, key: str, what: str) -> list[float]:
    """Numbers of an attribute, also of one that is written as text; none if it is not there."""
    given = stated.get(key)
    if given is None:
        return []
    parts = re.split(r"[,\s]+", given.strip(" []()")) if isinstance(given, str) else np.ravel(given)
    try:
        return [float(part) for part in parts]
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what} has the attribute {key} = {given!r}; expected numbers. Correct the attribute, or delete "
            "it.",
            key="attribute",
        ) from error


def _stated(attributes: Attributes, what: str) -> list[float]:
    """Read what the attributes say that marks a missing value."""
    found = [number for key in _STATED for number in _numbers(attributes, key, what)]
    found += [  # -9999.9 of a float32, among numbers of double precision
        float(str(part))
        for key in _STATED
        for part in np.ravel(attributes.get(key, ()))
        if isinstance(part, np.float32)
    ]
    if _is_unsigned(attributes):
        found += [number + size for number in found if number < 0.0 for size in (2.0**8, 2.0**16, 2.0**32)]
    return [number for number in dict.fromkeys(found) if np.isfinite(number)]


def _within(
    values: Floats, told: Attributes, stored: Attributes, packing: _Packing, what: str, *, computed: bool
) -> Floats:
    """Write NaN for what lies outside the valid range that the attributes state, in packed numbers or not."""
    ends = {"valid_min": -np.inf, "valid_max": np.inf}
    whole = dict.fromkeys(ends, packing.changes)
    for key in ("valid_range", "valid_min", "valid_max"):
        numbers, names = _numbers(told, key, what), list(ends) if key == "valid_range" else [key]
        if numbers and len(numbers) != len(names):
            raise DataError(
                f"{what} has the attribute {key} = {told[key]!r}; expected {counted(len(names), 'number')}. "
                "Correct the attribute, or delete it.",
                key="attribute",
            )
        for name, number in zip(names, numbers, strict=False):
            # of packed data, limits that are floating numbers are those of the decoded ones (NetCDF guide)
            dtype = np.asarray(told[key]).dtype
            whole[name] = packing.changes and dtype.kind != "f"
            wraps = dtype.kind == "i" and number < 0.0 and (_is_unsigned(told) or _is_unsigned(stored))
            ends[name] = number + 2.0 ** (8 * dtype.itemsize) if wraps else number
    if ends == {"valid_min": -np.inf, "valid_max": np.inf}:
        return values
    limits = [packing.scale * end + packing.offset if whole[name] else end for name, end in ends.items()]
    low, high = sorted(limits)
    slack = np.abs(np.nan_to_num([low, high], posinf=0.0, neginf=0.0)) * ROUNDING
    if packing.changes:
        slack = slack + 0.5 * abs(packing.scale)
    outside = (values < low - slack[0]) | (values > high + slack[1])
    count = int(np.count_nonzero(outside))
    if count == 0:
        return values
    stated = f"{low:g} to {high:g}"
    if computed:
        keys = [key for key in ("valid_range", "valid_min", "valid_max") if key in told]
        whole_numbers = all(np.asarray(told[key]).dtype.kind in "iu" for key in keys)
        remedy = "; ".join(f'del data.attrs["{key}"]' for key in keys)
        of_packed = "; being whole numbers, it seems to be that of packed numbers" if whole_numbers else ""
        raise DataError(
            f"{counted(count, 'value')} of {what} ({np.nanmin(values):g} to {np.nanmax(values):g}) "
            f"{'lies' if count == 1 else 'lie'} outside the valid range that its attributes state, {stated}, "
            f"which may be left from what it was computed from{of_packed}. If the values are right, delete "
            f"the range: {remedy}; if they are missing, replace them by NaN: data.where(...).",
            key="valid-range",
        )
    if count == np.count_nonzero(~np.isnan(values)):
        raise DataError(
            f"all values of {what} ({np.nanmin(values):g} to {np.nanmax(values):g}) lie outside the valid "
            f"range that it states, {stated}. Check units and packing of the source, or correct its "
            "attributes valid_range, valid_min and valid_max.",
            key="valid-range",
        )
    logger.warning(
        "%s of %s outside the valid range that is stated, %s, taken as missing",
        counted(count, "value"),
        what,
        stated,
    )
    return np.where(outside, np.nan, values).astype(values.dtype, copy=False)


def _check_zeros(values: Floats, told: Attributes, stored: Attributes, what: str, noun: str) -> None:
    """Refuse zeros of a Zarr 2 store that may be its empty places, and those that a reader took for such."""
    if ZERO_FILL in told:
        text = " ".join([what, *(str(told.get(key, "")) for key in ("long_name", "standard_name"))])
        zeros = values == 0.0
        others = values[~zeros & ~np.isnan(values)]
        among = others.size > 0 and others.min() < 0.0 < others.max()
        if zeros.any() and not among and not _OF_RAIN.search(text):
            raise DataError(
                f"{what} is 0 in {counted(int(zeros.sum()), noun)}, and 0 is the fill_value of this Zarr 2 "
                "store, so that it cannot be told whether these were observed.",
                key="zero-fill",
                remedies=(
                    Setting("missing", 0, "if they are missing"),
                    Setting("missing", [], "if they were observed"),
                ),
            )
    # as xarray has opened such a store
    of_zarr_2 = "compressors" in stored and "serializer" not in stored
    empty = int(np.count_nonzero(np.isnan(values)))
    if of_zarr_2 and empty and _numbers(stored, "_FillValue", what) == [0.0]:
        raise DataError(
            f"{what} is NaN in {counted(empty, noun)}, where its Zarr 2 store, whose fill_value is 0, may "
            "hold zeros that were observed. If they were, write data.fillna(0).",
            key="zero-fill",
            remedies=(Setting("missing", 0, "if they are missing"),),
        )


def _check_marks(values: Floats, packing: _Packing, what: str, noun: str) -> None:
    """Refuse usual marks of what is missing that lie far from all other values."""
    core, found = np.ravel(values), {}
    while core.size:  # what is far from all others is at an end
        ends = {float(np.fmin.reduce(core)), float(np.fmax.reduce(core))}
        factors = {end: _apart(end, packing) for end in ends}
        marks = {end: factor for end, factor in factors.items() if factor is not None}
        if not marks:
            break
        for mark in marks:
            here = np.abs(core - mark) <= ROUNDING * abs(mark)
            found[mark] = (marks[mark], int(np.count_nonzero(here)))
            core = core[~here]
    core = core[~np.isnan(core)] if found else core[:0]
    if core.size == 0:
        suspected = [mark for mark, (factor, _) in found.items() if factor <= 2.0] if len(found) == 1 else []
        others = f", and no other {noun}"
    else:
        low, high = float(core.min()), float(core.max())
        spread = max(high - low, SPREAD_SHARE * max(abs(low), abs(high)))
        suspected = [
            mark for mark, (factor, _) in found.items() if max(low - mark, mark - high) > factor * spread
        ]
        others = f", far from all other values ({low:g} to {high:g})"
    if not suspected:
        return
    held = " and ".join(
        f"{_written(mark)}{_as_packed(mark, packing)} in {counted(found[mark][1], noun)}"
        for mark in sorted(suspected)
    )
    several = len(suspected) > 1
    written = [float(_written(mark)) for mark in sorted(suspected)]
    raise DataError(
        f"{what} holds {held}{others}: {'these probably mark' if several else 'it probably marks'} what is "
        "missing.",
        key="missing-mark",
        remedies=(
            Setting(
                "missing", written if several else written[0], f"if {'they do' if several else 'it does'}"
            ),
            Setting("missing", [], f"if {'they were' if several else 'it was'} observed"),
        ),
    )


def _apart(number: float, packing: _Packing) -> float | None:
    """How many ranges away a number is suspected to be a mark, as it is or as it was packed."""
    if not np.isfinite(number):
        return None
    spelled = [number, packing.packed(number)] if packing.changes else [number]
    found = [float(_APART[_alike(each)].min()) for each in spelled if _alike(each).any()]
    return min(found, default=None)


def _alike(number: float) -> Mask:
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(_USUAL - number) <= ROUNDING * np.abs(_USUAL))


def _as_packed(mark: float, packing: _Packing) -> str:
    """Say what stands in a file, where that is the mark."""
    return "" if not packing.changes or _alike(mark).any() else f" (packed as {packing.packed(mark):g})"


def _written(mark: float) -> str:
    """Write a mark as it is spelled usually: -9999, 99.99, 9.96921e+36."""
    held = np.array(mark)
    number = next((float(near) for near in _USUAL[_alike(mark)] if _are(held, near)), mark)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e10 else repr(number)
