import contextlib
import json
import time

import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError
from cagp_dist.service.jobfile.config import load_job, parse_job
from cagp_dist.service.jobfile.prior_table import PriorNumbers

from ..jobs import job_text as written
from ..jobs import map_grid, random_points
from ..joined import one_after_another
from .damaged_jobs import damaged_job


def refusal(text):
    with pytest.raises(ConfigurationError) as caught:
        parse_job(text, name="job.toml")
    return str(caught.value)


def test_the_example_of_the_documentation_is_a_job(job_text):
    job = parse_job(job_text)
    assert job.design.train.count == 10000
    assert job.design.map.resolution_degrees == 4.0
    assert job.solver.build() == cagp.BlockGaussSeidel(5, block_size=1024)
    assert job.cluster.memory_limit == 4 * 2**30
    assert job.text == job_text
    assert str(job.output.folder) == "out"


def test_defaults_of_tables_that_may_be_left_out(job_text):
    short = job_text.split("[solver]")[0].replace('times = ["2017-04-27T12:00"]', "")
    job = parse_job(short)
    assert (job.solver.build(), job.canonical()["solver"]) == (None, {"name": "auto"})
    assert job.observations.times is None
    assert job.cluster.scheduler is None
    assert job.output.root == "out"


def test_a_job_is_frozen(job_text):
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        parse_job(job_text).prior.variance = 1.0


SOURCES = 'expected "sample", "synthetic", "file:PATH", "zarr:URL", "cds" or "table:PATH"'


