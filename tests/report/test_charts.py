import numpy as np
import pytest

from cagp_dist.report.charts import draw_convergence, window


def test_a_prior_far_off_does_not_flatten_the_rest() -> None:
    values = np.array([15.6, 2.2, 1.6, 1.3, 1.1])
    low, high, beyond = window(values)
    assert beyond == 1
    assert low < 1.1 < 2.2 < high < 3.0


def test_a_prior_below_the_rest_is_left_out_as_well() -> None:
    low, high, beyond = window(np.array([-9.0, 2.2, 1.6, 1.3]))
    assert beyond == -1
    assert 0.5 < low < 1.3 < 2.2 < high < 3.0


def test_a_prior_nearby_is_kept() -> None:
    low, high, beyond = window(np.array([2.5, 2.2, 1.6, 1.3]))
    assert beyond == 0
    assert low < 1.3 < 2.5 < high


@pytest.mark.parametrize("values", [[4.0], [4.0, 4.0], [0.0], [3.0, 1.0]])
def test_degenerate_traces_have_a_window(values: list[float]) -> None:
    low, high, _ = window(np.array(values))
    assert low < min(values[1:] or values) <= max(values[1:] or values) < high


@pytest.mark.parametrize(
    ("prior", "notes"), [(9.0, ["prior: 9.00 K"]), (-9.0, ["prior: -9.00 K"]), (2.4, [])]
)
def test_the_prior_is_named_only_when_it_is_off_the_scale(prior: float, notes: list[str]) -> None:
    values = np.array([prior, 2.2, 1.6, 1.3])
    figure = draw_convergence({"iteration": np.arange(4.0), "rmse": values, "nll": values}).figure
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if text.startswith("prior")] == notes
    assert "1.300 K" in texts
    line = figure.axes[0].lines[0]
    assert len(np.asarray(line.get_xdata())) == (3 if notes else 4)
