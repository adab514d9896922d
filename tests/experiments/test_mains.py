"""Scripts as they are called: the tables that they print, the figures and stores that they write."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.likelihood.learned import bound_fit
from cagp_dist.likelihood.learned.course import Stopping
from cagp_dist.store.zarr_arrays import read_group

from .scripts import FIGURE_BYTES, REPOSITORY, printed_rows, script


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("held_out", ["held-out.png"]),
        ("smooth_means", ["means.png", "smooth-means.png"]),
        ("simulation", ["simulation.png"]),
        ("long_lengthscales", ["long-lengthscales.json", "long-lengthscales.png"]),
        ("hybrids", ["hybrids.json", "hybrids.png"]),
    ],
)
def test_scripts_print_tables_and_draw_figures(name, figures, tmp_path, capsys, monkeypatch):
    module = script(name)
    monkeypatch.setattr(module, "QUICK_LATITUDES", 14, raising=False)
    monkeypatch.setattr(module, "QUICK_FIELDS", 2, raising=False)
    module.main(["--quick", "--output", str(tmp_path)])
    head, *rows = printed_rows(capsys.readouterr().out)
    body = [row for row in rows if row != head]
    assert len(body) >= 9
    assert all(len(row) == len(head) for row in body)
    assert sorted(path.name for path in tmp_path.iterdir()) == figures
    assert all(1_000 < (tmp_path / figure).stat().st_size < FIGURE_BYTES for figure in figures)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "rows"),
    [("sample_grid", 25), ("ellipses", 7), ("shared_labels", 13), ("depth", 5), ("time_by_size", 7)],
)
def test_scripts_print_finite_numbers(name, rows, capsys):
    if name == "depth" and not script(name).DATA.exists():
        pytest.skip("the profiles of floats are not there")
    script(name).main(["--quick"])
    printed = printed_rows(capsys.readouterr().out)
    assert len(printed) >= rows
    assert not any(re.search(r"\b(nan|inf)\b", cell) for row in printed for cell in row)


def test_one_number_grows_at_a_time_while_times_are_taken():
    module = script("time_by_size")
    found = list(module.cases(module.ITERATIONS, module.POINTS, module.TARGETS))
    assert found[::3] == [("m", 5, 4000, 25), ("m", 40, 4000, 25), ("d", 20, 4000, 25), ("q", 20, 4000, 25)]
    for place, (grows, numbers) in enumerate(
        (("m", module.ITERATIONS), ("d", module.POINTS), ("q", module.TARGETS)), start=1
    ):
        rows = [row for row in found if row[0] == grows]
        assert [row[place] for row in rows] == list(numbers)
        assert {row[1:place] + row[place + 1 :] for row in rows} == {
            tuple(each for k, each in enumerate((20, 4000, 25), start=1) if k != place)
        }


def test_every_script_is_run_by_a_test():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    scripts = (REPOSITORY / "pipelines" / "experiments").glob("[!_]*.py")
    mains = {path.stem for path in scripts if "\ndef main(" in path.read_text()}
    named = re.findall(r'"(\w+)"|from pipelines\.experiments import (\w+)', tests)
    assert not mains - {name for pair in named for name in pair}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("crossings", ["crossings.png", "crossings.zarr"]),
        ("robustness", ["robustness.zarr"]),
        ("block_sizes", ["block-sizes.png", "block-sizes.zarr"]),
        ("solvers_compared", ["solvers-compared.zarr"]),
        ("time_to_accuracy", ["time-to-accuracy.png", "time-to-accuracy.zarr"]),
        ("itergp", ["itergp.png", "itergp.zarr"]),
    ],
)
def test_scripts_save_what_they_print(name, written, tmp_path, capsys):
    script(name).main(["--quick", "--output", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    for path in tmp_path.glob("*.zarr"):
        assert all(np.isfinite(values).any() for values in xr.open_zarr(path, consolidated=False).values())
    assert len(printed_rows(capsys.readouterr().out)) >= 9


@pytest.mark.exhaustive
def test_the_first_experiment_of_the_paper_passes_what_it_passed_there(tmp_path, capsys, monkeypatch):
    h1 = script("h1_calibration")
    assert {"gauss-seidel", "random-actions", "conjugate-gradient"} <= h1.solvers().keys()
    monkeypatch.setattr(h1, "QUICK_FIELDS", 100)
    h1.main(["--quick", "--output", str(tmp_path)])
    rows = printed_rows(capsys.readouterr().out)[1:]
    assert [row[0] for row in rows] == list(h1.solvers())
    saved = read_group(tmp_path / "h1.zarr")
    assert saved.sizes == {"solver": len(rows), "generator": 3, "field": 100}
    joint = saved.joint_std.values
    approximate = saved.solver.values == "conjugate-gradient"
    # 3 x 100 x 441 whitened errors: a standard error of 0.2 %
    assert np.abs(joint.mean(axis=1) - 1.0)[~approximate].max() < 4 * 0.002
    assert joint.mean(axis=1)[approximate] < 1.0 - 4 * 0.002
    assert 1_000 < (tmp_path / "h1.png").stat().st_size < FIGURE_BYTES
    plain = cagp.calibrate(
        h1.PRIOR,
        (generator := np.random.default_rng([2025, 2])).uniform(size=(400, 2)),
        np.stack(np.meshgrid(*2 * [np.linspace(0.0, 1.0, 21)]), axis=-1).reshape(-1, 2),
        solver=cagp.GaussSeidel(5),
        simulations=100,
        generator=generator,
    )
    np.testing.assert_allclose(saved.z.sel(solver="gauss-seidel").values[2], plain.z, rtol=1e-10)


@pytest.mark.exhaustive
def test_scattered_points_are_fitted_by_every_method(capsys):
    script("scattered_fits").main(["--quick"])
    head, *rows = printed_rows(capsys.readouterr().out)
    found = {(row[0], row[3]): dict(zip(head, row, strict=True)) for row in rows}
    methods = ["dense", "vecchia", "elbo"]
    assert list(found) == [(field, method) for field in ("built-in", "smooth") for method in methods]
    for (_, method), row in found.items():
        off = np.array(row["standard errors off"].split(", "), dtype=float)
        assert (method == "elbo") == bool(row["stated"])
        assert method != "dense" or not off.any()
        if method != "elbo":  # whose optimum is another one
            assert row["status"] == "converged"
            assert np.abs(off).max() < 2.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("draw", range(3))
def test_the_bound_of_few_actions_is_off_and_says_so(draw, monkeypatch):
    """Not because the search ends early: its optimum is of a smoother field with more noise.

    What is stated is a Newton step, ``J^-1 times the mean information on the way, times the bias``. It is off
    by less than half of the bias where the information on the way differs from J by less than a half.
    """
    module = script("scattered_fits")
    drawn = module.smooth(400, draw)

    def fit(method, actions=50):
        return cagp.fit(drawn.family, drawn.X, drawn.y, mean=0.0, method=method, actions=actions)

    def numbers(found):
        return np.log([found.prior.kernel.lengthscale, found.prior.kernel.variance, found.prior.noise_number])

    exact = fit("dense")
    errors = np.sqrt(np.diag(exact.log_covariance))
    found = {actions: fit("elbo", actions) for actions in (50, 100, 200)}
    off = {actions: (numbers(each) - numbers(exact)) / errors for actions, each in found.items()}
    stated = {actions: np.array(list(each.bound.bias.values())) for actions, each in found.items()}
    monkeypatch.setattr(bound_fit, "MOST_STEPS", 10 * bound_fit.MOST_STEPS)
    monkeypatch.setattr(bound_fit, "ENOUGH", Stopping(rise=1e-9, window=50))
    longer = (numbers(fit("elbo")) - numbers(exact)) / errors
    assert np.abs(longer - off[50]).max() < 0.5
    assert (longer > 0.0).all()
    assert longer[0] > 1.0
    assert np.linalg.norm(off[50]) > np.linalg.norm(off[100]) > np.linalg.norm(off[200])
    assert np.abs(off[200]).max() < 1.0
    for actions, each in found.items():
        distance = np.linalg.norm(stated[actions] / errors - off[actions])
        assert distance < 0.5 * np.linalg.norm(off[actions])
        near = (np.abs(stated[actions]) <= 2.0 * np.sqrt(np.diag(each.log_covariance))).all()
        assert each.status.value == ("converged" if near else "biased")


@pytest.mark.exhaustive
def test_distances_of_fits_are_summed_up_over_draws(capsys):
    quick = ["--quick", "--fields", "smooth", "--methods", "dense", "vecchia", "--draws", "2"]
    script("scattered_fits").main(quick)
    said = capsys.readouterr().out
    head, *rows = printed_rows(said)
    place = head.index("standard errors off")
    off = np.array([row[place].split(", ") for row in rows if row[3] == "vecchia"], dtype=float)
    assert off.shape == (2, 3)
    assert off[0].tolist() != off[1].tolist()
    largest = said.splitlines()[-1].partition("largest ")[2].removesuffix(" over 2 draws")
    np.testing.assert_allclose(
        [float(value) for value in largest.split(", ")], np.abs(off).max(axis=0), atol=0.0011
    )


@pytest.mark.exhaustive
def test_one_step_of_scoring_stands_for_the_exact_fit(capsys):
    """It is nearer to the exact optimum than Vecchia's fit is, and within a twentieth of a standard error."""
    script("scattered_fits").main(
        ["--points", "1500", "--fields", "built-in", "--methods", "dense", "scoring", "vecchia"]
    )
    head, *rows = printed_rows(capsys.readouterr().out)
    dense, scoring, vecchia = (
        np.array(row[head.index("standard errors off")].split(", "), dtype=float) for row in rows
    )
    assert not dense.any()
    assert np.abs(scoring).max() < 0.05
    assert np.abs(scoring).max() < np.abs(vecchia).max()


