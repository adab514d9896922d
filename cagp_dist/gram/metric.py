"""In which coordinates points near each other are alike: where the neighbours of a point are looked for."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeAlias

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.factors import Anisotropic, AxiallySymmetric, Coregion, Directional
from cagp_dist.kernels import SPACE_COLUMNS, Kernel, point_columns

ALIKE, STEPS_ALONG = 0.7, 1024  # Correlation by which coordinates are compared, and distances that are tried
LEAST_ALIKE = 1e-3  # Correlation of labels that counts as none


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Functions of points, most of them linear, and places of their labels: ``X * coordinates``."""

    rows: Array  # (r, p)
    labels: tuple[tuple[int, Array], ...]  # columns of labels, and where each label is, (m, d)
    globe: "tuple[float, float] | None" = None  # factor and stretch (`_on_surface`)

    __array_ufunc__: ClassVar[None] = None  # so that NumPy leaves a product to it

    def __rmul__(self, X: Array) -> Array:
        """Points X (n, p) in these coordinates; each is the same whatever other points there are."""
        from cagp_dist.compiled import embedded

        found = [embedded(self.rows, point_columns(X)).T] if len(self.rows) else []
        for column, places in self.labels:
            own = X[:, column].astype(np.intp)
            found.append(np.where(own[:, None] < 0, places.mean(axis=0), places[np.maximum(own, 0)]))
        if self.globe is not None:
            factor, stretch = self.globe
            found.append(factor * _on_surface(X[:, :SPACE_COLUMNS], stretch))
        return np.hstack(found)


def _on_surface(X: Array, stretch: float) -> Array:
    """Move unit vectors X (n, 3) to where what is near is near in axially symmetric distances.

    Those are of a surface whose parallels are as long as ``R = cos / sqrt(1 + q cos^2)``, q = stretch^2 - 1,
    with the distance between them as it was. Where parallels reach further it is one of revolution, of the
    height ``integral of sqrt(1 - R'^2)``. If not, there is none: the image is a sphere again, which keeps
    angles, and the distances of 30 degrees from the equator; with the sine z of the latitude, the isometric
    latitude is ``atanh(z) + integral of q / (1 + sqrt(1 + q (1 - z^2)))``.
    """
    q, z = stretch**2 - 1.0, np.clip(X[:, 2], -1.0, 1.0)
    if q >= 0.0:
        latitude = np.linspace(0.0, 0.5 * np.pi, STEPS_ALONG + 1)
        girth = 1.0 + q * np.cos(latitude) ** 2
        height = _integral(np.sqrt(1.0 - np.sin(latitude) ** 2 / girth**3), latitude)
        up = np.sign(z) * np.interp(np.abs(np.arcsin(z)), latitude, height)
        return np.column_stack([X[:, :2] / np.sqrt(1.0 + q * (1.0 - z**2))[:, None], up])
    nodes = np.linspace(0.0, 1.0, STEPS_ALONG + 1)
    more = _integral(q / (1.0 + np.sqrt(1.0 + q * (1.0 - nodes**2))), nodes)

    def shrunk(z: Array) -> tuple[Array, Array]:
        t = np.tanh(np.sign(z) * np.interp(np.abs(z), nodes, more))
        return t, np.sqrt(1.0 - t**2) / (1.0 + z * t)

    t, girth = shrunk(z)
    _, there = shrunk(np.array([0.5]))
    moved = np.column_stack([X[:, :2] * girth[:, None], (z + t) / (1.0 + z * t)])
    return np.asarray(moved / (there * np.sqrt(1.0 + 0.75 * q)))


def _integral(values: Array, nodes: Array) -> Array:
    """Integrate from the first of equally spaced nodes to each of them, by the trapezoidal rule."""
    return np.concatenate([[0.0], np.cumsum(0.5 * (values[1:] + values[:-1])) * (nodes[1] - nodes[0])])


Metric: TypeAlias = Array | Coordinates  # what points are multiplied with


