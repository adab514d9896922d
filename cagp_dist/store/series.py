"""One time series of all days: maps, regions and scores of runs of one time each, in one Zarr store.

::

    OUT/series.zarr             link to the version that readers open
    OUT/.series/000012.zarr     a version, never changed once it is here; this one and the one before are kept
    OUT/.series/000012.sha256   digest of each of its files

A version is made beside the one before: maps have a chunk for each time, and chunks of times that stay are
links to the same files. It is read back, flushed to the disk and renamed; then the link is replaced, in one
step. Each time is there once: with the result of the run that came last, whose key stands beside it.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cagp_dist.errors import ArgumentError, ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.atomic_files import READS, empty_folder
from cagp_dist.store.batches import PRELIMINARY
from cagp_dist.store.durable_files import disk_errors, sync, write_durably
from cagp_dist.store.group_dataset import root_attributes
from cagp_dist.store.publish import SERIES, install
from cagp_dist.store.published_variables import (
    CONVENTIONS,
    TRANSFORM,
    TRANSFORM_OBJECT,
    of_another,
    scored_groups,
    variables_of_run,
)
from cagp_dist.store.series_layout import as_recalibrated
from cagp_dist.store.zarr_arrays import missing_chunks, open_group, read_group, write_group
from cagp_dist.store.zarr_files import consolidate

NAME = SERIES
VERSIONS = ".series"
KEPT = 2

GRIDDED = ("map", "map_std")
SCORES, VERSION, RUN_KEY = "scores", "version", "run_key"
IS_PRELIMINARY = "preliminary"
FLAGGED = "flagged"
NUMERICAL_VERSION = "numerical_version"
UNKNOWN = -1
_NAMES = "chunk_key_encoding"
_STATED = "status", "calibration_status"
_OF_ONE_DAY = TRANSFORM, TRANSFORM_OBJECT
_FITTED_OF_ONE_DAY = "noise_variance", "noise_variance_units"  # where each day has fitted parameters


@dataclass(frozen=True)
class SeriesUpdate:
    """What became of a time."""

    version: int  # Of the series that has it
    changed: bool  # Whether that is a new version; False if the series had the run already
    replaced: str | None = None  # Key of the run whose result was there before


def current_version(root: Path) -> Path | None:
    """Path of the version that ``OUT/series.zarr`` links to; None if there is none."""
    link = root / NAME
    for _ in range(READS):
        if not link.is_symlink():
            return None
        found = link.parent / (named := os.readlink(link))
        if (found / "zarr.json").is_file():
            return found
        if os.readlink(link) == named:
            break  # else two newer versions came since it was read
    raise StoreError(
        f"{link} links to {found}, which is missing. Remove the link, and run the daily job again for "
        "the times that are to be in the series.",
        key="lost",
    )


def append_runs(root: Path, runs: Sequence[Path]) -> list[SeriesUpdate]:
    """Put the times of runs into the series, in one version, instead of earlier runs of them.

    Call it inside `output_lock`, with one run of a time. All is held in memory. The cost grows with the
    times of the series, so that many runs at once cost hardly more than one.
    """
    before = current_version(root)
    number = 1 if before is None else int(before.stem) + 1
    known, updates, found = runs_of_times(root), [], []
    for run in runs:
        groups = of_run(run)
        earlier = known.get(groups[SCORES]["time"].values[0])
        if earlier is not None and earlier.key == run.stem:
            updates.append(SeriesUpdate(number - 1, changed=False))
            continue
        updates.append(SeriesUpdate(number, changed=True, replaced=None if earlier is None else earlier.key))
        found.append(groups)
    if not found:
        return updates
    new = _in_layout_of(before, {name: _of_times(name, [each[name] for each in found]) for name in found[0]})

    def write(stage: Path, staged: Path) -> dict[str, str]:
        shared = _write(stage, staged, new, before, number)
        _check(staged, new)
        return shared

    _install_version(root, number, write)
    return updates


def remove_times(root: Path, times: Sequence[np.datetime64]) -> None:
    """Take times out of the series, in a new version; without any left there is no series.

    Call it inside `output_lock`. The runs stay.
    """
    before = current_version(root)
    if before is None:
        return
    with open_group(before, SCORES) as scores:
        kept = np.flatnonzero(~np.isin(scores["time"].values, np.array(times, dtype="datetime64[ns]")))
        known = scores["time"].size
    if kept.size == known:
        return
    if not kept.size:
        with disk_errors(root / NAME):
            (root / NAME).unlink()
        sync(root)
        return
    number = int(before.stem) + 1
    _install_version(root, number, lambda _, staged: _write_some(staged, before, kept, number))


def _write_some(staged: Path, before: Path, kept: np.ndarray, number: int) -> dict[str, str]:
    """Write a version with some of the times of the one before, and give the digests of linked files."""
    listed, linked = manifest.digests_of(before), dict[str, str]()
    groups = {}
    for name in groups_of(before):
        if name in GRIDDED:
            with open_group(before, name) as opened:
                groups[name] = _without_fields(opened).load().isel(time=kept)
        else:
            groups[name] = read_group(before, name).isel(time=kept)
    with open_group(before) as opened:
        attributes = {**opened.attrs, VERSION: number}
    spans = root_attributes({SCORES: groups[SCORES]}, run_key="")
    attributes |= {name: value for name, value in spans.items() if name.startswith("time_coverage")}
    write_group(staged, "/", xr.Dataset(attrs=attributes))
    for name, group in groups.items():
        write_group(staged, name, group)
        fields = [
            path for path in (before / name).iterdir() if path.is_dir() and path.name not in group.variables
        ]
        for array in fields:
            described = _described(array)
            files = _files_of(described)
            described["shape"][0] = kept.size
            (staged / name / array.name).mkdir()
            (staged / name / array.name / "zarr.json").write_text(json.dumps(described))
            for here, there in enumerate(kept.tolist()):
                for new, old in zip(files(here), files(there), strict=True):
                    if _linked(str(array / old), str(staged / name / array.name / new)):
                        linked[f"{name}/{array.name}/{new}"] = listed[f"{name}/{array.name}/{old}"]
    consolidate(staged)
    if lost := missing_chunks(staged):
        raise _lacking(lost[0])
    return linked


def _install_version(root: Path, number: int, write: Callable[[Path, Path], dict[str, str]]) -> None:
    """Make a version, which ``write`` puts into a folder, the one that readers open; old ones go.

    ``write`` is given a folder for what is on its way, and that of the version; it gives the digests of the
    files that the version shares with the one before.
    """
    final = root / VERSIONS / f"{number:06d}.zarr"
    with empty_folder(root / ".staging" / f"series-{os.getpid()}") as stage:
        staged, listing = stage / final.name, stage / "manifest"
        with disk_errors(stage):
            final.parent.mkdir(exist_ok=True)
            shared = write(stage, staged)
            text = manifest.build(staged, name=staged.name, known=shared)
            write_durably(listing, text)
        # over that of a process that died before the link was replaced, if there is one
        install(staged, listing, final, without=shared)
        with disk_errors(root / NAME):
            link = stage / NAME
            link.symlink_to(Path(VERSIONS) / final.name)
            os.replace(link, root / NAME)
        sync(root)
    for path in (root / VERSIONS).glob("*.zarr"):
        if path.stem.isdigit() and not number - KEPT < int(path.stem) <= number:
            shutil.rmtree(path, ignore_errors=True)
            manifest.manifest_path(path).unlink(missing_ok=True)


class RunOfTime(NamedTuple):
    """The run whose result the series has for a time."""

    key: str
    preliminary: bool  # whether its observations were
    numerical_version: str = ""  # that made it; empty in a series that is older than this variable


def runs_of_times(root: Path) -> dict[np.datetime64, RunOfTime]:
    """Read the runs of all times of the series, by time."""
    found = current_version(root)
    if found is None:
        return {}
    with open_group(found, SCORES) as scores:
        times, keys = scores["time"].values, scores[RUN_KEY].values
        preliminary = scores[IS_PRELIMINARY].values == 1 if IS_PRELIMINARY in scores else times != times
        versions = scores[NUMERICAL_VERSION].values if NUMERICAL_VERSION in scores else [""] * times.size
    return {
        time: RunOfTime(str(key), bool(early), str(version))
        for time, key, early, version in zip(times, keys, preliminary, versions, strict=True)
    }


def of_run(run: Path) -> dict[str, xr.Dataset]:
    """Read what the series has of a run, by the names of its groups: maps, regions, and scores.

    Scores of the first variable are in the group `SCORES`, those of another in one with its name behind.
    """
    calibration = read_group(run, "calibration")
    times = calibration["time"].values
    if times.size != 1:
        raise ArgumentError(
            f"the run {run} has {times.size} times, and its scores are of all of them together; expected "
            "one. Run the job for each time, as `cagp daily` does.",
            key="several-times",
        )
    found = {name: read_group(run, name) for name in (*GRIDDED, "regions") if (run / name).is_dir()}
    with open_group(run) as root:
        stated = {name: str(root.attrs.get(name, "")) for name in _STATED}
        preliminary = PRELIMINARY in root.attrs
        version = str(json.loads(root.attrs.get("provenance", "{}")).get(NUMERICAL_VERSION, ""))
        variables = variables_of_run(root.attrs)
        if FLAGGED in root.attrs:  # of jobs that check their observations
            stated[f"{FLAGGED}_statement"] = str(root.attrs[f"{FLAGGED}_statement"])
        flagged = root.attrs.get(FLAGGED)
        of_day = (*_OF_ONE_DAY, *(_FITTED_OF_ONE_DAY if "fit" in root.attrs else ()))
    for group in found.values():
        group.attrs = {name: said for name, said in group.attrs.items() if name not in of_day}
    scores = _scores_of(calibration, {RUN_KEY: run.stem, **stated})
    if flagged is not None:
        about = {"long_name": "values of the time that all others contradict, which are left out"}
        scores[FLAGGED] = xr.Variable("time", np.array([int(flagged)]), about)
    scores[IS_PRELIMINARY] = _whether_preliminary(np.array([preliminary]))
    scores[NUMERICAL_VERSION] = _which_version([version])
    found[SCORES] = scores
    for variable, name in scored_groups(variables).items():
        if name != "calibration":
            own = read_group(run, name)
            texts = {_STATED[1]: str(own.attrs[_STATED[1]])}
            found[of_another(SCORES, variable)] = _scores_of(own, texts, variable)
    return found


def _scores_of(calibration: xr.Dataset, texts: Mapping[str, str], variable: str = "") -> xr.Dataset:
    """Give the scores of a run, and words on it, as those of its time."""
    scores = xr.Dataset(
        {
            name: (("time", *each.dims), each.values[None], each.attrs)
            for name, each in calibration.data_vars.items()
            if set(each.dims) <= {"level"}
        },
        {name: calibration[name].variable for name in ("time", "level")},
        {
            "Conventions": CONVENTIONS,
            "title": f"Scores of {variable or 'each time'} against {'' if variable else 'its '}held-out "
            f"observations{' of each time' if variable else ''}",
        },
    )
    return scores.assign({name: ("time", np.array([text], dtype=object)) for name, text in texts.items()})


def groups_of(version: Path) -> list[str]:
    """Name the groups of a version: maps, regions, scores, and scores of all variables but the first."""
    of_others = sorted(path.name for path in version.glob(of_another(SCORES, "*")))
    return [name for name in (*GRIDDED, "regions", SCORES, *of_others) if (version / name).is_dir()]


def verify_series(root: Path) -> Path | None:
    """Check every file of the series against its manifest, and return the version; None if there is none."""
    found = current_version(root)
    if found is not None:
        manifest.compare(found)
    return found


def _write(
    stage: Path, staged: Path, new: Mapping[str, xr.Dataset], before: Path | None, number: int
) -> dict[str, str]:
    """Write a version, and return the digests of files that it shares with the one before."""
    known: dict[str, str] = {}
    listed = {} if before is None else manifest.digests_of(before)
    _check_same_groups(new, before)
    versions = np.full(new[SCORES].sizes["time"], number, dtype=np.int64)
    scores = new[SCORES].assign({VERSION: ("time", versions)})
    scores[VERSION].attrs = {"long_name": "version of the series that has this result first"}
    whole = {name: _joined(name, group, before) for name, group in {**new, SCORES: scores}.items()}
    spans = root_attributes({SCORES: whole[SCORES]}, run_key="")
    attributes = root_attributes(new, run_key="") | {
        name: value for name, value in spans.items() if name.startswith("time_coverage")
    }
    for name in ("id", RUN_KEY):
        del attributes[name]
    write_group(staged, "/", xr.Dataset(attrs={**attributes, VERSION: number}))
    for name, group in whole.items():
        write_group(staged, name, group)
        if name in GRIDDED:
            known |= _write_fields(stage, staged, name, new[name], group["time"].values, before, listed)
    consolidate(staged)
    return known


def _write_fields(
    stage: Path,
    staged: Path,
    name: str,
    new: xr.Dataset,
    times: np.ndarray,
    before: Path | None,
    listed: Mapping[str, str],
) -> dict[str, str]:
    """Write maps of new times, and link those of the others; give the digests of what is linked."""
    known: dict[str, str] = {}
    fields = new.drop_vars([each for each in new.data_vars if _written_anew(new[each])])
    new_at = np.searchsorted(times, new["time"].values).tolist()
    others = np.setdiff1d(np.arange(times.size), new_at).tolist()
    write_group(stage / "new.zarr", name, fields, chunks={"time": 1})
    first: list[str] = []
    at_before: list[int] = []
    if before is not None:
        with open_group(before, name) as opened:
            at_before = np.searchsorted(opened["time"].values, times).tolist()
        first = [each for each in map(str, fields.data_vars) if not (before / name / each).is_dir()]
        for index in others if first else []:
            with open_group(before, name) as opened:
                old = as_recalibrated(opened.isel(time=[at_before[index]]).load(), fields)
            write_group(stage / f"{index}.zarr", name, old[first], chunks={"time": 1})
    for array in map(str, fields.data_vars):
        ours = _described(stage / "new.zarr" / name / array)
        theirs = ours if before is None or array in first else _described(before / name / array)
        _check_same_array(name, array, ours, theirs)
        (staged / name / array).mkdir()
        ours["shape"][0] = times.size
        (staged / name / array / "zarr.json").write_text(json.dumps(ours))
        of_ours, of_theirs = _files_of(ours), _files_of(theirs)
        moved = [(index, "new.zarr", place) for place, index in enumerate(new_at)]
        moved += [(index, f"{index}.zarr", 0) for index in others if array in first]
        for index, store, place in moved:
            for here, there in zip(of_ours(index), of_ours(place), strict=True):
                os.rename(stage / store / name / array / there, staged / name / array / here)
        for index in others if array not in first else []:
            for here, there in zip(of_ours(index), of_theirs(at_before[index]), strict=True):
                digest = listed.get(f"{name}/{array}/{there}")
                if digest is not None and _linked(
                    f"{before}/{name}/{array}/{there}", f"{staged}/{name}/{array}/{here}"
                ):
                    known[f"{name}/{array}/{here}"] = digest
    return known


def _in_layout_of(before: Path | None, new: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Add what the series has of recalibrated days to the groups of a day that is not."""
    found = dict(new)
    for name, group in found.items():
        if before is not None and (before / name).is_dir():
            with open_group(before, name) as opened:
                found[name] = as_recalibrated(group, opened)
    return found