@pytest.mark.exhaustive
def test_learnt_actions_are_compared_with_leading_eigenvectors(tmp_path, capsys):
    subspaces = script("learned_subspaces")
    subspaces.main(["--quick", "--output", str(tmp_path)])
    rows = printed_rows(capsys.readouterr().out)
    steps = [row for row in rows if len(row) == 8][1:]
    assert [int(row[0]) for row in steps] == [0, 1, 2, 5, 10]
    assert steps[0][4] == steps[0][6]  # actions begin as means of blocks
    saved = xr.open_zarr(tmp_path / "learned-subspaces.zarr", consolidated=False)
    distances = saved.grassmann_distance
    # of two random spans of 16 in 200 dimensions angles are about a right one less some
    assert (distances.sel(directions="random") > distances.sel(directions="conjugate gradients")).all()
    assert (distances > 0.0).all()
    assert (distances < np.sqrt(subspaces.QUICK_ACTIONS) * np.pi / 2).all()
    added = saved.combined_variance - saved.mathematical_variance
    assert not added.sel({"method": "exact"}).any()
    for method in ("learnt", "conjugate gradients", "means of blocks"):  # what was not computed is counted
        assert (added.sel({"method": method}) > -1e-8).all()
    assert (
        added.sel({"method": "inducing points"}).min() < -0.01
    )  # not so here: some are below the exact variance
    assert (tmp_path / "learned-subspaces.png").stat().st_size < FIGURE_BYTES


