"""A run that an earlier version packed into one file is found damaged, and comes back as it was."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.packed import packed_runs, unpack_run, verify_packed
from cagp_dist.store.publish import verify_files

from . import publisher


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An output folder with one packed run and a current one."""
    root = tmp_path_factory.mktemp("template") / "out"
    runs = [publisher.publish_index(root, index) for index in (0, 1)]
    digests, packed = manifest.digests_of(runs[0]), root / "packed" / f"{runs[0].stem}.zip"
    packed.parent.mkdir()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(digests):
            archive.write(runs[0] / name, name)
    manifest.manifest_path(runs[0]).rename(packed.with_suffix(".sha256"))
    shutil.rmtree(runs[0])
    return root, digests


@pytest.fixture
def root(template, tmp_path):
    return Path(shutil.copytree(template[0], tmp_path / "out"))


def test_a_packed_run_comes_back_as_it_was(root, template):
    (path,) = packed_runs(root)
    verified = CliRunner().invoke(app, ["verify", str(root)])
    assert (verified.exit_code, f"undamaged  {path}" in verified.stdout) == (0, True)
    result = CliRunner().invoke(app, ["unpack", f"{root}/{path.stem[:6]}"])
    run = root / "runs" / f"{path.stem}.zarr"
    assert (result.exit_code, result.stdout) == (0, f"{run}\n")
    verify_files(run)
    assert manifest.digests_of(run) == template[1]
    assert list(path.parent.iterdir()) == list((root / ".staging").iterdir()) == []
    with pytest.raises(ConfigurationError) as refused:
        unpack_run(root, "12")
    assert refused.value.key == "several-runs"


@pytest.mark.parametrize("name", ["{root}/{key:.6}", "{root}/{key}", "{root}/packed/{key}.zip"])
def test_a_command_on_a_packed_run_says_how_to_bring_it_back(root, name):
    (path,) = packed_runs(root)
    named = name.format(root=root, key=path.stem)
    result = CliRunner().invoke(app, ["view", named, "--no-browser"])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "is packed" in said
    (restored,) = re.findall(r"`cagp unpack (\S+)`", said)
    assert CliRunner().invoke(app, ["unpack", restored]).exit_code == 0


@pytest.mark.parametrize("harm", ["flipped", "cut", "other", "encrypted", "packed"])
def test_a_damaged_file_is_named_and_not_unpacked(root, harm):
    (path,) = packed_runs(root)
    content = bytearray(path.read_bytes())
    if harm == "flipped":
        content[len(content) // 2] ^= 1
    last = content.rindex(b"PK\x01\x02")  # the entry of a file in the list at the end
    if harm == "encrypted":
        content[last + 8] |= 1
    if harm == "packed":
        content[last + 10] = 8
    path.write_bytes(content[:-30] if harm == "cut" else content)
    if harm == "other":
        listing = path.with_suffix(".sha256")
        listing.write_text("\n".join(listing.read_text().splitlines()[1:]) + "\n")
    with pytest.raises(StoreError, match=rf"{path.name} (cannot be read|is not what|is damaged)"):
        verify_packed(path)
    with pytest.raises(StoreError):
        unpack_run(root, path.stem)
    assert not (root / "runs" / f"{path.stem}.zarr").exists()
    assert CliRunner().invoke(app, ["verify", str(root)]).exit_code == 1