@one_after_another
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("iterations = 5", "iteration = 5", 'unknown key [solver] iteration; nearest: "iterations"; valid'),
        ("[solver]", "[solvr]", 'unknown table [solvr]; nearest: "solver"'),
        ("count = 1000,", "cout = 1000,", 'unknown key [design] test.cout; nearest: "count"'),
        ("[output]\n", "[output]\nqqq = 1\n", "unknown key [output] qqq; valid here: root"),
        ("[prior]", "[priory]", 'unknown table [priory]; nearest: "prior"'),
        ("iterations = 5", "iterations = -1", "[solver] iterations = -1 is not allowed; expected an integer"),
        ("iterations = 5", "iterations = 5.5", "iterations = 5.5 is not allowed; expected an integer"),
        ("iterations = 5", "iterations = true", "iterations = true is not allowed; expected an integer"),
        ("iterations = 5", 'iterations = "5"', 'iterations = "5" is not allowed; expected an integer'),
        ("block_size = 1024", "block_size = 0", "block_size = 0 is not allowed; expected an integer of at"),
        ("block-gauss-seidel", "block-gaus-seidel", 'nearest: "block-gauss-seidel"'),
        (
            "block-gauss-seidel",
            "gauss-seidel",
            "unknown key [solver] block_size; valid here: name, iterations",
        ),
        (
            'name = "block-gauss-seidel"\n',
            "",
            '[solver] name is missing; expected one of "auto", "gauss',
        ),
        (
            'name = "block-gauss-seidel"',
            "name = 3",
            '[solver] name = 3 is not allowed; expected one of "auto", "gauss',
        ),
        ("lengthscale = 0.05", "lengthscale = 0.0", "lengthscale = 0.0 is not allowed; expected a positive"),
        ("lengthscale = 0.05", "lengthscale = -1", "lengthscale = -1 is not allowed; expected a positive"),
        ("lengthscale = 0.05", "lengthscale = nan", "lengthscale = nan is not allowed; expected a positive"),
        ("variance = 22.0", "variance = inf", "variance = inf is not allowed; expected a positive variance"),
        ("noise_variance = 0.5", "noise_variance = 0", "noise_variance = 0 is not allowed; expected a pos"),
        (
            "lengthscale = 0.05",
            "",
            "[prior]: variance and noise_variance given without lengthscale; give all three parameters, or "
            "none",
        ),
        (
            "variance = 22.0\nnoise_variance = 0.5",
            "",
            "lengthscale given without variance and noise_variance",
        ),
        ('"matern32"', '"matern33"', 'nearest: "matern32"'),
        (
            '"quadratic-latitude"',
            '"linear"',
            '"linear": expected "constant", "quadratic-latitude", "harmonic-latitude", "regional_linear", '
            '"climatology:PATH" or "previous"',
        ),
        ('"quadratic-latitude"', '"harmonic-latitud"', 'nearest: "harmonic-latitude"'),
        ('"quadratic-latitude"', '"climatology"', 'the address is missing after "climatology:"'),
        ('"quadratic-latitude"', '"climatolgy:a.zarr"', 'nearest: "climatology"'),
        ('"quadratic-latitude"', "3", '[prior] mean = 3: expected "constant", "quadratic'),
        (
            'kind = "grid"',
            'kind = "gird"',
            '[design] map.kind = "gird" is not allowed; expected one of "grid", "cells"',
        ),
        ("resolution_degrees = 4.0", "resolution_degrees = 0", "map.resolution_degrees = 0 is not allowed"),
        (
            "resolution_degrees = 4.0",
            "resolution_degrees = 4.0, area = [1, 2]",
            "map.area = [1, 2] is not al",
        ),
        ("4.0 }", "4.0, area = [1, 2, 3, 4] }", "north is 1 and south is 3"),
        ("4.0 }", "4.0, area = [3, 400, 1, 4] }", "west is 400 and east is 4; expected two different"),
        (
            '{ kind = "random", count = 10000, seed = 0 }',
            "5",
            "[design] train = 5 is not allowed; expected a t",
        ),
        ('kind = "random", count = 10000', 'kind = "randm", count = 10000', 'nearest: "random"'),
        (
            'kind = "random", count = 10000',
            "count = 10000",
            "[design] train.kind is missing; expected one of",
        ),
        ("count = 10000", "count = 0", "[design] train.count = 0 is not allowed; expected an integer of at"),
        (
            "count = 10000",
            'count = 10000, weight = "volume"',
            '[design] train.weight = "volume" is not allowed; expected one of "area", "equal"',
        ),
        (
            "lengthscale = 0.05",
            "lengthscale = 320.0",
            "[prior]: lengthscale = 320.0: a lengthscale is a chord on the unit sphere, whose diameter is 2; "
            "expected a number above 0 and at most 2; 320 km are 0.0502.",
        ),
        ("lengthscale = 0.05", "lengthscale = 3.0", "3 km are 0.000471, 3 degrees are 0.0524"),
        ("lengthscale = 0.05", "lengthscale = 1e5", "expected a number above 0 and at most 2."),
        (
            '"sample"',
            '"synthetic"\nsynthetic = { lengthscale = 320.0 }',
            "[observations] synthetic.lengthscale = 320.0: a lengthscale is a chord",
        ),
        ("seed = 0", "seed = -3", "[design] train.seed = -3 is not allowed"),
        (
            'kind = "random", count = 1000, seed = 1',
            'kind = "stride", step = 2, offset = 2',
            "[design] test: offset = 2 is not below step = 2",
        ),
        (
            '"sample"',
            '"sampel"',
            f'{SOURCES}; nearest: "sample"',
        ),
        ('"sample"', '"t2m.grib"', 'write "file:t2m.grib"'),
        ('"sample"', '"stations.csv"', 'write "table:stations.csv"'),
        ('"sample"', '"file:"', 'the address is missing after "file:", for example "file:field.grib"'),
        (
            '"sample"',
            '"zarr:x"\nmissing = "-9"',
            "missing has a text, which is for cells of tables; expected a number",
        ),
        ('"sample"', '"zarr:x"\nmissing = [1, nan]', "missing = [1, nan] is not allowed; expected a number"),
        (
            '"sample"',
            '"ftp:x"',
            SOURCES,
        ),
        (
            "[design]",
            "[observations.synthetic]\nseed = 3\n[design]",
            'the table [observations.synthetic] cannot be combined with source "sample"; leave it out',
        ),
        (
            '"sample"',
            '"synthetic"\nsynthetic = { lenghtscale = 0.1 }',
            'unknown key [observations] synthetic.lenghtscale; nearest: "lengthscale"; valid here: kernel',
        ),
        (
            '"sample"',
            '"synthetic"\nsynthetic = 3',
            "[observations] synthetic = 3 is not allowed; expected the keys",
        ),
        (
            '"sample"',
            '"synthetic"\nsynthetic = { variance = 0.0 }',
            "[observations] synthetic.variance = 0.0 is not allowed; expected a positive variance",
        ),
        ('"sample"\ntimes = ["2017-04-27T12:00"]', '"cds"', 'source "cds" needs times'),
        ('["2017-04-27T12:00"]', "[]", "the list is empty; leave the key out"),
        ('["2017-04-27T12:00"]', "[12]", "12 is not a time; expected an ISO 8601 time"),
        ('["2017-04-27T12:00"]', '["noon"]', "'noon' is not a time; expected an ISO 8601 time"),
        ('["2017-04-27T12:00"]', '["0001-01-01T00:00+23:00"]', "is not a time"),
        ('["2017-04-27T12:00"]', '["1066-10-14"]', "outside the years 1700..2250"),
        ('["2017-04-27T12:00"]', '["2017-04-27", 2017-04-27T00:00:00Z]', "is listed more than once"),
        ('["2017-04-27T12:00"]', '"2017-04-27"', "expected a list of ISO 8601 times"),
        ('"local"', '"loca"', 'nearest: "local"'),
        (
            '"local"',
            '"tcp://somewhere"',
            'expected "local", "serial", "slurm", "pbs", "tcp://HOST:PORT", "tls://HOST:PORT" or a scheduler '
            "file",
        ),
        ('"4GiB"', '"4"', "expected a number and a unit"),
        ('"4GiB"', "4", 'expected text with a unit, for example "4GiB"'),
        ('"4GiB"', '"1kB"', "1000 bytes are less than any work needs"),
        ('root = "out"', 'root = ""', "expected the path of a folder"),
        ('root = "out"', 'root = "a\\u0000b"', "NUL character"),
        (
            "[prior]",
            '[recalibration]\nmethod = "split-conformal"\n[prior]',
            '[recalibration] method = "split-conformal": this method was removed; write "local-scale"',
        ),
        ("[prior]", "[recalibration]\nhistory = 9\n[prior]", "[recalibration]: the key history was removed"),
        ("[prior]", "[prior", "at line 10, column 7).\n  line 10: [prior"),
        ("[prior]", "x = " + "[" * 5000 + "\n[prior]", "nested too deeply"),
        ("seed = 0", "seed = " + "9" * 5000, "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_what_is_expected(job_text, old, new, said):
    assert old in job_text
    message = refusal(job_text.replace(old, new, 1))
    assert message.startswith("job.toml")
    assert said in message


def test_several_mistakes_are_listed(job_text):
    message = refusal(job_text.replace("count", "cnt").replace("22.0", "-1.0"))
    assert message.startswith("job.toml has 5 mistakes:\n  - ")
    assert "[prior] variance = -1.0 is not allowed" in message


def test_a_long_list_of_mistakes_is_cut(job_text):
    extra = "\n".join(f"key{i} = {i}" for i in range(20))
    message = refusal(f"{job_text}\n{extra}")
    assert message.count("\n") == 9
    assert "and 12 more" in message


def test_long_values_are_shortened(job_text):
    assert len(refusal(job_text.replace('"sample"', '"' + "x" * 5000 + '"'))) < 400


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ('["2017-04-28", "2017-04-27T12:00"]', ("2017-04-27T12:00", "2017-04-28T00:00")),
        ("[2017-04-27T14:00:00+02:00]", ("2017-04-27T12:00",)),
        ("[2017-04-27]", ("2017-04-27T00:00",)),
        ('["2017-04-27T12:00:30Z"]', ("2017-04-27T12:00:30",)),
    ],
)
def test_times_are_put_in_order_in_utc(job_text, written, means):
    assert parse_job(job_text.replace('["2017-04-27T12:00"]', written)).observations.times == means


