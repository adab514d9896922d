"""A solve that is cut off goes on from its checkpoint: the same bits, without the work that is kept."""

import errno
import importlib
import os
import signal
import time
import warnings
from collections import defaultdict
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from distributed.diagnostics.plugin import SchedulerPlugin

import cagp_dist as cagp
from cagp_dist.calibration.simulation import beliefs
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.posterior.prior_draws import CovarianceDraws
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.ring_system import RingSystem
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.local import neighbours
from cagp_dist.store.memo import FolderMemo, checkpoints_of_run, verified

from ..clusters import local_cluster
from ..oracle import assert_same_bits
from ..pairwise import by_turns
from ..problems import regression_problem
from .registered import POINT_SOLVERS
from .test_solvers_on_grids import INPUTS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PROBLEM = regression_problem(140, q=30, lengthscale=0.25)
AFFINE = {name: solver for name, solver in POINT_SOLVERS.items() if isinstance(solver, Affine)}
ACTIONS = {name: POINT_SOLVERS[name] for name in ("conjugate-gradient", "random-actions", "mixed-actions")}
SHARE = cagp.BlockGaussSeidel(4, 40, computational_share=1e-6)
HYBRIDS = {name: solver for name, solver in POINT_SOLVERS.items() if isinstance(solver, cagp.Hybrid)}


class CutError(Exception):
    """The end of a solve before its end."""


def cut_after(iteration):
    """A `progress` that lets a solve begin the one after this iteration."""

    def progress(state):
        if state.iteration > iteration:
            raise CutError

    return progress


def cut_off(condition, folder: Path, *, after: int = 1, **settings) -> None:
    """Begin a solve that keeps every iteration, and cut it off."""
    with pytest.raises(CutError):
        condition(checkpoints=FolderMemo(folder, seconds=0.0), progress=cut_after(after), **settings)


def sizes_of_checkpoints(folder: Path) -> list[int]:
    """Bytes of the values in each of the checkpoints below a folder."""
    return [
        sum(path.stat().st_size for path in kept.rglob("c/**/*") if path.is_file())
        for kept in folder.rglob("[0-9]" * 6)
    ]


@pytest.fixture
def applied(monkeypatch):
    """How often a stage was applied to the columns of targets."""
    counted = []
    for system in (TileSystem, RingSystem):

        def apply(self, stage, work, *, adjoint, final=False, original=system.apply):
            if adjoint:  # others are of a preconditioner that is made
                counted.append(stage)
            return original(self, stage, work, adjoint=adjoint, final=final)

        monkeypatch.setattr(system, "apply", apply)
    return counted


def of_points(solver, covariance="diagonal"):
    """A solve of points."""

    def condition(**settings):
        return PROBLEM.condition(solver, covariance=covariance, **{"executor": SerialExecutor(), **settings})

    return condition


OFTEN = ("block-gauss-seidel", "chebyshev")


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(solver, id=name, marks=() if name in OFTEN else pytest.mark.exhaustive)
        for name, solver in AFFINE.items()
    ],
)
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_cycles_of_stages_go_on_where_they_were_cut_off(solver, covariance, tmp_path, applied):
    condition = of_points(solver, covariance)
    whole, stages = condition(), len(applied)
    applied.clear()
    of_points(replace(solver, iterations=2))()
    of_two = len(applied)
    applied.clear()
    cut_off(condition, tmp_path)
    assert len(applied) == of_two
    applied.clear()
    again = condition(checkpoints=FolderMemo(tmp_path, seconds=0.0), executor=SerialExecutor())
    assert len(applied) == stages - of_two, "two iterations were kept"
    assert_same_bits(again, whole)
    applied.clear()
    with ThreadExecutor(2) as threads:
        assert_same_bits(condition(checkpoints=FolderMemo(tmp_path), executor=threads), whole)
    assert not applied, "a solve that was done is not done again"


