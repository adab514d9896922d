"""Fits to the evidence lower bound of actions: near the likelihood where few do, and honest elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.likelihood.fit_result import FitStatus
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.optimise import maximise
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from cagp_dist.store.memo import FolderMemo

from ..joined import one_after_another

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N, ACTIONS = 500, 64


def drawn(kernel, *, noise_variance=0.1, seed=0, n=N):
    """Points of the unit square, or cube if the kernel has three lengthscales, and a field of the prior."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, max(2, np.size(kernel.parts[0].lengthscale))))
    covariance = kernel(X, X) + noise_variance * np.eye(n)
    return X, np.linalg.cholesky(covariance) @ rng.normal(size=n)


def logarithms(result):
    kernel = result.prior.kernel
    return np.log([*np.ravel(kernel.lengthscale), kernel.variance, result.prior.noise_number])


@pytest.fixture(scope="module")
def smooth():
    """A field that 64 actions resolve: its exact fit and that to the bound."""
    X, y = drawn(cagp.SquaredExponential(0.5, 2.0))
    exact, found = (
        cagp.fit(cagp.SquaredExponential, X, y, mean=0.0, method=method, actions=ACTIONS)
        for method in ("dense", "elbo")
    )
    return X, y, exact, found


def test_a_field_that_few_actions_resolve_has_the_parameters_of_its_likelihood(smooth):
    _, _, exact, found = smooth
    errors = np.sqrt(np.diag(exact.log_covariance))
    assert (np.abs(logarithms(found) - logarithms(exact)) < errors).all()
    assert found.status is FitStatus.CONVERGED
    assert exact.log_likelihood - 5.0 < found.bound.value < exact.log_likelihood
    assert (found.method, found.log_likelihood, found.points) == ("elbo", None, N)


def test_what_is_said_of_the_bias_is_the_bias(smooth):
    """To a tenth of it and a twentieth of a standard error: a Newton step."""
    _, _, exact, found = smooth
    bias = logarithms(found) - logarithms(exact)
    said = np.array(list(found.bound.bias.values()))
    assert list(found.bound.bias) == ["lengthscale", "variance", "noise_variance"]
    errors = np.sqrt(np.diag(exact.log_covariance))
    np.testing.assert_array_less(np.abs(said - bias), 0.1 * np.abs(bias) + 0.05 * errors)


def test_the_actions_that_were_learnt_solve(smooth):
    """The field at new points, closer than actions that were not learnt bring it."""
    X, y, exact, found = smooth
    targets = np.random.default_rng(1).uniform(size=(100, 2))
    whole = cagp.condition(exact.prior, X, y, targets, solver=cagp.Cholesky())

    def missed(solver):
        mean = cagp.condition(found.prior, X, y, targets, solver=solver).mean
        return np.sqrt(np.mean((mean - whole.mean) ** 2))

    learnt = cagp.SparseActions(ACTIONS, values=found.bound.weights)
    assert learnt.calibrated == "approximate"
    assert missed(learnt) < 0.5 * missed(cagp.SparseActions(ACTIONS))


