"""Searches for the maximum of an objective: where they end, what they say, and how they go on."""

import logging

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.likelihood.learned.course import OptimumStatus, Stopping
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.optimise import LBFGS, maximise
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from cagp_dist.store.memo import FolderMemo
from pipelines.experiments.adam import Adam
from pipelines.experiments.sgpr import Sgpr

from ..joined import one_after_another

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NAMES = "lengthscale", "variance", "noise_variance"
BEST = np.array([0.4, -1.0, -3.0, 2.0, 0.5])
START = np.array([0.0, 0.0, -1.0, 0.0, 0.0])
NEVER = Stopping(gradient_norm=1e-12, rise=0.0)


class Hill:
    """``-x'H x / 2`` about a known place, with what is not quadratic; counts its evaluations."""

    names = NAMES
    size = 5

    def __init__(self):
        root = np.random.default_rng(0).normal(size=(5, 5))
        self.H = root @ root.T + np.eye(5)
        self.evaluated = []

    def __call__(self, vector):
        self.evaluated.append(np.array(vector))
        x = vector - BEST
        slope = -self.H @ x - x**3
        return float(7.0 - 0.5 * x @ self.H @ x - 0.25 * np.sum(x**4)), slope


QUICK = {
    "lbfgs": LBFGS(),
    "adam": Adam(steps=400, learning_rate=0.1, beta2=0.99),
}
either = pytest.mark.parametrize("optimiser", QUICK.values(), ids=QUICK.keys())


@either
def test_the_summit_is_found(optimiser):
    found = maximise(Hill(), START, optimiser=optimiser, stopping=Stopping(gradient_norm=1e-4, rise=0.0))
    assert found.status is OptimumStatus.CONVERGED
    assert found.status.ok
    assert found.status.advice == found.status.meaning
    assert found.gradient_norm <= 1e-4
    np.testing.assert_allclose(found.vector, BEST, atol=1e-3)
    assert found.value == pytest.approx(7.0, abs=1e-7)
    assert found.at_bound == ()
    expected = dict(zip(NAMES, np.exp(found.vector[:3]).tolist(), strict=True))
    assert found.hyperparameters == expected
    assert found.trace[-1].value == found.value == max(step.value for step in found.trace)


@either
def test_every_step_is_told_and_is_in_the_trace(optimiser):
    told, hill = [], Hill()
    found = maximise(hill, START, optimiser=optimiser, callback=told.append)
    assert tuple(told) == found.trace
    assert [step.step for step in told] == list(range(len(told)))
    assert told[0].value == Hill()(START)[0]
    assert told[0].gradient_norm == np.linalg.norm(Hill()(START)[1])
    assert told[0].hyperparameters == dict(zip(NAMES, np.exp(START[:3]).tolist(), strict=True))
    seconds = [step.seconds for step in told]
    assert seconds == sorted(seconds)
    assert 0.0 < seconds[0] <= seconds[-1] <= found.seconds
    assert found.evaluations == len(hill.evaluated) >= len(told)


def test_lbfgs_evaluates_no_place_twice():
    hill = Hill()
    maximise(hill, START, stopping=NEVER)
    assert len({vector.tobytes() for vector in hill.evaluated}) == len(hill.evaluated)


@either
def test_hyperparameters_stay_within_their_bounds(optimiser):
    """The summit is outside: of one from above, of one from below; what has no bounds moves freely."""
    hill = Hill()
    bounds = [(0.5, 1.2), (0.1, 10.0), (0.1, 1.0)]
    found = maximise(
        hill, START, optimiser=optimiser, bounds=bounds, stopping=Stopping(gradient_norm=1e-3, rise=0.0)
    )
    low, high = np.log(bounds).T
    for vector in hill.evaluated:
        assert (vector[:3] >= low).all()
        assert (vector[:3] <= high).all()
    assert found.status is OptimumStatus.AT_BOUND
    assert not found.status.ok
    assert "Widen its bounds" in found.status.advice
    assert set(found.at_bound) == {"lengthscale", "noise_variance"}
    assert found.gradient_norm <= 1e-3, "what points out of the bounds is left out"
    slope = hill(found.vector)[1]
    assert slope[0] > 0.1
    assert slope[2] < -0.1


