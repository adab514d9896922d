"""One scale of colours for a field, wherever it is drawn."""

import json
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from cagp_dist.cartography.colour_scale import DIFFERENCES, ERROR_BARS, FIELD, scale_of


@pytest.mark.parametrize(
    ("outliers", "extend"), [([], "neither"), ([-50.0], "min"), ([50.0], "max"), ([-50.0, 50.0], "both")]
)
def test_a_scale_is_of_round_numbers_and_tells_which_values_lie_beyond(outliers, extend):
    values = np.concatenate([np.repeat([0.02, 0.97], 500), outliers, [np.nan]])
    scale = scale_of(values, colours=FIELD)
    assert (scale.low, scale.high, scale.extend) == (0.0, 1.0, extend)
    symmetric = scale_of(values, colours=DIFFERENCES)
    assert (symmetric.low, symmetric.high) == (-1.0, 1.0)


def test_a_constant_field_and_one_without_values_have_limits():
    for values in (np.full(3, 285.0), np.zeros(3), np.full(3, np.nan)):
        scale = scale_of(values, colours=FIELD)
        assert scale.low < scale.high


def test_a_scale_of_error_bars_of_transformed_values_ends_at_thirty_medians():
    std = np.concatenate([np.linspace(0.5, 1.5, 950), np.full(50, 1e12)])
    scale = scale_of(std, colours=ERROR_BARS, transformed=True)
    assert (scale.low, scale.extend) == (0.0, "max")
    assert 30.0 <= scale.high <= 35.0
    assert scale_of(std, colours=ERROR_BARS).high >= 1e12  # such as gaps of a field that is observed well
    wide = np.concatenate([np.linspace(0.5, 1.5, 950), np.full(50, 20.0)])
    assert scale_of(wide, colours=ERROR_BARS, transformed=True) == scale_of(wide, colours=ERROR_BARS)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_page_has_the_same_scale():
    rng = np.random.default_rng(0)
    fields = [285.0 + 20.0 * rng.normal(size=4000), rng.gamma(1.0, 0.3, 700), np.array([-3.0, 8.0, 2.0])]
    fields += [np.exp(spread * rng.normal(size=n)) for spread in (1.5, 9.0) for n in (50, 51, 60, 100, 701)]
    code = (files("cagp_dist") / "view/page/colours.js").read_text().replace("export ", "")
    code += f"console.log(JSON.stringify({json.dumps([field.tolist() for field in fields])}.map(each => "
    code += "[limits(each), limits(each, { symmetric: true }), limits(each, { transformed: true })])));"
    done = subprocess.run(["node", "-"], input=code, capture_output=True, text=True, check=True)
    for field, found in zip(fields, json.loads(done.stdout), strict=True):
        expected = [scale_of(field, colours=colours) for colours in (FIELD, DIFFERENCES)]
        expected.append(scale_of(field, colours=ERROR_BARS, transformed=True))
        np.testing.assert_allclose(found, [(scale.low, scale.high) for scale in expected])
