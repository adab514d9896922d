"""Tables that would fill the memory or never end are refused by name, in seconds and little memory."""

import bz2
import gzip
import io
import lzma
import os
import re
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cagp_dist.errors import DataError
from cagp_dist.fields.tables import read_table, table_files, table_layout

from ..bombs import GIB, read_all, sparse

HEAD = b"lat,lon,t\n"


def one_line(path):
    path.write_bytes(gzip.compress(HEAD) + gzip.compress(bytes([55]) * 10_000_000, 9) * 300)


def one_line_first(path):
    path.write_bytes(lzma.compress(b"9" * 10_000_000, preset=0) * 300)


def many_rows(path):
    path.write_bytes(bz2.compress(HEAD) + bz2.compress(b"1,2,3\n" * 100_000) * 500)


def holes(path):
    sparse(path, 10**12)


def nested_archives(path):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("table.csv", HEAD + b"1,2,3\n" * 100_000)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())


def many_columns(path):
    path.write_bytes(b"lat,lon,t" + b",x" * 500_000 + b"\n" + b"1,2,3" + b",4" * 500_000 + b"\n")


def long_cell(path):
    path.write_bytes(b"lat,lon," + b"t" * 500_000 + b"\n1,2,3\n")


def rows_of_parquet(path):
    count = 500_000
    zeros = pa.table({name: pa.array(np.zeros(count)) for name in ("lat", "lon", "t")})
    with pq.ParquetWriter(path, zeros.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(zeros)


def texts_of_parquet(path):
    text = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, "i4"), pa.array(["x" * 2_000_000]))
    one = pa.array(np.ones(1_000_000))
    table = pa.table({"lat": one, "lon": one, "t": one, "name": text})
    pq.write_table(
        table.cast(pa.schema({**{n: pa.float64() for n in ("lat", "lon", "t")}, "name": text.type})), path
    )


def device(path):
    path.symlink_to("/dev/zero")


def pipe(path):
    os.mkfifo(path)


BOMBS = [
    (one_line, "csv.gz", r"has a line of more than 2 MiB; expected a table"),
    (one_line_first, "csv.xz", r"has a line of more than 2 MiB; expected a table"),
    (many_rows, "csv.bz2", r"unpacks to [\d.]+ MiB or more, as no measurements do"),
    (holes, "csv", r"has a line of more than 2 MiB; expected a table"),
    (nested_archives, "zip", "is a zip archive"),
    (many_columns, "csv", "500,003 columns; expected"),
    (long_cell, "csv", "field larger than field limit"),
    (rows_of_parquet, "parquet", r"unpacks to [\d.]+ MiB or more, as no measurements do"),
    (texts_of_parquet, "parquet", r"unpacks to [\d.]+ MiB or more, as no measurements do"),
    (device, "csv", "is not a regular file, but a pipe, a socket or a device"),
    (pipe, "csv.gz", "is not a regular file, but a pipe, a socket or a device"),
]


def test_each_is_refused_in_seconds_and_within_a_gibibyte(tmp_path):
    paths = [tmp_path / f"{make.__name__}.{suffix}" for make, suffix, _ in BOMBS]
    for path, (make, _, _) in zip(paths, BOMBS, strict=True):
        make(path)
    found, peak = read_all(
        "read_table(source)", "from cagp_dist.fields.tables import read_table", list(map(str, paths))
    )
    for (said, seconds), path, (_, _, expected) in zip(found, paths, BOMBS, strict=True):
        assert said.startswith("DataError: ")
        assert str(path) in said
        assert re.search(expected, said), said
        assert seconds < 30.0, path
    assert peak < GIB


def test_long_tables_are_read_as_before(tmp_path):
    generator = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "lat": generator.uniform(-90, 90, 5000),
            "lon": generator.uniform(0, 360, 5000),
            "t": generator.normal(size=5000),
        }
    )
    for suffix in ("csv", "csv.gz", "csv.bz2", "csv.xz"):
        rows.to_csv(tmp_path / f"rows.{suffix}", index=False)
        np.testing.assert_array_equal(read_table(tmp_path / f"rows.{suffix}").values, rows.t)
    rows.to_parquet(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(read_table(tmp_path / "rows.parquet").values, rows.t)


def test_a_damaged_parquet_file_is_named(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path / "x.parquet")
    assert refusal.value.key == "not-a-table"


def test_parquet_has_a_limit_of_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "PARQUET_BYTES", 2**24)
    pd.DataFrame({"lat": [1.0], "lon": [2.0], "t": [3.0]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path / "x.parquet")
    assert refusal.value.key == "damaged"


def test_a_table_larger_than_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table_layout, "available_bytes", lambda: 2**20)
    (tmp_path / "x.csv").write_bytes(HEAD + b"1,2,3\n" * 50_000)
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path / "x.csv")
    assert refusal.value.key == "memory"