def test_a_rough_field_is_said_to_be_far_off():
    X, y = drawn(cagp.Matern32(0.1, 2.0))
    exact, found = (
        cagp.fit(cagp.Matern32, X, y, mean=0.0, method=method, actions=32) for method in ("dense", "elbo")
    )
    assert found.status is FitStatus.BIASED
    assert 'Give more actions, or use method="vecchia".' in found.status.advice
    bias = logarithms(found) - logarithms(exact)
    assert (bias[[0, 2]] > 0.4).all()  # a smoother field, and more noise
    assert min(found.bound.bias["lengthscale"], found.bound.bias["noise_variance"]) > 0.2
    assert found.bound.value < exact.log_likelihood


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(cagp.Matern52, id="one"),
        pytest.param((cagp.SquaredExponential, cagp.Matern32), id="sum", marks=pytest.mark.exhaustive),
    ],
)
def test_every_model_and_executor(kernel, tmp_path):
    """A lengthscale for each coordinate; sums; the same bits in threads, and where a search was cut off."""
    X, y = drawn(cagp.Matern52((0.6, 0.3, 0.9), 1.5), n=80)
    settings = {"mean": 0.0, "method": "elbo", "actions": 12, "anisotropic": True, "starts": 1}
    whole = cagp.fit(kernel, X, y, executor=SerialExecutor(), **settings)
    with ThreadExecutor(2) as threads:
        others = [cagp.fit(kernel, X, y, executor=threads, **settings)]

    def stop(progress):
        if progress.points == 80 and progress.evaluations > 40:
            raise KeyboardInterrupt

    kept = FolderMemo(tmp_path, seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        cagp.fit(kernel, X, y, checkpoints=kept, progress=stop, **settings)
    others.append(cagp.fit(kernel, X, y, checkpoints=kept, **settings))
    names = list(whole.bound.bias)
    assert len(names) == (5 if kernel is cagp.Matern52 else 9)
    for other in others:
        assert other.prior == whole.prior
        assert other.bound.value == whole.bound.value
        np.testing.assert_array_equal(other.bound.weights, whole.bound.weights)
        assert other.bound.bias.keys() == whole.bound.bias.keys()
        np.testing.assert_array_equal(list(other.bound.bias.values()), list(whole.bound.bias.values()))


def test_the_bound_is_that_of_the_actions_that_are_given_in_any_units():
    """Of the solver that they are for, by its posterior at the observed points."""
    X, y = drawn(cagp.Matern12((0.6, 0.3, 0.9), 1.5), n=90)
    X = X * (1.0, 40.0, 1.0)
    settings = {"mean": 0.0, "method": "elbo", "actions": 12, "anisotropic": True, "starts": 1}
    found = cagp.fit(cagp.Matern12, X, y, **settings)
    solver = cagp.SparseActions(12, values=found.bound.weights)
    q = cagp.condition(found.prior, X, y, X, solver=solver, covariance="full")
    noise, precision = found.prior.noise_number, np.linalg.inv(found.prior.kernel(X, X))
    misfit = np.sum((y - q.mean) ** 2) + np.trace(q.covariance)
    ratio = precision @ q.covariance
    divergence = np.trace(ratio) - len(y) - np.linalg.slogdet(ratio)[1] + q.mean @ precision @ q.mean
    expected = -0.5 * (misfit / noise + len(y) * np.log(2.0 * np.pi * noise) + divergence)
    assert found.bound.value == pytest.approx(expected, rel=1e-6)


def test_a_parameter_that_is_held_has_no_bias_and_the_others_are_as_near(smooth):
    X, y, _, _ = smooth
    settings = {"mean": 0.0, "bounds": {"noise_variance": (0.1, 0.1)}, "starts": 1, "actions": ACTIONS}
    exact, found = (
        cagp.fit(cagp.SquaredExponential, X, y, method=method, **settings) for method in ("dense", "elbo")
    )
    assert found.status is FitStatus.CONVERGED
    assert found.prior.noise_number == pytest.approx(0.1, rel=1e-14)  # goes through logarithms
    bias = logarithms(found) - logarithms(exact)
    said = np.array(list(found.bound.bias.values()))
    assert np.isnan(said[2])
    errors = np.sqrt(np.diag(exact.log_covariance))[:2]
    np.testing.assert_array_less(np.abs(said - bias)[:2], 0.1 * np.abs(bias)[:2] + 0.05 * errors)


def test_parts_of_one_family_come_with_the_shortest_lengthscale_first(monkeypatch):
    """However the search has left them."""
    X, y = drawn(cagp.Sum((cagp.Matern32(0.1, 1.0), cagp.Matern32(1.0, 4.0))), noise_variance=0.02, n=200)
    settings = {"mean": 0.0, "method": "elbo", "actions": 100, "starts": 1}
    families = (cagp.Matern32, cagp.Matern32)
    found = cagp.fit(families, X, y, **settings)

    def swapped(*arguments, **named):
        optimum = maximise(*arguments, **named)
        names = list(optimum.hyperparameters)
        numbers = [optimum.hyperparameters[name] for name in [*names[1::-1], *names[3:1:-1], names[4]]]
        return replace(optimum, hyperparameters=dict(zip(names, numbers, strict=True)))

    monkeypatch.setattr("cagp_dist.likelihood.learned.bound_fit.maximise", swapped)
    other = cagp.fit(families, X, y, **settings)
    for result in (found, other):
        lengths = [part.lengthscale for part in result.prior.kernel.parts]
        assert lengths == sorted(lengths)
    for ours, theirs in zip(found.prior.kernel.parts, other.prior.kernel.parts, strict=True):
        assert (ours.lengthscale, ours.variance) == pytest.approx((theirs.lengthscale, theirs.variance))
    assert np.isfinite(list(found.bound.bias.values())).all()
    assert other.bound.bias == pytest.approx(found.bound.bias, rel=1e-6)
    assert other.prior.noise_number == pytest.approx(found.prior.noise_number)


@pytest.mark.exhaustive
def test_the_count_of_evaluations_does_not_depend_on_where_a_search_was_cut_off(smooth, tmp_path):
    X, y, _, found = smooth
    told = []

    def cut(progress):
        told.append(progress.points)
        if told.count(len(X)) == cut_after:  # steps of the bound, not of the starts on fewer points
            raise KeyboardInterrupt

    settings = {"mean": 0.0, "method": "elbo", "actions": ACTIONS}
    remaining = []
    for cut_after in (3, 8):
        told.clear()
        checkpoints = FolderMemo(tmp_path / str(cut_after), seconds=0.0)
        with pytest.raises(KeyboardInterrupt):
            cagp.fit(cagp.SquaredExponential, X, y, **settings, checkpoints=checkpoints, progress=cut)
        further = []
        again = cagp.fit(
            cagp.SquaredExponential, X, y, **settings, checkpoints=checkpoints, progress=further.append
        )
        assert again.evaluations == found.evaluations
        remaining.append(len(further))
        np.testing.assert_array_equal(logarithms(again), logarithms(found))
    assert remaining[1] == remaining[0] - 5  # it goes on where it was


def test_what_does_not_fit_is_refused_before_any_work():
    X, y = drawn(cagp.Matern32(0.3), n=400)
    told = []
    settings = {"mean": 0.0, "method": "elbo", "progress": told.append, "executor": SerialExecutor()}
    for actions, remedy in ((400, Remedy.FEWER_ACTIONS), (4, Remedy.VECCHIA)):
        with pytest.raises(BudgetError) as refusal:
            cagp.fit(cagp.Matern32, X, y, actions=actions, memory_limit_bytes=10**6, **settings)
        assert remedy in refusal.value.remedies
    assert not told


def test_several_fields_share_the_parameters():
    kernel = cagp.SquaredExponential(0.5, 2.0)
    X, first = drawn(kernel, n=200)
    covariance = kernel(X, X) + 0.1 * np.eye(200)
    second = np.linalg.cholesky(covariance) @ np.random.default_rng(1).normal(size=200)
    y = np.stack([first, second], axis=1)
    both = cagp.fit(cagp.SquaredExponential, X, y, mean=0.0, method="elbo", actions=40, starts=1)
    exact = cagp.fit(cagp.SquaredExponential, X, y, mean=0.0, method="dense")
    np.testing.assert_allclose(logarithms(both), logarithms(exact), atol=0.05)
    vector = np.concatenate([logarithms(both), both.bound.weights])
    seen = [
        ProjectedData(
            cagp.SquaredExponential,
            X,
            field[:, None],
            layout=BlockLayout.of(X, 40),
            executor=SerialExecutor(),
            memory_limit_bytes=2**30,
        )
        for field in y.T
    ]
    apart = [Elbo(each)(vector)[0] for each in seen]
    assert both.bound.value == pytest.approx(sum(apart), rel=1e-9)
    assert abs(apart[0] - apart[1]) > 1.0  # they are not the same field


@one_after_another
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"actions": 0}, "no-count"),
        ({"mean": cagp.mean_family("constant")}, "method-elbo"),
        ({"noise_deviations": np.linspace(0.0, 0.1, 50)}, "method-elbo"),
    ],
)
def test_what_does_not_go_together_is_refused(change, key):
    X, y = drawn(cagp.Matern32(0.3), n=50)
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, X, y, **{"mean": 0.0, "method": "elbo", **change})
    assert refusal.value.key == key


def test_auto_says_why():
    X, y = drawn(cagp.SquaredExponential(0.5, 2.0), n=120)
    found = cagp.fit(cagp.SquaredExponential, X, y, mean=0.0)
    assert (found.method, found.reason) == ("dense", "120 points are few enough for the exact likelihood")
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 12)
    found = cagp.fit(cagp.Matern32, grid, np.random.default_rng(0).normal(size=grid.shape))
    assert (found.method, found.reason) == ("rings", "the points are a grid, whose likelihood is exact")


def test_auto_has_conditionals_of_many_points(monkeypatch):
    monkeypatch.setattr("cagp_dist.likelihood.fit.MOST_DENSE_POINTS", 100)
    X, y = drawn(cagp.Matern32(0.3), n=150)
    found = cagp.fit(cagp.Matern32, X, y, mean=cagp.mean_family("constant"))
    assert (found.method, found.conditionals) == ("vecchia", 150)
    assert found.reason == "150 points are more than the 100 of an exact likelihood"
