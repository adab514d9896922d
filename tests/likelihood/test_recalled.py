"""A fit that is cut off finds its way again: the same bits, without the evaluations that are kept."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.gappy_ring_likelihood import MaskedRingLikelihood
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
from cagp_dist.likelihood.vecchia.vecchia_likelihood import VecchiaLikelihood
from cagp_dist.runtime import SerialExecutor
from cagp_dist.store.memo import FolderMemo

pytestmark = pytest.mark.usefixtures("one_blas_thread")

GRID = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 18)
TRUTH = cagp.RingGram(GRID, cagp.Matern32(0.5, 4.0), noise_variance=0.3)
FIELD = TRUTH.sample(np.random.default_rng(0), noise=True)
WITH_GAP = np.where(np.arange(FIELD.size).reshape(FIELD.shape) == 40, np.nan, FIELD)
NOISE = np.random.default_rng(1).uniform(-0.1, 0.1, FIELD.size)
ONE = cagp.Matern32
CASES = {
    "rings": ((ONE, GRID, FIELD), {}),
    "rings with a gap": ((ONE, GRID, WITH_GAP), {"method": "rings"}),
    "dense": ((ONE, GRID.points[:60], FIELD.ravel()[:60]), {"mean": 0.0}),
    "known noise": (
        (ONE, GRID.points, FIELD.ravel()),
        {"mean": 0.0, "noise_deviations": NOISE, "bounds": {"noise_variance": (0.2, 5.0)}},
    ),
    "sum": (((ONE, ONE), GRID, FIELD), {}),
    "vecchia": ((ONE, GRID.points, FIELD.ravel()), {"method": "vecchia"}),
}


class CutError(Exception):
    """The end of a fit before its end."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case == "dense" else pytest.mark.exhaustive) for case in CASES],
)
def test_a_fit_goes_on_where_it_was_cut_off(case, tmp_path, monkeypatch):
    evaluated, most = [], [np.inf]
    for likelihood in (RingLikelihood, MaskedRingLikelihood, DenseLikelihood, VecchiaLikelihood):

        def evaluate(self, *numbers, original=likelihood.evaluate):
            if len(evaluated) >= most[0]:
                raise CutError
            evaluated.append(numbers)
            return original(self, *numbers)

        monkeypatch.setattr(likelihood, "evaluate", evaluate)
    arguments, settings = CASES[case]

    def fit(**more):
        return cagp.fit(*arguments, executor=SerialExecutor(), **settings, **more)

    whole, way = fit(), list(evaluated)
    most[0], done = len(way) // 3, []
    while most[0] < len(way):  # each attempt gets a third further
        evaluated.clear()
        with pytest.raises(CutError):
            fit(checkpoints=FolderMemo(tmp_path, seconds=0.0))
        done += evaluated
        if len(done) + most[0] >= len(way):
            break
    evaluated.clear()
    again = fit(checkpoints=FolderMemo(tmp_path, seconds=0.0))
    assert done + evaluated == way, "each evaluation was worked out once"
    assert (again.prior, again.log_likelihood, again.status) == (
        whole.prior,
        whole.log_likelihood,
        whole.status,
    )
    assert again.standard_errors == whole.standard_errors
    assert again.evaluations == whole.evaluations


def test_evaluations_of_other_data_are_not_recalled(tmp_path):
    arguments, settings = CASES["dense"]
    kernel, X, y = arguments
    cagp.fit(kernel, X, y, checkpoints=FolderMemo(tmp_path, seconds=0.0), **settings)
    other = cagp.fit(kernel, X, y[::-1], **settings)
    assert cagp.fit(kernel, X, y[::-1], checkpoints=FolderMemo(tmp_path, seconds=0.0), **settings).prior == (
        other.prior
    )