@either
def test_equal_bounds_hold_a_hyperparameter_and_are_no_bound_that_it_ran_into(optimiser):
    bounds = [(1.0, 1.0), (0.01, 100.0), (1e-3, 10.0)]
    found = maximise(
        Hill(), START, optimiser=optimiser, bounds=bounds, stopping=Stopping(gradient_norm=1e-3, rise=0.0)
    )
    assert found.vector[0] == 0.0
    assert found.hyperparameters["lengthscale"] == 1.0
    assert found.status is OptimumStatus.CONVERGED
    assert found.at_bound == ()


@either
def test_a_search_that_hardly_rises_stops_early(optimiser):
    found = maximise(
        Hill(),
        START,
        optimiser=optimiser,
        stopping=Stopping(gradient_norm=1e-12, window=3, rise=1e-3),
    )
    assert found.status is OptimumStatus.STOPPED_EARLY
    assert "Let it rise over a longer window, or by less, or start" in found.status.advice
    before = max(step.value for step in found.trace[:-3])
    assert found.value - before <= 1e-3 * abs(found.value)
    earlier = [step.value for step in found.trace[:-1]]
    tops = np.maximum.accumulate(earlier)
    assert all(tops[3:] - tops[:-3] > 1e-3 * np.maximum(1.0, np.abs(tops[3:]))), "no earlier than that"


@either
def test_steps_may_be_used_up(optimiser):
    few = type(optimiser)(steps=4)
    hill = Hill()
    found = maximise(hill, START, optimiser=few, stopping=NEVER)
    assert found.status is OptimumStatus.STEPS_USED_UP
    assert "Give more steps" in found.status.advice
    assert len(found.trace) == 5
    none = maximise(hill, START, optimiser=type(optimiser)(steps=0))
    np.testing.assert_array_equal(none.vector, START)
    assert none.status is OptimumStatus.STEPS_USED_UP


def test_lbfgs_ends_where_no_step_rises():
    """At the end of what floating point can tell apart, without a gradient that is zero."""
    found = maximise(
        Hill(), START, optimiser=LBFGS(steps=1000), stopping=Stopping(gradient_norm=1e-300, rise=0.0)
    )
    assert found.status is OptimumStatus.STOPPED_EARLY
    np.testing.assert_allclose(found.vector, BEST, atol=1e-6)


def test_adam_is_what_the_paper_says():
    """Kingma & Ba (2015), algorithm 1, upwards, with the rate of PyTorch's LinearLR."""
    hill, x, steps = Hill(), START, 30
    m, w, way = np.zeros(5), np.zeros(5), []
    for t in range(1, steps + 1):
        way.append(x)
        g = -hill(x)[1]
        m, w = 0.9 * m + 0.1 * g, 0.999 * w + 0.001 * g**2
        rate = 0.05 * (1.0 + (0.1 - 1.0) * (t - 1) / steps)
        x = x - rate * (m / (1.0 - 0.9**t)) / (np.sqrt(w / (1.0 - 0.999**t)) + 1e-8)
    own = Hill()
    maximise(own, START, optimiser=Adam(steps=steps, learning_rate=0.05), stopping=NEVER)
    np.testing.assert_allclose(own.evaluated, [*way, x], rtol=1e-12, atol=1e-13)


def test_the_highest_place_is_returned_not_the_last():
    found = maximise(
        Hill(), START, optimiser=Adam(steps=60, learning_rate=1.0, end_factor=1.0), stopping=NEVER
    )
    values = [step.value for step in found.trace]
    assert found.value == max(values) > values[-1]
    assert Hill()(found.vector)[0] == found.value
    assert found.hyperparameters == found.trace[int(np.argmax(values))].hyperparameters


class CutError(Exception):
    """The end of a search before its end."""


def same(found, expected):
    """Whether two searches ended with the same bits, after the same steps."""
    np.testing.assert_array_equal(found.vector, expected.vector)
    for name in ("value", "status", "gradient_norm", "hyperparameters", "at_bound", "evaluations"):
        assert getattr(found, name) == getattr(expected, name), name
    assert len(found.trace) == len(expected.trace)
    for one, other in zip(found.trace, expected.trace, strict=True):
        assert (one.step, one.value, one.gradient_norm, one.hyperparameters) == (
            other.step,
            other.value,
            other.gradient_norm,
            other.hyperparameters,
        )


