"""Where a map is drawn: projection, extent, graticule and coastlines of a set of points on the globe.

What covers the globe is drawn in the Equal Earth projection, a region in plate carree, whose axes are
degrees; its longitudes are unrolled where the data cross Greenwich or the date line.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import floor, log10
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Mask
from cagp_dist.cartography.raster import half_cell
from cagp_dist.geometry import widest_gap
from cagp_dist.text import degrees_label

FULL_CIRCLE_GAP_DEGREES = 90.0  # longitudes without a larger gap than this are taken to go round the globe

FAR_METRES = 10_000.0  # Extent of a plane above which its rim is in kilometres
GLOBAL_LATITUDE_SPAN_DEGREES = 90.0
FINE_DEGREES = 10.0  # Width and height of maps below which lines are of 1:10 million
TOLD_APART = 1200  # Parts of the width of a map: points of a line in one of them are one
FINEST_MIDDLE_COSINE = 0.2
GRATICULE_STEPS_DEGREES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0)

# Savric, Patterson and Jenny (2019), "The Equal Earth map projection", equations 3 and 4.
_A1, _A2, _A3, _A4 = 1.340264, -0.081106, 0.000893, 0.003796
_SQRT3 = float(np.sqrt(3.0))


@dataclass(frozen=True)
class EqualEarth:
    """Equal Earth on the unit sphere: ``x`` within +-2.7066, ``y`` within +-1.3173, areas preserved.

    With ``sin t = sqrt(3)/2 sin(latitude)``: ``y = A1 t + A2 t^3 + A3 t^7 + A4 t^9`` and
    ``x = 2 sqrt(3) longitude cos t / (3 dy/dt)``.
    """

    def forward(self, longitude_degrees: ArrayLike, latitude_degrees: ArrayLike) -> tuple[Array, Array]:
        t = np.arcsin(0.5 * _SQRT3 * np.sin(np.deg2rad(np.asarray(latitude_degrees, dtype=np.float64))))
        longitude = np.deg2rad(np.asarray(longitude_degrees, dtype=np.float64))
        y, slope = _equal_earth_ordinate(t)
        return 2.0 * _SQRT3 * longitude * np.cos(t) / (3.0 * slope), y

    def inverse(self, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        ordinate = np.asarray(y, dtype=np.float64)
        t = ordinate / _A1
        for _ in range(8):  # Newton; the ordinate is smooth and monotone, 6 steps reach rounding at the pole
            value, slope = _equal_earth_ordinate(t)
            t = t - (value - ordinate) / slope
        _, slope = _equal_earth_ordinate(t)
        sine = 2.0 * np.sin(t) / _SQRT3
        # the rim of a raster falls on the pole up to rounding
        latitude = np.rad2deg(
            np.arcsin(np.where(np.abs(sine) <= 1.0 + 1e-12, np.clip(sine, -1.0, 1.0), np.nan))
        )
        longitude = np.rad2deg(3.0 * slope * np.asarray(x, dtype=np.float64) / (2.0 * _SQRT3 * np.cos(t)))
        inside = (np.abs(longitude) <= 180.0 + 1e-9) & np.isfinite(latitude)
        return np.where(inside, longitude, np.nan), np.where(inside, latitude, np.nan)


@dataclass(frozen=True)
class PlateCarree:
    """Degrees as they are, of which those of longitude are drawn ``shrink`` times as long.

    Longitudes come counted from the centre of the map, and are drawn where they are.
    """

    shrink: float  # the cosine of the middle latitude
    centre_degrees: float = 0.0

    def forward(self, longitude_degrees: ArrayLike, latitude_degrees: ArrayLike) -> tuple[Array, Array]:
        x = self.centre_degrees + np.asarray(longitude_degrees, dtype=np.float64)
        return x, np.asarray(latitude_degrees, dtype=np.float64)

    def inverse(self, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        return np.asarray(x, dtype=np.float64) - self.centre_degrees, np.asarray(y, dtype=np.float64)


@dataclass(frozen=True)
class Frame:
    """Projection and extent of a map; ``west`` and ``east`` are counted from ``centre_degrees``."""

    around: ClassVar[bool] = True  # whether x goes round

    projection: EqualEarth | PlateCarree  # longitude counts from the centre; off the globe inverses are NaN
    centre_degrees: float
    west: float
    east: float
    south: float
    north: float

    @property
    def text(self) -> str:
        """Say which region it is: ``35°N to 70°N, 12°W to 35°E``; empty for all of the globe."""
        if isinstance(self.projection, EqualEarth):
            return ""
        span = min(self.north - self.south, self.east - self.west)
        step = next((step for step, least in ((1.0, 20.0), (0.5, 5.0)) if span >= least), 0.01)

        def end(degrees: float, axis: str) -> str:
            return degrees_label(round(round(degrees / step) * step, 2), axis=axis)

        south, north = (end(degrees, "latitude") for degrees in (self.south, self.north))
        if self.east - self.west >= 360.0:
            return f"{south} to {north}"
        west, east = (end(self.centre_degrees + degrees, "longitude") for degrees in (self.west, self.east))
        return f"{south} to {north}, {west} to {east}"

    def relative(self, longitude_degrees: ArrayLike) -> Array:
        """Longitude counted from the centre of the map, in [-180, 180)."""
        longitude = np.asarray(longitude_degrees, dtype=np.float64)
        return (longitude - self.centre_degrees + 180.0) % 360.0 - 180.0

    def project(self, longitude_degrees: ArrayLike, latitude_degrees: ArrayLike) -> tuple[Array, Array]:
        """Plane coordinates of points given in any longitude convention."""
        return self.projection.forward(self.relative(longitude_degrees), latitude_degrees)

    def outline(self) -> tuple[Array, Array]:
        """Trace the closed rim of the map, plane coordinates."""
        along = np.linspace(0.0, 1.0, 91)
        longitude = self.west + (self.east - self.west) * along
        latitude = self.south + (self.north - self.south) * along
        return self.projection.forward(
            np.concatenate([longitude, np.full(91, self.east), longitude[::-1], np.full(91, self.west)]),
            np.concatenate([np.full(91, self.south), latitude, np.full(91, self.north), latitude[::-1]]),
        )

    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of the rim."""
        x, y = self.outline()
        return float(x.min()), float(x.max()), float(y.min()), float(y.max())

    @property
    def aspect(self) -> float:
        """How long a unit of y is drawn beside one of x."""
        return 1.0 / self.projection.shrink if isinstance(self.projection, PlateCarree) else 1.0

    @property
    def height(self) -> float:
        """Height of the map, in units of its width."""
        left, right, bottom, top = self.extent()
        return self.aspect * (top - bottom) / (right - left)

    def holds(self, longitude_degrees: ArrayLike, latitude_degrees: ArrayLike) -> Mask:
        """Whether points lie on the map."""
        longitude, latitude = self.relative(longitude_degrees), np.asarray(latitude_degrees)
        across = (longitude >= self.west) & (longitude <= self.east)
        return np.asarray(across & (latitude >= self.south) & (latitude <= self.north))

    def pixels(self, width: int) -> tuple[Array, Array]:
        """Degrees at the centres of square pixels, top row first, (height, width), NaN off the map."""
        left, right, bottom, top = self.extent()
        height = max(1, round(width * self.height))
        x = left + (np.arange(width) + 0.5) * (right - left) / width
        y = top - (np.arange(height) + 0.5) * (top - bottom) / height
        longitude, latitude = self.projection.inverse(*np.meshgrid(x, y))
        return longitude + self.centre_degrees, latitude

    def parallels(self) -> Array:
        """Latitudes of the graticule, degrees."""
        return _multiples(self.south, self.north)

    def meridians(self) -> Array:
        """Longitudes of the graticule counted from the centre, degrees; the true ones are round numbers."""
        return (
            _multiples(self.west + self.centre_degrees, self.east + self.centre_degrees) - self.centre_degrees
        )