def _linked(old: str, new: str) -> bool:
    """Make a second name for a file that never changes, or a copy where none can be; whether it is there."""
    try:
        os.link(old, new)
    except OSError:
        if not os.path.isfile(old):
            return False
        shutil.copyfile(old, new)
        sync(Path(new))
    return True


def _joined(name: str, group: xr.Dataset, before: Path | None) -> xr.Dataset:
    """Put what is not a map of its own after, or in the place of, what the version before has."""
    if name in GRIDDED:
        group = _without_fields(group)
    if before is None:
        return group
    if name in GRIDDED:
        with open_group(before, name) as opened:
            old = _without_fields(opened).load()
        lacking = [each for each in group.coords if each not in old.coords]
        old = old.assign_coords({each: group[each] for each in lacking})
    else:
        old = read_group(before, name)
    if name == SCORES and IS_PRELIMINARY not in old:  # of a series that is older than this variable
        old[IS_PRELIMINARY] = _whether_preliminary(np.full(old.sizes["time"], UNKNOWN))
    if name == SCORES and NUMERICAL_VERSION not in old:
        old[NUMERICAL_VERSION] = _which_version([""] * old.sizes["time"])
    kept = old.sel(time=~np.isin(old["time"].values, group["time"].values))
    return _of_times(name, [kept, group])


