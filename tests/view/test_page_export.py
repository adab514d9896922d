"""The page as static files, and its vendored libraries."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import urllib.request
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError
from cagp_dist.store.publish import current_run
from cagp_dist.view import export_page
from cagp_dist.view.site_files import page_files

PAGE = Path(str(resources.files("cagp_dist.view") / "page"))
VENDOR = PAGE / "vendor"
MOST_BYTES = 2_500_000


def test_the_export_has_the_page_and_the_run_as_it_was(tmp_path, world):
    index = export_page(world, tmp_path / "public" / "maps")
    run = current_run(world)
    told = json.loads((index.parent / "view.json").read_text())
    assert (told["path"], told["live"]) == (f"data/{run.name}", False)
    assert {path.relative_to(index.parent).as_posix() for path in index.parent.rglob("*.js")} == {
        name for name in page_files() if name.endswith(".js")
    }
    check = ["sha256sum", "--check", "--quiet", f"{run.stem}.sha256"]
    assert subprocess.run(check, cwd=index.parent / "data", check=False).returncode == 0
    assert list(tmp_path.glob("public/.*")) == []


def test_its_own_folder_is_replaced_and_no_other(tmp_path, world):
    folder = tmp_path / "page"
    folder.mkdir()
    export_page(world, folder)
    (tmp_path / "link").symlink_to(folder)
    for named in (folder, tmp_path / "link"):
        (folder / "left over").write_text("")
        assert export_page(world, named) == named / "index.html"
        assert not (folder / "left over").exists()
    assert (tmp_path / "link").is_symlink()
    assert list(tmp_path.glob(".*")) == []
    for name, content in (("notes.txt", "mine"), ("view.json", "{}"), ("view.json", "[")):
        other = tmp_path / f"{name}-{len(content)}"
        other.mkdir()
        (other / name).write_text(content)
        with pytest.raises(ConfigurationError) as refusal:
            export_page(world, other)
        assert refusal.value.key == "other-files"
        assert [path.name for path in other.iterdir()] == [name]
    with pytest.raises(ConfigurationError) as refusal:
        export_page(world, tmp_path / "notes.txt-4" / "notes.txt")
    assert refusal.value.key == "other-files"


def test_the_command_exports_and_helps(tmp_path, world):
    result = CliRunner().invoke(app, ["view", str(world), "--export", str(tmp_path / "page")])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'page' / 'index.html'}\n")
    shown = CliRunner().invoke(app, ["view", "--help"]).stdout
    assert "cagp view out --export public/maps" in shown
    both = ["view", str(world), "--export", str(tmp_path / "other"), "--port", "8000"]
    assert "without --port" in " ".join(CliRunner().invoke(app, both).output.split())
    refused = CliRunner().invoke(app, ["view", str(tmp_path / "page"), "--no-browser"])
    assert refused.exit_code == 2
    assert "no published run" in refused.stderr


@pytest.mark.exhaustive
def test_the_command_serves_until_it_is_interrupted(world):
    command = [sys.executable, "-m", "cagp_dist", "view", str(world), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}view.json") as answer:
            assert json.load(answer)["path"] == f"data/{current_run(world).name}"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0


def test_libraries_are_those_of_the_lock_file():
    vendored = json.loads((VENDOR / "vendored.json").read_text())
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "vendored.json"
    }
    assert found == vendored["files"], "make view-page"
    locked = json.loads((PAGE.parent / "vendoring" / "package-lock.json").read_text())["packages"]
    licences = (VENDOR / "LICENSES.txt").read_text()
    for library in vendored["libraries"]:
        package = locked[f"node_modules/{library['name']}"]
        assert {key: package[key] for key in ("version", "license", "integrity")} == {
            key: library[key] for key in ("version", "license", "integrity")
        }
        assert f"{library['name']} {library['version']} ({library['license']})" in licences
    assert {"maplibre-gl", "zarrita", "zstddec"} <= {library["name"] for library in vendored["libraries"]}


def test_the_page_is_small_and_names_no_host_to_fetch_from():
    sizes = {address: path.stat().st_size for address, path in page_files().items()}
    assert sum(size for address, size in sizes.items() if address != "coastline-fine.npy") < MOST_BYTES
    for path in PAGE.iterdir():
        if path.is_file():
            addresses = re.findall(r"https?://[^\s\"'`]+", path.read_text())
            assert set(addresses) <= {"http://www.w3.org/2000/svg"}, path