def test_a_search_that_is_cut_off_after_any_step_goes_on_with_the_same_bits(tmp_path):
    """Cut off after every single evaluation: each is worked out once, and each step is told once."""
    settings = {"bounds": [(0.5, 3.0), (0.01, 10.0), (0.01, 10.0)]}
    settings["stopping"] = Stopping(gradient_norm=1e-3)
    hill, told = Hill(), []
    whole = maximise(hill, START, **settings)
    way = [vector.tobytes() for vector in hill.evaluated]
    done, attempts = [], 0

    class Cut(Hill):
        def __call__(self, vector):
            if self.evaluated:
                raise CutError
            return super().__call__(vector)

    kept = {"checkpoints": FolderMemo(tmp_path, seconds=0.0), "fingerprint": "hill"}
    while True:
        attempts += 1
        objective = Cut()
        try:
            again = maximise(objective, START, callback=told.append, **kept, **settings)
        except CutError:
            done += [vector.tobytes() for vector in objective.evaluated]
            continue
        done += [vector.tobytes() for vector in objective.evaluated]
        break
    assert attempts >= len(way)
    same(again, whole)
    assert done == way
    assert [step.step for step in told] == list(range(len(whole.trace)))
    seconds = [step.seconds for step in again.trace]
    assert seconds == sorted(seconds)


def test_nothing_is_kept_before_it_is_time(tmp_path):
    kept = {"checkpoints": FolderMemo(tmp_path, seconds=3600.0), "fingerprint": "hill"}
    same(maximise(Hill(), START, **kept), maximise(Hill(), START))
    assert list(tmp_path.iterdir()) == []


def test_other_searches_are_not_gone_on_with(tmp_path, caplog):
    kept = {"checkpoints": FolderMemo(tmp_path, seconds=0.0)}
    few = LBFGS(steps=6)
    maximise(Hill(), START, optimiser=few, stopping=NEVER, fingerprint="hill", **kept)
    for change in (
        {"fingerprint": "another hill"},
        {"start": START + 0.1},
        {"optimiser": LBFGS(steps=7)},
        {"stopping": Stopping(gradient_norm=1e-11, rise=0.0)},
        {"bounds": [(0.1, 10.0)] * 3},
    ):
        given = {"start": START, "optimiser": few, "stopping": NEVER, "fingerprint": "hill", **change}
        found = maximise(hill := Hill(), **given, **kept)
        assert len(hill.evaluated) == found.evaluations, change
    with caplog.at_level(logging.WARNING):
        maximise(hill := Hill(), START, optimiser=few, stopping=NEVER, fingerprint="hill", **kept)
    assert len(hill.evaluated) <= 1
    assert not caplog.records


def test_lbfgs_that_takes_another_way_works_it_out(tmp_path):
    """The fingerprint says that it is the same objective, and it is not: from where they part, it counts."""
    kept = {"checkpoints": FolderMemo(tmp_path, seconds=0.0), "fingerprint": "hill"}
    maximise(Hill(), START, stopping=NEVER, optimiser=LBFGS(steps=5), **kept)
    folder = next(tmp_path.glob("*/0*"))
    assert folder.is_dir()
    from cagp_dist.likelihood.learned import optimise as lbfgs

    class Elsewhere(lbfgs._Evaluations):
        def _next(self, vector):
            if self._taken == 2:
                self._said[2]["where"] = "elsewhere"
            return super()._next(vector)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lbfgs, "_Evaluations", Elsewhere)
        hill = Hill()
        again = maximise(hill, START, stopping=NEVER, optimiser=LBFGS(steps=5), **kept)
    same(again, maximise(Hill(), START, stopping=NEVER, optimiser=LBFGS(steps=5)))
    assert len(hill.evaluated) == again.evaluations - 2


@one_after_another
@either
@pytest.mark.parametrize(
    "change",
    [
        lambda value, gradient: (np.nan, gradient),
        lambda value, gradient: (-np.inf, gradient),
        lambda value, gradient: (value, np.full(5, np.nan)),
    ],
)
def test_what_is_not_finite_is_named(optimiser, change):
    class Cliff(Hill):
        def __call__(self, vector):
            found = super().__call__(vector)
            return found if len(self.evaluated) < 3 else change(*found)

    with pytest.raises(NumericalError) as refusal:
        maximise(Cliff(), START, optimiser=optimiser, stopping=NEVER)
    assert refusal.value.key == "likelihood-not-finite"