@pytest.mark.parametrize(
    ("solver", "workers"),
    by_turns(
        {
            "solver": [
                cagp.BlockGaussSeidel(3, 300),
                cagp.BlockGaussSeidel(3, 100, order="multicolour"),
                cagp.Chebyshev(3, preconditioner="nystrom", preconditioner_size=20),
            ],
            "workers": [(1, 2), (3, 2), (2, 4)],
        }
    ),
)
def test_panels_are_read_into_as_many_as_there_are_workers_now(solver, workers, tmp_path, applied):
    before, after = workers
    problem = regression_problem(2100, q=4, lengthscale=0.05)
    whole, stages = problem.condition(solver, executor=SerialExecutor()), len(applied)
    with ThreadExecutor(before) as executor:
        cut_off(lambda **settings: problem.condition(solver, **settings), tmp_path, executor=executor)
    applied.clear()
    with ThreadExecutor(after) as executor:
        checkpoints = FolderMemo(tmp_path, seconds=0.0)
        again = problem.condition(solver, executor=executor, checkpoints=checkpoints)
    assert_same_bits(again, whole)
    assert len(applied) == stages // 3, "two of three iterations were kept"


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(solver, id=name, marks=() if name == "conjugate-gradient" else pytest.mark.exhaustive)
        for name, solver in ACTIONS.items()
    ],
)
def test_actions_go_on_without_the_products_that_are_kept(solver, tmp_path, monkeypatch):
    condition, columns = of_points(solver), []
    product_with = cagp.gram.tiled.TiledGram.product

    def counted(self, v, **settings):
        columns.append(v.shape[1])
        return product_with(self, v, **settings)

    monkeypatch.setattr(cagp.gram.tiled.TiledGram, "product", counted)
    whole = condition()
    total = sum(columns)
    cut_off(condition, tmp_path, after=2)
    columns.clear()
    assert_same_bits(condition(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)
    assert sum(columns) <= total - 3


@pytest.mark.parametrize(
    "solver",
    [
        pytest.param(solver, id=name, marks=() if name.endswith("gradients last") else pytest.mark.exhaustive)
        for name, solver in HYBRIDS.items()
    ],
)
def test_hybrids_go_on_within_their_list_of_stages(solver, tmp_path, monkeypatch, applied):
    """Cut off half-way, and before the last stage: what was kept is not done again."""
    products, limit = [], [np.inf]
    product_with = cagp.gram.tiled.TiledGram.product

    def check():
        if len(products) + len(applied) >= limit[0]:
            raise CutError

    def product_counted(self, v, **settings):
        check()
        products.append(v.shape[1])
        return product_with(self, v, **settings)

    monkeypatch.setattr(cagp.gram.tiled.TiledGram, "product", product_counted)
    for system in (TileSystem, RingSystem):

        def apply(self, stage, work, *, adjoint, final=False, original=system.apply):
            if adjoint:
                check()
            return original(self, stage, work, adjoint=adjoint, final=final)

        monkeypatch.setattr(system, "apply", apply)
    condition = of_points(solver)
    whole, total = condition(), len(applied) + len(products)
    for cut in (total // 2, total - 1):
        applied.clear(), products.clear()
        limit[0], settings = cut, {"checkpoints": FolderMemo(tmp_path / str(cut), seconds=0.0)}
        with pytest.raises(CutError):
            condition(**settings)
        applied.clear(), products.clear()
        limit[0] = np.inf
        assert_same_bits(condition(**settings), whole)
        again = len(products) + len(applied)
        if isinstance(solver.parts[-1], cagp.ConjugateGradient) and not solver.condition:
            assert again == total - cut
        else:  # preconditioners, and passes for what the actions condition on, are made again
            assert again < total or cut < total - 1
    assert_same_bits(condition(**settings), whole)


@pytest.mark.parametrize(
    ("name", "where", "solver"),
    [
        pytest.param(
            name,
            where,
            solver,
            id=f"{name}-{where}-{type(solver).__name__}",
            marks=() if isinstance(solver, cagp.Chebyshev) else pytest.mark.exhaustive,
        )
        for (name, where), solver in zip(
            product(("mirrored", "poles"), ("points", "grid")),
            (cagp.BlockGaussSeidel(4, 30), cagp.Chebyshev(4), cagp.SSOR(3, 1.2), cagp.BlockJacobi(4, 40)),
            strict=True,
        )
    ],
)
def test_rings_go_on_where_they_were_cut_off(name, where, solver, tmp_path, applied):
    plans = []

    def condition(**settings):
        covariance = "full" if where == "points" else "diagonal"
        return INPUTS[name].condition(solver, where, covariance=covariance, on_plan=plans.append, **settings)

    whole, stages = condition(), len(applied)
    cut_off(condition, tmp_path)
    applied.clear()
    assert_same_bits(condition(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)
    assert len(applied) == stages - 2 * stages // solver.iterations
    assert 0 < max(sizes_of_checkpoints(tmp_path)) <= plans[0].checkpoint_bytes


@pytest.mark.exhaustive
def test_batches_of_targets_that_are_done_are_not_done_again(tmp_path, applied):
    problem = regression_problem(200, q=1100)
    plans = []

    def condition(**settings):
        return problem.condition(
            cagp.BlockGaussSeidel(2, 50),
            covariance="diagonal",
            executor=SerialExecutor(),
            memory_limit_bytes=3_500_000,
            on_plan=plans.append,
            **settings,
        )

    whole, stages = condition(), len(applied)
    assert len(plans[0].batches) > 1
    with pytest.raises(CutError):
        condition(
            checkpoints=FolderMemo(tmp_path, seconds=0.0),
            progress=lambda state: cut_after(0)(state) if state.batch == 2 else None,
        )
    applied.clear()
    assert_same_bits(condition(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)
    assert len(applied) == stages - 3, "two iterations of the first batch and one of the second were kept"


def test_cells_of_neighbours_that_are_done_are_not_done_again(tmp_path, monkeypatch):
    """Cut off by who hears of it, and by a task that fails; the checkpoint takes what its plan says."""
    monkeypatch.setattr("cagp_dist.gram.neighbourhoods.FEWEST_OF_CELL", 8)
    monkeypatch.setattr(neighbours, "AT_ONCE", 1)
    condition, calls, plans = of_points(cagp.Neighbours(12)), [], []
    whole, cell_distributions = condition(), neighbours.cell_distributions

    def counted(*arguments, fail=()):
        calls.append(len(calls))
        if len(calls) in fail:
            raise CutError
        return cell_distributions(*arguments)

    monkeypatch.setattr(neighbours, "cell_distributions", counted)
    condition(on_plan=plans.append)
    cells = len(calls)
    assert cells > 3
    calls.clear()
    with pytest.raises(CutError):
        condition(checkpoints=FolderMemo(tmp_path, seconds=0.0), progress=cut_after(0))
    assert len(calls) == 1
    monkeypatch.setattr(neighbours, "cell_distributions", partial(counted, fail=(3,)))
    with pytest.raises(CutError):
        condition(checkpoints=FolderMemo(tmp_path, seconds=0.0))
    monkeypatch.setattr(neighbours, "cell_distributions", counted)
    assert_same_bits(condition(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)
    assert len(calls) == cells + 1, "the one that failed is done twice"
    assert 0 <= max(sizes_of_checkpoints(tmp_path)) - plans[0].checkpoint_bytes <= 8  # two checksums


@pytest.fixture
def groups_that_differ(monkeypatch):
    """Groups of ten targets, or of two on rings, with bounds that tell little of the exact variance."""
    for name, value in {"FEW_POINTS": 10, "NEIGHBOURS": 4, "GROUP": 8}.items():
        monkeypatch.setattr(cagp.gram.exact_variance, name, value)
    monkeypatch.setattr(cagp.tiling, "COLUMN_GROUP", 10)
    monkeypatch.setattr(cagp.budget.grid_plans, "COLUMN_GROUP", 2)


def amid_far_and_beside():
    """Three groups of targets: amid the points, far from them, and partly beside them."""
    problem = regression_problem(140, q=30, lengthscale=0.4, noise_variance=0.1)
    moved = np.repeat([[0.0, 0.0], [2.0, 2.0], [0.8, 0.0]], 10, axis=0)
    return replace(problem, X_test=problem.X_test + moved)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("groups_that_differ")
@pytest.mark.parametrize(
    ("where", "solver", "steps", "is_volatile", "status"),
    [
        ("points", cagp.BlockGaussSeidel(30, 40), 0, False, cagp.Status.SHARE_REACHED),
        ("points", cagp.BlockGaussSeidel(6, 40), 3, True, cagp.Status.SHARE_NOT_REACHED),
        ("rings", cagp.BlockGaussSeidel(9, 30), 0, True, cagp.Status.SHARE_REACHED),
        pytest.param(
            *("points", cagp.Chebyshev(12), 2, True, cagp.Status.SHARE_NOT_REACHED),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_share_goes_on_wherever_it_was_cut_off(
    where, solver, steps, is_volatile, status, tmp_path, applied, monkeypatch
):
    """After each save in turn: the same bits, status, iterations and bounds, and no work is done twice."""
    for system in (TileSystem, RingSystem):
        monkeypatch.setattr(system, "is_volatile", property(lambda self: is_volatile))
    problem, worked_out = amid_far_and_beside(), []
    bounds_of, product_of = (
        cagp.gram.exact_variance.neighbour_bounds,
        cagp.solvers.engine.stopping.tile_product,
    )

    def bounds(*arguments, **named):
        worked_out.append("bounds")
        return bounds_of(*arguments, **named)

    def product(*arguments):
        multiply = product_of(*arguments)
        return lambda columns: worked_out.append("product") or multiply(columns)

    monkeypatch.setattr(cagp.gram.exact_variance, "neighbour_bounds", bounds)
    monkeypatch.setattr(cagp.solvers.engine.stopping, "tile_product", product)

    def condition(**more):
        stops = replace(solver, computational_share=0.5 if where == "points" else 0.01)
        if where == "rings":
            found = INPUTS["mirrored"].condition(stops, "points", memory_limit_bytes=2**30, **more)
        else:
            more = {"executor": SerialExecutor(), "covariance": "diagonal", "lanczos_steps": steps, **more}
            found = problem.condition(stops, **more)
        return found, np.array(found.computational_variance_bounds)

    def done():
        return len(applied) + len(worked_out)

    reached = []
    (whole, whole_bounds), total = condition(progress=lambda state: reached.append(done())), done()
    assert len(set(whole.stats.iterations_by_target)) > 1, "groups end at different iterations"
    assert ("product" in worked_out) == (where == "points")
    assert whole.status is status
    kept = FolderMemo(tmp_path, seconds=0.0)
    for cut, (before, after) in enumerate(pairwise([0, *reached]), start=1):
        calls = []

        def progress(state, cut=cut, calls=calls):
            calls.append(state)
            if len(calls) == cut:
                raise CutError

        applied.clear(), worked_out.clear()
        with pytest.raises(CutError):
            condition(checkpoints=kept, progress=progress)
        assert done() == after - before, f"what precedes save {cut} is not done again"
    applied.clear(), worked_out.clear()
    again, again_bounds = condition(checkpoints=kept)
    assert done() == total - reached[-1]
    assert_same_bits(again, whole)
    assert again.status is whole.status
    np.testing.assert_array_equal(again.stats.iterations_by_target, whole.stats.iterations_by_target)
    np.testing.assert_array_equal(again_bounds, whole_bounds)


@pytest.mark.parametrize(
    "damage",
    [
        "flip",
        *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("cut", "remove", "add", "manifest")),
    ],
)
def test_a_broken_checkpoint_falls_back_to_the_one_before(damage, tmp_path, applied, caplog):
    condition = of_points(cagp.BlockGaussSeidel(5, 40))
    whole = condition()
    cut_off(condition, tmp_path, after=2)
    kept = sorted(path for path in tmp_path.rglob("manifest.json"))
    assert [path.parent.name for path in kept] == ["000002", "000003"], "two are kept"
    victim = max(kept[1].parent.rglob("c/*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    if damage == "flip":
        data = bytearray(victim.read_bytes())
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
    elif damage == "cut":
        os.truncate(victim, 5)
    elif damage == "remove":
        victim.unlink()
    elif damage == "add":
        (kept[1].parent / "more").write_text("")
    else:
        kept[1].write_text(kept[1].read_text().replace('"iteration": 3', '"iteration": 2'))
    applied.clear()
    assert_same_bits(condition(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)
    assert len(applied) == 3, "iterations 3 to 5, after the second checkpoint"
    assert f"{kept[1].parent} is damaged" in caplog.text


@pytest.mark.parametrize(
    ("solver", "covariance"),
    [
        *(
            pytest.param(
                solver,
                "diagonal",
                id=name,
                marks=() if name in (*OFTEN, "conjugate-gradient", "share") else pytest.mark.exhaustive,
            )
            for name, solver in {**AFFINE, **ACTIONS, **HYBRIDS, "share": SHARE}.items()
        ),
        pytest.param(SHARE, "full", id="full"),
    ],
)
def test_a_checkpoint_takes_what_its_plan_says(solver, covariance, tmp_path):
    """No more, and half of it at least: of most solvers columns are kept once, and twice of some."""
    plans, sizes = [], []

    def measure(state):
        sizes.extend(sizes_of_checkpoints(tmp_path))

    condition = of_points(solver, covariance)
    condition(checkpoints=FolderMemo(tmp_path, seconds=0.0), progress=measure, on_plan=plans.append)
    assert 0.4 * plans[0].checkpoint_bytes < max(sizes) <= plans[0].checkpoint_bytes


@pytest.mark.parametrize(
    ("where", "bits"),
    [
        ("serial", np.random.PCG64),
        pytest.param("dask", np.random.PCG64, marks=[pytest.mark.cluster, pytest.mark.exhaustive]),
        *(
            pytest.param("serial", bits, marks=pytest.mark.exhaustive)
            for bits in (np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM)
        ),
    ],
)
def test_samples_go_on_after_each_group_of_draws(where, bits, tmp_path, monkeypatch, request):
    """Two fields with gaps of their own, three groups of draws each: the same bits, and no group twice."""
    monkeypatch.setattr("cagp_dist.posterior.sampling.FEWEST_AT_ONCE", 8)
    monkeypatch.setattr("cagp_dist.posterior.sampling.GROUP_ENTRIES", 1)
    problem, drawn = regression_problem(90, q=20, fields=2), []
    problem.y[:5, 0] = np.nan
    draw = CovarianceDraws.draw

    def counted(self, generator, draws):
        drawn.append(draws)
        return draw(self, generator, draws)

    monkeypatch.setattr(CovarianceDraws, "draw", counted)
    prior = cagp.Prior(problem.prior.kernel, noise_variance=0.02, mean=cagp.mean_family("constant"))
    executor = SerialExecutor()
    if where == "dask":
        executor = DaskExecutor(request.getfixturevalue("two_dask_workers"))

    def sampled(*, seed=1, **settings):
        generator, plans = np.random.Generator(bits(seed)), []
        found = cagp.posterior_by_samples(
            *(prior, problem.X, problem.y, problem.X_test),
            solver=cagp.BlockGaussSeidel(2, 40),
            samples=20,
            generator=generator,
            executor=executor,
            on_plan=plans.append,
            **settings,
        )
        return np.stack([found.mean, found.variance]), generator.standard_normal(), plans[0]

    *whole, plan = sampled()
    assert drawn == [7, 7, 6] * 2
    kept = FolderMemo(tmp_path, seconds=0.0)
    for group in range(2, 7):

        def progress(state, group=group):
            if state.batch == group:
                raise CutError

        drawn.clear()
        with pytest.raises(CutError):
            sampled(checkpoints=kept, progress=progress)
        assert len(drawn) == 2, "the one before the cut, and the one that was cut off"
    sizes = sizes_of_checkpoints(tmp_path)
    assert len(sizes) == 2
    assert 0.8 * plan.checkpoint_bytes < max(sizes) <= plan.checkpoint_bytes + 16  # and their checksums
    for left in (1, 0):
        drawn.clear()
        again = sampled(checkpoints=kept)
        assert len(drawn) == left
        np.testing.assert_array_equal(again[0], whole[0])
        assert again[1] == whole[1], "the generator, too, is where it would be"
    other = sampled(seed=2)[0]
    np.testing.assert_array_equal(sampled(seed=2, checkpoints=kept)[0], other)


@pytest.mark.parametrize(
    ("solver", "mean", "parts"),
    [
        (cagp.BlockGaussSeidel(3, 40), 0.0, 3),
        (cagp.ConjugateGradient(4), 0.0, 3),
        (cagp.ConjugateGradient(2), cagp.mean_family("constant"), 5),
    ],
    ids=["iterations", "fields-at-once", "field-by-field"],
)
def test_simulations_go_on_after_each_part(solver, mean, parts, tmp_path, applied, monkeypatch):
    """Five fields, in iterations of all, two at a time or one by one: the same bits, and no part twice."""
    (n, q), solves, plans = (90, 12), [], []
    problem = regression_problem(n, q=q)
    # as many bytes as two fields take
    monkeypatch.setattr(
        "cagp_dist.calibration.simulation.beliefs.TOGETHER_BYTES", 16 * (4 * (2 * n + q) + 4 * (n + q))
    )
    for original in (beliefs.conjugate_gradient_beliefs, beliefs.condition):

        def counted(*arguments, original=original, **settings):
            solves.append(original)
            return original(*arguments, **settings)

        monkeypatch.setattr(beliefs, original.__name__, counted)
    prior = cagp.Prior(problem.prior.kernel, noise_variance=0.02, mean=mean)

    def simulated(**settings):
        applied.clear(), solves.clear()
        return cagp.calibrate(
            *(prior, problem.X, problem.X_test),
            solver=solver,
            simulations=5,
            generator=np.random.default_rng(2),
            executor=SerialExecutor(),
            on_plan=plans.append,
            **settings,
        )

    def work():
        return len(applied) if solver.many_fields else len(solves)

    whole, total = simulated(), work()
    assert total % parts == 0
    kept, sizes = FolderMemo(tmp_path, seconds=0.0), []
    for part in range(1, parts + 1):
        # iterations that are kept are reported again, fields are not
        calls, last = [], part if solver.many_fields else 1

        def progress(fraction, calls=calls, last=last):
            calls.append(fraction)
            if len(calls) == last:
                raise CutError

        with pytest.raises(CutError):
            simulated(checkpoints=kept, progress=progress)
        assert work() == total // parts
        sizes += sizes_of_checkpoints(tmp_path)
    counted_bytes = plans[0].checkpoint_bytes if plans else beliefs.errors_bytes(targets=q, fields=5)
    assert 0.4 * counted_bytes < max(sizes) <= counted_bytes + 64  # and checksums
    again = simulated(checkpoints=kept)
    assert work() == 0
    np.testing.assert_equal(asdict(again), asdict(whole))


def test_checkpoints_of_another_solve_are_not_gone_on_from(tmp_path, applied):
    cut_off(of_points(cagp.BlockGaussSeidel(4, 40)), tmp_path)
    other = of_points(cagp.BlockGaussSeidel(4, 50))
    whole = other()
    applied.clear()
    assert_same_bits(other(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)
    assert len(applied) == 4


def test_checkpoints_of_other_pseudo_inputs_are_not_gone_on_from(tmp_path):
    """They are many, and not in what a solver shows of itself."""
    first, second = (
        cagp.MixedActions([cagp.PseudoInputs.at_points(PROBLEM.X[start : start + 6])]) for start in (0, 6)
    )
    assert repr(first) == repr(second)
    cut_off(of_points(first), tmp_path)
    whole = of_points(second)()
    assert_same_bits(of_points(second)(checkpoints=FolderMemo(tmp_path, seconds=0.0)), whole)


def test_checkpoints_keep_their_distance_in_time(tmp_path):
    of_points(cagp.BlockGaussSeidel(4, 40))(checkpoints=FolderMemo(tmp_path, seconds=3600.0))
    assert not list(tmp_path.iterdir())


def test_workers_in_other_folders_find_the_checkpoints_of_a_relative_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = checkpoints_of_run(Path("out"), "ab" * 16, seconds=0.0)
    condition = of_points(cagp.BlockGaussSeidel(2, 70))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    condition(checkpoints=kept)
    assert len(list((tmp_path / "out" / ".checkpoints" / ("ab" * 16)).rglob("manifest.json"))) == 2


def test_a_disk_that_refuses_is_an_error_that_names_the_path(tmp_path):
    (tmp_path / "kept").write_text("a file where a folder should be")
    with pytest.raises((StoreError, ConfigurationError), match=str(tmp_path / "kept")):
        of_points(cagp.BlockGaussSeidel(4, 40))(checkpoints=FolderMemo(tmp_path / "kept", seconds=0.0))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
def test_wherever_the_disk_fails_the_checkpoints_before_stay_whole(number, tmp_path, monkeypatch, applied):
    """An error at each array, flush and rename in turn names the path, and costs no checkpoint before it.

    The solve then goes on from the newest one that is kept: the same bits, without its iterations.
    """
    condition = of_points(cagp.BlockGaussSeidel(3, 70))
    whole, calls, failing = condition(), [], [np.inf]
    stages, reached = len(applied), []

    def watched(original):
        def call(*arguments, **settings):
            calls.append(original)
            if len(calls) == failing[0]:
                raise OSError(number, os.strerror(number))
            return original(*arguments, **settings)

        return call

    for place in ("zarr.create_array", "os.rename", "os.fsync"):
        monkeypatch.setattr(place, watched(getattr(*_module_and_name(place))))
    condition(checkpoints=FolderMemo(tmp_path / "all", seconds=0.0))
    for failing[0] in range(1, len(calls) + 1):
        folder = tmp_path / str(failing[0])
        calls.clear()
        with pytest.raises(StoreError) as refusal:
            condition(checkpoints=FolderMemo(folder, seconds=0.0))
        assert refusal.value.key == ("disk-full" if number == errno.ENOSPC else "disk")
        kept = sorted(folder.rglob("[0-9]" * 6))
        for path in kept:
            assert len(verified(path)["states"]) == int(path.name)
        reached.append(int(kept[-1].name) if kept else 0)
        applied.clear()
        assert_same_bits(condition(checkpoints=FolderMemo(folder, seconds=0.0)), whole)
        assert len(applied) == stages - reached[-1] * stages // 3, "iterations that were kept"
    assert reached == sorted(reached)
    assert set(reached) >= {0, 1, 2}


def _module_and_name(place):
    module, name = place.split(".")
    return importlib.import_module(module), name


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver",
    [
        cagp.BlockGaussSeidel(6, 50),
        cagp.Chebyshev(6),
        cagp.BlockGaussSeidel(6, 50, computational_share=1e-4),
    ],
    ids=["sweeps", "steps", "share"],
)
def test_on_a_cluster_a_lost_worker_costs_one_sweep_and_no_bit(solver, tmp_path, monkeypatch):
    """A checkpoint cuts what Dask would compute again: no task of a sweep runs after the next sweep."""
    problem = regression_problem(300, q=60)
    whole = problem.condition(solver, covariance="diagonal", executor=SerialExecutor())
    ended, functions = Ended(), {}
    with local_cluster(2) as client, warnings.catch_warnings():
        client.cluster.scheduler.add_plugin(ended)
        submit = client.submit

        def submitted(run, *arguments, **settings):
            future = submit(run, *arguments, **settings)
            functions[future.key] = next((each.__name__ for each in arguments if callable(each)), "")
            return future

        monkeypatch.setattr(client, "submit", submitted)
        executor = DaskExecutor(client)

        def kill(progress):
            ended.sweep = progress.iteration + 1
            if progress.iteration in (2, 4):
                killed, process = next(iter(client.run(os.getpid).items()))
                os.kill(process, signal.SIGKILL)
                while killed in client.scheduler_info(n_workers=-1)["workers"]:
                    time.sleep(0.01)
                client.wait_for_workers(2, timeout=300)  # there is never a moment without any

        found = problem.condition(
            solver,
            covariance="diagonal",
            executor=executor,
            checkpoints=FolderMemo(tmp_path, seconds=0.0),
            progress=kill,
        )
    assert_same_bits(found, whole)
    assert found.status is whole.status
    again = [(functions.get(key), sweeps) for key, sweeps in ended.sweeps.items() if len(sweeps) > 1]
    assert again, "the workers that were killed held results"
    assert all(sweeps[-1] - sweeps[0] <= 1 for function, sweeps in again if function in SWEEPING)


SWEEPING = ("solve_block", "update_panel", "recur", "add_to_sums")
"""What sweeps and steps do; other tasks copy or factor what is given, on whichever worker is there."""


class Ended(SchedulerPlugin):
    """Of each task, the sweeps that were being done when it ended."""

    def __init__(self):
        self.sweep, self.sweeps = 1, defaultdict(list)

    def transition(self, key, start, finish, *arguments, **settings):
        if (start, finish) == ("processing", "memory"):
            self.sweeps[key].append(self.sweep)


def test_workers_that_do_not_see_the_folder_keep_nothing_and_say_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("cagp_dist.solvers.engine.kept_panels.write_rows", lambda draft, name, rows: False)
    condition = of_points(cagp.BlockGaussSeidel(4, 40))
    found = condition(checkpoints=FolderMemo(tmp_path, seconds=0.0))
    assert_same_bits(found, condition())
    assert caplog.text.count("workers do not see") == 1
    assert not list(tmp_path.rglob("manifest.json"))
    np.testing.assert_array_equal(found.mean, condition().mean)