def test_a_year_of_hours_is_checked_at_once(job_text):
    hours = ", ".join(
        f'"2019-{1 + n // 672:02d}-{1 + n // 24 % 28:02d}T{n % 24:02d}:00"' for n in range(8064)
    )
    times = parse_job(job_text.replace('"2017-04-27T12:00"', hours)).observations.times
    assert (len(times), times[-1]) == (8064, "2019-12-28T23:00")


@pytest.mark.parametrize(
    ("text", "expected"), [("4GiB", 2**32), ("1.5 GB", 1_500_000_000), ("512mib", 2**29), ("4e9B", None)]
)
def test_amounts_of_memory(job_text, text, expected):
    changed = job_text.replace('"4GiB"', f'"{text}"')
    if expected is None:
        assert "expected a number and a unit" in refusal(changed)
    else:
        assert parse_job(changed).cluster.memory_limit == expected


@pytest.mark.parametrize(
    "scheduler", ["serial", "tcp://127.0.0.1:8786", "tcp://[::1]:8786", "run/scheduler.json", "slurm", "pbs"]
)
def test_schedulers(job_text, scheduler):
    assert parse_job(job_text.replace('"local"', f'"{scheduler}"')).cluster.scheduler == scheduler


@pytest.mark.parametrize(
    "source", ["file:a b.grib", "zarr:gs://bucket/x.zarr", "zarr:arco-era5", "cds", "synthetic"]
)
def test_sources(job_text, source):
    assert parse_job(job_text.replace('"sample"', f'"{source}"')).observations.source == source