def test_grassmann_distances_and_krylov_spaces():
    subspaces = script("learned_subspaces")
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    mixed = basis[:, :3] @ rng.standard_normal((3, 3))
    assert subspaces.grassmann_distance(mixed, basis[:, :3]) < 1e-7
    np.testing.assert_allclose(
        subspaces.grassmann_distance(mixed, basis[:, 3:6]), np.sqrt(3) * np.pi / 2, rtol=1e-12
    )
    gram = basis @ np.diag(np.arange(1.0, 10.0)) @ basis.T
    residual = rng.standard_normal(9)
    columns = np.column_stack([np.linalg.matrix_power(gram, j) @ residual for j in range(4)])
    found = subspaces.krylov_space(gram, residual, 4)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-14)
    assert subspaces.grassmann_distance(columns, found) < 1e-7


@pytest.mark.exhaustive
def test_learnt_actions_are_compared_with_sweeps(capsys):
    script("learned_on_field").main(["--quick"])
    head, *rows = printed_rows(capsys.readouterr().out)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    assert [row["method"].split(",")[0] for row in found] == [
        *("exact", *4 * ["block Gauss-Seidel"], *8 * ["25 actions"])
    ]
    errors = [float(row["RMSE [K]"]) for row in found]
    assert errors[1] == errors[0]  # one block has all 400 points
    assert errors[0] < min(errors[5:])
    for first in (7, 10):  # the more steps, the smaller the errors
        assert errors[6] > errors[first] > errors[first + 1] > errors[first + 2]
        assert [float(row["products with G"]) for row in found[first : first + 3]] == sorted(
            float(row["products with G"]) for row in found[first : first + 3]
        )


