"""Text files of Prometheus, read as it reads them."""

from pathlib import Path


def metrics_of(file: Path) -> dict[str, float]:
    """Samples of a file: each family has its help and type, and is there once."""
    lines = file.read_text().splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert {name.partition("{")[0] for name in samples} == set(families)
    return {name: float(value) for name, value in samples.items()}
