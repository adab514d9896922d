"""Plans of what is done for values that are not normal: counts and bytes are those that are taken."""

import tracemalloc

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.gram.left_out_groups import LeftOutInGroups
from cagp_dist.likelihood.fit_work import FitSize, fit_work
from cagp_dist.pipeline import censoring, checking, transform_choice
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.values_plans import FITS, work_of_check, work_of_draws, work_of_transforms
from cagp_dist.predictive.transforms import Censored, Identity
from cagp_dist.runtime.executor import SerialExecutor

from .test_checking import checked, observed

KERNEL = cagp.Matern32(0.04, 4.0)
MODEL = FittedModel(KERNEL, 10.0, np.asarray(0.0), 0.5)


@pytest.mark.parametrize("most_dense", [2_000, 100], ids=["dense", "neighbours"])
def test_draws_take_the_bytes_and_steps_that_are_planned(most_dense, monkeypatch):
    """Steps are those of single values, of which each takes a product with what it depends on."""
    points, _ = observed(150, 0.0, 7)
    threshold = float(np.quantile(points.values, 0.3))
    hidden = points.transformed(Censored(Identity(), threshold, threshold))
    monkeypatch.setattr(censoring, "MOST_DRAWN_DENSE", most_dense)
    monkeypatch.setattr("cagp_dist.pipeline.values_plans.MOST_DRAWN_DENSE", most_dense)
    censoring.drawn(hidden, MODEL, draws=2)  # compiled
    steps, below = [0], censoring._below

    def counting(centre, *others):
        steps[0] += centre.size
        return below(centre, *others)

    monkeypatch.setattr(censoring, "_below", counting)
    tracemalloc.start()
    censoring.drawn(hidden, MODEL, draws=60)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    count = int(hidden.censored.sum())
    plan = work_of_draws(150, count, draws=60)
    assert 0.5 < plan.peak_bytes / peak < 2.0
    once = work_of_draws(150, count, draws=0).flops
    each = 2 * count if most_dense > 150 else 2 * censoring.NEIGHBOURS
    assert plan.flops - once == steps[0] * (each + 100)


def test_transforms_take_as_many_fits_as_planned(monkeypatch):
    points, _ = observed(60, 0.0, 8)
    fits = [0]

    def fitted(*_):
        fits[0] += 1
        return MODEL

    monkeypatch.setattr(transform_choice, "_fitted", fitted)
    monkeypatch.setattr(transform_choice, "_with_number", lambda *_: Identity())
    settings = ModelSettings("matern32", cagp.MEANS["constant"])
    transform_choice.transform_of_values(
        points, "auto", settings, Execution(SerialExecutor()), narrator=Narrator(shown=False)
    )
    planned, work = work_of_transforms(tuple(FITS), places=60, fields=1, parts=1, deviating=False, workers=1)
    assert planned == fits[0]
    assert work == planned * fit_work(FitSize("dense", 60, 1), workers=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [0.0, 0.03])
def test_a_check_takes_the_flops_that_are_planned(share, monkeypatch):
    """Within a factor of two: how many rounds it takes follows the values."""
    points, _ = observed(300, share, 9)
    flops, fit, solve = [0], checking.fit, LeftOutInGroups._solve

    def fitting(task, *others, **given):
        flops[0] += fit_work(FitSize("dense", task.fitted_to.north.size, 1), workers=1).flops
        return fit(task, *others, **given)

    def solving(self, chosen):
        sizes = np.diff(self.groups.starts)[chosen]
        flops[0] += int((sizes**2 * (sizes + 50)).sum())
        return solve(self, chosen)

    monkeypatch.setattr(checking, "fit", fitting)
    monkeypatch.setattr(LeftOutInGroups, "_solve", solving)
    checked(points)
    plan = work_of_check(300, fields=1, kernel="matern32", parts=1, deviating=False, fitted=True, workers=1)
    assert 0.5 < plan.flops / flops[0] < 2.0
    assert plan.peak_bytes >= DOUBLE * 2 * 300**2