@pytest.mark.parametrize("error", [ArgumentError, NumericalError])
def test_errors_of_the_objective_say_where(error):
    class Cliff(Hill):
        def __init__(self, most):
            super().__init__()
            self.most = most

        def __call__(self, vector):
            if len(self.evaluated) == self.most:
                raise error("lost.")
            return super().__call__(vector)

    with pytest.raises(NumericalError, match=r"at step 2, lengthscale .*, noise_variance [\d.e-]+: lost\."):
        maximise(Cliff(2), START, stopping=NEVER, optimiser=Adam())
    with pytest.raises(error, match=r"lost\."):
        maximise(Cliff(0), START)


@one_after_another
@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"start": START[:4]}, "shapes"),
        ({"start": np.where(BEST == 0.5, np.nan, BEST)}, "not-finite"),
        ({"bounds": [(0.1, 1.0)]}, "bounds"),
        ({"bounds": [(0.1, 2.0), (2.0, 0.1), (0.1, 1.0)]}, "bounds-reversed"),
        ({"bounds": [(0.0, 2.0), (0.1, 2.0), (0.1, 1.0)]}, "not-positive"),
        (
            {"bounds": [(2.0, 3.0), (0.1, 2.0), (0.1, 1.0)]},
            "start-outside-bounds",
        ),
        ({"checkpoints": FolderMemo("nowhere")}, "no-fingerprint"),
    ],
)
def test_what_makes_no_sense_is_refused(given, key):
    with pytest.raises(ArgumentError) as refusal:
        maximise(Hill(), **{"start": START, **given})
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: LBFGS(steps=-1), "no-count"),
        (lambda: LBFGS(memory=0), "no-count"),
        (lambda: Stopping(window=0), "no-count"),
        (lambda: Stopping(gradient_norm=-1.0), "not-positive"),
        (lambda: Stopping(rise=2.0), "out-of-range"),
    ],
)
def test_settings_are_checked(make, key):
    with pytest.raises(ArgumentError) as refusal:
        make()
    assert refusal.value.key == key


@pytest.mark.parametrize("learn_inducing", [False, True])
def test_both_optimisers_find_the_same_bound(learn_inducing):
    """Of inducing points, with hyperparameters; learnt points make it higher."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 1))
    b = np.sin(12.0 * X) + 0.1 * rng.normal(size=(150, 1))
    inducing = rng.uniform(size=(6, 1))
    bound = Sgpr(cagp.Matern52, X, b, inducing=inducing, learn_inducing=learn_inducing)
    start = bound.vector(cagp.Matern52(0.3), 0.1)
    high = maximise(bound, start, stopping=Stopping(gradient_norm=1e-2, rise=0.0))
    assert high.status is OptimumStatus.CONVERGED
    slow = maximise(
        bound, start, optimiser=Adam(steps=600, learning_rate=0.05), stopping=Stopping(gradient_norm=1e-2)
    )
    assert high.value - 1.0 < slow.value < high.value + 0.01, "Adam creeps where the bound is narrow"
    if learn_inducing:
        held = Sgpr(cagp.Matern52, X, b, inducing=inducing)
        assert maximise(held, start[:3]).value < high.value


def test_actions_are_learnt_with_their_hyperparameters():
    """The bound of block-sparse actions is another objective: fifty entries beside the three numbers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(50, 2))
    b = np.linalg.cholesky(cagp.Matern32(0.5)(X, X) + 0.1 * np.eye(50)) @ rng.normal(size=(50, 1))
    data = ProjectedData(
        cagp.Matern32,
        X,
        b,
        layout=BlockLayout.of(X, 10, order="space-filling"),
        executor=SerialExecutor(),
        memory_limit_bytes=2**28,
    )
    start = np.concatenate([np.log([0.5, 1.0, 0.1]), rng.normal(size=50)])
    found = maximise(
        Elbo(data), start, optimiser=LBFGS(steps=300), stopping=Stopping(rise=0.0), bounds=[(1e-2, 1e2)] * 3
    )
    assert found.status is OptimumStatus.CONVERGED
    assert found.value > found.trace[0].value + 1.0
    assert found.vector.shape == (53,)
