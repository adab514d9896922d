"""Kernels against SciPy's distances and the formulas of math 8."""

import dataclasses
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigvalsh
from scipy.spatial.distance import cdist

import cagp_dist as cagp
from cagp_dist import compiled
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Elementary, Kernel, as_points, total_variance
from cagp_dist.profiles import Part

from .joined import one_after_another
from .oracle import KERNELS, KERNELS_AND_SUMS, PROFILES, kernel_matrix, ring_points, short_and_long
from .pairwise import by_turns


@one_after_another
@pytest.mark.parametrize("p", [1, 2, 3, 7])
@pytest.mark.parametrize("kernel_class", KERNELS)
def test_kernel_is_the_formula(kernel_class, p):
    rng = np.random.default_rng(p)
    X, Z = rng.normal(size=(83, p)), rng.normal(size=(131, p))
    kernel = kernel_class(lengthscale=0.7, variance=3.0)
    np.testing.assert_allclose(kernel(X, Z), kernel_matrix(kernel, X, Z), rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("kernel_class", KERNELS)
@given(lengthscale=st.floats(1e-6, 1e6), distance=st.floats(0.0, 30.0), variance=st.floats(1e-9, 1e9))
def test_value_depends_on_distance_in_lengthscales(kernel_class, lengthscale, distance, variance):
    kernel = kernel_class(lengthscale=lengthscale, variance=variance)
    expected = variance * PROFILES[kernel_class.__name__](np.float64(distance))
    value = kernel([[0.0]], [[distance * lengthscale]])[0, 0]
    # a relative error e of the distance u is one of at most u^2 e in the value: 900 * 2e-16
    assert value == pytest.approx(expected, rel=1e-12)


@one_after_another
@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("variance", [1.0, 0.1, 22.7, 3e-7, 1e12])
def test_distance_zero_is_the_variance_to_the_last_bit(kernel_class, variance):
    X = np.array([[0.1, 0.2, 0.3], [1e150, -1e150, 1e150], [-7.0, 1e-300, 0.0]])
    kernel = kernel_class(lengthscale=0.3, variance=variance)
    assert kernel(X, X).diagonal().tolist() == [variance] * 3
    assert (kernel(np.repeat(X, 2, axis=0), X)[[0, 1], 0] == variance).all()


@one_after_another
@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("variance", [1.0, 0.1, 22.7, 3e-7, 1e12])
def test_diagonal_is_that_of_the_matrix_to_the_last_bit(kernel_class, variance):
    kernel = kernel_class(lengthscale=0.3, variance=variance)
    X = np.random.default_rng(0).normal(size=(40, 3))
    diagonal = kernel.diagonal(X)
    assert diagonal.dtype == np.float64
    np.testing.assert_array_equal(diagonal, kernel(X, X).diagonal())
    assert kernel.diagonal(X.tolist()).shape == (40,)
    assert kernel.diagonal(np.zeros((0, 3))).shape == (0,)
    diagonal[:] = 0.0  # the caller's own
    np.testing.assert_array_equal(kernel.diagonal(X), variance)


@pytest.mark.parametrize("X", [[0.0, 1.0], [[np.nan]], [["a"]]])
def test_the_diagonal_at_what_are_no_points_is_refused(X):
    with pytest.raises(ArgumentError, match=r"X (has shape|holds NaN|is not numeric)"):
        cagp.Matern32(1.0).diagonal(X)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_huge_distances_fade_without_warning(kernel_class):
    X = np.array([[0.0, 0.0], [1e3, 0.0], [1e150, -1e150], [1e308, 1e308], [-1e308, 0.0]])
    values = kernel_class(lengthscale=0.5, variance=2.0)(X, X)
    assert (values >= 0.0).all()
    assert (values[~np.eye(5, dtype=bool)] < 1e-290).all()


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_kernel_is_symmetric_to_the_last_bit_and_falls_with_distance(kernel_class):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(70, 3)), rng.normal(size=(45, 3))
    kernel = kernel_class(lengthscale=0.4, variance=1.3)
    np.testing.assert_array_equal(kernel(X, Z), kernel(Z, X).T)
    line = kernel([[0.0]], np.linspace(0.0, 12.0, 4001).reshape(-1, 1))[0]
    assert (np.diff(line) <= 0.0).all()


@pytest.mark.parametrize("kernel_class", KERNELS_AND_SUMS)
def test_the_variance_of_its_parameters_is_the_kernel_at_distance_zero(kernel_class):
    kernel = kernel_class(lengthscale=0.4, variance=1.3)
    assert total_variance(kernel.parameters) == pytest.approx(1.3)
    assert kernel([[0.5]], [[0.5]])[0, 0] == pytest.approx(1.3)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_kernel_matrix_is_positive_definite(kernel_class):
    X = np.random.default_rng(1).uniform(size=(90, 2))
    kernel = kernel_class(lengthscale=0.2, variance=1.0)
    # the squared exponential's smallest eigenvalues vanish below rounding: n times 2^-53
    assert eigvalsh(kernel(X, X)).min() > -90 * 2.0**-53


