"""What holds for the project as a whole: quick imports, layers, lock file, packaging, plain language."""

import ast
import os
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
HEAVY = (
    "dask",
    "distributed",
    "h5netcdf",
    "matplotlib",
    "numba",
    "pandas",
    "scipy",
    "xarray",
    "zarr",
)


UNPICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def test_import_is_quick() -> None:
    assert _takes_less("import cagp_dist", 0.5)


def test_help_is_quick() -> None:
    assert _takes_less(
        "import sys; sys.argv = ['cagp', '--help']; from cagp_dist.cli import main; main()", 1.0
    )


@pytest.mark.parametrize("module", ["cagp_dist", "cagp_dist.cli", "cagp_dist.service.jobfile.config"])
def test_heavy_modules_are_imported_where_they_are_used(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == []


def test_the_command_answers_without_numpy() -> None:
    code = "import sys, cagp_dist.cli; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_can_be_imported_and_is_in_the_reference() -> None:
    import cagp_dist

    reference = (REPOSITORY / "docs" / "reference" / "api.md").read_text()
    assert dir(cagp_dist) == sorted(cagp_dist.__all__)
    for name in cagp_dist.__all__:
        assert getattr(cagp_dist, name).__doc__
        assert f"   ~cagp_dist.{name}\n" in reference
    with pytest.raises(AttributeError, match="no attribute 'GausSeidel'"):
        _ = cagp_dist.GausSeidel  # type: ignore[attr-defined]


def test_modules_import_only_from_the_layers_below_them() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache"], cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "requirements-audit.lock"])
def test_lock_files_hold_names_and_versions_only(name: str) -> None:
    lines = _text(name).splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!+]*", line) for line in lines)
    assert lines == sorted(lines, key=str.lower)


def test_lock_files_hold_what_is_needed_and_no_more() -> None:
    to_run, to_work_on_it = _locked("requirements.lock"), _locked("requirements-dev.lock")
    assert set(to_run) == _closure(list(_requirements_to_run()))
    assert set(to_work_on_it) == _closure(list(_direct_requirements())) - set(to_run)
    locked = to_run | to_work_on_it
    for requirement in _direct_requirements():
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_locked_version_installs_on_the_oldest_python_that_the_package_allows(name: str) -> None:
    (allowed,) = SpecifierSet(PROJECT["project"]["requires-python"])
    assert allowed.operator == ">="
    oldest, refused = f"{allowed.version}.0", {}
    for project, version in _locked(name).items():
        assert distribution(project).version == version, "make install-dev"
        wanted = distribution(project).metadata.get_all("Requires-Python") or [""]
        if any(oldest not in SpecifierSet(text) for text in wanted):
            refused[project] = wanted
    assert refused == {}


def test_the_demo_installs_what_it_needs_to_run_alone() -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "--always-make", "demo"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "--requirement requirements.lock\n" in recipe
    assert "requirements-dev.lock" not in recipe
    assert recipe.rstrip().endswith("cagp demo --output out/demo")


def test_changelog_and_readme_speak_of_this_version() -> None:
    changelog = _text("CHANGELOG.md")
    assert f"\n## [{PROJECT['project']['version']}] - " in changelog
    entries = changelog[changelog.index("\n## [") :].splitlines()
    assert [line for line in entries if len(line) > 160 or line.startswith((" ", "* "))] == []
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))
    assert (
        set(re.findall(r"^make ([a-z-]+)", (REPOSITORY / "README.md").read_text(), re.MULTILINE)) <= targets
    )


def test_all_tests_are_the_quick_ones_with_their_coverage_and_the_exhaustive_ones() -> None:
    recipes = {
        target: re.findall(r"\t(.*)\n", lines)
        for target, lines in re.findall(
            r"^(test|test-all):.*\n((?:\t.*\n)+)", _text("Makefile"), re.MULTILINE
        )
    }
    assert recipes["test"] == ['$(PYTEST) -m "not exhaustive" $(PYTEST_ARGS)']
    assert recipes["test-all"] == [
        '$(PYTEST) -m "not exhaustive" --cov --cov-fail-under=90 $(PYTEST_ARGS)',
        "$(PYTEST) -m exhaustive $(PYTEST_ARGS)",
    ]


def test_a_change_passes_lint_docs_and_quick_tests_and_the_rest_runs_every_week() -> None:
    targets = set(re.findall(r"^([a-z-]+): ", _text("Makefile"), re.MULTILINE))
    made = re.findall(r"^make (.*)$", _text(".ci/run"), re.MULTILINE)
    assert made == ["install-dev", "--jobs=2 --output-sync=target lint docs dist", "test"]
    workflow = yaml.safe_load(_text("deploy/ci/exhaustive.yml"))
    (when,) = workflow[True]["schedule"]  # YAML 1.1 reads the key `on` as true
    assert re.fullmatch(r"\d+ \d+ \* \* [0-6]", when["cron"]), "once a week"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step["run"] for step in steps if "run" in step)
    weekly = set(re.findall(r"\bmake ([a-z-]+)", commands))
    assert "test-all" in weekly
    assert weekly <= targets
    assert "python -m tests.mutants" in commands
    assert not re.search(r"://|\w\.(?:com|org|net|io)\b", _text("deploy/ci/exhaustive.yml")), "names no host"


