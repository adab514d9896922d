"""Each value from those of its group: the dense formulas of leaving one out (math 27)."""

import numpy as np
import pytest

from cagp_dist.arrays import Array
from cagp_dist.gram.left_out_groups import Groups, LeftOutInGroups
from cagp_dist.kernels import Kernel, Matern32
from cagp_dist.runtime.executor import SerialExecutor
from cagp_dist.runtime.threads import ThreadExecutor

KERNEL = Matern32(0.1, 4.0)


def drawn(n: int) -> tuple[Array, Array, Array, Array]:
    """Points (n, 2), values, noise and the basis of a mean."""
    generator = np.random.default_rng(n)
    X = generator.uniform(size=(n, 2))
    noise = generator.uniform(0.1, 0.5, n)
    G = KERNEL(X, X) + np.diag(noise)
    values = 3.0 + np.linalg.cholesky(G) @ generator.standard_normal(n)
    return X, values, noise, np.column_stack([np.ones(n), X])


def oracle(kernel: Kernel, X: Array, values: Array, noise: Array, basis: Array) -> tuple[Array, Array]:
    """``e_i = (P r)_i / P_ii`` and ``1 / P_ii`` with an estimated mean."""
    P = np.linalg.inv(kernel(X, X) + np.diag(noise))
    P = P - P @ basis @ np.linalg.solve(basis.T @ P @ basis, basis.T @ P)
    return (P @ values) / P.diagonal(), 1.0 / P.diagonal()


def test_one_group_is_exact_and_forgets_what_it_is_told_to() -> None:
    X, values, noise, basis = drawn(150)
    found = LeftOutInGroups(KERNEL, X, noise, values, basis, Groups.of(KERNEL, X), SerialExecutor())
    np.testing.assert_allclose(found.errors(), oracle(KERNEL, X, values, noise, basis), rtol=1e-9)
    forgotten = np.isin(np.arange(150), [3, 77])
    found.forget(forgotten)
    errors, variance = found.errors()
    left = np.flatnonzero(~forgotten)
    expected = oracle(KERNEL, X[left], values[left], noise[left], basis[left])
    np.testing.assert_allclose([errors[left], variance[left]], expected, rtol=1e-5, atol=1e-6)  # FORGOTTEN
    with_3 = np.append(left, 3)
    own = oracle(KERNEL, X[with_3], values[with_3], noise[with_3], basis[with_3])
    np.testing.assert_allclose([errors[3], variance[3]], [own[0][-1], own[1][-1]], rtol=1e-5)
    found.forget(np.zeros(150, dtype=bool))
    np.testing.assert_allclose(found.errors(), oracle(KERNEL, X, values, noise, basis), rtol=1e-9)


def test_groups_lose_little_and_have_the_same_bits_on_threads() -> None:
    X, values, noise, basis = drawn(1_200)
    groups = Groups.of(KERNEL, X)
    every = np.sort(
        np.concatenate(
            [groups.members[e - k : e] for e, k in zip(groups.starts[1:], groups.owned, strict=True)]
        )
    )
    assert (every == np.arange(1_200)).all()  # each is predicted once
    found = LeftOutInGroups(KERNEL, X, noise, values, basis, groups, SerialExecutor())
    errors, variance = found.errors()
    exact, of_exact = oracle(KERNEL, X, values, noise, basis)
    assert np.quantile(np.sqrt(variance / of_exact), 0.99) < 1.01
    assert (
        np.sqrt(np.mean((errors - exact) ** 2 / of_exact)) < 0.03
    )  # what 1 % of a standard deviation leaves
    with ThreadExecutor(2) as threads:
        again = LeftOutInGroups(KERNEL, X, noise, values, basis, groups, threads)
        np.testing.assert_array_equal(again.errors(), (errors, variance))


def test_a_value_that_alone_tells_of_a_coefficient_has_no_error() -> None:
    X, values, noise, _ = drawn(40)
    basis = np.column_stack([np.ones(40), np.arange(40) == 7])
    found = LeftOutInGroups(KERNEL, X, noise, values, basis, Groups.of(KERNEL, X), SerialExecutor())
    assert np.flatnonzero(np.isnan(found.errors()[0])).tolist() == [7]


@pytest.mark.parametrize("alone", [600, 20])
def test_the_worst_of_a_neighbourhood(alone: int) -> None:
    X, *_ = drawn(300)
    groups = Groups.of(KERNEL, X, alone=alone)
    badness = np.zeros(300)
    assert not groups.worst(badness).any()
    near = np.argsort(np.linalg.norm(X - X[5], axis=1))[:2]
    badness[near] = [4.0, 5.0]
    assert np.flatnonzero(groups.worst(badness)).tolist() == [near[1]]