def _of_times(name: str, groups: list[xr.Dataset]) -> xr.Dataset:
    """Put a group of several times together, in the layout of that with most variables, ascending."""
    widest = max(groups, key=lambda group: len(group.data_vars))
    try:
        found = xr.concat(
            [as_recalibrated(group, widest) for group in groups],
            dim="time",
            data_vars="minimal",
            coords="minimal",
            compat="equals",
            join="exact",
            combine_attrs="override",
        )
    except ValueError as error:
        raise _other(name, str(error)) from error
    for each in (IS_PRELIMINARY, NUMERICAL_VERSION):
        if each in found:
            found[each].attrs = groups[-1][each].attrs
    return found.sortby("time").assign_attrs(groups[-1].attrs)


def _whether_preliminary(of_times: np.ndarray) -> xr.Variable:
    """Write the variable `IS_PRELIMINARY`: 1 or True, 0 or False, or `UNKNOWN`."""
    attributes = {
        "long_name": "whether the observations of the time were preliminary (ERA5T)",
        "flag_values": [UNKNOWN, 0, 1],
        "flag_meanings": "unknown not_preliminary preliminary",
        "comment": "0: they were final, or their source states no versions. "
        f"{UNKNOWN}: the result is older than this variable; they may have been either.",
    }
    return xr.Variable("time", of_times.astype(np.int64), attributes)