def test_every_target_is_listed_by_help() -> None:
    targets = set(re.findall(r"^([a-z-]+): ", _text("Makefile"), re.MULTILINE))
    run = subprocess.run(["make", "help"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert set(re.findall(r"make ([a-z-]+)", run.stdout)) == targets


def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cagp_dist.kriging.examples import write_examples

    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path, ["stations.csv"])
    table = (tmp_path / "stations.csv").read_text().splitlines()[:61]
    (tmp_path / "stations.csv").write_text("\n".join(table))
    blocks = re.findall(r"```python\n(.*?)```", _text("README.md"), flags=re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, Any] = {}
    exec(blocks[0].replace('"resolution": 0.5', '"resolution": 2.5'), names)
    assert (tmp_path / "map.png").stat().st_size > 10_000
    warm, field = names["warm"], names["field"]
    surely = field["mean"] - 15.0 > 3.0 * field["std"]
    assert surely.any()
    assert np.all(warm.where(surely, 1.0) > 0.9)


def test_job_of_the_readme_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cagp_dist.cli import app

    job = tmp_path / "job.toml"
    job.write_text(
        _block("toml").replace("count = 10000", "count = 217").replace("count = 1000", "count = 20")
    )
    monkeypatch.chdir(tmp_path)
    planned = CliRunner().invoke(app, ["plan", str(job)])
    assert planned.exit_code == 0, planned.output
    assert "217" in planned.stdout


def test_links_inside_the_repository_lead_somewhere() -> None:
    for page in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")):
        if "_build" in page.parts or "generated" in page.parts:
            continue
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_text_has_no_open_ends_and_no_paths_of_somebodys_machine() -> None:
    # Written so that this file does not find itself.
    marks = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"))
    place = "|".join(("home", "root", "work", "Users", "workspace"))
    unwanted = re.compile(rf"\b(?:{marks})\b|(?<![\w.$}}~-])/(?:{place})/(?!\.cache/pip)")
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for path in _text_files()
        if unwanted.search(text := path.read_text())
        for number, line in enumerate(text.splitlines(), start=1)
        if unwanted.search(line)
    ]
    assert found == []


def test_every_promise_of_the_security_policy_names_a_test_that_is_there() -> None:
    table = [line for line in _text("SECURITY.md").splitlines() if line.startswith("| ")][1:]
    for promise, place in (re.findall(r"[^|]+", line) for line in table):
        named = re.fullmatch(r" `(tests/[\w/]+\.py)::(test_\w+)` ", place)
        assert named is not None, promise
        assert f"def {named[2]}(" in _text(named[1]), promise
    assert len(table) > 10


def test_no_code_unpickles_or_evaluates_text() -> None:
    words = re.compile("|".join((*UNPICKLERS, r"\b(?:eval|exec|system|load)\(", "read_pickle", "shell")))
    for path in (REPOSITORY / "cagp_dist").rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if words.search(text) else ():
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.partition(".")[0] for name in names} & UNPICKLERS, path
            if not isinstance(node, ast.Call):
                continue
            called, arguments = ast.unparse(node.func), {word.arg: word.value for word in node.keywords}
            assert called not in ("eval", "exec", "os.system", "yaml.load", "torch.load", "pd.read_pickle"), (
                path
            )
            assert "shell" not in arguments, path
            if called in ("np.load", "numpy.load"):
                allowed = arguments.get("allow_pickle")
                assert isinstance(allowed, ast.Constant), path
                assert allowed.value is False, path


def _text(name: str) -> str:
    return (REPOSITORY / name).read_text()


def _block(language: str) -> str:
    """The first code block of a language in the README."""
    found = re.search(rf"```{language}\n(.*?)```", (REPOSITORY / "README.md").read_text(), flags=re.DOTALL)
    assert found is not None
    return found[1]


def _text_files() -> Iterator[Path]:
    """Every text file of the project that is not made by a tool."""
    folders = ("cagp_dist", "docs", "deploy", "pipelines", "tests", ".ci")
    for folder in folders:
        for path in (REPOSITORY / folder).rglob("*"):
            made = {"_build", "generated", "jupyter_execute", "__pycache__", "vendor", "node_modules"} & set(
                path.parts
            )
            if path.is_file() and not made and b"\0" not in path.read_bytes()[:8192]:
                yield path
    yield from (REPOSITORY / "Makefile", REPOSITORY / "pyproject.toml", *REPOSITORY.glob("*.md"))


def _takes_less(code: str, seconds: float) -> bool:
    """Whether one of three Python processes takes less processor time, whatever else runs."""
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=unmeasured)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < seconds:
            return True
    return False


def _locked(name: str) -> dict[str, str]:
    """Names and versions of a lock file."""
    pinned = dict(line.split("==") for line in _text(name).splitlines())
    return {canonicalize_name(project): version for project, version in pinned.items()}


def _requirements_to_run() -> Iterator[Requirement]:
    """What pyproject.toml asks for to install the package and to use it."""
    yield from map(Requirement, PROJECT["project"]["dependencies"])
    yield from map(Requirement, PROJECT["dependency-groups"]["build"])


def _direct_requirements() -> Iterator[Requirement]:
    """What pyproject.toml asks for: the package, its dashboard, and the groups for development."""
    yield from _requirements_to_run()
    yield from map(Requirement, PROJECT["project"]["optional-dependencies"]["dashboard"])
    for group in PROJECT["dependency-groups"].values():
        yield from (Requirement(entry) for entry in group if isinstance(entry, str))


def _closure(pending: list[Requirement]) -> set[str]:
    """Names of all distributions that the requirements need, from the metadata of what is installed."""
    done: set[tuple[str, str]] = set()
    while pending:
        requirement = pending.pop()
        for extra in ("", *requirement.extras):
            name = canonicalize_name(requirement.name)
            if (name, extra) in done:
                continue
            done.add((name, extra))
            for text in distribution(name).requires or []:
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    pending.append(inner)
    return {name for name, _ in done}
