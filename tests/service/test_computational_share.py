"""What a run publishes of unfinished computation, and jobs that stop on it, against exact runs."""

import numpy as np
import pytest

from cagp_dist.cli.display import show_outcome
from cagp_dist.gram import exact_variance
from cagp_dist.report import write_report
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.solvers import Status
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points

GROUPS = ("posterior", "map")


def the_job(root, **solver):
    text = job_text(
        observations={
            "source": "synthetic",
            "grid_degrees": 10.0,
            "times": ["2020-01-01T00:00", "2020-07-01T00:00"],
        },
        design={"train": random_points(300), "test": random_points(40, seed=1), "map": map_grid(30.0)},
        prior={"lengthscale": 0.3, "variance": 22.0, "noise_variance": 0.5},
        solver=solver if "name" in solver else {"name": "block-gauss-seidel", "block_size": 50, **solver},
        cluster=None,
        output={"root": root},
    )
    return parse_job(text)


def groups_of(outcome):
    return {name: read_group(outcome.path, name) for name in GROUPS}


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    return groups_of(run(the_job(tmp_path_factory.mktemp("exact"), iterations=1, block_size=300)))


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    return run(the_job(tmp_path_factory.mktemp("early"), iterations=2))


def test_it_is_what_the_exact_run_is_better_by(exact, early):
    for name, group in groups_of(early).items():
        unfinished = group.t2m_std_computational.values
        assert group.t2m_std_computational.dims == group.t2m_std.dims
        expected = group.t2m_std.values**2 - exact[name].t2m_std.values ** 2
        assert expected.max() > 0.1
        np.testing.assert_allclose(unfinished**2, expected, rtol=0.0, atol=1e-9)
        np.testing.assert_array_equal(exact[name].t2m_std_computational, 0.0)
        assert "upper bound" in group.t2m_std_computational.attrs["comment"]


@pytest.mark.exhaustive
def test_it_is_said_in_the_run_in_the_terminal_and_on_the_page(early, capsys):
    posterior = read_group(early.path, "posterior")
    whole, part = (
        float(np.sqrt((posterior[name] ** 2).mean())) for name in ("t2m_std", "t2m_std_computational")
    )
    said = f"Of error bars of {whole:.2f} K, at most {part:.2f} K is unfinished computation"
    assert read_group(early.path).attrs["computational_statement"].startswith(said)
    show_outcome(early, None)
    assert f"share   {said}, {(part / whole) ** 2:.1%} of their variance" in capsys.readouterr().out
    page = write_report(early.path)
    assert said in page.read_text()
    assert "Unfinished computation in the error bar" in page.read_text()
    assert (page.parent / "computational.png").is_file()


@pytest.mark.exhaustive
def test_an_exact_run_says_that_nothing_is_left(tmp_path):
    outcome = run(the_job(tmp_path, iterations=1, block_size=300))
    statement = outcome.calibration.attrs["computational_statement"]
    assert statement == "The solve was exact: no part of the error bars is unfinished computation."
    assert not (write_report(outcome.path).parent / "computational.png").exists()


@pytest.mark.exhaustive
def test_actions_say_it_only_where_it_is_known(tmp_path, monkeypatch, exact):
    job = {"name": "conjugate-gradient", "iterations": 8}
    known = groups_of(run(the_job(tmp_path / "few", **job)))
    for name in GROUPS:
        expected = known[name].t2m_std.values ** 2 - exact[name].t2m_std.values ** 2
        np.testing.assert_allclose(
            known[name].t2m_std_computational.values ** 2, expected, rtol=0.0, atol=1e-9
        )
    monkeypatch.setattr(exact_variance, "FEW_POINTS", 10)
    outcome = run(the_job(tmp_path / "many", **job))
    assert "computational_statement" not in outcome.calibration.attrs
    assert all("t2m_std_computational" not in group for group in groups_of(outcome).values())
    assert not (write_report(outcome.path).parent / "computational.png").exists()


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_a_job_stops_on_its_share(tmp_path, exact, monkeypatch, few):
    if not few:
        monkeypatch.setattr(exact_variance, "FEW_POINTS", 10)
    outcome = run(the_job(tmp_path, iterations=100, computational_share=0.1))
    assert outcome.status is Status.SHARE_REACHED
    sweeps = read_group(outcome.path, "trace").iteration.size - 1
    assert 1 < sweeps < 100
    for name, group in groups_of(outcome).items():
        variance = group.t2m_std.values**2
        assert (variance - exact[name].t2m_std.values ** 2 <= 0.1 * variance + 1e-12).all()
        assert (group.t2m_std_computational.values**2 <= 0.1 * variance + 1e-12).all()
    assert "computational share 0.1" in read_group(outcome.path).attrs["solver"]


def test_a_share_that_is_not_reached_is_not_published(tmp_path):
    outcome = run(the_job(tmp_path, iterations=2, computational_share=1e-6))
    assert outcome.status is Status.SHARE_NOT_REACHED
    assert outcome.path is None


def test_a_job_without_a_share_keeps_its_name(tmp_path):
    plain = the_job(tmp_path, iterations=2)
    assert "computational_share" not in plain.canonical()["solver"]
    assert plain.canonical()["solver"] == {"name": "block-gauss-seidel", "iterations": 2, "block_size": 50}
    assert the_job(tmp_path, iterations=2, computational_share=0.1).canonical() != plain.canonical()
