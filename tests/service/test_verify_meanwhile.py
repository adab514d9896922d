"""`cagp verify` of a folder in which a daily job publishes, and another command prunes, at that moment."""

import shutil

import numpy as np
import pytest

from cagp_dist.errors import BusyError, StoreError
from cagp_dist.service import run as running
from cagp_dist.service.run import verify_runs
from cagp_dist.store import atomic_files as files
from cagp_dist.store import manifest, publish, series, series_check
from cagp_dist.store.atomic_files import exchange, read_unless_removed
from cagp_dist.store.prune import prune_runs
from cagp_dist.store.publish import current_run, output_lock
from cagp_dist.store.retention import Retention
from cagp_dist.store.series_check import check_series

from ..store import publisher


class Daily:
    """A folder with a series, in which `publish` does the next day."""

    def __init__(self, root):
        self.root, self.days = root, 0

    def publish(self, *, into_series=True):
        time = np.datetime64("2020-01-01T00", "ns") + self.days * np.timedelta64(1, "D")
        scores = publisher.make_groups(self.days)["calibration"].isel(time=[0]).assign_coords(time=[time])
        key = publisher.key_of(self.days)
        with output_lock(self.root):
            made = {"status": "exact", "date_created": f"{str(time)[:19]}Z"}  # by which runs are pruned
            run = publish.publish(self.root, {"calibration": scores}, run_key=key, attributes=made)
            if into_series:
                series.append_runs(self.root, [run])
        self.days += 1
        return run


@pytest.fixture(scope="module")
def two_days(tmp_path_factory):
    daily = Daily(tmp_path_factory.mktemp("days") / "out")
    for _ in range(2):
        daily.publish()
    return daily


@pytest.fixture
def daily(two_days, tmp_path):
    daily = Daily(shutil.copytree(two_days.root, tmp_path / "out", symlinks=True))
    daily.days = two_days.days
    return daily


def before(monkeypatch, module, name, act):
    """Act before each call of a function."""
    original = getattr(module, name)

    def called(*arguments, **settings):
        act()
        return original(*arguments, **settings)

    monkeypatch.setattr(module, name, called)


STEPS = [
    (manifest, "digests_of"),
    (manifest, "_digest"),
    (series_check, "read_group"),
    (series_check, "open_group"),
    (series, "of_run"),
]


QUICK = [("of_run", True)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("at", "pruned"),
    [
        pytest.param(
            at,
            pruned,
            id=f"{name}, pruned" if pruned else name,
            marks=[] if (name, pruned) in QUICK else [pytest.mark.exhaustive],
        )
        for pruned in (False, True)
        for at, (_, name) in enumerate(STEPS)
    ],
)
def test_a_series_that_moves_on_while_it_is_checked_is_not_damaged(daily, monkeypatch, at, pruned):
    """At its first call, a step finds the version that it reads removed, because there are two newer ones."""
    days = iter([2])

    def meanwhile():
        for _ in range(next(days, 0)):
            daily.publish()
            if pruned:
                prune_runs(daily.root, Retention(runs=1))

    with monkeypatch.context() as patched:
        before(patched, *STEPS[at], meanwhile)
        found = check_series(daily.root)
    assert next(days, None) is None, "nothing was published meanwhile"
    # the runs of the days before may have been compared before they were removed, or not
    assert found.version == series.current_version(daily.root) or found.version.name == "000002.zarr"
    assert found.times == int(found.version.stem)
    assert found.compared in ({0, 1, 2} if pruned else {found.times})
    assert check_series(daily.root).times == 4


@pytest.mark.exhaustive
def test_a_series_that_never_stands_still_is_busy_and_a_damaged_one_is_damaged(daily, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(files, "READS", 2)
        before(patched, series_check, "read_group", lambda: (daily.publish(), daily.publish()))
        with pytest.raises(BusyError) as told:
            check_series(daily.root)
        assert told.value.key == "changes"
    assert told.value.exit_code == 75
    assert daily.days == 2 + 2 * 2
    version = series.current_version(daily.root)
    chunk = next(path for path in (version / series.SCORES / "rmse").glob("c*"))
    chunk.write_bytes(chunk.read_bytes()[::-1])
    with pytest.raises(StoreError) as refusal:
        check_series(daily.root)
    assert refusal.value.key == "damaged"
    shutil.rmtree(version)
    with pytest.raises(StoreError) as refusal:
        check_series(daily.root)
    assert refusal.value.key == "lost"


@pytest.mark.exhaustive
def test_runs_that_come_and_go_while_they_are_verified_are_not_damaged(daily, monkeypatch):
    for _ in range(2):
        daily.publish(into_series=False)
    acts = iter([lambda: None, daily.publish, lambda: prune_runs(daily.root, Retention(runs=1))])
    with monkeypatch.context() as patched:
        before(patched, running, "verify_run", lambda: next(acts, lambda: None)())
        found = verify_runs(daily.root)
    assert next(acts, None) is None, "nothing happened meanwhile"
    assert current_run(daily.root) in found
    assert len(found) == 3, "one before others were published, one before others went, and the newest"
    assert verify_runs(daily.root) == [current_run(daily.root)]


def test_a_damaged_run_that_is_replaced_while_it_is_read_is_read_again(daily, monkeypatch, tmp_path):
    run = current_run(daily.root)
    whole = shutil.copytree(run, tmp_path / "whole")
    (run / "calibration" / "zarr.json").write_text("{}")
    faults = []

    def compare(path, original=manifest.compare):
        try:
            original(path)
        except StoreError as error:
            faults.append(str(error))
            exchange(whole, run)
            raise

    with monkeypatch.context() as patched:
        patched.setattr(manifest, "compare", compare)
        assert run in verify_runs(daily.root)
    assert ["calibration/zarr.json is damaged" in fault for fault in faults] == [True]
    shutil.rmtree(run / "calibration")
    with pytest.raises(StoreError) as refusal:
        verify_runs(daily.root)
    assert refusal.value.key == "damaged"
    (run / "zarr.json").unlink()
    with pytest.raises(StoreError) as refusal:
        verify_runs(daily.root)
    assert refusal.value.key == "damaged"


def test_the_current_run_is_looked_up_again_when_it_went(daily, monkeypatch):
    """Between the moment at which its name is read and that at which its folder is opened."""
    acts = iter([daily.publish])

    def path_of(root, key, original=publish._run_path):
        path = original(root, key)
        for act in acts:
            act()
            prune_runs(root, Retention(runs=1))
        return path

    monkeypatch.setattr(publish, "_run_path", path_of)
    found = current_run(daily.root)
    assert (found.stem, found.is_dir()) == (publisher.key_of(2), True)
    shutil.rmtree(found)
    with pytest.raises(StoreError) as refusal:
        current_run(daily.root)
    assert refusal.value.key == "no-run"


def test_what_is_gone_is_not_read_and_errors_of_what_stays_are_raised(tmp_path):
    assert read_unless_removed(tmp_path / "absent", lambda: 1) is None
    folder = tmp_path / "folder"
    folder.mkdir()
    assert read_unless_removed(folder, lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        read_unless_removed(folder, lambda: 1 // 0)

    def removed():
        folder.rmdir()
        return 1 // 0

    assert read_unless_removed(folder, removed) is None
    assert files.folder_identity(folder) == ()