def test_the_canonical_form_tells_apart_what_matters(job_text):
    reference = parse_job(job_text).canonical()
    same = job_text.replace('"local"', '"serial"').replace('"out"', '"elsewhere"').replace("22.0", "22")
    assert parse_job(same).canonical() == reference
    assert parse_job(job_text.replace("22.0", "22.5")).canonical() != reference
    other = job_text.replace('"block-gauss-seidel"', '"gauss-seidel"').replace("block_size = 1024", "")
    assert "calibration" not in reference["design"]  # jobs from before there was this key keep their form
    held_out = job_text.replace("[design]", '[design]\ncalibration = { kind = "random", count = 9 }')
    assert parse_job(held_out).canonical() != reference
    assert parse_job(other).solver.build() == cagp.GaussSeidel(5)
    assert parse_job(other).canonical() != reference


def test_a_prior_without_numbers_is_to_be_fitted(job_text):
    assert parse_job(job_text).prior.numbers == PriorNumbers(0.05, 22.0, 0.5)
    numbers = "lengthscale = 0.05\nvariance = 22.0\nnoise_variance = 0.5\n"
    assert parse_job(job_text.replace(numbers, "")).prior.numbers is None


def test_a_synthetic_field_has_its_defaults_in_the_canonical_form(job_text):
    bare = job_text.replace('"sample"', '"synthetic"')
    written = bare.replace("[design]", "[observations.synthetic]\nlengthscale = 0.05\nseed = 0\n[design]")
    assert parse_job(bare).canonical() == parse_job(written).canonical()
    assert parse_job(bare).observations.synthetic.noise_variance == 0.5
    assert (
        parse_job(written.replace("seed = 0\n[des", "seed = 1\n[des")).canonical()
        != parse_job(bare).canonical()
    )
    assert parse_job(job_text).observations.synthetic is None


@pytest.mark.parametrize("mean", ["constant", "harmonic-latitude", "climatology:gs://bucket/a b.zarr"])
def test_means(job_text, mean):
    assert parse_job(job_text.replace("quadratic-latitude", mean)).prior.mean == mean


def test_a_job_file_is_read(tmp_path, job_text):
    path = tmp_path / "job.toml"
    path.write_text(job_text, encoding="utf-8")
    assert load_job(path) == parse_job(job_text)


def test_a_job_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigurationError) as refusal:
        load_job(tmp_path / "none.toml")
    assert refusal.value.key == "no-file"
    with pytest.raises(ConfigurationError) as refusal:
        load_job(tmp_path)
    assert refusal.value.key == "unreadable"
    (tmp_path / "binary.toml").write_bytes(b"GRIB\xff\xfe\x00")
    with pytest.raises(ConfigurationError) as refusal:
        load_job(tmp_path / "binary.toml")
    assert refusal.value.key == "unreadable"
    with pytest.raises(ConfigurationError) as refusal:
        load_job("a\0b")
    assert refusal.value.key == "unreadable"


SCALARS = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from(['"random"', '"sample"', '"block-gauss-seidel"', '"grid"', "nan", "2017-04-27"]),
    st.text(alphabet="abc:/.é\\u", max_size=8).map(lambda text: f"'{text}'"),
)
VALUES = st.recursive(
    SCALARS.map(lambda value: str(value).lower() if isinstance(value, bool) else str(value)),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(
            st.sampled_from(["kind", "count", "seed", "step", "name", "x"]), inner, max_size=3
        ).map(lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }")
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    """source times area train test map kernel lengthscale variance name iterations block_size scheduler
    workers memory_limit root observations design prior solver cluster output '' "a" x.y""".split()  # noqa: SIM905
)
LINES = st.one_of(
    st.builds("{} = {}".format, KEYS, VALUES),
    st.builds("[{}]".format, KEYS),
    st.text(max_size=12),
)


@given(st.lists(LINES, max_size=12))
def test_fuzzed_toml_gives_only_configuration_errors(lines):
    with pytest.raises(ConfigurationError):
        parse_job("\n".join(lines))


