"""Solvers side by side: every one is compared, with the exact posterior and with its own promise."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.solvers.registry import SOLVERS

from .scripts import printed_rows, script

pytestmark = pytest.mark.exhaustive


def test_every_registered_solver_is_compared():
    compared = script("solvers_compared")
    names = {name for name, kind in SOLVERS.items() if not kind.needs_grid}
    assert names <= set(compared.solvers(points=40, block=8))


def test_solvers_are_compared_with_the_exact_posterior():
    rows = script("solvers_compared").compare(0.2, 40, 5, block=8)
    exact, sweeps = rows["cholesky"], rows["block-gauss-seidel"]
    assert exact.distance < 1e-9
    assert exact.bars == pytest.approx(1.0)
    assert exact.iterations == "1"
    assert sweeps.bars > 1.0
    assert rows["mixed-actions"].iterations == "60 + 20"
    for name, row in rows.items():
        assert row.peak_bytes > 0, name
        assert row.bars > 1.0 - 1e-9, name


def test_actions_that_are_calibrated_state_their_errors_and_preconditioned_gradients_do_not(
    capsys, monkeypatch
):
    """Over 100 fields; a mean square of each has a variance of 2 at most: 4 sqrt(2 / 100) / 2 = 0.28."""
    actions = script("actions")
    drawn = actions.Drawn.make(0.3, points=150, targets=20, fields=100)
    for solver in (cagp.UnitVectors(20), cagp.PseudoInputs(10), cagp.KrylovActions(10), cagp.Cholesky()):
        errors, variances = drawn.solve(solver)
        assert errors.shape == variances.shape == (20, 100)
        assert abs(actions.rms(errors / np.sqrt(variances)) - 1.0) < 0.28
    few = actions.Drawn.make(0.3, points=150, targets=20, fields=4)
    errors, variances = few.solve(cagp.ConjugateGradient(10, "block-gauss-seidel", 30))
    exact, _ = few.solve(cagp.Cholesky())
    assert actions.rms(errors) < 1.1 * actions.rms(exact)
    assert actions.rms(errors / np.sqrt(variances)) < 0.7
    monkeypatch.setattr(actions, "LENGTHSCALES", (0.3,))
    actions.main(["--quick"])
    rows = printed_rows(capsys.readouterr().out)[1:]
    assert [row[0] for row in rows] == list(actions.LINES)
    actions.main(["--quick", "--only", "by-products", "exact"])
    rows = printed_rows(capsys.readouterr().out)[1:]
    assert [row[0] for row in rows] == ["exact", "20, by-products of 50", "20, by-products of 200"]


def test_columns_of_the_gram_matrix_and_by_products_are_what_they_are_said_to_be():
    actions = script("actions")
    drawn = actions.Drawn.make(0.3, points=60, targets=8, fields=3)
    errors, variances = drawn.columns(60)  # all of them: the exact posterior
    exact, exact_variances = drawn.solve(cagp.Cholesky())
    np.testing.assert_allclose(errors, exact, atol=1e-8)
    np.testing.assert_allclose(variances, exact_variances, atol=1e-8)
    errors, variances = drawn.columns(7)
    chosen = np.random.default_rng(actions.SEED).permutation(60)[:7]
    S = drawn.gram[:, chosen]
    V = drawn.prior.kernel(drawn.X_test, drawn.X)
    C = S @ np.linalg.solve(S.T @ drawn.gram @ S, S.T)
    np.testing.assert_allclose(errors, V @ C @ drawn.y - drawn.f, atol=1e-8)
    np.testing.assert_allclose(variances[:, 0], 1.0 - np.einsum("qi,ij,qj->q", V, C, V), atol=1e-8)
    # all directions leave noise + K G^-1 K, which is G but for less than noise: a few steps are enough
    errors, variances = drawn.by_products(60, 8)
    assert errors.shape == variances.shape == (8, 2)
    np.testing.assert_allclose(errors, exact[:, 1:], atol=1e-3)
    few, _ = drawn.by_products(1, 8)
    assert np.abs(few - exact[:, 1:]).max() > 10.0 * np.abs(errors - exact[:, 1:]).max()


def test_beliefs_about_a_sine_are_those_of_condition_and_their_variance_has_two_parts():
    itergp = script("itergp")
    problem = itergp.Sine.draw(2, np.random.default_rng(1), points=60, targets=10)
    prior = cagp.Prior(cagp.Matern32(0.8, 1.3), 0.01)
    solves = itergp.Solves(prior, problem, seed=3, most=12)
    found = solves.beliefs(12)
    assert tuple(found) == itergp.METHODS

    def condition(solver, y=problem.y):
        return cagp.condition(prior, problem.X, y, problem.X_test, solver=solver)

    for name, solver, products in (
        (itergp.RUN, cagp.ConjugateGradient(12), 12),
        (itergp.PSEUDO, cagp.PseudoInputs(12, placement="random", seed=3), 12),
        (itergp.SUBSET, cagp.UnitVectors(12, order="random", seed=3), 0),
        ("exact", cagp.Cholesky(), 0),
    ):
        posterior, belief = condition(solver), found[name]
        np.testing.assert_allclose(belief.mean, posterior.mean, atol=1e-8)
        np.testing.assert_allclose(belief.variance, posterior.variance, atol=1e-8)
        np.testing.assert_allclose(belief.computational, posterior.computational_variance, atol=1e-8)
        assert belief.products == products, name
    for i, own in enumerate(prior.kernel(problem.X_test, problem.X)):
        separate = condition(cagp.ConjugateGradient(12), y=own).variance[i]
        assert found[itergp.EACH].variance[i] == pytest.approx(separate, abs=1e-9)
    assert (found[itergp.TWO_RUNS].products, found[itergp.EACH].products) == (24, 12 * 11)
    for name in (itergp.TWO_RUNS, itergp.EACH):
        np.testing.assert_array_equal(found[name].mean, found[itergp.RUN].mean)
        assert found[name].computational is None
    for name, belief in found.items():
        left = solves.progress(belief)
        rmse, nll, _, least, gap, share, *_ = itergp.scored(
            problem, belief, solves.exact.variance, 0.01, left
        )
        if name == itergp.INDUCING:
            assert least < 1.0 - 1e-9  # the variational one is too sure at the data
        elif name != itergp.INDUCING_OUTSIDE:  # of which no theorem says anything
            assert least >= 1.0 - 1e-9, name
        assert np.isfinite(left.rho) == (name in (*itergp.PROJECTIONS, "exact")), name
        assert np.isfinite([rmse, nll]).all()
        if belief.computational is not None:
            assert gap < 1e-9, name
            assert 0.0 <= share < 1.0


def test_what_is_left_of_a_solution_bounds_what_is_left_of_the_mean():
    """Theorem 1 of Wenger et al. (2022), and the bound of conjugate gradients by the condition number."""
    itergp, noise = script("itergp"), 0.05
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(40, 2))
    K = cagp.Matern32(0.3, 1.4)(X, X)
    G, b = K + noise * np.eye(40), rng.standard_normal(40)
    exact, (least, *_, most) = np.linalg.solve(G, b), np.linalg.eigvalsh(K)
    root = np.sqrt((most + noise) / (least + noise))
    basis, before = b[:, None], 1.0
    for i in range(1, 12):
        solution = basis @ np.linalg.solve(basis.T @ G @ basis, basis.T @ b)
        left = itergp.progress(G, noise, exact, solution, least=least)
        assert left.rho == pytest.approx(np.sqrt(1.0 - b @ solution / (b @ exact)), rel=1e-6)
        error = exact - solution
        assert left.rkhs == pytest.approx(np.sqrt(error @ K @ error / (exact @ K @ exact)), rel=1e-6)
        assert left.rkhs <= left.rkhs_bound
        assert left.rho <= min(before, 2.0 * ((root - 1.0) / (root + 1.0)) ** i)
        basis, before = np.linalg.qr(np.column_stack([basis, G @ basis[:, -1]]))[0], left.rho
    assert itergp.least_eigenvalue(K) == pytest.approx(least, rel=1e-10)
    assert np.isnan(
        itergp.least_eigenvalue(np.ones((40, 40)) + 1e-15 * np.eye(40))
    )  # within rounding of zero
    nothing = itergp.progress(G, noise, exact, np.zeros(40), least=least)
    assert nothing[:2] == (1.0, 1.0)


def test_time_to_accuracy_scores_what_it_times():
    module = script("time_to_accuracy")
    rows = {(row.solver, row.number): row for row in module.compare(40, fields=2)}
    assert len(rows) == 24
    exact = rows["exact", 40]
    assert all(row.seconds > 0.0 for row in rows.values())
    assert rows["conjugate gradients", 40].rmse == pytest.approx(exact.rmse, rel=1e-6)
    assert rows["Gauss-Seidel", 20].rmse == pytest.approx(exact.rmse, rel=0.05)
    assert rows["subset of the data", 4].nll > rows["subset of the data", 32].nll > exact.nll - 0.05


def test_inducing_points_state_no_more_than_noise_where_they_are():
    itergp = script("itergp")
    rows = list(itergp.stated_table(points=120, actions=20))
    assert [int(row[0]) for row in rows] == list(itergp.STATED_DIMENSIONS)
    exact, inducing, pseudo, exact_elsewhere, _, pseudo_elsewhere = np.array(rows, dtype=float)[:, 1:].T
    assert (inducing <= itergp.NOISE_STD**2 + 1e-3).all()
    assert (pseudo >= exact - 1e-3).all()
    assert (pseudo_elsewhere >= exact_elsewhere - 1e-3).all()
