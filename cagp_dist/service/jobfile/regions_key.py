"""``[design] regions``: names of regions, boxes and polygons, checked and in canonical form."""

from collections.abc import Mapping, Sequence

from cagp_dist.errors import ArgumentError
from cagp_dist.regions import REGIONS, Box, Polygon, Region, as_regions
from cagp_dist.service.jobfile.values import resembling
from cagp_dist.text import alternatives

EDGES = ("south", "north", "west", "east")
KEYS = ("name", *EDGES, "polygon")
EXPECTED = (
    f"a list of {alternatives(REGIONS)}, boxes with name and some of south, north, west and east, and "
    "polygons with name and polygon, a ring of [longitude, latitude]"
)


def regions(value: object) -> tuple[Region, ...]:
    """Check what a job file says, and give the regions."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"expected {EXPECTED}")
    try:
        return as_regions(
            item if isinstance(item, str | Box | Polygon) else _of_table(item) for item in value
        )
    except ArgumentError as error:
        raise ValueError(str(error).rstrip(".")) from None


def written_regions(found: "tuple[Region, ...] | None") -> object:
    """Write regions as a job file would; a box that is a named region as that name."""
    return None if found is None else [_written(region) for region in found]


def _of_table(item: object) -> Region:
    if not isinstance(item, Mapping):
        raise ValueError(f"{item!r} is not a region; expected {EXPECTED}")
    for key in item:
        if key not in KEYS:
            close = resembling(key, list(KEYS))
            raise ValueError(f"unknown key {key} of a region{close}; valid: {', '.join(KEYS)}")
    name = item.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError('a region lacks its name; expected one such as name = "europe"')
    if "polygon" in item:
        edges = [edge for edge in EDGES if edge in item]
        if edges:
            raise ValueError(f'region "{name}" has polygon and {edges[0]}; expected a polygon or a box')
        ring = item["polygon"]
        if not isinstance(ring, Sequence) or isinstance(ring, str):
            raise ValueError(
                f'polygon of region "{name}" is {ring!r}; expected a list of [longitude, latitude]'
            )
        return Polygon(name, tuple(_corner(name, corner) for corner in ring))
    given = {edge: item[edge] for edge in EDGES if edge in item}
    if not given:
        raise ValueError(
            f'region "{name}" is nowhere; expected some of south, north, west and east, or a polygon'
        )
    for edge, degrees in given.items():
        if not _is_number(degrees):
            raise ValueError(f'{edge} of region "{name}" is {degrees!r}; expected a number of degrees')
    if ("west" in given) != ("east" in given):
        raise ValueError(
            f'region "{name}" has one of west and east; expected both, or none for all longitudes'
        )
    return Box(name, **{edge: float(degrees) for edge, degrees in given.items()})


def _corner(name: str, corner: object) -> tuple[float, float]:
    pair = corner if isinstance(corner, Sequence) and not isinstance(corner, str) else ()
    if len(pair) != 2 or not all(_is_number(degrees) for degrees in pair):
        raise ValueError(
            f'polygon of region "{name}" has {corner!r}; expected [longitude, latitude] in degrees'
        )
    return float(pair[0]), float(pair[1])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _written(region: Region) -> object:
    if isinstance(region, Polygon):
        return {"name": region.name, "polygon": [list(corner) for corner in region.ring]}
    assert isinstance(region, Box)
    if REGIONS.get(region.name) == region:
        return region.name
    return {"name": region.name, **{edge: getattr(region, edge) for edge in EDGES}}
