"""Job files for tests: a small one, and whatever tables a test writes otherwise."""

import json
from collections.abc import Mapping
from pathlib import Path

TABLES: dict[str, Mapping[str, object] | None] = {
    "observations": {"source": "sample"},
    "observations.synthetic": None,
    "design": {
        "train": {"kind": "random", "count": 300, "seed": 0},
        "test": {"kind": "random", "count": 40, "seed": 1},
    },
    "prior": {"lengthscale": 0.2, "variance": 60.0, "noise_variance": 2.0},
    "solver": {"name": "block-gauss-seidel", "iterations": 2, "block_size": 100},
    "cluster": {"scheduler": "serial"},
}


def job_text(**tables: Mapping[str, object] | None) -> str:
    """Write a job file, with these tables in place of those of `TABLES`; None leaves a table out.

    Tables and keys stand one to a line in the order given, so that a test may also replace text.
    """
    chosen = {**TABLES, **tables}
    return "\n".join(
        "\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""])
        for name, table in chosen.items()
        if table is not None
    )


def random_points(count: int, *, seed: int = 0, weight: str | None = None) -> dict[str, object]:
    """Points drawn at random, for ``train`` or ``test``.

    With weight "equal" many of them are near the poles, where a coarse grid has neighbours close enough to
    tell noise from field: fits need them.
    """
    drawn: dict[str, object] = {"kind": "random", "count": count, "seed": seed}
    return drawn if weight is None else {**drawn, "weight": weight}


def map_grid(resolution_degrees: float) -> dict[str, object]:
    """Cells of a map."""
    return {"kind": "grid", "resolution_degrees": resolution_degrees}


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
