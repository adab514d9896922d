"""Proof on public tables: the page is what its figures make, scores are those of their formulas."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.experiments.scripts import REPOSITORY

if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from cagp_dist.predictive import Gaussian
from pipelines.benchmarks.peers import environments
from pipelines.proof import peers
from pipelines.proof.page import page
from pipelines.proof.problems import Drawn, Joined, Peer, Problem, kriged, leave_one_out, scores
from pipelines.proof.tables import TABLES


@pytest.fixture
def plane() -> Problem:
    """Eight places in a plane, of which two pairs are predicted from the others."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.uniform(0.0, 10.0, (8, 2)), columns=["x", "y"])
    rows = rows.assign(height=rng.uniform(0.0, 1.0, 8), value=np.arange(8.0))
    wanted = np.zeros((2, 8), dtype=bool)
    wanted[0, :2] = wanted[1, 4:6] = True
    return Problem(rows, ("x", "y"), "value", ~wanted, wanted)


def test_the_page_is_what_the_stored_figures_make():
    docs = REPOSITORY / "docs"
    assert (docs / "proof.md").read_text() == page(docs / "proof")
    assert {path.stem for path in (docs / "proof").glob("*.json")} <= set(TABLES)


def test_draws_are_scored_by_all_their_pairs():
    draws, values = np.random.default_rng(1).gamma(2.0, 1.0, (3, 40)), np.array([0.5, 2.0, 9.0])
    far = np.abs(draws - values[:, None]).mean(axis=1)
    apart = np.abs(draws[:, :, None] - draws[:, None, :]).mean(axis=(1, 2))
    np.testing.assert_allclose(Drawn(draws).crps(values), far - apart / 2)
    lower, upper = Drawn(draws).interval(0.9)
    assert np.all((lower > draws.min(axis=1)) & (upper < draws.max(axis=1)))


def test_distributions_of_splits_are_scored_split_after_split():
    mean, std, values = np.arange(5.0), np.linspace(1.0, 2.0, 5), np.full(5, 1.5)
    whole = Gaussian(mean, std)
    parts = Joined([whole[:2], whole[2:]])
    np.testing.assert_array_equal(parts.crps(values), whole.crps(values))
    np.testing.assert_array_equal(parts.interval(0.9), whole.interval(0.9))


def test_each_row_is_left_out_once():
    observed, wanted = leave_one_out(pd.DataFrame({"x": range(4)}))
    np.testing.assert_array_equal(observed, ~wanted)
    np.testing.assert_array_equal(wanted, np.eye(4, dtype=bool))


def test_our_rows_are_those_of_krige(plane):
    import cagp_dist as cagp

    columns, rows = {"x": "x", "y": "y"}, plane.rows
    answer = kriged(mean=3.0, kernel="matern32")(plane)
    read, given = ["x", "y", "value"], {"mean": 3.0, "kernel": "matern32", "progress": False}
    expected = [
        cagp.krige(rows.loc[seen, read], to=rows.loc[new, read[:2]], columns=columns, value="value", **given)
        for seen, new in zip(plane.observed, plane.wanted, strict=True)
    ]
    np.testing.assert_array_equal(answer.mean, np.concatenate([each["mean"] for each in expected]))
    found, truth = scores(answer, plane.truth), np.array([0.0, 1.0, 4.0, 5.0])
    assert found["RMSE"] == pytest.approx(np.sqrt(np.mean((answer.mean - truth) ** 2)))
    assert found["MAE"] == pytest.approx(np.abs(answer.mean - truth).mean())


ADAPTER = """
import numpy as np
from harness import Predicted, serve

def mean(seen):
    assert not seen.geographic and seen.X.shape == (6, 2)
    return Predicted(seen.y.mean() + seen.U_new[:, 0], np.full(len(seen.X_new), 2.0))

def broken(seen):
    raise ValueError("six is too few")

serve({"mean": mean, "broken": broken})
"""


@pytest.fixture
def adapters(tmp_path, monkeypatch) -> Path:
    """An adapter that runs under this interpreter, in a folder of its own."""
    (tmp_path / "harness.py").write_text((peers.ADAPTERS / "harness.py").read_text())
    (tmp_path / "by_pykrige.py").write_text(ADAPTER)
    monkeypatch.setattr(peers, "ADAPTERS", tmp_path)
    monkeypatch.setattr(environments, "interpreter", lambda peer, folder: Path(sys.executable))
    return tmp_path


def test_a_program_gets_its_columns_and_answers_split_after_split(adapters, plane):
    answer = peers.answer_of(Peer("pykrige", "mean", ("height",)), plane, adapters, limit_seconds=60)
    means = [np.arange(8.0)[seen].mean() for seen in plane.observed]
    heights = [plane.rows["height"][new] for new in plane.wanted]
    expected = np.concatenate([mean + height for mean, height in zip(means, heights, strict=True)])
    np.testing.assert_allclose(answer.mean, expected)
    np.testing.assert_allclose(answer.distribution.interval(0.9)[1], expected + 2.0 * 1.6448536)


def test_a_program_that_cannot_answer_says_why(adapters, plane):
    with pytest.raises(peers.UnavailableError, match="six is too few"):
        peers.answer_of(Peer("pykrige", "broken", ("height",)), plane, adapters, limit_seconds=60)
    with pytest.raises(peers.UnavailableError, match="GiB"):
        peers.answer_of(Peer("pykrige", "mean", matrices=1e12), plane, adapters, limit_seconds=60)