# 9 x 24 points without poles, on which a valid kernel is positive definite and not only semi-definite
SPHERE = ring_points(np.linspace(-75.0, 75.0, 9), 24)
CHORD = cdist(SPHERE, SPHERE)
GREAT_CIRCLE = 2.0 * np.arcsin(np.minimum(0.5 * CHORD, 1.0))


@one_after_another
@pytest.mark.usefixtures("one_blas_thread")
@pytest.mark.parametrize("lengthscale", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("kernel_class", KERNELS)
def test_t30_chordal_distance_is_valid_on_the_sphere(kernel_class, lengthscale):
    K = kernel_class(lengthscale=lengthscale)(SPHERE, SPHERE)
    least = eigvalsh(K).min()
    # eigenvalues of smooth kernels fall below rounding, n times 2^-53 times the largest
    assert least > -216 * 2.0**-53 * eigvalsh(K).max()
    if kernel_class in (cagp.Matern12, cagp.Matern32):
        assert least > 1e-6


@pytest.mark.usefixtures("one_blas_thread")
@pytest.mark.parametrize(("lengthscale", "least"), [(3.0, -0.831), (1.0, -1.65e-3), (0.3, 4.91e-3)])
def test_t30_great_circle_distance_is_not_beyond_smoothness_one_half(lengthscale, least):
    """Why the package measures chords: Matern 3/2 of the angle is indefinite at long lengthscales."""
    assert eigvalsh(PROFILES["Matern32"](GREAT_CIRCLE / lengthscale)).min() == pytest.approx(least, rel=5e-3)
    assert eigvalsh(PROFILES["Matern32"](CHORD / lengthscale)).min() > 1e-6
    assert eigvalsh(PROFILES["Matern12"](GREAT_CIRCLE / lengthscale)).min() > 1e-3


def _slopes(kernel, distance):
    """``dk / d log(lengthscale)`` of the formulas of math 8, differentiated by hand."""
    u = distance / kernel.lengthscale
    return (
        kernel.variance
        * {
            "Matern12": u * np.exp(-u),
            "Matern32": 3.0 * u**2 * np.exp(-np.sqrt(3.0) * u),
            "Matern52": 5.0 / 3.0 * u**2 * (1.0 + np.sqrt(5.0) * u) * np.exp(-np.sqrt(5.0) * u),
            "SquaredExponential": u**2 * np.exp(-(u**2) / 2.0),
        }[type(kernel).__name__]
    )


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_slope_parameters_stand_for_the_derivative_by_the_logarithm_of_the_lengthscale(kernel_class):
    kernel, h = kernel_class(lengthscale=0.7, variance=3.0), 1e-5
    distance = np.linspace(0.0, 9.0, 301)
    slopes, line = np.empty((1, 301)), np.ascontiguousarray(distance[None])
    compiled.evaluate(*kernel.slope_parameters()[0], np.zeros((1, 1)), line, slopes)
    np.testing.assert_allclose(slopes[0], _slopes(kernel, distance), rtol=1e-13, atol=0.0)
    assert slopes[0, 0] == 0.0
    upper, lower = (
        kernel_class(lengthscale=0.7 * np.exp(step), variance=3.0)([[0.0]], distance[:, None])[0]
        for step in (h, -h)
    )
    # central differences: h^2 / 6 of the third derivative, and rounding 2^-53 / h of the kernel
    np.testing.assert_allclose(slopes[0], (upper - lower) / (2.0 * h), rtol=0.0, atol=1e-9)


def test_slope_parameters_keep_lengthscale_and_variance():
    kernel = cagp.Matern52(lengthscale=0.25, variance=7.0)
    assert kernel.parameters == (kernel.profile(Part.VALUE), 4.0, 7.0)
    assert kernel.slope_parameters()[0] == (kernel.profile(Part.SLOPE), 4.0, 7.0)


def test_scaling_points_and_lengthscale_together_changes_nothing():
    rng = np.random.default_rng(2)
    X, Z = rng.normal(size=(20, 3)), rng.normal(size=(30, 3))
    small, large = cagp.Matern52(lengthscale=0.25), cagp.Matern52(lengthscale=0.25 * 1024.0)
    np.testing.assert_array_equal(small(X, Z), large(1024.0 * X, 1024.0 * Z))  # powers of two are exact


def test_points_come_in_any_numeric_form():
    kernel = cagp.Matern12(lengthscale=2.0)
    expected = np.exp(-np.array([[0.0, 0.5], [0.5, 0.0]]))
    for X in (
        [[0], [1]],
        np.array([[0.0], [1.0]], dtype=np.float32),
        np.arange(4.0).reshape(2, 2)[:, :1] / 2,
    ):
        np.testing.assert_allclose(kernel(X, X), expected, rtol=1e-14)
    strided = np.arange(24.0).reshape(6, 4)[::2, 1::2]
    np.testing.assert_array_equal(kernel(strided, strided), kernel(strided.copy(), strided.copy()))
    assert kernel(np.zeros((0, 1)), [[1.0]]).shape == (0, 1)
    assert kernel([[1.0]], np.zeros((0, 1))).shape == (1, 0)


def test_kernels_are_values():
    kernel = cagp.Matern32(lengthscale=0.5)
    assert kernel == cagp.Matern32(0.5, 1.0)
    assert kernel != cagp.Matern52(0.5, 1.0)
    assert repr(kernel) == "Matern32(lengthscale=0.5, variance=1.0)"
    assert {kernel: 1}[cagp.Matern32(0.5)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.lengthscale = 1.0


@pytest.mark.parametrize(
    ("kernel_class", "name", "value"),
    by_turns(
        {
            "kernel_class": KERNELS,
            "name": ["lengthscale", "variance"],
            "value": [0.0, -1.0, np.nan, np.inf, "0.5", None, [1.0]],
        }
    ),
)
def test_parameters_must_be_finite_and_positive(kernel_class, name, value):
    with pytest.raises(ArgumentError) as refusal:
        kernel_class(**{"lengthscale": 1.0, "variance": 1.0, name: value})
    assert refusal.value.key == "not-positive"


def test_a_lengthscale_whose_inverse_overflows_is_refused():
    with pytest.raises(ArgumentError) as refusal:
        cagp.Matern32(lengthscale=1e-151)
    assert refusal.value.key == "out-of-range"
    assert cagp.Matern32(lengthscale=1e-150)([[0.0]], [[0.0], [1.0]]).tolist() == [[1.0, pytest.approx(0.0)]]


def test_the_base_class_is_abstract():
    with pytest.raises(ArgumentError) as refusal:
        Kernel(lengthscale=1.0)
    assert refusal.value.key == "abstract-kernel"


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (
            [0.0, 1.0],
            r"X has shape (2,); expected (n, p), one row per point. For points on a line use X.",
        ),
        (3.0, "X has shape (1,)"),
        (np.zeros((2, 2, 2)), "X has shape (2, 2, 2)"),
        (np.zeros((4, 0)), "X has shape (4, 0)"),
        ([[0.0], [np.nan]], "X holds NaN or infinity (first in row 1)"),
        ([[np.inf], [0.0]], "X holds NaN or infinity (first in row 0)"),
        ([["a"]], "X is not numeric: could not convert string to float"),
        ([[1.0], [1.0, 2.0]], "X is not numeric"),
        ([[object()]], "X is not numeric"),
    ],
)
def test_wrong_points_are_refused(X, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        cagp.Matern32(1.0)(X, [[0.0]])
    with pytest.raises(ArgumentError, match=re.escape(text)):
        as_points("X", X)


def test_points_with_different_coordinates_are_refused():
    with pytest.raises(ArgumentError) as refusal:
        cagp.Matern32(1.0)(np.zeros((2, 2)), np.zeros((2, 3)))
    assert refusal.value.key == "coordinates-differ"


ROUGH, SMOOTH, FAR = cagp.Matern32(0.05, 3.0), cagp.Matern52(0.5, 20.0), cagp.SquaredExponential(4.0, 0.1)
ANISOTROPIC = cagp.Matern52((0.3, 2.0, 0.9), 1.5)


def test_sums_are_flat_values():
    both = ROUGH + SMOOTH
    assert both == cagp.Sum((ROUGH, SMOOTH))
    assert (both + FAR).parts == (ROUGH, SMOOTH, FAR) == (ROUGH + (SMOOTH + FAR)).parts
    assert cagp.Sum([both, FAR]) == both + FAR
    assert {both: 1}[cagp.Sum((ROUGH, SMOOTH))] == 1
    assert both != SMOOTH + ROUGH
    names = {name: getattr(cagp, name) for name in (*PROFILES, "Sum")}
    assert eval(repr(both + ANISOTROPIC), names) == both + ANISOTROPIC
    assert pickle.loads(pickle.dumps(both)) == both
    assert ROUGH.parts == (ROUGH,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        both.parts = ()


def test_a_number_scales_the_variance():
    expected = cagp.Matern32(0.05, 7.5)
    for factor in (2.5, np.float64(2.5), np.float32(2.5)):
        assert factor * ROUGH == expected == ROUGH * factor
    assert cagp.Matern32(0.05, 6.0) + cagp.Matern52(0.5, 40.0) == 2 * (ROUGH + SMOOTH)
    assert (ROUGH + SMOOTH).variance == 23.0


@pytest.mark.parametrize(
    "kernel",
    [
        ROUGH + SMOOTH,
        SMOOTH + FAR + ROUGH,
        ROUGH + ROUGH,
        ANISOTROPIC,
        ANISOTROPIC + ROUGH,
        FAR + cagp.Matern12((0.1, 5.0, 1.0), 2.0) + ANISOTROPIC,
    ],
    ids=str,
)
def test_sums_and_lengthscales_by_coordinate_are_the_formula(kernel):
    rng = np.random.default_rng(0)
    X, Z = 0.3 * rng.normal(size=(83, 3)), 0.3 * rng.normal(size=(2100, 3))
    np.testing.assert_allclose(kernel(X, Z), kernel_matrix(kernel, X, Z), rtol=1e-13, atol=0.0)
    np.testing.assert_array_equal(kernel(X, Z), kernel(Z, X).T)
    np.testing.assert_array_equal(kernel.diagonal(X), kernel(X, X).diagonal())
    assert kernel(X[:0], Z).shape == (0, 2100)
    assert kernel(X, Z[:0]).shape == (83, 0)


def test_equal_lengthscales_by_coordinate_are_one_lengthscale():
    X = np.random.default_rng(1).normal(size=(40, 2))
    for kernel_class in KERNELS:
        assert kernel_class((0.5, 0.5))(X, X) == pytest.approx(kernel_class(0.5)(X, X), rel=1e-13)


@one_after_another
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: ROUGH + 1.0, "kernel-type"),
        (lambda: ROUGH * SMOOTH, "kernel-product"),
        (lambda: -1.0 * ROUGH, "not-positive"),
        (lambda: ROUGH * "2", "not-positive"),
        (lambda: cagp.Sum((ROUGH,)), "kernel-parts"),
        (lambda: cagp.Sum((ROUGH, 1.0)), "kernel-parts"),
        (lambda: cagp.Matern32(()), "lengthscale-missing"),
        (lambda: cagp.Matern32((1.0, -1.0)), "not-positive"),
        (
            lambda: cagp.Matern32((1.0, 2.0)) + cagp.Matern32((1.0, 2.0, 3.0)),
            "lengthscales-and-coordinates",
        ),
        (
            lambda: ANISOTROPIC(np.zeros((2, 2)), np.zeros((2, 2))),
            "lengthscales-and-coordinates",
        ),
        (
            lambda: cagp.TiledGram(ANISOTROPIC, np.zeros((2, 2)), noise_variance=np.ones(2)),
            "lengthscales-and-coordinates",
        ),
        (lambda: (ANISOTROPIC + ROUGH)(SPHERE, SPHERE), "kernel-number"),
        (
            lambda: cagp.RingGram(cagp.LatLonGrid([0.0], 4), ANISOTROPIC, noise_variance=1.0),
            "anisotropic-on-sphere",
        ),
        (
            lambda: cagp.RingGram(
                cagp.LatLonGrid([0.0], 4), ROUGH + cagp.SameLabel(1.0, axis="ship"), noise_variance=1.0
            ),
            "kernel-on-rings",
        ),
        (lambda: Elementary(1.0), "abstract-kernel"),
    ],
)
def test_what_kernels_cannot_be_made_of_is_refused(make, key):
    with pytest.raises(ArgumentError) as refusal:
        make()
    assert refusal.value.key == key


