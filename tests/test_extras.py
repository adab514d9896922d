"""A plain install does without the packages of the extras; what needs one says which extra to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import cagp_dist
from cagp_dist.errors import ConfigurationError
from cagp_dist.extras import from_extra
from cagp_dist.fields.sources import open_source
from cagp_dist.fields.stores import cds_client
from cagp_dist.remedies import installation

from .regional import EUROPE

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
MODULES = {"dask-jobqueue": "dask_jobqueue"}


LEFT_OUT = [
    MODULES.get(requirement.name, requirement.name)
    for extra, texts in PROJECT["optional-dependencies"].items()
    if extra != "all"
    for requirement in map(Requirement, texts)
]


def test_no_module_but_the_grib_decoder_imports_the_extras_before_they_are_needed():
    package = Path(cagp_dist.__file__).parent
    at_once = re.compile(rf"^(?:(?:import|from) (?:{'|'.join(LEFT_OUT)})\b|\S+ = from_extra\()", re.MULTILINE)
    modules = sorted(package.rglob("*.py"))
    assert len(modules) > 200
    found = [str(path.relative_to(package)) for path in modules if at_once.search(path.read_text())]
    assert found == ["fields/files/grib.py"]


@pytest.mark.exhaustive
def test_every_module_but_the_grib_decoder_is_imported_without_the_extras():
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({LEFT_OUT}))\n"
        "from importlib import import_module\n"
        "from pkgutil import walk_packages\n"
        "import cagp_dist\n"
        "names = [found.name for found in walk_packages(cagp_dist.__path__, 'cagp_dist.')]\n"
        "for name in names:\n"
        "    if name not in ('cagp_dist.__main__', 'cagp_dist.fields.files.grib'): import_module(name)\n"
        "print(len(names), *set(sys.modules) & {'cagp_dist.fields.files._decode', 'cagp_dist.report.page'})"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    count, *some = run.stdout.split()
    assert int(count) > 200
    assert len(some) == 2


def test_all_has_every_extra_of_the_package_but_those_of_the_experiments():
    (everything,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert everything.extras == PROJECT["optional-dependencies"].keys() - {"all", "baselines"}


def test_an_extra_that_is_not_there_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "eccodes", None)
    with pytest.raises(ConfigurationError, match=rf"^reading it needs eccodes \(.*{installed('grib')}$"):
        from_extra("grib", "eccodes", "reading it")


def test_a_grib_file_and_the_climate_data_store_name_their_extras(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "eccodes", None)
    monkeypatch.delitem(sys.modules, "cagp_dist.fields.files.grib", raising=False)
    with pytest.raises(ConfigurationError, match=rf"europe\.grib: .*{installed('grib')}$"):
        open_source(f"file:{EUROPE}", cache_directory=tmp_path)
    monkeypatch.setitem(sys.modules, "cdsapi", None)
    with pytest.raises(ConfigurationError, match=installed("cds")):
        cds_client.connect_to_cds(cds_client.Patience()).__enter__()


def installed(extra: str) -> str:
    return re.escape(installation(extra))