@lru_cache(maxsize=64)
def metric(kernel: Kernel, columns: int) -> Metric:
    """Factors (p,) of the coordinates by which points near each other are alike: one over lengthscales.

    The shortest of a sum; where they differ by coordinate, distances at which the correlation is `ALIKE`. Of
    ellipses and labels coordinates: labels are as far apart as a place where the correlation is theirs.
    """
    if kernel.layout is None:
        own = np.array([part.inverse_lengthscales(columns) for part in kernel.parts])
        factors: Array = own.max(axis=0)
        if kernel.coordinates is not None and len(own) > 1:
            factors = _alike(kernel, np.eye(columns), own)
        factors.flags.writeable = False
        return factors
    layout = kernel.layout
    ellipses: list[tuple[float, Directional]] = []
    tables: dict[str, Array] = {}
    own = np.array([part.inverse_in(layout) for part in kernel.parts])
    if not own.any():
        raise ArgumentError(
            f"the kernel is {kernel!r}, whose correlation is the same at all distances, so that no points "
            "are nearer than others; expected a part that falls with distance, or cagp.Cholesky().",
            key="kernel-without-distance",
        )
    for part, inverse in zip(kernel.parts, own, strict=True):
        for factor in (
            part.factors if inverse.any() else ()
        ):  # what is shared at any distance brings nothing near
            if isinstance(factor, Directional):
                ellipses.append((part.variance, factor))
            elif isinstance(factor, Coregion):
                total = tables.setdefault(factor.axis, np.zeros_like(factor.matrix))
                if total.shape != factor.matrix.shape:
                    raise ArgumentError(
                        f"the kernel has tables of {len(total)} and {len(factor.matrix)} labels of "
                        f"{factor.axis}; expected a row for each label in all of them.",
                        key="coregion-shape",
                    )
                total += part.variance * factor.matrix
    rows = np.eye(columns)[own.any(axis=0)]
    ellipse = max(ellipses, key=lambda pair: pair[0])[1] if ellipses else None  # of the largest variance
    if isinstance(ellipse, AxiallySymmetric):
        rows = rows[SPACE_COLUMNS - 1 :]  # along meridians, where there is no girth
    elif isinstance(ellipse, Anisotropic):
        shape = np.array(ellipse.pieces(layout)[0].rows)
        rows = np.vstack(
            [shape, [row for row in rows if not shape[:, row > 0.0].any()] or np.empty((0, columns))]
        )
    factors = _alike(kernel, rows, own)
    if not ellipses and not tables and own.any(axis=0).all():
        factors = factors.copy()
        factors.flags.writeable = False
        return factors
    places = tuple((layout.space + layout.axes.index(axis), _places(table)) for axis, table in tables.items())
    if isinstance(ellipse, AxiallySymmetric):
        globe = float(factors[0]), ellipse.stretch
        return Coordinates(rows[1:] * factors[1:, None], places, globe)
    return Coordinates(rows * factors[:, None], places)


def scaled_columns(found: Metric, columns: int) -> int:
    """Count the coordinates of points with so many columns."""
    return int((np.zeros((1, columns)) * found).shape[1])


def _alike(kernel: Kernel, rows: Array, own: Array) -> Array:
    """Factors (r,) of linear functions: one over what lowers the correlation to `ALIKE` along each."""
    known = own[own > 0.0]
    directions, factors = np.linalg.pinv(rows).T, np.empty(len(rows))
    for at, direction in enumerate(directions):
        reach = 1.0 / np.linalg.norm(direction)
        along = reach * np.geomspace(1e-6 / known.max(), 100.0 / known.min(), STEPS_ALONG)
        correlation = _correlation(kernel, along[:, None] * direction, own)
        end = int(np.argmax(correlation < ALIKE)) or -1  # the furthest where it falls to no less
        pair = slice(end - 1, end + 1 or None)
        factors[at] = 1.0 / np.interp(-ALIKE, -correlation[pair], along[pair])
    return factors


def _correlation(kernel: Kernel, points: Array, own: Array) -> Array:
    """Correlation (n,) of the origin with points (n, p); parts without inverse lengthscales are left out."""
    from cagp_dist.compiled import evaluate

    origin, out = np.zeros((points.shape[1], 1)), np.empty((1, len(points)))
    layout = kernel.layout
    total, at_origin, here = np.zeros(len(points)), 0.0, np.empty((1, 1))
    for part, inverse in zip(kernel.parts, own, strict=True):
        if not inverse.any():  # shared at any distance
            continue
        parameters = part.parameters if layout is None else part.parameters_in(layout)
        evaluate(*parameters, origin, point_columns(points), out)
        evaluate(*parameters, origin, origin, here)
        total, at_origin = total + out[0], at_origin + float(here[0, 0])
    return np.asarray(total / at_origin) if at_origin > 0.0 else np.ones(len(points))


def _places(table: Array) -> Array:
    """Where labels are (m, d), so that their distances are about those of their correlations."""
    deviations = np.sqrt(table.diagonal())
    alike = np.clip(np.abs(table) / np.outer(deviations, deviations), LEAST_ALIKE, 1.0)
    squared = (np.log(alike) / np.log(ALIKE)) ** 2
    centring = np.eye(len(table)) - 1.0 / len(table)
    values, vectors = np.linalg.eigh(-0.5 * centring @ squared @ centring)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
