"""Weights of targets are kept: other data at the same points cost one product (math 14)."""

import logging
from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import StoreError
from cagp_dist.posterior.kept_solves import bytes_of_weights
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.store.memo import FolderMemo

from ..oracle import assert_same_bits
from ..problems import regression_problem
from .registered import POINT_SOLVERS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PROBLEM = regression_problem(140, q=30, lengthscale=0.25)
OTHER = replace(PROBLEM, y=np.random.default_rng(7).normal(size=140))
AFFINE = {name: solver for name, solver in POINT_SOLVERS.items() if isinstance(solver, Affine)}
SOLVER = cagp.BlockGaussSeidel(3, block_size=40)


class Plane:
    """A mean ``c0 + c1 x`` whose coefficients are estimated."""

    coefficient_names = ("constant", "x")

    def basis_at(self, X):
        return np.stack([np.ones(len(X)), X[:, 0]], axis=1)


@pytest.fixture
def applied(monkeypatch):
    """How often a stage was applied."""
    counted = []

    def apply(self, stage, work, *, adjoint, final=False, original=TileSystem.apply):
        counted.append(stage)
        return original(self, stage, work, adjoint=adjoint, final=final)

    monkeypatch.setattr(TileSystem, "apply", apply)
    return counted


def solved(problem=PROBLEM, solver=SOLVER, **settings):
    return problem.condition(solver, **{"covariance": "diagonal", "executor": SerialExecutor(), **settings})


def assert_same_numbers(found, expected):
    """To 1e-12 of the largest one."""
    for name in ("mean", "variance"):
        wanted = getattr(expected, name)
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=0.0, atol=1e-12 * abs(wanted).max())
    assert found.status is expected.status
    assert found.stats.iterations == expected.stats.iterations
    assert found.stats.downdate_psd is expected.stats.downdate_psd
    assert [step.iteration for step in found.trace] == [0, expected.stats.iterations]


OFTEN = ("gauss-seidel", "block-gauss-seidel", "two-level-block-jacobi", "chebyshev")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.exhaustive) for name in AFFINE],
)
def test_other_data_cost_a_product_and_give_the_numbers_of_a_solve_t2(name, tmp_path, applied):
    solver, kept = AFFINE[name], FolderMemo(tmp_path)
    assert_same_numbers(solved(solver=solver, weights=kept), solved(solver=solver))
    expected = solved(OTHER, solver)
    applied.clear()
    found = solved(OTHER, solver, weights=kept)
    assert not applied
    assert found.stats.gram_entries == 0
    assert_same_numbers(found, expected)


def test_a_mean_that_is_estimated_follows_from_the_data_by_what_is_kept_t37(tmp_path, applied, monkeypatch):
    monkeypatch.setattr("cagp_dist.posterior.coefficients.SWEEPS", cagp.BlockGaussSeidel(2, block_size=30))
    kept = FolderMemo(tmp_path)
    plane, other = (replace(each, prior=replace(each.prior, mean=Plane())) for each in (PROBLEM, OTHER))
    expected = solved(other)
    assert_same_numbers(solved(plane, weights=kept), solved(plane))
    applied.clear()
    found = solved(other, weights=kept)
    assert not applied
    assert_same_numbers(found, expected)
    np.testing.assert_allclose(found.coefficients.values, expected.coefficients.values, rtol=1e-12)
    np.testing.assert_allclose(found.coefficients.covariance, expected.coefficients.covariance, rtol=1e-12)
    assert_same_numbers(solved(weights=kept), solved())  # weights of a known mean are others


NEIGHBOURS = cagp.Neighbours(12)


@pytest.mark.parametrize(
    "solver", [NEIGHBOURS, cagp.Neighbours(12, coarse=9, drift="linear")], ids=["plain", "coarse-and-drift"]
)
def test_other_data_cost_a_sparse_product_of_neighbours_t37(solver, tmp_path, monkeypatch):
    """Of points and of means near and wide, with an estimated mean; nothing is solved for the second time."""
    means = np.zeros((len(PROBLEM.X_test), 3))
    means[:2, 0], means[:, 1], means[5, 2] = 0.5, 1.0 / len(means), 1.0
    targets = cagp.LinearFunctionals(PROBLEM.X_test, means)
    plane = replace(PROBLEM.prior, mean=Plane())
    monkeypatch.setattr("cagp_dist.gram.neighbourhoods.FEWEST_OF_CELL", 8)
    monkeypatch.setattr("cagp_dist.solvers.engine.kept_weights.SPARSE_BYTES", 1500)  # several parts
    for number, changes in enumerate(({}, {"X_test": targets}, {"prior": plane})):
        first, second = (replace(each, **changes) for each in (PROBLEM, OTHER))
        kept, expected = FolderMemo(tmp_path / str(number)), solved(second, solver)
        assert_same_numbers(solved(first, solver, weights=kept), solved(first, solver))
        with monkeypatch.context() as patch:
            patch.setattr("cagp_dist.solvers.local.neighbours.cells", unsolved)
            found = solved(second, solver, weights=kept)
        assert found.stats.gram_entries == 0
        assert_same_numbers(found, expected)
    assert len(list((tmp_path / "0").glob("*/*/part-*"))) > 1
    size = sum(file.stat().st_size for file in (tmp_path / "0").glob("*/*/part-*/*/c/*"))
    planned = bytes_of_weights(solver, solved(solver=solver).stats.plan)
    assert 1.0 <= planned / size < 4.0


