"""Runs in an object store: whole or not there, whoever dies, and trouble is an error that says what to do."""

import itertools
import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.digest import text_sha256
from cagp_dist.errors import BusyError, ConfigurationError, DataError, StoreError
from cagp_dist.fields.stores.remote import open_zarr
from cagp_dist.service.daily import daily
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.store import bucket as bucket_module
from cagp_dist.store import object_removal, uploads
from cagp_dist.store.addresses import folder_of, parse_address
from cagp_dist.store.bucket import Bucket, Marker
from cagp_dist.store.lock import output_lock
from cagp_dist.store.object_removal import old_run_keys, remove_abandoned
from cagp_dist.store.objects import DamagedRunError, PublishedObjects
from cagp_dist.store.outputs import FolderOutput, ObjectOutput, output_at, readable
from cagp_dist.store.publish import current_run
from cagp_dist.store.retention import Retention
from cagp_dist.store.schema import state_group, values_group
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..ports import closed_port
from ..sources import save, temperature
from . import object_publisher, publisher
from .memory_server import Connection, MemoryServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CANARIES = {"AWS_ACCESS_KEY_ID": "AKIACANARY", "AWS_SECRET_ACCESS_KEY": "canary+of+secrets"}


# Without a server


@pytest.mark.parametrize(
    "address", ["s3://", "s3://me:canary@maps/a", "s3://maps/a?key=canary", "s3://maps/../a", "s3://maps//a"]
)
def test_what_is_no_address_is_refused_without_being_repeated(address, tmp_path):
    with pytest.raises(ValueError, match="expected s3://BUCKET or s3://BUCKET/PATH") as refused:
        parse_address(address)
    assert "canary" not in str(refused.value)
    job = tmp_path / "job.toml"
    job.write_text(job_text())
    ended = CliRunner().invoke(app, ["run", str(job), "--output", address])
    assert ended.exit_code == 2
    assert "--output: it is not an address of an object store" in ended.stderr
    assert "canary" not in ended.stderr
    job.write_text(job_text(output={"root": address}))
    ended = CliRunner().invoke(app, ["run", str(job)])
    assert ended.exit_code == 2
    assert "expected s3://BUCKET or s3://BUCKET/PATH" in ended.stderr
    assert "canary" not in ended.stderr


