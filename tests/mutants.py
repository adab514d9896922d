"""Mutants: small mistakes put into the source one at a time, and whether the tests notice them.

By hand, in the root of the repository, as often as tests are thinned or rewritten::

    python -m tests.mutants --count 30 --seed 0
    python -m tests.mutants --count 30 --modules cagp_dist/gram/ring_gram.py --tests ../before/tests tests

A mistake is a comparison turned round, ``+`` for ``-`` or ``*`` for ``/`` and the reverse, an integer raised
by one, or a ``not`` left out. Which ones are made follows from the seed. Each is put into a copy of the
package, where the quick tests of `TESTS` that cover its module run until the first failure; a mutant that no
test fails on has survived. Several folders of tests are compared on the same mutants: the exit code is 1 if a
later folder lets one live that the first one kills. Mutants that change nothing (the width of a strip, a
bound that is never met) survive any test.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_GRIDS = (
    "gram/test_rings.py",
    "latlon/test_wavenumbers.py",
    "gram/test_masked.py",
    "posterior/test_sampling.py",
)
TESTS = {
    "cagp_dist/geometry.py": ("test_geometry.py",),
    "cagp_dist/tiling.py": ("test_tiling.py", "conformance/test_grams.py"),
    "cagp_dist/kernels.py": ("test_kernels.py", "test_compiled.py"),
    "cagp_dist/lapack.py": ("test_lapack.py",),
    "cagp_dist/calibration/verification/pit.py": ("calibration/test_pit.py",),
    "cagp_dist/calibration/verification/scores.py": ("calibration/test_scores.py",),
    "cagp_dist/calibration/simulation/beliefs.py": (
        "calibration/test_laboratory.py",
        "calibration/test_simulation.py",
    ),
    "cagp_dist/calibration/simulation/laboratory.py": ("calibration/test_laboratory.py",),
    "cagp_dist/calibration/simulation/simulated_verdict.py": ("calibration/test_laboratory.py",),
    "cagp_dist/calibration/simulation/field_draws.py": (
        "calibration/test_simulation.py",
        "calibration/test_laboratory.py",
    ),
    "cagp_dist/calibration/simulation/strong.py": ("calibration/test_laboratory.py",),
    "cagp_dist/store/manifest.py": ("store/test_publish.py", "store/test_publish_trouble.py"),
    "cagp_dist/store/plain.py": ("fields/test_hostile_stores.py",),
    "cagp_dist/store/schema.py": ("store/test_schema.py", "store/test_publish.py"),
    "cagp_dist/store/prune.py": ("store/test_prune.py",),
    "cagp_dist/store/series.py": ("service/test_daily.py",),
    "cagp_dist/fields/canonical.py": ("fields/test_canonical.py", "fields/test_damage.py"),
    "cagp_dist/service/point_roles.py": ("service/test_design.py",),
    "cagp_dist/service/job_fit.py": ("service/test_fit.py",),
    "cagp_dist/pipeline/grid_places.py": ("service/test_places.py",),
    "cagp_dist/service/carried_state.py": ("service/test_previous.py", "service/test_filtered_days.py"),
    "cagp_dist/service/disk.py": ("service/test_disk.py",),
    "cagp_dist/likelihood/exact/ring_likelihood.py": (
        "likelihood/test_rings.py",
        "likelihood/test_memory.py",
        "likelihood/test_scoring.py",
    ),
    "cagp_dist/likelihood/exact/dense_likelihood.py": (
        "likelihood/test_exact.py",
        "likelihood/test_anisotropic.py",
        "likelihood/test_scoring.py",
    ),
    "cagp_dist/likelihood/exact/profile_likelihood.py": (
        "likelihood/test_fit.py",
        "likelihood/test_sums.py",
        "likelihood/test_own_noise.py",
    ),
    "cagp_dist/likelihood/learned/elbo.py": ("conformance/test_identities_of_bounds.py",),
    "cagp_dist/solvers/engine/adjoint.py": (
        "solvers/test_going_on.py",
        "conformance/test_identities.py",
        "conformance/test_checkpoints.py",
        "posterior/test_computational_variance.py",
    ),
    "cagp_dist/solvers/engine/recorder.py": ("conformance/test_checkpoints.py",),
    "cagp_dist/solvers/engine/tiles.py": (
        "solvers/test_dense_formulas.py",
        "solvers/test_executors_agree.py",
        "solvers/test_going_on.py",
    ),
    "cagp_dist/solvers/engine/ring_system.py": (
        "solvers/test_on_rings.py",
        "solvers/test_bands_of_rings.py",
        "solvers/test_going_on.py",
    ),
    "cagp_dist/solvers/actions/projection.py": (
        "solvers/test_actions.py",
        "conformance/test_identities_of_actions.py",
    ),
    "cagp_dist/gram/ring_gram.py": (*_GRIDS, "conformance/test_grams.py"),
    "cagp_dist/latlon/wavenumbers.py": _GRIDS,
    "cagp_dist/latlon/grid_layout.py": (
        "latlon/test_layout.py",
        "latlon/test_views.py",
        "gram/test_gaps.py",
        *_GRIDS,
    ),
    "cagp_dist/gram/gaps.py": ("gram/test_gaps.py", "posterior/test_on_grids.py"),
    "cagp_dist/posterior/left_out.py": ("posterior/test_left_out.py",),
    "cagp_dist/posterior/sampling.py": ("posterior/test_sampling.py", "posterior/test_pathwise_samples.py"),
    "cagp_dist/gram/dense.py": (
        "gram/test_dense.py",
        "posterior/test_sampling.py",
        "conformance/test_grams.py",
    ),
    "cagp_dist/gram/leave_one_out.py": ("gram/test_dense.py", "gram/test_rings.py"),
    "cagp_dist/gram/neighbourhoods.py": (
        "gram/test_neighbourhoods.py",
        "conformance/test_identities_of_neighbours.py",
        "budget/test_bytes_on_points.py",
    ),
    "cagp_dist/pipeline/observations.py": ("pipeline/test_observations.py", "fields/test_points.py"),
    "cagp_dist/pipeline/fitting.py": ("pipeline/test_two_doors.py", "service/test_fit.py"),
    "cagp_dist/posterior/conditioning.py": ("test_gp.py", "posterior/test_patterns.py"),
    "cagp_dist/gram/masked.py": (*_GRIDS, "conformance/test_grams.py"),
}
"""Modules, and the tests that answer for them."""

_TURNED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
_SECONDS = 240.0


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line of a mistake, what was changed, and the whole source with it."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[op, *rest]) if type(op) in _TURNED:
                field, mistake = "ops", [_TURNED[type(op)](), *rest]
            case ast.BinOp(op=op) if type(op) in _TURNED:
                field, mistake = "op", _TURNED[type(op)]()
            case ast.Constant(value=number) if type(number) is int:
                field, mistake = "value", number + 1
            case ast.UnaryOp(op=ast.Not()):
                field, mistake = "op", ast.UAdd()  # +True is 1
            case _:
                continue
        before, right = ast.unparse(node), getattr(node, field)
        setattr(node, field, mistake)
        yield node.lineno, f"{before}  ->  {ast.unparse(node)}", ast.unparse(tree)
        setattr(node, field, right)


def survives(folder: Path, tests: tuple[str, ...]) -> bool:
    """Run tests in a copy of the project until one fails; a run that does not end counts as a failure."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-qx",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not cluster and not exhaustive",
    ]
    try:
        run = subprocess.run(
            [*command, *(f"tests/{name}" for name in tests)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == 0


def main() -> int:
    """Print a line for each mutant, and how many every folder of tests killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modules", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--tests", nargs="+", type=Path, default=[ROOT / "tests"])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made = [(name, *mutant) for name in options.modules for mutant in mutants((ROOT / name).read_text())]
    chosen = random.Random(options.seed).sample(made, min(options.count, len(made)))
    lived: list[set[int]] = [set() for _ in options.tests]
    with tempfile.TemporaryDirectory() as scratch:
        copies = [Path(scratch) / str(number) for number in range(len(options.tests))]
        for folder, tests in zip(copies, options.tests, strict=True):
            for name in ("cagp_dist", "pipelines", "deploy"):
                shutil.copytree(ROOT / name, folder / name)
            shutil.copytree(tests, folder / "tests")
            shutil.copy(ROOT / "pyproject.toml", folder)
            for name in sorted({name for name, *_ in chosen}):
                if not survives(folder, TESTS[name]):
                    raise SystemExit(f"the tests of {name} in {tests} fail on the source as it is")
        for number, (name, line, change, source) in enumerate(chosen):
            for folder, alive in zip(copies, lived, strict=True):
                (folder / name).write_text(source)
                if survives(folder, TESTS[name]):
                    alive.add(number)
                shutil.copy(ROOT / name, folder / name)
            verdict = ", ".join("survived" if number in alive else "killed" for alive in lived)
            print(f"{verdict:20} {name}:{line}  {change}", flush=True)
    for tests, alive in zip(options.tests, lived, strict=True):
        print(f"{len(chosen) - len(alive)} of {len(chosen)} killed by {tests}")
    return int(any(alive - lived[0] for alive in lived))


if __name__ == "__main__":
    sys.exit(main())