@pytest.mark.exhaustive
def test_other_programs_read_the_cells_that_were_published(tmp_path, capsys):
    if not all(map(shutil.which, ("cdo", "gdalinfo", "gdalwarp"))):
        pytest.skip("cdo and gdal-bin are not installed")
    script("exported_maps").main(["--quick", "--output", str(tmp_path)])
    rows = printed_rows(capsys.readouterr().out)[1:]
    differences = {row[0]: [float(number) for number in row[2:]] for row in rows}
    assert list(differences) == ["Europe", "Africa", "Pacific", "Arctic", "Antarctic"]
    for xarray, cdo, gdal, zarr in differences.values():
        assert xarray == zarr == 0.0
        assert cdo < 1e-9
        assert gdal < 3.1e-5  # a float32 near 300 K, printed with one digit
    assert 1_000 < (tmp_path / "export.png").stat().st_size < FIGURE_BYTES


def test_a_map_that_is_shifted_is_an_error():
    place = {"latitude": [0.0, 2.0], "longitude": [-1.0, 1.0]}
    here = xr.DataArray(np.arange(4.0).reshape(2, 2), coords=place, dims=tuple(place))
    difference = script("exported_maps").difference
    assert difference(here.assign_coords(longitude=[359.0, 1.0])[::-1], here) == 0.0
    assert difference(here + 0.5, here) == 0.5
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        difference(here.assign_coords(longitude=[0.0, 2.0]), here)


def test_figures_of_the_documentation_are_small_and_used():
    text = "".join(page.read_text() for page in (REPOSITORY / "docs").rglob("*.md"))
    for figure in (REPOSITORY / "docs" / "figures").iterdir():
        assert figure.stat().st_size < FIGURE_BYTES, figure.name
        assert f"figures/{figure.name}" in text


def test_every_experiment_of_the_documentation_is_run_by_make_experiments(capsys):
    runner = script("__main__")
    pages = "".join(page.read_text() for page in (REPOSITORY / "docs").rglob("*.md"))
    named = set(re.findall(r"python -m pipelines\.experiments\.(\w+)", pages))
    assert named == set(runner.ALL_OF_THEM)  # and none backs nothing
    for name in runner.ALL_OF_THEM:
        assert callable(script(name).main)
    with pytest.raises(SystemExit, match="0"):
        runner.main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in runner.ALL_OF_THEM)
    with pytest.raises(SystemExit, match="2"):
        runner.main(["sharpp"])
    assert "there is no experiment sharpp; expected limits, h1_calibration" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_experiments_run_one_after_the_other_and_failures_are_named(tmp_path):
    given = ["--quick", "--output", str(tmp_path), "--data", str(tmp_path / "nothing")]
    with pytest.raises(SystemExit, match=r"ended with an error: sharp$"):
        script("__main__").main(["sharp", "sharp_optimisation", *given])
    assert "| Ackley | plain |" in (tmp_path / "sharp_optimisation.txt").read_text()
    assert (tmp_path / "sharp-optimisation.png").exists()