def unsolved(*arguments, **settings):
    raise AssertionError("solved again")


def test_each_pattern_of_gaps_has_weights_of_its_own(tmp_path, applied):
    y = np.random.default_rng(8).normal(size=(140, 3))
    y[:20, 1] = np.nan
    gaps, kept = replace(regression_problem(140, q=30, fields=3), y=y), FolderMemo(tmp_path)
    expected = solved(gaps)
    assert_same_numbers(solved(gaps, weights=kept), expected)
    applied.clear()
    assert_same_numbers(solved(gaps, weights=kept), expected)
    assert not applied
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(SOLVER, id="sweep"),
        pytest.param(cagp.BlockJacobi(3, block_size=40), id="at-once", marks=pytest.mark.exhaustive),
    ],
)
def test_threads_a_cluster_and_the_first_solve_give_the_same_bits(solver, tmp_path, two_dask_workers):
    first = solved(solver=solver, weights=FolderMemo(tmp_path / "a"))
    assert_same_bits(solved(solver=solver, weights=FolderMemo(tmp_path / "a")), first)
    with ThreadExecutor(2) as threads:
        assert_same_bits(solved(solver=solver, weights=FolderMemo(tmp_path / "b"), executor=threads), first)
    dask = DaskExecutor(two_dask_workers)
    assert_same_bits(solved(solver=solver, weights=FolderMemo(tmp_path / "c"), executor=dask), first)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, X=p.X + 1e-12),
        lambda p: replace(p, X_test=p.X_test + 1e-12),
        lambda p: replace(p, prior=replace(p.prior, noise_variance=0.020000001)),
        lambda p: replace(p, prior=replace(p.prior, kernel=cagp.Matern32(0.25000001, variance=2.0))),
    ],
    ids=["points", "targets", "noise", "kernel"],
)
def test_nothing_else_is_taken_for_them(change, tmp_path, applied):
    kept = FolderMemo(tmp_path)
    solved(weights=kept)
    applied.clear()
    changed = change(PROBLEM)
    assert_same_numbers(solved(changed, weights=kept), solved(changed))
    assert applied
    assert len(list(tmp_path.iterdir())) == 2


def flip(folder):
    path = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda folder: next(folder.rglob("downdate/c/0")).unlink(),
        lambda folder: (folder / "manifest.json").write_text("{}"),
        lambda folder: (folder / "more").write_text("more"),
    ],
    ids=["bit", "file gone", "manifest", "file more"],
)
def test_damaged_weights_are_made_again(damage, tmp_path, applied, caplog):
    kept = FolderMemo(tmp_path)
    expected = solved(weights=kept)
    damage(next(tmp_path.glob("*/000001")))
    applied.clear()
    with caplog.at_level(logging.WARNING):
        assert_same_bits(solved(weights=kept), expected)
    assert applied
    assert "is damaged" in caplog.text
    assert "done again" in caplog.text
    applied.clear()
    assert_same_bits(solved(weights=kept), expected)
    assert not applied


def test_weights_of_another_key_are_not_taken(tmp_path, applied, caplog):
    kept = FolderMemo(tmp_path)
    solved(weights=kept)
    (own,) = tmp_path.iterdir()
    solved(solver=cagp.BlockGaussSeidel(2, block_size=40), weights=kept)
    (other,) = set(tmp_path.iterdir()) - {own}
    own.rename(tmp_path / ".aside")
    other.rename(own)
    with caplog.at_level(logging.WARNING):
        assert_same_numbers(solved(weights=kept), solved())
    assert "it has another key" in caplog.text


def test_what_was_cut_off_while_it_was_written_is_not_found(tmp_path, applied, monkeypatch):
    kept = FolderMemo(tmp_path)
    monkeypatch.setattr("cagp_dist.store.memo.sync_tree", full_disk)
    with pytest.raises(StoreError) as refusal:
        solved(weights=kept)
    assert refusal.value.key == "disk-full"
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    (tmp_path / f".{'0a' * 32}-1").mkdir()
    assert_same_numbers(solved(weights=kept), solved())
    assert len(list(tmp_path.iterdir())) == 1


def full_disk(path):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("solver", "settings"),
    [
        (SOLVER, {"covariance": "full"}),
        (SOLVER, {"lanczos_steps": 2}),
        (replace(SOLVER, computational_share=0.9), {}),
        (cagp.Cholesky(), {}),
        (cagp.ConjugateGradient(3), {}),
    ],
    ids=["covariance", "lanczos", "share", "cholesky", "cg"],
)
def test_other_solves_are_done_as_without_it(solver, settings, tmp_path):
    found = solved(solver=solver, weights=FolderMemo(tmp_path / "kept"), **settings)
    assert_same_bits(found, solved(solver=solver, **settings))
    assert not (tmp_path / "kept").exists()


def test_whole_rings_keep_none(tmp_path):
    grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    given = prior, grid, np.random.default_rng(0).normal(size=grid.shape), grid
    solver = cagp.BlockGaussSeidel(2, block_size=8)
    found = cagp.condition(*given, solver=solver, weights=FolderMemo(tmp_path / "kept"))
    assert_same_bits(found, cagp.condition(*given, solver=solver))
    assert not (tmp_path / "kept").exists()
