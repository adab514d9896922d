"""The comparison with other programs: what a peer does, right or wrong, becomes a line of the table."""

import importlib
import json
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import scipy.stats

from cagp_dist.calibration.verification.scores import scores
from pipelines.benchmarks.peers import __main__ as command
from pipelines.benchmarks.peers import reference, running
from pipelines.benchmarks.peers.adapters.harness import Clock, Fit, Prediction, Problem
from pipelines.benchmarks.peers.catalogue import ADAPTERS, OURS, PEERS, Method, Peer
from pipelines.benchmarks.peers.comparing import Line, Settings, fit, predict
from pipelines.benchmarks.peers.environments import STAMP, AbsentError, asked, interpreter
from pipelines.benchmarks.peers.problems import (
    CASES,
    FIT_START,
    Case,
    check_fit_problem,
    check_problem,
    fitted,
    make_problem,
)
from pipelines.benchmarks.peers.tables import FIT_HEAD, PREDICTION_HEAD, aligned, fit_table, prediction_table

pytestmark = pytest.mark.exhaustive

SMALL = Case(150, 40)
METHOD = Method("dense", "by hand")

DENSE = """
import os, subprocess, sys, time
sys.path.insert(0, {adapters!r})
import numpy as np
from harness import Fit, Prediction, serve

def kernel(X, Z, problem):
    r = np.sqrt(3) * np.linalg.norm(X[:, None] - Z, axis=2) / problem.lengthscale
    return problem.variance * (1 + r) * np.exp(-r)

def dense(problem, clock):
    with clock("solve"):
        G = kernel(problem.X, problem.X, problem) + problem.noise_variance * np.eye(len(problem.X))
    with clock("predict"):
        V = kernel(problem.X_test, problem.X, problem)
        W = np.linalg.solve(G, V.T)
        variance = problem.variance + problem.noise_variance - np.sum(V.T * W, axis=0)
        mean, std = W.T @ problem.y, np.sqrt(variance)
    {change}
    return Prediction(mean, std)

def guess(problem, clock):
    return Fit(2 * problem.lengthscale, problem.variance, problem.noise_variance, 3)

serve({{"dense": dense, "fit": guess}})
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(environments=tmp_path / "environments", time_limit_seconds=600.0)


@pytest.fixture(scope="module")
def small() -> tuple[Problem, np.ndarray]:
    return make_problem(SMALL, threads=2)


def fake_peer(folder: Path, change: str = "pass", *, requirements: tuple[str, ...] = ()) -> Peer:
    """A peer that solves by a dense formula of its own; `change` spoils what it found."""
    script = folder / "for_fake.py"
    script.write_text(DENSE.format(adapters=str(ADAPTERS), change=change))
    return Peer("fake", script, requirements, methods=(METHOD,), fits=(Method("fit", "guess"),))


def line_of(peer: Peer, small: tuple[Problem, np.ndarray], settings: Settings) -> Line:
    return predict("small", *small, peer=peer, method=METHOD, settings=settings)


def test_a_right_answer_is_scored(tmp_path, small, settings):
    line = line_of(fake_peer(tmp_path), small, settings)
    assert line.outcome == "ok"
    problem, held_out = small
    exact = reference.predict(problem, "simple")
    wanted = scores(exact.mean, exact.std, held_out, levels=(0.95,))
    figures = line.figures
    np.testing.assert_allclose(
        [figures[name] for name in ("rmse", "nll", "crps", "coverage")],
        [wanted.rmse, wanted.nll, wanted.crps, wanted.coverage[0]],
    )
    assert figures["check_difference"] < 1e-12
    assert figures["seconds"] == figures["solve_seconds"] + figures["predict_seconds"] > 0.0
    assert figures["processor_seconds"] > 0.0
    assert 20.0 < figures["peak_mebibytes"] < 2000.0


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("mean = mean + 0.01", r"not compared: differs by \d\.\de-02 from the dense formula, allowed 1e-06"),
        ("std = np.sqrt(variance - problem.noise_variance)", r"not compared: differs by .*"),
        ("mean = mean * np.nan", r"not compared: differs by nan .*"),
        ("if len(mean) > 10: std = -std", r"mean or standard deviation is not finite, or not above zero"),
        ("raise ValueError('too many points')", r"ValueError: too many points"),
        ("raise ValueError(os.environ['NUMBA_NUM_THREADS'])", r"ValueError: 2"),
        ("sys.exit(3)", r"ended with code 3"),
        ("os.kill(os.getpid(), 11)", r"stopped by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", r"stopped by the system, most likely for its memory"),
    ],
)
def test_what_goes_wrong_is_told_and_not_compared(tmp_path, small, settings, change, outcome):
    line = line_of(fake_peer(tmp_path, change), small, settings)
    assert re.fullmatch(outcome, line.outcome)
    assert line.figures == {}


def test_a_spread_that_is_larger_by_design_is_not_held_against_a_method(tmp_path, small, settings):
    peer, method = fake_peer(tmp_path, "std = 2.0 * std"), Method("dense", "wide", exact_spread=False)
    assert predict("small", *small, peer=peer, method=method, settings=settings).outcome == "ok"


def test_an_adapter_may_be_asked_by_arrays(tmp_path):
    script = tmp_path / "twice.py"
    script.write_text(
        "import sys, numpy as np\n"
        "_, factor, problem, answer = sys.argv\n"
        "np.savez(answer, **{name: int(factor) * each for name, each in np.load(problem).items()})\n"
    )
    found = asked(fake_peer(tmp_path), script, "2", folder=tmp_path, a=np.arange(3), b=(1.0,))
    assert {name: each.tolist() for name, each in found.items()} == {"a": [0, 2, 4], "b": [2.0]}


def test_after_its_time_a_peer_is_stopped_with_its_children(tmp_path, small, settings, monkeypatch):
    note = tmp_path / "child"

    def late():  # as soon as the child is there
        return time.monotonic() + 1000.0 * (note.exists() and note.read_text() != "")

    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=late))
    change = (
        "child = subprocess.Popen(['sleep', '600']); "
        f"open({str(note)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    line = line_of(fake_peer(tmp_path, change), small, settings)
    assert line.outcome == "not done after 600 s"
    _until(lambda: _gone(int(note.read_text())))


def test_an_interrupted_comparison_leaves_nothing_running(tmp_path):
    fake_peer(tmp_path, f"open({str(tmp_path / 'started')!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    code = f"""
        import sys
        from pathlib import Path
        from pipelines.benchmarks.peers import __main__ as command
        from pipelines.benchmarks.peers.catalogue import Method, Peer
        from pipelines.benchmarks.peers.problems import Case
        fake = Peer("fake", Path({str(tmp_path / "for_fake.py")!r}), (), (Method("dense", "by hand"),))
        command.PEERS, command.CASES, command.FIT_CASES = {{"fake": fake}}, {{"small": Case(150, 40)}}, {{}}
        sys.argv = ["peers", "--output", {str(tmp_path / "peers.json")!r}]
        command.main()
    """
    suite = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL)
    note = tmp_path / "started"
    _until(lambda: note.exists() and note.read_text() != "")
    suite.terminate()
    assert suite.wait(300.0) == 143
    assert _gone(int(note.read_text()))


def _gone(process: int) -> bool:
    return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def _until(reached: Callable[[], bool], *, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_memory_of_children_counts(tmp_path, small, settings, monkeypatch):
    seen, memory = tmp_path / "seen", running._memory

    def noted(process):
        found = memory(process)
        if found > 300 * 2**20:
            seen.touch()
        return found

    monkeypatch.setattr(running, "_memory", noted)
    child = "import os, time\nheld = b'.' * (300 * 2**20)\n"
    child += f"while not os.path.exists({str(seen)!r}): time.sleep(0.05)"
    change = f"clock.seconds['build'] = 9.0; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    line = line_of(fake_peer(tmp_path, change), small, settings)
    assert line.figures["peak_mebibytes"] > 300.0


def test_what_would_not_fit_into_memory_is_not_tried(tmp_path, small, settings):
    method = Method("dense", "huge", matrices=1e9)
    line = predict("small", *small, peer=fake_peer(tmp_path), method=method, settings=settings)
    assert re.fullmatch(r"not tried: about \d+ GiB of matrices, \d+ GiB are free", line.outcome)


def test_a_peer_that_cannot_be_installed_is_absent(tmp_path, small, settings, monkeypatch):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho 'ERROR: no distribution for a==1' >&2; echo 'Try later.' >&2; exit 1\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    line = line_of(fake_peer(tmp_path, requirements=("a==1",)), small, settings)
    assert line.outcome == "absent: ERROR: no distribution for a==1"
    assert line.figures == {}


def test_environments_are_made_once(tmp_path, monkeypatch):
    peer = fake_peer(tmp_path, requirements=("first==1.0", "second==2.0"))
    commands: list[tuple[str, ...]] = []
    module = "pipelines.benchmarks.peers.environments._run"
    monkeypatch.setattr(
        module, lambda *command: (commands.append(command), (tmp_path / "fake").mkdir(exist_ok=True))
    )
    python = interpreter(peer, tmp_path)
    assert python.parent.parent == tmp_path / "fake"
    assert commands[0][1:4] == ("-m", "venv", "--clear")
    assert commands[1][0] == str(python)
    assert commands[1][-2:] == ("first==1.0", "second==2.0")
    assert interpreter(peer, tmp_path) == python
    assert len(commands) == 2
    (tmp_path / "fake" / STAMP).write_text("first==0.9")
    interpreter(peer, tmp_path)
    assert len(commands) == 4


def test_who_needs_nothing_runs_here(tmp_path):
    assert interpreter(fake_peer(tmp_path), tmp_path) == Path(sys.executable)


def test_an_environment_without_a_reason_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(AbsentError, match="no reason given"):
        interpreter(fake_peer(tmp_path, requirements=("a==1",)), tmp_path)


def test_a_fit_is_judged_by_the_exact_likelihood(tmp_path, settings):
    problem = check_fit_problem(threads=2)
    peer = fake_peer(tmp_path)
    line = fit("small", problem, peer=peer, method=peer.fits[0], settings=settings)
    assert line.figures["lengthscale"] == 2.0 * problem.lengthscale
    assert line.figures["evaluations"] == 3.0
    found = Fit(2.0 * problem.lengthscale, problem.variance, problem.noise_variance, 3)
    assert line.figures["log_likelihood"] == pytest.approx(_log_density(problem, found))


def _log_density(problem: Problem, found: Fit) -> float:
    K = reference.matern32(problem.X, problem.X, lengthscale=found.lengthscale, variance=found.variance)
    G = K + found.noise_variance * np.eye(len(K))
    return float(scipy.stats.multivariate_normal(cov=G).logpdf(problem.y))


def test_ordinary_kriging_solves_the_system_with_a_multiplier():
    problem = check_problem(threads=1)
    n = len(problem.X)
    numbers = {"lengthscale": problem.lengthscale, "variance": problem.variance}
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = reference.matern32(problem.X, problem.X, **numbers) + problem.noise_variance * np.eye(n)
    system[n, n] = 0.0
    right = np.ones((n + 1, len(problem.X_test)))
    right[:n] = reference.matern32(problem.X, problem.X_test, **numbers)
    weights = np.linalg.solve(system, right)
    sill = problem.variance + problem.noise_variance
    found = reference.predict(problem, "ordinary")
    np.testing.assert_allclose(found.mean, weights[:n].T @ problem.y)
    np.testing.assert_allclose(found.std**2, sill - np.sum(weights * right, axis=0))


def test_a_tapered_kernel_ends_at_its_support():
    X = np.array([[0.0, 0.0, 1.0]])
    Z = X + np.array([[0.0], [0.2], [0.4], [0.9]]) * np.array([1.0, 0.0, 0.0])
    np.testing.assert_allclose(reference.wendland(X, Z)[0], [1.0, 0.1875, 0.0, 0.0], atol=1e-15)
    support = f"TAPER_SUPPORT = {reference.TAPER_SUPPORT}"
    assert support in (ADAPTERS / "for_fvgp.py").read_text()


@pytest.mark.parametrize("method", PEERS[OURS].methods, ids=lambda method: method.name)
def test_our_own_answers_agree_with_the_dense_formula(monkeypatch, method):
    problem = check_problem(threads=2)
    adapter = _our_adapter(monkeypatch)
    clock = Clock()
    found = getattr(adapter, method.name.replace("-", "_"))(problem, clock)
    assert reference.difference(problem, method, Prediction(found.mean, found.std)) <= method.tolerance
    assert clock.total > 0.0


@pytest.mark.parametrize("method", PEERS[OURS].fits, ids=lambda method: method.name)
def test_our_own_fits_find_a_maximum(monkeypatch, method):
    problem = check_fit_problem(threads=2)
    found = getattr(_our_adapter(monkeypatch), method.name.replace("-", "_"))(problem, Clock())
    best = reference.log_likelihood(problem, found)
    for factor in (0.9, 1.1):
        for name in ("lengthscale", "variance", "noise_variance"):
            moved = Fit(**{**vars(found), name: factor * getattr(found, name)})
            assert reference.log_likelihood(problem, moved) < best + 1e-3


def _our_adapter(monkeypatch):
    monkeypatch.syspath_prepend(str(ADAPTERS))
    return importlib.import_module("for_cagp_dist")


def test_points_and_values_of_a_problem(small):
    problem, held_out = small
    assert (problem.X.shape, problem.y.shape, problem.X_test.shape) == ((150, 3), (150,), (40, 3))
    assert held_out.shape == (40,)
    assert problem.observed.size == 0
    np.testing.assert_allclose(np.linalg.norm(problem.X, axis=1), 1.0)
    assert np.abs(held_out).max() < 60.0  # kelvin: the mean is gone
    apart = np.linalg.norm(problem.X[:, None] - problem.X_test, axis=2)
    assert apart.min() > 1e-6


def test_rows_of_a_grid_problem():
    problem, held_out = make_problem(Case(430, 20, step=16), threads=1)
    assert problem.observed.shape == (15, 30)
    assert (problem.observed.sum(), held_out.size) == (430, 20)
    np.testing.assert_allclose(problem.latitude_degrees, -problem.latitude_degrees[::-1])
    grid = np.empty((15, 30, 3))
    grid[problem.observed], grid[~problem.observed] = problem.X, problem.X_test
    np.testing.assert_allclose(
        grid[:, :, 2], np.sin(np.deg2rad(problem.latitude_degrees))[:, None] + np.zeros(30)
    )
    np.testing.assert_allclose(
        np.arctan2(grid[3, :15, 1], grid[3, :15, 0]), np.deg2rad(12.0 * np.arange(15)), atol=1e-12
    )
    everything, nothing = make_problem(Case(450, 0, step=16), threads=1)
    assert everything.observed.all()
    assert nothing.size == 0
    assert (everything.lengthscale, everything.variance, everything.noise_variance) == FIT_START


def test_every_method_of_the_catalogue_is_there_and_every_version_is_fixed():
    for peer in PEERS.values():
        served = peer.adapter.read_text().split("serve(")[-1]
        assert all(f'"{method.name}": ' in served for method in (*peer.methods, *peer.fits))
        assert all(re.fullmatch(r"[a-z-]+==[0-9.]+", requirement) for requirement in peer.requirements)


FIGURES = {
    "seconds": 4.0,
    "processor_seconds": 7.0,
    "peak_mebibytes": 1234.0,
    "rmse": 1.5,
    "nll": 2.0,
    "crps": 0.75,
    "coverage": 0.95,
    "evaluations": 12.0,
    "lengthscale": 0.1,
    "variance": 20.0,
    "noise_variance": 0.5,
    "log_likelihood": -1000.0,
}


def test_ratios_are_to_ours_and_what_failed_says_why():
    lines = [
        Line("c", OURS, "fast", "ok", FIGURES),
        Line(
            "c",
            "other",
            "slow",
            "ok",
            FIGURES | {"seconds": 10.0, "evaluations": 0.0, "log_likelihood": -1002.5},
        ),
        Line("c", "third", "none", "absent: no such thing", {}),
    ]
    table = prediction_table(lines)
    assert table.splitlines()[2:] == [
        f"| {OURS} | fast | 4 | 1 | 7 | 1,234 | 1.500 | 2.000 | 0.750 | 0.950 |",
        "| other | slow | 10 | 2.5 | 7 | 1,234 | 1.500 | 2.000 | 0.750 | 0.950 |",
        "| third | none | *absent: no such thing* |  |  |  |  |  |  |  |",
    ]
    assert fit_table(lines).splitlines()[3:] == [
        "| other | slow | 10 | 2.5 | 7 | 1,234 |  | 0.1000 | 20.00 | 0.500 | 2.50 |",
        "| third | none | *absent: no such thing* |  |  |  |  |  |  |  |  |",
    ]
    assert len({row.count("|") for row in fit_table(lines).splitlines()}) == 1
    assert "| other | slow | 10 |  | 7 | 1,234 |" in prediction_table(lines[1:])
    shown = aligned(table).splitlines()
    assert len(shown) == 4
    assert shown[1].index("1,234") == shown[2].index("1,234")


def test_the_page_of_the_documentation_holds_these_tables():
    page = (Path(__file__).parents[1] / "docs" / "peers.md").read_text()
    assert PREDICTION_HEAD in page
    assert FIT_HEAD in page
    for peer in PEERS.values():
        assert f"| {peer.name} | " in page


@pytest.mark.parametrize("markdown", [False, True])
def test_one_command_runs_prints_and_writes(tmp_path, monkeypatch, capsys, markdown):
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)  # the tests keep their own
    monkeypatch.setattr(command, "PEERS", {"fake": fake_peer(tmp_path)})
    monkeypatch.setattr(command, "CASES", {"small": SMALL})
    monkeypatch.setattr(command, "FIT_CASES", {"fit-small": Case(450, 0, step=16)})
    output = tmp_path / "out" / "peers.json"
    options = ["--peer", "fake", "--output", str(output), "--environments", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["peers", *options, *(["--markdown"] if markdown else [])])
    command.main()
    printed, told = capsys.readouterr()
    assert "small: 150 points observed, 40 held out, drawn at random\n    fake, by hand: " in told
    assert (PREDICTION_HEAD in printed) == (FIT_HEAD in printed) == markdown
    document = json.loads(output.read_text())
    assert [(line["case"], line["outcome"]) for line in document["lines"]] == [
        ("small", "ok"),
        ("fit-small", "ok"),
    ]
    assert document["machine"]["threads"] == 2


@pytest.mark.parametrize("name", ["points-2000", "points-10000", "grid-60x120", "grid-120x240"])
def test_the_prior_of_a_case_suits_its_points(name):
    """Maximum likelihood of the observed points, to the three digits that are written down."""
    problem, _ = make_problem(CASES[name], threads=1)
    np.testing.assert_allclose(fitted(problem), CASES[name].prior, rtol=6e-3)