JOB_LINES = written(
    observations={
        "source": "synthetic",
        "synthetic": {"seed": 1},
        "times": ["2017-04-27T12:00"],
        "area": [60, -10, 30, 40],
    },
    design={
        "train": random_points(100),
        "test": {"kind": "stride", "step": 7, "offset": 3},
        "map": map_grid(4.0),
    },
    solver={"name": "random-actions", "seed": 4},
    cluster={"workers": 2, "memory_limit": "4GiB"},
    output={"root": "out"},
).splitlines()
ASSIGNMENTS = [index for index, line in enumerate(JOB_LINES) if "=" in line]


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_a_job_file_that_was_damaged_anywhere_is_a_job_or_a_configuration_error(tmp_path, count):
    """Bits flipped, pieces cut out, doubled, put elsewhere, nested deeply, or replaced by noise; in time."""
    rng = np.random.default_rng(0)
    good, path = "\n".join(JOB_LINES).encode(), tmp_path / "job.toml"
    outcomes = set()
    for number in range(count):
        path.write_bytes(damaged_job(good, number, rng))
        started = time.process_time()  # which nobody else takes
        try:
            load_job(path)
            outcomes.add("job")
        except ConfigurationError as error:
            outcomes.add("named" if str(path) in str(error) else str(error))
        assert time.process_time() - started < 10.0
    assert outcomes == {"job", "named"}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ASSIGNMENTS), VALUES)
def test_a_job_with_one_value_replaced_is_a_job_or_a_configuration_error(at, value):
    lines = JOB_LINES.copy()
    lines[at] = f"{lines[at].split('=')[0]} = {value}"
    with contextlib.suppress(ConfigurationError):
        assert parse_job("\n".join(lines)).text


SUM = ('kernel = "matern32"', 'kernel = "matern32+matern52"')
LISTS = (("lengthscale = 0.05", "lengthscale = [0.05, 0.5]"), ("variance = 22.0", "variance = [5, 20.0]"))


def with_sum(job_text, *changes):
    for old, new in (SUM, *changes):
        assert old in job_text
        job_text = job_text.replace(old, new, 1)
    return job_text


def test_a_sum_of_kernels_has_lists_of_numbers(job_text):
    job = parse_job(with_sum(job_text, *LISTS))
    assert job.prior.kernel == "matern32 + matern52"
    assert job.prior.numbers == PriorNumbers((0.05, 0.5), (5.0, 20.0), 0.5)
    said = json.loads(json.dumps(job.canonical()))["prior"]
    assert said["kernel"] == "matern32 + matern52"
    assert (said["lengthscale"], said["variance"], said["noise_variance"]) == ([0.05, 0.5], [5.0, 20.0], 0.5)
    single = parse_job(job_text).canonical()["prior"]
    assert single["kernel"] == "matern32"
    assert (single["lengthscale"], single["variance"]) == (0.05, 22.0)
    numbers = "lengthscale = 0.05\nvariance = 22.0\nnoise_variance = 0.5\n"
    assert parse_job(with_sum(job_text, (numbers, ""))).prior.numbers is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            [],
            'lengthscale is one number, 0.05, but kernel = "matern32 + matern52" has 2 parts; expected',
        ),
        (
            [("lengthscale = 0.05", "lengthscale = [0.05, 0.2, 0.5]"), LISTS[1]],
            "lengthscale is a list of 3, but",
        ),
        ([LISTS[0]], "variance is one number, 22, but"),
        (
            [("lengthscale = 0.05", "lengthscale = [0.05, -1.0]"), LISTS[1]],
            "[prior] lengthscale = -1.0 is not allowed; expected a positive chord",
        ),
        (
            [("lengthscale = 0.05", "lengthscale = [0.05, 320.0]"), LISTS[1]],
            "[prior]: lengthscale = 320.0: a lengthscale is a chord on the unit sphere",
        ),
        (
            [*LISTS, ("noise_variance = 0.5", "noise_variance = [0.5, 1]")],
            "[prior] noise_variance = [0.5, 1] is",
        ),
        (
            [("matern32+matern52", "matern32 + matern25")],
            '[prior] kernel = "matern32 + matern25": "matern25" is not a kernel; nearest: "matern52"',
        ),
        ([("matern32+matern52", " + ".join(["matern12"] * 5))], "a sum of 5 kernels; expected at most 4"),
        (
            [("matern32+matern52", "matern32"), LISTS[0]],
            'lengthscale is a list of 2, but kernel = "matern32" is not a sum; expected one number',
        ),
    ],
)
def test_what_does_not_fit_a_sum_is_explained(job_text, changes, text):
    with pytest.raises(ConfigurationError) as raised:
        parse_job(with_sum(job_text, *changes))
    assert text in str(raised.value)
