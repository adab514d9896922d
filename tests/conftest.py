"""For the whole suite: Hypothesis profiles, one BLAS thread for small dense formulas, a Dask cluster."""

import asyncio
import gc
import html
import os
import shutil
import sys
import threading
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from cagp_dist.fields.selection import Selection

T = TypeVar("T")

# `ci`, the default, draws the same examples in every run; HYPOTHESIS_PROFILE=dev looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, database=None, max_examples=25, **_COMMON)
settings.register_profile("dev", max_examples=200, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Files of tests are many and small, and live for a second: in memory, where there is enough.
if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

_FIRST = (
    "tests/test_compiled.py",
    "tests/report",
    "tests/store/test_publish.py",
    "tests/store/test_repair.py",
    # the longest ones, in seconds and not in tests: begun last they would end alone
    "cluster",
    "tests/service/test_no_leak.py",
    "tests/service/test_daily.py",
    "tests/service/test_previous.py",
    "tests/conformance/test_solvers_on_grids.py",
    "tests/fields/test_doors_of_objects.py",
    "tests/pipeline/test_two_doors.py",
    "tests/view/test_page.py",
    "tests/service/test_gaps.py",
    "tests/conformance/test_solvers.py",
    "tests/service/test_jobs_with_labels.py",
    "tests/service/test_planes.py",
    "tests/service/test_fit.py",
    "tests/test_cli.py",
    "tests/service/test_regions_job.py",
    "tests/budget/test_bytes_on_points.py",
    "tests/service/test_jobs_of_combinations.py",
    "tests/service/test_jobs_in_time.py",
    "tests/fields/test_endless_tables.py",
    "tests/test_project.py",
    "tests/likelihood/test_fit.py",
    "tests/service/test_preliminary.py",
    "tests/service/test_filtered_days.py",
    "tests/kriging/test_plane.py",
    "tests/fields/test_doors.py",
    "tests/kriging/test_several_variables.py",
    "tests/kriging/test_at_times.py",
    "tests/kriging/test_background.py",
    "tests/fields/test_fuzz.py",
    "tests/kriging/test_integrated_numbers.py",
    "tests/service/test_mean_estimates.py",
    "tests/fields/test_bad_input.py",
    "tests/test_space_time.py",
    "tests/conformance/test_identities_of_neighbours.py",
    "tests/fields/test_spellings.py",
    "tests/kriging/test_stored.py",
    "tests/test_preload.py",
    "tests/test_packaging.py",
    "tests/test_versions.py",
)


_ON_THE_CLUSTER = ("dask", "cluster", "test_guests")
"""Parts of the names of tests that use the cluster of two workers."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A file is done by one process, and what is done on the cluster by one that starts it once.

    So are all tests of reports, of which some are made for several files.

    One process begins with what compiles most functions, and another with files that need none of them:
    each would else compile the same ones.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if any(word in nodeid for word in _ON_THE_CLUSTER):
                return "cluster"
            return "tests/report" if nodeid.startswith("tests/report/") else nodeid.partition("::")[0]

        def _assign_work_unit(self, node: object) -> None:
            for unit in reversed(_FIRST):
                if unit in self.workqueue:
                    self.workqueue.move_to_end(unit, last=False)
            super()._assign_work_unit(node)

    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is collected lives to the end, and the garbage collector need not look at it again.

    Some ten thousand tests and their modules are a fifth of the time of a small run, and half of that of
    collecting them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module")
def one_blas_thread() -> Iterator[None]:
    """For modules of many small dense products: threads that wait for each other make them much slower."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """A published run is put on the disk file by file; tests survive no power cut, and need not wait.

    `tests.store` puts it there, and so does every other process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)
        yield


_ZARR_LOOP = asyncio.new_event_loop()


@pytest.fixture(scope="module", autouse=True)
def zarr_stays_in_its_thread() -> Iterator[None]:
    """Zarr reads, writes and compresses in the thread that asks, and hands nothing to another one.

    The files are the same, and of the small runs of tests it takes half the time away. `tests.store` hands
    chunks to threads, and so does every other process.
    """
    import zarr.core.sync as zarr_sync

    to_thread, threadsafe = asyncio.to_thread, asyncio.run_coroutine_threadsafe

    async def here_or_there(function: Callable[..., object], /, *given: object, **named: object) -> object:
        if threading.current_thread().name == "zarr_io" or asyncio.get_running_loop() is _ZARR_LOOP:
            return function(*given, **named)
        return await to_thread(function, *given, **named)

    def run(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> "Future[T]":
        if threading.current_thread() is not threading.main_thread() or _ZARR_LOOP.is_running():
            return threadsafe(coroutine, loop)
        done: Future[T] = Future()
        done.set_result(_ZARR_LOOP.run_until_complete(coroutine))
        return done

    ours = ModuleType("asyncio")
    vars(ours).update({**vars(asyncio), "run_coroutine_threadsafe": run})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "to_thread", here_or_there)
        patch.setattr(zarr_sync, "asyncio", ours)
        _forget_sessions()
        yield
        _forget_sessions()