@pytest.mark.parametrize("address", ["gs://maps/a", "S3://maps", "s3:/maps", "az://me:canary@maps/a"])
def test_addresses_of_other_stores_are_no_folders(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(job_text())
    ended = CliRunner().invoke(app, ["run", "job.toml", "--output", address])
    assert ended.exit_code == 2
    assert "of a kind that is not known here; expected a folder or s3://BUCKET/PATH" in ended.stderr
    assert "canary" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"]


def test_work_has_a_folder_for_each_address(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder_of("s3://maps/a").is_relative_to(tmp_path)
    assert folder_of("s3://maps/a") == folder_of("s3://maps/a/")
    assert len({folder_of(f"s3://{place}") for place in ("maps", "maps/a", "maps/a/b", "maps-a")}) == 4
    assert folder_of("out/a") == Path("out/a")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigurationError) as refused:
        output_at("s3://maps/a")
    assert refused.value.key == "no-package"


class _Refusing:
    """Answers of a server to conditional writes of one object: each an error code, or "" where it writes."""

    def __init__(self, monkeypatch, answers, *, there):
        self.answers, self.there, self.conditions = iter(answers), there, []
        monkeypatch.setattr(bucket_module, "_WAITS_SECONDS", (0.0,) * 4)
        monkeypatch.setattr(bucket_module, "_connection", lambda address: self)

    def call_s3(self, method, **asked):
        if method == "head_object":
            if self.there is None:
                raise FileNotFoundError
            return {"ETag": "now", "LastModified": NOW}
        self.conditions.append({key: asked[key] for key in ("IfMatch", "IfNoneMatch") if key in asked})
        if code := next(self.answers):
            refused = OSError(code)
            refused.response = {"Error": {"Code": code}}  # s3fs has it at the cause
            raise OSError(code) from refused
        self.there = asked["Body"]

    def cat_file(self, path):
        return self.there


CONFLICT = "ConditionalRequestConflict"


@pytest.mark.parametrize("seen", [None, Marker(b"seen", "before", NOW)])
def test_a_conflict_is_tried_again_on_the_same_condition(monkeypatch, seen):
    server = _Refusing(monkeypatch, [CONFLICT, "OperationAborted", CONFLICT, ""], there=b"seen")
    assert Bucket("s3://maps").put_marker("CURRENT", b"mine", instead_of=seen)
    assert server.there == b"mine"
    assert server.conditions == 4 * [{"IfNoneMatch": "*"} if seen is None else {"IfMatch": "before"}]


@pytest.mark.parametrize("seen", [None, Marker(b"seen", "before", NOW)])
@pytest.mark.parametrize(
    ("answers", "there", "won"),
    [
        (["PreconditionFailed"], b"of another", False),
        ([CONFLICT, "PreconditionFailed"], b"of another", False),
        ([CONFLICT, "NoSuchKey"], None, False),
        (["PreconditionFailed"], b"mine", True),  # sent again after the answer was lost
    ],
)
def test_a_condition_that_does_not_hold_leaves_the_object(monkeypatch, seen, answers, there, won):
    server = _Refusing(monkeypatch, answers, there=there)
    assert Bucket("s3://maps").put_marker("CURRENT", b"mine", instead_of=seen) == won
    assert server.there == there
    assert len(server.conditions) == len(answers)


def test_a_server_without_conditional_writes_is_refused(monkeypatch):
    server = _Refusing(monkeypatch, ["NotImplemented"], there=b"seen")
    with pytest.raises(ConfigurationError) as refused:
        Bucket("s3://maps").put_marker("CURRENT", b"mine", instead_of=Marker(b"seen", "before", NOW))
    assert refused.value.key == "no-conditional-write"
    assert server.there == b"seen"


def test_conflicts_without_end_are_an_error_that_names_them(monkeypatch):
    server = _Refusing(monkeypatch, itertools.repeat(CONFLICT), there=b"of another")
    with pytest.raises(BusyError) as refused:
        Bucket("s3://maps").put_marker("CURRENT", b"mine", instead_of=Marker(b"seen", "before", NOW))
    assert refused.value.key == "server-busy"
    assert server.there == b"of another"
    assert len(server.conditions) == 5


def test_a_time_series_wants_a_folder():
    job = parse_job(job_text(output={"root": "s3://maps/a"}))
    with pytest.raises(ConfigurationError) as refusal:
        next(daily(job))
    assert refusal.value.key == "series-in-place"


def test_of_earlier_runs_the_latest_are_fetched(monkeypatch, tmp_path):
    server = MemoryServer()
    monkeypatch.setattr(bucket_module, "_connection", lambda address: Connection(server))
    address, keys = "s3://maps/daily", [publisher.key_of(index) for index in range(6)]
    places = {"north": [0.0, 10.0], "east": [0.0, 20.0]}
    with output_lock(tmp_path / "work"):
        output = _output(address, tmp_path / "work")
        for day, key in enumerate(keys, start=1):
            at = {"times": np.array([f"2020-01-0{day}"], dtype="M8[ns]"), **places}
            groups = {"observations": values_group("observations", **at, values=[280.0, 281.0])}
            if day != 4:
                numbers = {"weights": np.ones((1, 2, 2)), "covariance": np.ones((1, 1, 2, 2))}
                groups["state"] = state_group(**at, **numbers)
            output.publish(groups, run_key=key, attributes={})
    for day in (4, 3):
        damaged = next(
            name for name in server.objects if re.search(f"{keys[day - 1]}-.*.zarr/zarr.json", name)
        )
        whole = server.objects[damaged]
        server.objects[damaged] = (b" ", whole[1])

    before = np.datetime64("2020-01-06")
    with output_lock(tmp_path / "fresh"):
        fresh = _output(address, tmp_path / "fresh")
        (tmp_path / "fresh" / "runs" / "of-no-store.zarr").mkdir()  # not sent yet, or pruned there: no part
        with pytest.raises(DamagedRunError) as refusal:
            next(fresh.earlier("state", before=before))
        assert refusal.value.key == "damaged"
        server.objects[damaged] = whole
        latest, *others = fresh.earlier("state", before=before)
        # not 6, which is not earlier; 4 has no such group, however damaged it is
        assert [run.key for run in (latest, *others)] == [keys[4], keys[2], keys[1], keys[0]]
        assert not list((tmp_path / "fresh" / "runs").glob(f"{keys[4]}*")), "fetched when it is asked for"
        assert latest.bring() == tmp_path / "fresh" / "runs" / f"{keys[4]}.zarr"
        fetched = {path.stem for path in (tmp_path / "fresh" / "runs").glob("*.zarr")} - {"of-no-store"}
        assert fetched == {keys[4]}


# With a server


@contextmanager
def _server(port: int):
    """Run a server of moto, an imitation of S3 that keeps objects in memory."""
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300.0
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/", timeout=5.0).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server():
    for name in ("s3fs", "moto", "flask", "flask_cors"):
        pytest.importorskip(name)
    port = closed_port()
    with _server(port), pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
            patched.delenv(name)
        for name, value in CANARIES.items():
            patched.setenv(name, value)
        patched.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patched.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield port


@pytest.fixture
def address(server, request, tmp_path, monkeypatch):
    """A bucket of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"bucket-{text_sha256(request.node.name)[:12]}"
    _make_bucket(name)
    return f"s3://{name}/daily"


def _make_bucket(name):
    from s3fs import S3FileSystem

    S3FileSystem(skip_instance_cache=True).mkdir(name)


def _output(address, folder) -> ObjectOutput:
    return ObjectOutput(FolderOutput(folder), PublishedObjects(address))


def _stored(address) -> dict[str, bytes]:
    """All objects of an address."""
    bucket = Bucket(address)
    return {name: bucket.read(f"runs/{name}") for name in bucket.listed("runs", deep=True)[0]}


def _uploads(address) -> set[str]:
    return set(Bucket(address).listed("runs", deep=False)[1])


def cagp(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.exhaustive
def test_a_run_is_that_of_a_folder_and_every_reader_finds_it(address, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(job_text(design={**_design(), "map": map_grid(30.0)}, output={"root": address}))
    ended = cagp("run", job)
    assert ended.exit_code == 0, ended.stderr
    assert f"the work is done in {folder_of(address)}" in ended.stderr
    local = tmp_path / "local"
    assert cagp("run", job, "--output", local).exit_code == 0
    run, copy = current_run(local), current_run(readable(address))
    assert run.name == copy.name
    assert f"run     {address}/{run.stem}" in ended.stdout
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert files == {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    differing = {name for name in files if (run / name).read_bytes() != (copy / name).read_bytes()}
    # dates, seconds, and the address: in the attributes of the root, and the seconds of the trace
    assert differing <= {"zarr.json", "trace/seconds/c.0"}

    again = cagp("run", job)
    assert again.exit_code == 0
    assert "nothing was computed" in again.stdout
    assert len(_uploads(address)) == 1
    listed = cagp("list", address)
    assert f"*   {run.stem[:8]}" in listed.stdout
    assert f"undamaged  {copy}\n" == cagp("verify", address).stdout
    page = Path(cagp("open", f"{address}/{run.stem[:6]}", "--no-browser").stdout.strip())
    assert page.is_file()
    nothing = cagp("open", f"{address}/0000", "--no-browser")
    assert nothing.exit_code == 2
    assert f"there is no published run in {address} whose key begins with 0000" in nothing.stderr

    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    said = [ended.output, again.output, listed.output, *map(str, everything)]
    written = [*_stored(address).values(), *(path.read_bytes() for path in everything)]
    for canary in CANARIES.values():
        assert not any(canary in text for text in said)
        assert not any(canary.encode() in data for data in written)


@pytest.mark.exhaustive
def test_a_source_in_an_object_store_is_read_as_from_a_folder_and_has_limits(address, tmp_path):
    latitude, longitude = np.arange(-80.0, 81.0, 10.0), np.arange(5.0, 360.0, 20.0)
    values = 280.0 + np.random.default_rng(0).normal(size=(1, latitude.size, longitude.size))
    folder = save(temperature(values, latitude=latitude, longitude=longitude), tmp_path / "field.zarr")
    bucket = Bucket(address)
    late = "field.zarr/t2m/"  # what comes late is found by the same process
    for path in sorted(filter(Path.is_file, folder.rglob("*")), key=lambda path: late in str(path)):
        name = path.relative_to(tmp_path).as_posix()
        if name == f"{late}zarr.json":
            with pytest.raises(DataError) as refusal:
                open_zarr(f"{address}/field.zarr")
            assert refusal.value.key == "unreadable"
        bucket.put(name, path.read_bytes())
    design = {"train": random_points(60), "test": random_points(20, seed=1)}
    runs = []
    for source, root in ((f"{address}/field.zarr", f"{address}/maps"), (folder, tmp_path / "local")):
        job = tmp_path / "job.toml"
        text = job_text(design=design, observations={"source": f"zarr:{source}"}, output={"root": str(root)})
        job.write_text(text)
        ended = cagp("run", job)
        assert ended.exit_code == 0, ended.stderr
        runs.append(read_group(current_run(readable(str(root))), "posterior"))
    assert runs[0].equals(runs[1])

    endless = {"t2m/c.0.0.0": 2**21, "t2m/zarr.json": 17 * 2**20}
    for name, size in endless.items():
        bucket.put(f"field.zarr/{name}", bytes(size))
        with pytest.raises(DataError, match=rf"{name} has more than .* MiB, the most that such a file of a"):
            open_zarr(f"{address}/field.zarr")


@pytest.mark.exhaustive
def test_a_job_starts_from_its_run_before_wherever_that_was_made(address, tmp_path, monkeypatch):
    """The day before was published from another machine; the run of a folder has the same key."""
    source = tmp_path / "field.zarr"
    latitude, longitude = np.arange(-80.0, 81.0, 10.0), np.arange(5.0, 360.0, 20.0)
    values = 280.0 + np.random.default_rng(0).normal(size=(2, latitude.size, longitude.size))
    days = ["2020-01-01", "2020-01-02"]
    save(temperature(values, latitude=latitude, longitude=longitude, times=days), source)
    design = {"train": {"kind": "all"}, "test": random_points(20, seed=1), "map": map_grid(30.0)}
    numbers = {"lengthscale": 0.5, "variance": 1.0, "noise_variance": 0.5}
    in_time = {"time_kernel": "matern12", "time_lengthscale_hours": 48.0}
    prior = {**numbers, **in_time, "mean": "previous"}
    found = []
    for root in (address, tmp_path / "local"):
        for day in days:
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache of {day}"))
            observations = {"source": f"zarr:{source}", "times": [day]}
            job = tmp_path / "job.toml"
            job.write_text(
                job_text(
                    observations=observations,
                    design=design,
                    prior=prior,
                    solver=None,
                    output={"root": root},
                )
            )
            ended = cagp("run", job)
            assert ended.exit_code == 0, ended.stderr
        assert "the field continues from run" in ended.stderr
        run = current_run(readable(root))
        found.append(run.name)
    assert found[0] == found[1]


def _design():
    return {
        "train": {"kind": "random", "count": 300, "seed": 0},
        "test": {"kind": "random", "count": 40, "seed": 1},
    }


@pytest.mark.exhaustive
def test_a_publisher_killed_before_any_request_leaves_the_run_before_or_its_own(address, tmp_path):
    """A reader that goes on all the time never sees a mixed run."""
    script, looked = Path(object_publisher.__file__), tmp_path / "looked"
    killed = subprocess.Popen(
        [sys.executable, script, address, tmp_path, looked],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    objects, seen = PublishedObjects(address), set()
    try:
        while killed.poll() is None:
            with output_lock(tmp_path / "looping"):
                if (key := objects.current()) is not None:
                    run = objects.fetch(key, tmp_path / "looping")
                    assert publisher.key_of(read_group(run).attrs["index"]) == key
                    seen.add(key)
                    looked.touch()
    finally:
        killed.kill()
        output, _ = killed.communicate()
    assert killed.returncode == 0, output
    steps = re.findall(r"put (\d+) (\w+) (\d+)", output)
    objects_of_a_run = len(_stored(address)) // (len(_uploads(address)) or 1)
    assert len(steps) > objects_of_a_run > 5
    assert all(key == publisher.key_of(0) for _, key, _ in steps[:-1])
    # all but the manifest; the manifest is there and CURRENT is not replaced; then nothing is killed
    unfinished = [int(left) for _, _, left in steps[-3:]]
    assert unfinished[0] == unfinished[1] == unfinished[2] > 0  # they are removed a day later
    assert steps[-1][1] == publisher.key_of(len(steps))
    assert seen <= {publisher.key_of(0), publisher.key_of(len(steps))}
    assert publisher.key_of(0) in seen


def _publish(output, index) -> Path:
    with output_lock(output.folder):
        return output.publish(
            publisher.make_groups(index, small=True),
            run_key=publisher.key_of(index),
            attributes={"index": index},
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("same", [True, False])
def test_a_publisher_that_was_delayed_does_not_take_current_back(
    address, tmp_path, monkeypatch, caplog, same
):
    """All orders of the requests are in test_object_races.py; these are on a server that is not ours."""
    slow, index = _output(address, tmp_path / "slow"), 1 if same else 2
    put = slow.objects.bucket.put_marker

    def late(name, data, *, instead_of):
        object_publisher.publish_index(address, tmp_path / "quick", index)
        return put(name, data, instead_of=instead_of)

    monkeypatch.setattr(slow.objects.bucket, "put_marker", late)
    run = _publish(slow, 1)
    assert slow.objects.current() == publisher.key_of(index)
    assert "another process made its run current" in caplog.text
    assert set(slow.objects.runs()) == {publisher.key_of(1), publisher.key_of(index)}
    assert len(_uploads(address)) == (1 if same else 2)
    if same:  # it has that of the other one
        theirs = tmp_path / "quick" / "runs" / f"{run.stem}.sha256"
        assert run.with_suffix(".sha256").read_bytes() == theirs.read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["changed", "missing", "added", "manifest", "traversal"])
def test_damage_is_found_by_name_and_mended_by_the_same_job(address, tmp_path, damage):
    key = publisher.key_of(1)
    object_publisher.publish_index(address, tmp_path / "work", 1)
    bucket, (upload,) = Bucket(address), _uploads(address)
    victim = f"runs/{upload}/observations/zarr.json"
    if damage == "changed":
        bucket.put(victim, bucket.read(victim) + b" ")
    elif damage == "missing":
        bucket.delete([victim])
    elif damage == "added":
        victim = f"runs/{upload}/litter"
        bucket.put(victim, b"")
    else:
        victim = f"runs/{upload.removesuffix('.zarr')}.sha256"
        text = bucket.read(victim)
        bucket.put(
            victim, text[:-9] if damage == "manifest" else text.replace(b"zarr/obs", b"zarr/../../obs")
        )
    with pytest.raises(DamagedRunError) as refusal, output_lock(tmp_path / "r"):
        PublishedObjects(address).fetch(key, tmp_path / "r")
    assert refusal.value.key == "damaged"
    ended = cagp("verify", address)
    assert ended.exit_code == 1
    assert victim in ended.stderr
    output = _output(address, tmp_path / "work")
    with output_lock(output.folder):
        run = output.published(key)
        output.make_current(run)
    assert cagp("verify", address).exit_code == 0


@pytest.mark.exhaustive
def test_prune_removes_old_runs_and_what_was_abandoned(address, tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MARGIN", timedelta(0))
    for index in (1, 2, 3, 1):  # the oldest is current, with an upload that replaces its first one
        object_publisher.publish_index(address, tmp_path / "work", index)
        time.sleep(1.1)  # dates of objects are in whole seconds
    keys = [publisher.key_of(index) for index in (1, 2, 3)]
    assert len(_uploads(address)) == 3
    abandoned = f"{publisher.key_of(9)}-0123abcd.zarr"
    bucket = Bucket(address)
    bucket.put(f"runs/{abandoned}/zarr.json", b"{}")
    dry = cagp("prune", address, "--keep", 1, "--dry-run")
    assert dry.stdout == f"would be removed  {address}/{keys[1]}\nwould be removed  {address}/{keys[2]}\n"
    assert old_run_keys(bucket, Retention(total=1)) == keys[1:]
    assert old_run_keys(bucket, Retention(total=2**30, days=1, finals_only=True)) == []
    assert old_run_keys(bucket, Retention(runs=1), since="2000-01-01T00:00:00Z") == []
    assert cagp("prune", address, "--keep", 2).stdout == f"removed  {address}/{keys[1]}\n"
    objects = PublishedObjects(address)
    assert set(objects.runs()) == {keys[0], keys[2]}
    assert abandoned in _uploads(address)  # its publisher may be at work
    monkeypatch.setattr(object_removal, "ABANDONED", timedelta(seconds=-5))
    assert remove_abandoned(objects.bucket) == [abandoned]
    assert len(_uploads(address)) == 2
    monkeypatch.setattr(uploads, "MARGIN", timedelta(days=1))  # who publishes may still make it current
    assert old_run_keys(bucket, Retention(runs=1)) == []
    readable(address, every=True)
    assert cagp("verify", address).exit_code == 0
    assert cagp("prune", f"{address}/empty", "--keep", 1).exit_code == 2


@pytest.mark.exhaustive
def test_runs_of_an_earlier_version_are_read_and_removed(address, tmp_path, monkeypatch):
    """Their manifests have the name of the run alone, and ``CURRENT`` has it too."""
    monkeypatch.setattr(uploads, "MARGIN", timedelta(0))
    bucket, keys = Bucket(address), [publisher.key_of(index) for index in (1, 2, 3)]
    for index, key in enumerate(keys, start=1):
        object_publisher.publish_index(address, tmp_path / "work", index)
        (folder,) = {name for name in _uploads(address) if name.startswith(key)}
        named = f"runs/{folder.removesuffix('.zarr')}.sha256"
        bucket.put(f"runs/{key}.sha256", bucket.read(named))
        bucket.delete([named])
        bucket.put("CURRENT", f"{key}\n".encode())
        time.sleep(1.1)  # dates of objects are in whole seconds
    objects = PublishedObjects(address)
    assert (objects.current(), [*objects.runs()]) == (keys[2], keys)
    assert cagp("verify", address).exit_code == 0
    monkeypatch.setattr(object_removal, "ABANDONED", timedelta(seconds=-5))
    assert remove_abandoned(bucket) == []
    assert cagp("prune", address, "--keep", 2).stdout == f"removed  {address}/{keys[0]}\n"
    object_publisher.publish_index(address, tmp_path / "work", 2)
    assert (objects.current(), set(objects.runs())) == (keys[1], set(keys[1:]))
    assert len(_uploads(address)) == 2


@pytest.mark.exhaustive
def test_wrong_buckets_and_credentials_are_named_before_any_work(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    job = tmp_path / "job.toml"
    job.write_text(job_text(output={"root": "s3://no-such-bucket/daily"}))
    ended = cagp("run", job)
    assert ended.exit_code == 2
    assert "there is no bucket 'no-such-bucket' on this server. Make it, or correct" in ended.stderr
    refused = Bucket("s3://maps")._explained(PermissionError("Access Denied"), "cannot list s3://maps")
    assert isinstance(refused, ConfigurationError)
    assert "the server refuses it" in str(refused)
    proxy = OSError("Failed to connect to proxy URL: http://me:canary@proxy:3128")
    gone = Bucket("s3://maps")._explained(proxy, "cannot list s3://maps")
    assert "OSError: Failed to connect to proxy URL: http://proxy:3128" in str(gone)
    for name in CANARIES:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    ended = cagp("run", job)
    assert ended.exit_code == 2
    assert "there are no credentials. Set AWS_ACCESS_KEY_ID and" in ended.stderr
    assert not list(folder_of("s3://no-such-bucket/daily").glob("observations/*"))


@pytest.mark.exhaustive
def test_a_server_that_goes_away_costs_nothing_but_the_sending(server, tmp_path, monkeypatch):
    port, address = closed_port(), "s3://gone/daily"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    put, sent = Bucket._put, itertools.count(1)  # its next() is one step: objects are sent by several threads
    with _server(port) as process:
        _make_bucket("gone")

        def dying(bucket, name, data, **condition):
            if next(sent) == 5:
                process.kill()
                process.wait()
            put(bucket, name, data, **condition)

        monkeypatch.setattr(Bucket, "_put", dying)
        before = time.monotonic()
        with pytest.raises(StoreError) as gone:
            object_publisher.publish_index(address, tmp_path, 1)
        assert gone.value.key == "not-sent"
        assert time.monotonic() - before < 300.0
        assert "The run is whole in" in str(gone.value)
        assert gone.value.exit_code == 1
    with _server(port):
        _make_bucket("gone")
        output = _output(address, tmp_path)
        with output_lock(tmp_path):
            run = output.published(publisher.key_of(1))
            assert run is not None
            output.make_current(run)
        assert output.objects.current() == publisher.key_of(1)