@pytest.mark.parametrize("kernel", [short_and_long(0.4), ANISOTROPIC + ROUGH], ids=str)
def test_a_posterior_under_a_sum_is_that_of_the_formula(kernel):
    rng = np.random.default_rng(3)
    X, X_test, y = rng.uniform(size=(60, 3)), rng.uniform(size=(9, 3)), rng.normal(size=60)
    posterior = cagp.condition(
        cagp.Prior(kernel, noise_variance=0.2), X, y, X_test, solver=cagp.Cholesky(), covariance="full"
    )
    G = kernel_matrix(kernel, X, X) + 0.2 * np.eye(60)
    V = kernel_matrix(kernel, X_test, X)
    np.testing.assert_allclose(posterior.mean, V @ np.linalg.solve(G, y), rtol=1e-10, atol=1e-12)
    expected = kernel_matrix(kernel, X_test, X_test) - V @ np.linalg.solve(G, V.T)
    np.testing.assert_allclose(posterior.covariance, expected, rtol=0.0, atol=1e-11)
    swept = cagp.condition(
        cagp.Prior(kernel, noise_variance=0.2), X, y, X_test, solver=cagp.BlockGaussSeidel(500, block_size=20)
    )
    np.testing.assert_allclose(swept.mean, posterior.mean, rtol=0.0, atol=1e-9)
