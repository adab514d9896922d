"""What a quantity is by its name, unit and standard name, where that decides whether it can be averaged."""

import re

import numpy as np
from numpy.typing import NDArray

from cagp_dist.errors import DataError
from cagp_dist.variables.units import conversion

_STANDARD = re.compile(r".*_(from|to)_direction|direction_of_.*|.*azimuth_angle|.*_direction")
_UNIT = re.compile(r"(deg(ree)?s?|°)[ _.]*(t|true([ _]north)?|(from|of|clockwise)[ _a-z]*north)")
_NAME = re.compile(
    r".*(direction|azimuth)s?(_.*|\d.*)?|(.*_)?(w|wind|gust|wave|swell|current|flow)?_?(dir|drct)(_?\d.*|_.*)?|"
    r"(.*_)?(mwd|wdr|wdir|heading|bearing|aspect|windrichtung)(_?\d.*)?"
)
_SHORT_NAME = re.compile(r"(.*_)?(dd|wd|d|course|track|yaw|richtung|orientation)(_?\d.*)?")
_OTHER = re.compile(
    r"(.*_)?(sin|sine|cos|cosine|std|stdev|stddev|sd|sigma|spread|variability|change|count|number|speed|"
    r"velocity|component|stress|gradient|flux|n|quality|qc|flag)(_.*)?"
)
"""Names of what is about a direction and no direction, such as its spread."""


def refuse_direction(name: str, units: str, standard_name: str, values: NDArray[np.floating]) -> None:
    """Refuse the directions ``values`` in degrees, of which the mean of 350 and 10 would be 180.

    Parameters
    ----------
    name, units, standard_name : str
        Of the quantity, as they are stated; empty where one is not.
    values : array
        NaN where one is missing.

    Raises
    ------
    DataError
        With the key ``direction``.
    """
    spelled = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()).strip("_")
    angle = conversion("degree" if units in ("°", "º") else units, "degree") if units else None
    says = _UNIT.fullmatch(" ".join(units.lower().split())) is not None
    if not says and (_OTHER.fullmatch(spelled) or (units and angle is None)):
        return
    if not says and not _STANDARD.fullmatch(standard_name):
        known = _NAME.fullmatch(spelled) or (angle is not None and _SHORT_NAME.fullmatch(spelled))
        largest = float(np.nanmax(np.abs(values), initial=0.0))
        if not known or (angle is None and not 1.0 < largest <= 360.0):
            return
    raise DataError(
        f"{name!r} is a direction{f' in {units!r}' if units else ''}, and directions cannot be averaged as "
        "numbers are: between 350 and 10 degrees they would be 180. Map the sine and the cosine of the "
        "direction as two quantities, and take the angle of both maps. For wind, map its components: "
        "u = -speed * sin(direction), v = -speed * cos(direction).",
        key="direction",
    )