def _which_version(of_times: list[str]) -> xr.Variable:
    """Write the variable `NUMERICAL_VERSION`."""
    attributes = {
        "long_name": "numerical version that made the result of the time",
        "comment": "Numbers of different versions may differ; empty: not known, an early one. "
        "cagp daily --redo renews those of the times of a job.",
    }
    return xr.Variable("time", np.array(of_times, dtype=object), attributes)


def _without_fields(group: xr.Dataset) -> xr.Dataset:
    return group.drop_vars([name for name in group.data_vars if not _written_anew(group[name])])


def _written_anew(variable: xr.DataArray) -> bool:
    """Whether a variable is written again: all but fields of each time."""
    return variable.dims[:1] != ("time",) or variable.ndim < 2


def _check_same_groups(new: Mapping[str, xr.Dataset], before: Path | None) -> None:
    if before is None:
        return
    for name in {**dict.fromkeys(groups_of(before)), **new}:
        there, here = (before / name).is_dir(), name in new
        if there != here:
            which = "has no" if here else "has a"
            raise _other(name, f"the series {which} group {name!r}, and the run differs")
        if here:
            with open_group(before, name) as opened:
                one = as_recalibrated(opened.isel(time=slice(1)), new[name])
                old = set(map(str, one.data_vars)) - {VERSION, IS_PRELIMINARY, NUMERICAL_VERSION}
            found = set(map(str, new[name].data_vars)) - {IS_PRELIMINARY, NUMERICAL_VERSION}
            if old != found:
                raise _other(name, f"it has {', '.join(sorted(old))}, the run {', '.join(sorted(found))}")