@pytest.mark.exhaustive
def test_few_observations_are_mapped_every_way(monkeypatch, capsys):
    module = script("few_observations")
    monkeypatch.setattr(module, "QUICK_SIMULATIONS", 3)
    monkeypatch.setattr(module, "KINDS", ("rough",))
    module.main(["--quick"])
    head, *rows = printed_rows(capsys.readouterr().out)
    assert [row[:2] for row in rows[:8]] == [
        [n, way] for n in ("12", "30") for way in ("known", "ML", "REML", "integrated over")
    ]
    assert all(len(row) == len(head) and 0.2 < float(row[2].split()[0]) <= 1.0 for row in rows[:8])
    kernels = rows[9:12]
    assert [row[:2] for row in kernels] == [["rough", way] for way in ("likeliest", "chosen", "averaged")]
    assert all(0.5 < float(row[-1].split()[0]) <= 1.0 for row in kernels)
    numbers = rows[13:]
    assert [row[:2] for row in numbers] == [
        [n, of] for n in ("30", "100") for of in ("of the prior", "the same")
    ]
    assert all(0.0 <= float(share) <= 1.0 for row in numbers for share in row[2:])


@pytest.mark.exhaustive
def test_outliers_are_weighted_and_flagged(monkeypatch, capsys):
    module = script("outliers")
    monkeypatch.setattr(module, "KINDS", {"plain": 0.0, "5 %": 0.05})
    module.main(["--quick"])
    rows = printed_rows(capsys.readouterr().out)
    mapped = {row[0]: row for row in rows[1:3]}
    assert float(mapped["plain"][3]) == float(mapped["plain"][2])
    assert float(mapped["5 %"][3]) < float(mapped["5 %"][2])
    wrong, hits, false = (int(cell) for cell in rows[-1][3:6])
    assert hits >= wrong - 1
    assert false <= 2


def test_kinds_are_predicted_by_what_made_them(monkeypatch, capsys):
    """Errors of the true numbers, over their error bars, have a mean square of one."""
    kinds = script("kinds")
    squares = []
    for kind in ("plain", "trend", "outliers", "ellipse"):
        case, known = kinds.drawn(kind, 60, 0)
        squares.append(((case.truth - known.mean) / known.std) ** 2)
    # 600 values of four fields, whose neighbours go together: about 50 independent ones, each of variance 2
    assert abs(np.mean(squares) - 1.0) < 4.0 * np.sqrt(2.0 / 50)
    rain = kinds.RAIN
    np.testing.assert_allclose(rain.forward(rain.inverse([0.5, 2.0])), [0.5, 2.0], rtol=1e-12)
    case, known = kinds.drawn("zeros", 60, 0)
    assert (case.y == 0.0).any()
    assert (np.mean(case.truth == 0.0) - np.mean(known.least_probability)) ** 2 < 0.02


@pytest.mark.exhaustive
def test_kinds_are_mapped_as_they_are_and_as_proposed(capsys):
    script("kinds").main(["--quick", "--kinds", "plain", "lognormal", "zeros", "--n", "60", "--fields", "2"])
    head, *rows = printed_rows(capsys.readouterr().out)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    both = ["today", "proposed"]
    assert [row["arguments"] for row in found] == [*both, "all", *both, *both, "plugged in", "censored"]
    ratio = [float(row["CRPS over known"].split()[0]) for row in found]
    assert min(ratio) > 0.9
    assert ratio[4] < ratio[3]
    assert ratio[6] < ratio[5]


@pytest.mark.exhaustive
def test_rain_of_which_a_third_is_none_is_scored(capsys):
    module = script("not_normal")
    if not module.DATA.exists():
        pytest.skip("the public tables are not here")
    module.main(["--quick"])
    printed = capsys.readouterr().out
    assert "Joker, as they are: 3 of 200 stations flagged" in printed
    *_, row = printed_rows(printed)
    assert row[0] == "nothing set"
    assert 0.5 < float(row[1]) < 1.5
