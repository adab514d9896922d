r"""Which tiles, panels and column groups: pure functions of integers.

Nothing here depends on the number of workers except `panel_count`, and how rows are gathered into
panels does not change a result (every row tile is computed by the same calls); so results are equal
to the last bit for any number of workers of one kind.

::

            column groups (never talk to each other)
            g=0        g=1
          +----------+----------+
    tile 0|          |          |   panel 0
    tile 1|          |          |   panel 1
          +----------+----------+
    tile 2|          |          |   panel 1
    tile 3|          |          |   panel 0
          +----------+----------+
"""

Range = tuple[int, int]

POINT_TILE = 512  # points eliminated together by point Gauss-Seidel; changes speed, not the result
SMALLEST_ROW_TILE = 256  # small blocks are gathered into row tiles of about this many rows
STRIPS = 16  # tasks of a symmetric product; a constant, so that the order of its sums never changes
COLUMN_GROUP = 512  # widest: a kernel evaluation costs under a tenth of its products


def block_ranges(n: int, block_size: int) -> list[Range]:
    """Consecutive blocks of ``block_size`` points; the last one may be shorter.

    >>> block_ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + block_size, n)) for start in range(0, n, block_size)]


def row_tile_size(block_size: int) -> int:
    """Rows of a tile: one block, or as many whole small blocks as fit `SMALLEST_ROW_TILE`."""
    return max(block_size, SMALLEST_ROW_TILE // block_size * block_size)


def subtile_shape(columns: int) -> tuple[int, int]:
    """Rows and columns of the sub-tiles that multiply ``columns`` columns.

    At most 256 KiB, for second-level cache, and 10^6 products where possible: OpenBLAS then multiplies
    without packing first (measured, per entry: 25 columns 0.93 against 1.45 ns). Squares are the most
    compact.
    """
    if columns <= 61:
        return 128, 128
    return (64, 128) if columns <= 122 else (128, 256)


def split(count: int, parts: int) -> list[Range]:
    """Split ``range(count)`` into at most ``parts`` contiguous, nearly equal, non-empty ranges.

    >>> split(5, 2)
    [(0, 3), (3, 5)]
    """
    parts = max(1, min(parts, count))
    size, longer = divmod(count, parts)
    edges = [0]
    for part in range(parts):
        edges.append(edges[-1] + size + (part < longer))
    return [(edges[i], edges[i + 1]) for i in range(parts) if edges[i + 1] > edges[i]]


def column_groups(q: int) -> list[Range]:
    """Split q columns into nearly equal groups of at most `COLUMN_GROUP`."""
    return split(q, -(-q // COLUMN_GROUP)) if q else []


def panel_count(row_tiles: int, groups: int, workers: int) -> int:
    """Panels per column group, so that every worker has two tasks per step (look-ahead)."""
    return max(1, min(row_tiles, -(-2 * workers // max(groups, 1)))) if workers > 1 else 1


def triangle_strips(tiles: int, count: int) -> list[Range]:
    """Split the rows of a lower triangle of ``tiles`` x ``tiles`` into strips of similar area."""
    edges = sorted({round(tiles * (part / count) ** 0.5) for part in range(count + 1)} | {0, tiles})
    return [(edges[i], edges[i + 1]) for i in range(len(edges) - 1)]