@dataclass(frozen=True)
class PlaneFrame:
    """Extent of a map of a plane, whose x and y are drawn ``scale`` times as long, in ``unit``."""

    around: ClassVar[bool] = False
    aspect: ClassVar[float] = 1.0
    left: float
    right: float
    bottom: float
    top: float
    scale: float = 1.0
    unit: str = ""

    @property
    def text(self) -> str:
        """Say which part of the plane it is: ``x 600 to 800, y 5,300 to 5,500 km``."""
        left, right, bottom, top = self.extent()
        digits = max(0, 1 - floor(log10(min(right - left, top - bottom))))
        across, up = (
            f"{low:,.{digits}f} to {high:,.{digits}f}" for low, high in ((left, right), (bottom, top))
        )
        return f"x {across}, y {up} {self.unit}".rstrip()

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Give x and y as they are drawn."""
        return self.scale * x, self.scale * y

    def holds(self, x: Array, y: Array) -> Mask:
        """Whether points lie on the map."""
        return (x >= self.left) & (x <= self.right) & (y >= self.bottom) & (y <= self.top)

    @property
    def height(self) -> float:
        """Height of the map, in units of its width."""
        return (self.top - self.bottom) / (self.right - self.left)

    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top of the rim, as they are drawn."""
        return (
            self.scale * self.left,
            self.scale * self.right,
            self.scale * self.bottom,
            self.scale * self.top,
        )

    def outline(self) -> tuple[Array, Array]:
        """Trace the closed rim of the map, as it is drawn."""
        left, right, bottom, top = self.extent()
        return np.array([left, right, right, left]), np.array([bottom, bottom, top, top])

    def pixels(self, width: int) -> tuple[Array, Array]:
        """Give x and y at the centres of square pixels, top row first, (height, width)."""
        height = max(1, round(width * self.height))
        x = self.left + (np.arange(width) + 0.5) * (self.right - self.left) / width
        y = self.top - (np.arange(height) + 0.5) * (self.top - self.bottom) / height
        across, down = np.meshgrid(x, y)
        return across, down