def _forget_sessions() -> None:
    """Have HTTP sessions made anew: one that was used in an event loop belongs to it."""
    if (web := sys.modules.get("cagp_dist.store.web")) is not None:
        web._limits.cache_clear()


@pytest.fixture(scope="session")
def may_mount(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip tests that need `mounts.needs_mounts` where that is not allowed."""
    from .mounts import may_mount

    if not may_mount(tmp_path_factory.mktemp("mount")):
        pytest.skip("needs leave to mount file systems, as root has outside containers")


_SHARED_CLUSTERS: list["Client"] = []


@contextmanager
def shared_cluster_stands_still() -> Iterator[None]:
    """The scheduler of the cluster that tests share, in this process, does nothing meanwhile.

    It allocates 0.3 MB for each heartbeat of a worker.
    """
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait()

    for client in _SHARED_CLUSTERS:
        client.loop.add_callback(stand)
        stands.wait()
    try:
        yield
    finally:
        go_on.set()


@pytest.fixture
def traced() -> Iterator[Callable[[Callable[[], T]], tuple[T, int]]]:
    """What a function returns, and the most bytes that NumPy and Python allocated meanwhile.

    Tracing goes on until the test and its threads have ended: CPython 3.11 crashes where it stops while
    compiled code of another thread asks for memory (python/cpython issue 128679).
    """

    def measured(function: Callable[[], T]) -> tuple[T, int]:
        gc.collect()  # what others left would else be freed meanwhile
        with shared_cluster_stands_still():
            tracemalloc.start()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            found = function()
            return found, tracemalloc.get_traced_memory()[1] - before

    yield measured
    tracemalloc.stop()


@pytest.fixture(scope="module", autouse=True)
def figures_are_not_rendered() -> Iterator[None]:
    """Figures of reports are made and not rendered, which takes longer than a small run and its page.

    `tests.report` renders them, and so does every other process.
    """
    with blank_figures():
        yield


@contextmanager
def blank_figures() -> Iterator[None]:
    """Figures are empty files, and elements with their words; their maps, and pictures, are of few pixels."""
    from matplotlib.text import Text

    from cagp_dist.cartography import basemap
    from cagp_dist.report import drawing, every_time

    def words(made: drawing.Drawing) -> str:
        said = " ".join(text.get_text() for text in made.figure.findobj(Text))
        return f"<svg>{html.escape(f'{made.description} {said}')}</svg>"

    def blank(made: drawing.Drawing, directory: Path) -> Path:
        path = directory / f"{made.name}.png"
        path.touch()
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "inline_svg", words)
        patch.setattr(drawing, "save_png", blank)
        patch.setattr(basemap, "RASTER_WIDTH", every_time.NARROWEST)
        patch.setattr(every_time, "WIDEST", every_time.NARROWEST)
        yield


_SAMPLES: dict[str, "xr.Dataset"] = {}


@pytest.fixture(scope="module", autouse=True)
def sample_is_decoded_once() -> Iterator[None]:
    """The built-in field, or the same part of it, is decoded once for all tests."""
    from cagp_dist.fields import sample
    from cagp_dist.fields.files.local_files import open_file, scratch_folder

    def opened(path: Path, selection: "Selection", *, scratch: Path) -> "xr.Dataset":
        key = repr(selection)
        if key not in _SAMPLES:
            _SAMPLES[key] = open_file(path, selection, scratch=scratch)
        with scratch_folder(scratch):
            return _SAMPLES[key].copy(deep=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, "open_file", opened)
        yield


@pytest.fixture(scope="module", autouse=True)
def decoder_in_this_process() -> Iterator[None]:
    """What a child process does with a file is done here: its start takes longer than small files.

    A test of that process asks for ``decoder_in_a_child``.
    """
    from .decoding import decoder_here

    with decoder_here():
        yield


@pytest.fixture
def decoder_in_a_child() -> Iterator[None]:
    """Every file is decoded by a child process of its own, as it is outside of tests."""
    from .decoding import decoder_in_a_child

    with decoder_in_a_child():
        yield


@pytest.fixture(scope="session")
def two_dask_workers() -> Iterator["Client"]:
    """Client of a cluster of two processes for all tests that neither change nor lose its workers."""
    from .clusters import local_cluster

    with local_cluster(2) as client:
        _SHARED_CLUSTERS.append(client)
        yield client
        _SHARED_CLUSTERS.remove(client)


@pytest.fixture
def cluster_of(request: pytest.FixtureRequest) -> Iterator[Callable[[int], "Client"]]:
    """A function that opens a cluster of so many processes; that of two is the one that tests share."""
    from .clusters import local_cluster

    with ExitStack() as stack:
        yield (
            lambda workers: (
                request.getfixturevalue("two_dask_workers")
                if workers == 2
                else stack.enter_context(local_cluster(workers))
            )
        )