def _check_same_array(name: str, array: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare the metadata of an array in two versions, but for its length and the names of its files.

    A unit that the run says and the series does not is not another one.
    """
    of_both = [
        {**each, "shape": each["shape"][1:], "attributes": None, _NAMES: None} for each in (ours, theirs)
    ]
    units = [each["attributes"].get("units") or None for each in (ours, theirs)]
    if of_both[0] != of_both[1] or (units[1] is not None and units[0] != units[1]):
        raise _other(name, f"{array} has another shape, unit or encoding")


def _described(array: Path) -> dict[str, Any]:
    """Read the metadata of an array."""
    found: dict[str, Any] = json.loads((array / "zarr.json").read_text())
    return found


def _files_of(described: dict[str, Any]) -> Callable[[int], list[str]]:
    """Give what names the files of a time; of series that are older than these names in folders."""
    separator = described[_NAMES]["configuration"]["separator"]
    lengths = described["chunk_grid"]["configuration"]["chunk_shape"]
    counts = (-(-size // length) for size, length in zip(described["shape"][1:], lengths[1:], strict=True))
    places = ["".join(f"{separator}{at}" for at in place) for place in product(*map(range, counts))]
    return lambda index: [f"c{separator}{index}{place}" for place in places]


def _other(name: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"the run does not continue group {name!r} of the series in this output folder: {reason}. A series "
        "belongs to one job: give this one its own output root, or the day the grid of the others.",
        key="of-another-job",
    )


def _lacking(chunk: str) -> StoreError:
    return StoreError(
        f"the new version of the series lacks {chunk}; the one before is intact. Run again.", key="damaged"
    )


def _check(staged: Path, new: Mapping[str, xr.Dataset]) -> None:
    """Read back what is new, and look that nothing is missing."""
    if lost := missing_chunks(staged):
        raise _lacking(lost[0])
    for name, group in new.items():
        with open_group(staged, name) as opened:
            times = opened["time"].values
            if not (np.diff(times) > np.timedelta64(0)).all():
                raise StoreError(
                    f"times of group {name!r} of the new version of the series are out of order.",
                    key="damaged",
                )
            found = opened.sel(time=group["time"].values)
            for array in group.data_vars:
                if not found[array].load().equals(group[array]):
                    raise StoreError(
                        f"{name}/{array} of the new version of the series is not what was written.",
                        key="damaged",
                    )
