"""Requests of the Climate Data Store, made from times, and their entries in the cache."""

import json
import logging
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.digest import file_sha256, text_sha256
from cagp_dist.errors import ConfigurationError, NotReadyError
from cagp_dist.fields.files.local_files import cannot_write, open_file
from cagp_dist.fields.selection import Area, Selection, check_area, check_spacing
from cagp_dist.fields.sources import FINAL_AFTER_DAYS
from cagp_dist.store.atomic_files import replacing
from cagp_dist.store.batches import preliminary_times
from cagp_dist.text import shown_time
from cagp_dist.variables import variable_named

if TYPE_CHECKING:
    from ecmwf.datastores import Results

COLLECTION = "reanalysis-era5-single-levels"

Request = dict[str, str | list[str] | list[float]]


def requests_for(
    times: Times, *, variable: str = "t2m", area: Area | None = None, grid_degrees: float | None = None
) -> list[Request]:
    """Split times into requests for exactly these: days of one month with the same hours share one."""
    hours = times.astype("datetime64[h]")
    for moment in times[hours != times][:1]:
        raise ConfigurationError(
            f"time {shown_time(moment)} is not on the hour; ERA5 is hourly.", key="times"
        )
    common: Request = {
        "product_type": ["reanalysis"],
        "variable": [variable_named(variable).cds or variable],
        "data_format": "grib",
        "download_format": "unarchived",
    }
    if area is not None:
        check_area(area)
        common["area"] = [float(edge) for edge in area]
    if grid_degrees is not None:
        check_spacing(grid_degrees)
        common["grid"] = [float(grid_degrees)] * 2

    hours_of_day: dict[str, list[str]] = defaultdict(list)
    for hour in np.unique(hours):
        day, clock = str(hour).split("T")
        hours_of_day[day].append(f"{clock}:00")
    days_of: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for day, clocks in hours_of_day.items():
        days_of[day[:7], tuple(clocks)].append(day[8:])
    return [
        common | {"year": [month[:4]], "month": [month[5:]], "day": days, "time": list(clocks)}
        for (month, clocks), days in days_of.items()
    ]


def requested_times(request: Request) -> Times:
    """List the times that a request asks for."""
    year, month = request["year"][0], request["month"][0]
    texts = [f"{year}-{month}-{day}T{clock}" for day in request["day"] for clock in request["time"]]
    return np.sort(np.array(texts, dtype="datetime64[ns]"))


def request_key(request: Request) -> str:
    """Name a request by its content."""
    text = json.dumps({"collection": COLLECTION, "request": request}, sort_keys=True, separators=(",", ":"))
    return text_sha256(text)


_DAY = 86_400.0

logger = logging.getLogger(__name__)


class CacheEntry:
    """Files ``KEY.data`` (as delivered) and ``KEY.json`` (what is known of the request).

    The note has collection, request, SHA-256 of the data, request id while queued, and when the store was
    last asked. The key is the SHA-256 of the request, so that equal requests of any job share one entry.
    """

    def __init__(self, folder: Path, request: Request, *, reading: Selection) -> None:
        self.request = request
        self.key = request_key(request)
        self._folder = folder
        self._reading = reading
        self._data = folder / f"{self.key}.data"
        self._note = folder / f"{self.key}.json"

    def cached(self) -> xr.Dataset | None:
        """Field in the cache; None if there is none, it is damaged, or a final version may exist."""
        if not self._data.exists():
            return None
        if self._read().get("sha256") != file_sha256(self._data):
            logger.warning("the cached result %s is damaged; it is fetched again", self._data)
            return None
        field = self._decode(self._data)
        return None if self._may_be_final(field) else field

    def _may_be_final(self, field: xr.Dataset) -> bool:
        """Whether times are preliminary, old enough to be final, and the store was not asked for a day."""
        early = preliminary_times(field)
        if not early.size:
            return False
        age_days = (time.time() - early[0].astype("datetime64[s]").astype(np.int64)) / _DAY
        return bool(age_days > FINAL_AFTER_DAYS) and not self.asked_lately()

    def asked_lately(self) -> bool:
        """Whether the store delivered this within a day, or `note_asked` was called."""
        delivered = self._data.stat().st_mtime if self._data.exists() else -np.inf
        return time.time() - max(delivered, float(self._read().get("asked", "-inf"))) < _DAY

    def note_asked(self) -> None:
        """Note that the store is asked now, whatever it will say."""
        self._write({**self._read(), "asked": str(time.time())})

    def request_id(self) -> str | None:
        """Read the id under which the store queues the request, when it was submitted before."""
        return self._read().get("request_id")

    def remember(self, request_id: str | None) -> None:
        """Note the id, so that another process can take the request up; None: it is over, failed or gone."""
        # what is true of the data that are there stays, whatever becomes of a request
        kept = {name: text for name, text in self._read().items() if name in ("sha256", "asked")}
        self._write(kept if request_id is None else {**kept, "request_id": request_id})

    def accept(self, results: "Results") -> xr.Dataset:
        """Download a result beside the entry, decode it, and only then move it into place."""
        handle, name = tempfile.mkstemp(prefix=f"{self.key[:16]}-", suffix=".part", dir=self._folder)
        os.close(handle)
        part = Path(name)
        try:
            results.download(name)
            field = self._decode(part)
            self._write({"sha256": file_sha256(part)})
            os.replace(part, self._data)
        finally:
            part.unlink(missing_ok=True)
        return field

    def _decode(self, path: Path) -> xr.Dataset:
        """Decode a result, which must have all times."""
        field = open_file(path, self._reading, scratch=self._folder)
        wanted = requested_times(self.request)
        absent = wanted[~np.isin(wanted, field.time.values)]
        if absent.size:
            raise NotReadyError(
                f"the store delivered {wanted.size - absent.size} of {wanted.size} times; "
                f"{shown_time(absent[0])} is the first that does not exist yet, "
                f"{shown_time(field.time.values[-1])} the last that does. Run again later, or select times "
                "that are there.",
                key="not-yet",
            )
        return field

    def _read(self) -> dict[str, str]:
        """Read what was noted; nothing where that is damaged."""
        try:
            note = json.loads(self._note.read_text())
        except (OSError, ValueError):
            return {}
        return {key: value for key, value in note.items() if isinstance(value, str)}

    def _write(self, fields: dict[str, str]) -> None:
        """Note some fields beside the request, and no others."""
        note = {**fields, "collection": COLLECTION, "request": self.request}
        try:
            with replacing(self._note) as draft:
                draft.write_text(json.dumps(note, indent=1))
        except OSError as error:
            raise cannot_write(self._folder, error) from error
