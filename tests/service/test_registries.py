"""One registry per family: what stands in it can be written in a job file, is explained and documented."""

import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from cagp_dist import LatLonGrid
from cagp_dist.checks import check_positive
from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.sources import SOURCES, Source, open_source
from cagp_dist.kernels import KERNELS
from cagp_dist.runtime import SerialExecutor, open_executor
from cagp_dist.runtime.schedulers import SCHEDULERS, Scheduler, find_scheduler
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.solver_table import SOLVER_TABLES, solver_table
from cagp_dist.service.task import block_size
from cagp_dist.solvers import BlockJacobi, ConjugateGradient, Hybrid
from cagp_dist.solvers.registry import SOLVERS
from cagp_dist.solvers.setting_metadata import ITERATIONS
from cagp_dist.tiling import POINT_TILE

from ..joined import one_after_another


@dataclass(frozen=True)
class Relaxed:
    """A solver that nobody has.

    Its second paragraph is for Python.
    """

    iterations: int = field(metadata=ITERATIONS)
    relaxation: float = field(metadata={"above": 0.0, "below": 2.0, "example": 1.5})
    damping: float | None = None
    ordered: bool = field(default=True, metadata={"description": "true to keep the order"})
    grid: LatLonGrid | None = None

    calibrated: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        if self.damping is not None:
            check_positive("damping", self.damping, most=1.0)


@pytest.fixture
def relaxed(monkeypatch):
    """The table of a new solver: its line in the registry, and nothing else."""
    monkeypatch.setitem(SOLVERS, "relaxed", Relaxed)
    return solver_table("relaxed", Relaxed)


def test_the_table_of_a_new_solver_is_made_from_its_class(relaxed):
    assert relaxed.__doc__ == "A solver that nobody has."
    keys = relaxed.model_fields
    assert list(keys) == ["name", "iterations", "relaxation", "damping", "ordered"]
    assert [key.description for key in keys.values()] == [
        None,
        "an integer of at least 0 (0 is the prior)",
        "a number above 0 and below 2",
        "a number",
        "true to keep the order",
    ]
    assert keys["relaxation"].is_required()
    assert keys["iterations"].default == 5
    table = relaxed.model_validate({"name": "relaxed", "relaxation": 1.25})
    assert table.build() == Relaxed(5, 1.25)
    assert table.model_dump() == {
        "name": "relaxed",
        "iterations": 5,
        "relaxation": 1.25,
        "damping": None,
        "ordered": True,
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "relaxation\n  Field required"),
        ({"relaxation": 0.0}, "greater than 0"),
        ({"relaxation": 2.0}, "less than 2"),
        ({"relaxation": "1"}, "valid number"),
        ({"relaxation": 1.0, "iterations": -1}, "greater than or equal to 0"),
        ({"relaxation": 1.0, "damping": -0.5}, "damping is -0.5; expected a finite number above zero"),
        ({"relaxation": 1.0, "grid": None}, "Extra inputs are not permitted"),
    ],
)
def test_limits_are_those_of_the_fields_and_of_the_class(relaxed, settings, said):
    with pytest.raises(ValidationError, match=re.escape(said)):
        relaxed.model_validate({"name": "relaxed", **settings})


def settings_of(name: str) -> str:
    """Lines of ``[solver]`` with the example of every setting."""
    keys = {key: table.examples for key, table in SOLVER_TABLES[name].model_fields.items() if table.examples}
    return "\n".join(
        [f'name = "{name}"', *(f"{key} = {json.dumps(examples[0])}" for key, examples in keys.items())]
    )


@one_after_another
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_can_be_written_in_a_job(job_text, name):
    head, rest = job_text.split("[solver]")
    text = f"{head}[solver]\n{settings_of(name)}\n[cluster]{rest.split('[cluster]')[1]}"
    job = parse_job(text)
    assert type(job.solver.build()) is SOLVERS[name]
    assert job.canonical()["solver"]["name"] == name
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(text.replace(f'"{name}"', f'"{name}x"'))
    assert refusal.value.key == "solver"


def test_points_of_a_job_stand_in_the_blocks_of_its_solver(job_text):
    head, rest = job_text.split("[solver]")
    settings = 'name = "hybrid"\nparts = "block-jacobi 1, conjugate-gradient 4"\nblock_size = 77\n'
    job = parse_job(f"{head}[solver]\n{settings}[cluster]{rest.split('[cluster]')[1]}")
    assert job.solver.build() == Hybrid([BlockJacobi(1, 77), ConjugateGradient(4)])
    assert block_size(job.solver.build()) == 77
    assert block_size(BlockJacobi(1, 78)) == 78
    assert block_size(ConjugateGradient(4)) == POINT_TILE


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_can_be_written_in_a_job(job_text, name):
    assert parse_job(job_text.replace("matern32", name)).prior.kernel == name
    assert KERNELS[name](0.5).lengthscale == 0.5


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_can_be_written_in_a_job(job_text, name):
    assert parse_job(job_text.replace('"local"', f'"{name}"')).cluster.scheduler == name
    assert find_scheduler(name) is SCHEDULERS[name]


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_can_be_written_in_a_job(job_text, name):
    source = f"{name}:{SOURCES[name].example}" if SOURCES[name].address else name
    observations = parse_job(job_text.replace('"sample"', f'"{source}"')).observations
    assert (observations.source, observations.kind) == (source, name)


def test_an_error_names_all_members_of_a_family(job_text):
    for old, names in (("block-gauss-seidel", SOLVERS), ("matern32", KERNELS), ("local", SCHEDULERS)):
        with pytest.raises(ConfigurationError) as caught:
            parse_job(job_text.replace(f'"{old}"', '"?"'))
        assert all(f'"{name}"' in str(caught.value) for name in names)


def test_help_names_all_members_of_the_families():
    shown = " ".join(CliRunner().invoke(app, ["run", "--help"]).stdout.split())
    for names in (SOLVERS, KERNELS, SOURCES, SCHEDULERS):
        assert all(name in shown for name in names)


def test_a_new_source_and_a_new_scheduler_are_a_line_each(monkeypatch, tmp_path):
    monkeypatch.setitem(SOURCES, "tape", Source(lambda address, wanted, _: (address, wanted), address="REEL"))
    address, wanted = open_source("tape:7", times=["2020-01-01"], cache_directory=tmp_path, undated=True)
    assert (address, wanted.times) == ("7", ["2020-01-01"])
    serial = SerialExecutor()
    monkeypatch.setitem(SCHEDULERS, "abacus", Scheduler(lambda name, **_: contextlib.nullcontext(serial)))
    with open_executor("abacus") as executor:
        assert executor is serial
