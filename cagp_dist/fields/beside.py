"""Variables beside the values of a field that change them, or say which count: flags, masks and factors.

One that is chosen by leaves the others out. One that nothing is said of is refused where it differs among the
values: a field of clouds and sea, or with land that is zero, is no field of one quantity.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Mask
from cagp_dist.errors import DataError
from cagp_dist.fields.axes import Role, role_of
from cagp_dist.fields.categories import is_bad, measured_first
from cagp_dist.fields.column_names import ANY
from cagp_dist.fields.selection import Choice, is_chosen, written_choice
from cagp_dist.fields.tables.neighbours import (
    check_offsets,
    is_about,
    says_offset,
    says_quality,
    says_scale,
    scales,
)
from cagp_dist.remedies import Setting
from cagp_dist.space.systems import variables_of

MOST_SHOWN = 8
SAMPLED, OFTEN = 10_000, 0.002  # values among which one that fills land appears so often

_MASKS = re.compile(r"(.*_)?(mask|lsm|landmask)(_.*)?|[tuvf]mask")
_IS_GOOD = re.compile(r"(?!.*(not|no|bad|in)_).*(good|best|acceptable|nominal|passed|high_quality|valid).*")


@dataclass(frozen=True, eq=False)
class Beside:
    """A variable along dimensions of the values, not yet loaded."""

    name: str
    held: xr.Variable
    wanted: Choice | None  # which of its values count; None if nothing was said
    is_mask: bool  # whether it says where there is land, else how good values are

    def applied(self, values: NDArray[np.floating], flags: NDArray[np.generic]) -> NDArray[np.floating]:
        """Leave out values whose flags (same shape) are not wanted; `DataError` if that was not said."""
        if self.wanted is not None:
            return self._chosen(values, flags)
        there = ~np.isnan(values) & np.array(flags == flags)
        found, counts = np.unique(flags[there], return_counts=True)
        found = found[np.argsort(-counts, kind="stable")]
        if says_offset(self.name):
            check_offsets(self.name, flags[there])
        elif says_scale(self.name):
            self._check_scale(found.tolist())
        elif found.size > 1 and self.is_mask:
            self._check_mask(values, flags, found.tolist())
        elif found.size > 1 or any(
            is_bad("", _meanings(self.held.attrs, found.tolist()).get(flag, "")) for flag in found
        ):
            self._check_flags(found.tolist())
        return values

    def _check_scale(self, found: Sequence[object]) -> None:
        """Refuse numbers by which values are yet to be multiplied."""
        if scales(self.name, found):
            raise DataError(
                f"{self.name!r} ({_first(found)}) seems to say by what the values are yet to be multiplied, "
                "or their signs; expected the values themselves. Work them out before.",
                key="values-scaled",
                remedies=(Setting("where", {self.name: ANY}, "if the values are right without it"),),
            )

    def _chosen(self, values: NDArray[np.floating], flags: NDArray[np.generic]) -> NDArray[np.floating]:
        """Leave out the values whose flags were not chosen."""
        assert self.wanted is not None
        found, codes = np.unique(flags, return_inverse=True)
        chosen: Mask = np.array([is_chosen(flag, self.wanted) for flag in found.tolist()], dtype=bool)
        if not chosen.any():
            raise DataError(
                f"{self.name!r} is nowhere {written_choice(self.wanted)}; there is {_first(found.tolist())}.",
                key="not-there",
                remedies=tuple(Setting("where", {self.name: flag}) for flag in found[:1].tolist()),
            )
        return np.where(chosen[codes.reshape(flags.shape)], values, np.nan)

    def _check_mask(
        self, values: NDArray[np.floating], flags: NDArray[np.generic], found: Sequence[object]
    ) -> None:
        """Refuse values that are one number wherever a mask is 0, or 1."""
        if set(found) != {0, 1}:
            return
        for side in (0, 1):
            filled = values[(flags == side) & ~np.isnan(values)]
            others = values[(flags == 1 - side) & ~np.isnan(values)]
            if filled.size > 1 and (filled == filled[0]).all() and (others != filled[0]).any():
                raise DataError(
                    f"the values are {filled[0]:g} wherever {self.name!r} is {side}, as where nothing was "
                    "observed; expected NaN there.",
                    key="masked",
                    remedies=(
                        Setting("where", {self.name: 1 - side}, "to leave them out"),
                        Setting("where", {self.name: ANY}, "if they were observed"),
                    ),
                )

    def _check_flags(self, found: Sequence[object]) -> None:
        """Refuse flags of quality that differ, unless all of them mean that values are good."""
        meanings = _meanings(self.held.attrs, found)
        good = [flag for flag in found if _IS_GOOD.fullmatch(meanings.get(flag, ""))]
        if len(good) == len(found):
            return
        said = [f"{written_choice(flag)} ({meanings[flag]})" if flag in meanings else flag for flag in found]
        wanted = sorted(good, key=str) if len(good) > 1 else (good or measured_first(self.name, found))[0]
        raise DataError(
            f"the values differ in {self.name!r}, which says how good they are "
            f"({', '.join(map(str, said[:MOST_SHOWN]))}), and nothing is said of it.",
            key="flags-differ",
            remedies=(
                Setting("where", {self.name: wanted}, "to leave the others out"),
                Setting("where", {self.name: ANY}, "if all values are good"),
            ),
        )


def beside(given: xr.Dataset, field: xr.DataArray, chosen: Mapping[str, Choice]) -> list[Beside]:
    """Find what is chosen by, and flags of quality and masks along dimensions of a variable."""
    every = {**variables_of(given), **variables_of(field)}
    own = str(field.name)
    named = str(field.attrs.get("ancillary_variables", "")).split()
    graded = any(_grades(key, every[key], named, every, own) for key in chosen)
    found = []
    for key, held in every.items():
        if key == own or not held.ndim or not {*held.dims} <= {*field.dims}:
            continue
        if key in chosen:
            if chosen[key] != ANY:
                found.append(Beside(key, held, chosen[key], is_mask=False))
        elif (
            held.dtype.kind in "iubfm"
            and (says_scale(key) or (says_offset(key) and not _is_timed(held, every)))
            and is_about(key, every, {own})
        ):
            found.append(Beside(key, held, None, is_mask=False))
        elif held.dtype.kind in "iubf" and _is_land(key, held):
            found.append(Beside(key, held, None, is_mask=True))
        elif not graded and held.dtype.kind in "iubf" and _grades(key, held, named, every, own):
            found.append(Beside(key, held, None, is_mask=False))
    return found


def _is_timed(held: xr.Variable, every: Mapping[str, xr.Variable]) -> bool:
    """Whether there are times along the same dimensions, or none at all, to which nothing is to be added."""
    timed = [axis.dims for name, axis in every.items() if role_of(name, axis) is Role.TIME]
    return not timed or held.dims in timed


def has_fill(values: NDArray[np.floating]) -> bool:
    """Whether one number appears often, so that it may fill what is masked."""
    flat = values.reshape(-1)[:: max(1, values.size // SAMPLED)]
    _, counts = np.unique(flat[~np.isnan(flat)], return_counts=True)
    return bool(counts.size and counts.max() > max(1.0, OFTEN * flat.size))


def _is_land(name: str, held: xr.Variable) -> bool:
    """Whether a variable says where there is land, or anything at all."""
    meanings = {*str(held.attrs.get("flag_meanings", "")).lower().split()}
    told = str(held.attrs.get("standard_name", "")).endswith("_binary_mask")
    return bool(told or _MASKS.fullmatch(name.lower()) or {"land"} <= meanings <= {*_LAND, *_SEA})


_SAYS_WHERE = re.compile(
    r"(is_|over_)?(microwave|infrared|land|sea|water|ocean|ice|lake|river|coast(line|al)?|day(time)?|night(time)?|"
    r"daylight|(a|de)scending|reserved\w*|spare\w*|unused\w*|tbd|no_?data|good\w*|valid\w*)"
)
"""Bits of flags that say where or when values were taken, and nothing of how good they are."""

_LAND, _SEA = ("land", "lake", "ice"), ("water", "sea", "ocean")


def _grades(
    name: str, held: xr.Variable, named: Sequence[str], every: Mapping[str, xr.Variable], own: str
) -> bool:
    """Whether a variable says how good the values of another are, each in one number."""
    standard = str(held.attrs.get("standard_name", ""))
    if _is_land(name, held):
        return False
    stated = standard.endswith(("status_flag", "quality_flag"))
    if name in named:
        return stated or says_quality(name) or "flag_values" in held.attrs or "flag_meanings" in held.attrs
    return (stated or says_quality(name)) and is_about(name, every, {own})


def _meanings(attributes: Mapping[str, object], found: Sequence[Any]) -> dict[object, str]:
    """Say what the values of flags mean; of bits that are set, what those say that grade values."""
    if "flag_masks" in attributes and "flag_values" not in attributes:
        named = _meanings({**attributes, "flag_values": attributes["flag_masks"]}, found)
        bits = {int(bit): word for bit, word in named.items() if not _SAYS_WHERE.fullmatch(word)}  # type: ignore[call-overload]
        return {
            flag: "_".join(word for bit, word in bits.items() if int(flag) & bit) or "good" for flag in found
        }
    given = attributes.get("flag_values", ())
    values = re.findall(r"-?\d+", given) if isinstance(given, str) else np.atleast_1d(np.asarray(given))
    return dict(
        zip(map(float, values), str(attributes.get("flag_meanings", "")).lower().split(), strict=False)
    )


def _first(values: Sequence[object]) -> str:
    """Values as a message shows them."""
    return ", ".join(map(written_choice, values[:MOST_SHOWN])) + (", ..." if len(values) > MOST_SHOWN else "")
