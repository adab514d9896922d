"""What a space knows, so that nobody asks which one it is."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from cagp_dist.arrays import Array, Indices, Mask

if TYPE_CHECKING:
    import xarray as xr
    from pyproj import CRS

Region: TypeAlias = tuple[float, float, float, float]
"""North, west, south and east."""


class Space(Protocol):
    """A space in which places have two coordinates, ``north`` and ``east``, and points a distance."""

    @property
    def has_latitudes(self) -> bool:
        """Whether north and east are latitude and longitude, of which rings, coasts and some means are."""

    @property
    def axes(self) -> Mapping[str, Mapping[str, str]]:
        """Names and CF attributes that results give to north and east, in this order."""

    @property
    def what(self) -> str:
        """The coordinates, for people."""

    @property
    def text(self) -> str:
        """The space, for people."""

    @property
    def unit(self) -> str:
        """Of north and east, as UDUNITS writes it; empty if it is not known."""

    @property
    def scale(self) -> float:
        """Factor by which north and east come to the unit of the system."""

    @property
    def is_placed(self) -> bool:
        """Whether it is known where on the Earth it lies."""

    @property
    def system(self) -> "CRS":
        """Coordinate reference system of places, if `is_placed`."""

    @property
    def mapping(self) -> "Mapping[str, xr.Variable]":
        """Variable by which a result says the system, as CF has it, by its name."""

    @property
    def said(self) -> Mapping[str, str | float]:
        """Attributes of a result by which its space is known."""

    @property
    def longest_lengthscale(self) -> float:
        """Longest distance of two points, above which a lengthscale is that of a trend."""

    @property
    def longest_fitted(self) -> float:
        """Lengthscale at which every fit ends."""

    @property
    def coarsest(self) -> float:
        """Largest resolution of a grid."""

    @property
    def distance_attributes(self) -> Mapping[str, str]:
        """CF attributes of `distances`."""

    def is_same(self, other: "Space") -> bool:
        """Whether coordinates mean the same in both, as far as that is known."""

    def factor_of(self, other: "Space") -> float | None:
        """Factor that brings coordinates of another space here; None where that is not all it takes.

        A plane without a system is taken for this one.
        """

    def around(self, north: Array, east: Array) -> Self:
        """Check places and give the space in which their positions lose no digits."""

    def check(self, north: Array, east: Array, *, some: bool = False) -> None:
        """Refuse places, all of them or some, that cannot be meant."""

    def positions(self, north: Array, east: Array) -> Array:
        """Give coordinates (n, p) of places (n,) whose Euclidean distance decides."""

    def places(self, X: Array) -> tuple[Array, Array]:
        """Give north and east of positions (n, p)."""

    def of_columns(self, X: Array) -> tuple[Array, Array]:
        """Give north and east of an array (n, 2) as people write it."""

    def keys(self, north: Array, east: Array) -> Array:
        """Give numbers (n, 2), north first, that are the same where the place is."""

    def is_pole(self, north: Array) -> Mask:
        """Say where all values of east are one place."""

    def place_text(self, north: float, east: float) -> str:
        """Write where a place is."""

    def distances(self, lengths: Array) -> Array:
        """Distances as people are shown them, of those of positions."""

    def along(self, distances: Array) -> Array:
        """Positions on a line, so far from the first as `distances` says it."""

    def in_unit(self, lengths: Array) -> Array:
        """Distances of positions in the unit of north and east."""

    def of_unit(self, size: float) -> float:
        """Distance of positions that are so far apart in the unit of north and east."""

    def kilometres(self, lengths: Array) -> Array:
        """Kilometres on the ground of distances of positions; NaN where the unit is not known."""

    def of_kilometres(self, kilometres: float) -> float:
        """Distance of positions that are so many kilometres apart on the ground."""

    def lengthscale_text(self, number: float) -> str:
        """Write a lengthscale."""

    def lengthscales_said(self, numbers: Sequence[float]) -> "Mapping[str, str | float | list[float]]":
        """Attributes of a result that say its lengthscales."""

    def blocks(self, north: Array, east: Array, size: float) -> Indices:
        """Blocks (n, 2) of a cross-validation, in which places lie; ``size`` in the unit."""

    def block_size(self, north: Array, east: Array) -> float:
        """Size of blocks if nothing is said."""

    def region(self, given: object, edges: Region) -> Region:
        """Check the edges of a region."""

    def extent(self, north: Array, east: Array, step: float | None) -> Region:
        """Region of places, in whole degrees or whole steps."""

    def edges(self, north: Array, east: Array) -> tuple[Array, Array]:
        """Edges (2, P) and (2, Q) of the cells around the values of two axes, if these differ."""

    def cell_nodes(self, south_north: Array, west_east: Array, per_side: int) -> tuple[Array, Array]:
        """Nodes (q k^2, p) of cells between edges (2, q), and their shares (q, k^2) of the cells."""