def frame_of(
    longitude_degrees: ArrayLike, latitude_degrees: ArrayLike, *, margin_degrees: float | None = None
) -> Frame:
    """Choose projection and extent for a set of points; without a margin it is 4 % of their height."""
    latitude = np.asarray(latitude_degrees, dtype=np.float64)
    if margin_degrees is None:
        margin_degrees = 0.04 * max(float(np.ptp(latitude)), 1.0)
    south = max(-90.0, float(latitude.min()) - margin_degrees)
    north = min(90.0, float(latitude.max()) + margin_degrees)
    start, gap = widest_gap(longitude_degrees)
    around = gap <= FULL_CIRCLE_GAP_DEGREES
    if around and north - south >= GLOBAL_LATITUDE_SPAN_DEGREES:
        return Frame(EqualEarth(), 0.0, -180.0, 180.0, -90.0, 90.0)
    # At 85 degrees a true-to-shape strip would be a thread.
    shrink = max(FINEST_MIDDLE_COSINE, float(np.cos(np.deg2rad(0.5 * (south + north)))))
    if around:
        return Frame(PlateCarree(shrink), 0.0, -180.0, 180.0, south, north)
    half = 0.5 * (360.0 - gap)
    centre = (start + half + 180.0) % 360.0 - 180.0
    reach = min(180.0, half + margin_degrees)
    return Frame(PlateCarree(shrink, centre), centre, -reach, reach, south, north)


def frame_of_plane(
    east: Array, north: Array, *, cells: tuple[Array, Array] | None = None, unit: str = ""
) -> PlaneFrame:
    """Choose it for points and a grid by its axes of x and y; large ones are drawn in kilometres."""
    margin = 0.04 * max(float(np.ptp(east)), float(np.ptp(north))) or 0.5
    ends = []
    for points, axis in zip((east, north), cells or (None, None), strict=True):
        beyond = margin if axis is None or axis.size < 2 else half_cell(axis)
        every = np.concatenate([points - margin, points + margin])
        if axis is not None:
            every = np.concatenate([points, axis - beyond, axis + beyond])
        ends += [float(every.min()), float(every.max())]
    left, right, bottom, top = ends
    far = unit == "m" and max(right - left, top - bottom) > FAR_METRES
    scale, unit = (1e-3, "km") if far else (1.0, unit)
    return PlaneFrame(left, right, bottom, top, scale, unit)


def frame_of_cells(east: Array, north: Array, longitude: ArrayLike = (), latitude: ArrayLike = ()) -> Frame:
    """Choose them for a grid by its axes, to the edges of its cells, and for points beside it; degrees."""
    across, up = half_cell(east), half_cell(north)
    return frame_of(
        np.concatenate([longitude, east - across, east + across]),
        np.clip(np.concatenate([latitude, north - up, north + up]), -90.0, 90.0),
        margin_degrees=0.0,
    )


def coastlines(
    frame: Frame | PlaneFrame,
    kind: Literal["coastline", "border", "lake"] = "coastline",
    *,
    scale: Literal["10m", "50m", "110m"] | None = None,
) -> tuple[Array, Array]:
    """Coastlines, borders or shores of lakes near a map, in plane coordinates; NaN lifts the pen.

    Where no scale is given, they are those of 1:10 million where the map is less than ten degrees wide and
    high, else of 1:50 million; lakes have the latter alone. They are cut where they leave it, without points
    that cannot be told apart on it. A map of a plane has none.
    """
    if isinstance(frame, PlaneFrame):
        return np.empty(0), np.empty(0)
    is_fine = max(frame.east - frame.west, frame.north - frame.south) < FINE_DEGREES
    points = lines_degrees(kind, scale or ("10m" if is_fine and kind != "lake" else "50m"))
    longitude, latitude = frame.relative(points[:, 0]), points[:, 1]
    pad = 2.0
    near = (latitude >= frame.south - pad) & (latitude <= frame.north + pad)
    near &= np.abs(longitude) <= frame.east + pad
    jump = np.abs(np.diff(longitude, append=longitude[-1])) > 180.0
    # A point is kept as long as it or a neighbour is near, so that lines reach the rim.
    kept = near | np.roll(near, 1) | np.roll(near, -1)
    longitude = np.where(kept, longitude, np.nan)
    breaks = np.flatnonzero(jump) + 1
    longitude, latitude = np.insert(longitude, breaks, np.nan), np.insert(latitude, breaks, np.nan)
    pen = np.isfinite(longitude)
    wanted = pen | np.roll(pen, 1)  # one NaN between lines is enough
    x, y = frame.projection.forward(longitude[wanted], latitude[wanted])
    left, right, _, _ = frame.extent()
    cells = np.floor(np.stack((x, y)) * (TOLD_APART / (right - left)))
    moves = (np.diff(cells, prepend=np.nan) != 0.0).any(axis=0)  # also where the pen is lifted
    last = np.isnan(np.append(x[1:], np.nan))
    return x[moves | last], y[moves | last]


@cache
def lines_degrees(
    kind: Literal["coastline", "border", "lake"], scale: Literal["10m", "50m", "110m"] = "110m"
) -> Array:
    """Longitude and latitude of all lines of a scale, shape (n, 2); a NaN row ends each line."""
    with (resources.files("cagp_dist.cartography") / "data" / f"{kind}_{scale}.npy").open("rb") as file:
        return np.asarray(np.load(file, allow_pickle=False), dtype=np.float64)


def _equal_earth_ordinate(t: Array) -> tuple[Array, Array]:
    """``y`` and ``dy/dt`` of the Equal Earth projection at the parametric latitude t."""
    square = t * t
    sixth = square * square * square
    y = t * (_A1 + _A2 * square + sixth * (_A3 + _A4 * square))
    return y, _A1 + 3.0 * _A2 * square + sixth * (7.0 * _A3 + 9.0 * _A4 * square)


def _multiples(low: float, high: float) -> Array:
    """Round numbers inside (low, high), at most six."""
    rows = (
        step * np.arange(np.ceil(low / step + 1e-9), np.floor(high / step - 1e-9) + 1)
        for step in GRATICULE_STEPS_DEGREES
    )
    return np.asarray(np.round(next(row for row in rows if len(row) <= 6), 6) + 0.0)
