"""What the pages have in common: figures are written down once, figures exist, citations are listed."""

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import cagp_dist

DOCS = Path(__file__).parents[1] / "docs"
EXPERIMENTS = (DOCS / "experiments.md").read_text()


def substitutions() -> dict[str, str]:
    """``myst_substitutions`` of docs/conf.py, read without Sphinx."""
    for statement in ast.parse((DOCS / "conf.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "myst_substitutions":
            return ast.literal_eval(statement.value)
    raise AssertionError("docs/conf.py has no myst_substitutions")


def pages() -> list[Path]:
    """Every page that is written by hand."""
    return [path for path in DOCS.rglob("*.md") if not {"_build", "generated"} & set(path.parts)]


def test_quoted_figures_are_those_of_the_experiments():
    quoted = substitutions()
    for name, value in quoted.items():
        assert value in EXPERIMENTS, f"{name} = {value} is in no table of experiments.md"
    used = {name for page in pages() for name in re.findall(r"\{\{ (\w+) \}\}", page.read_text())}
    assert used == set(quoted)


def test_quoted_figures_are_written_out_nowhere_else():
    for page in pages():
        if page.name in ("experiments.md", "peers.md"):
            continue
        for value in ("340 MiB", "55.3 %", "1,679 MiB", "3,080"):
            assert value not in page.read_text(), f"{page.name} repeats {value}"


def test_every_picture_of_a_page_exists():
    for page in pages():
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)|```\{(?:image|figure)\} (\S+)", page.read_text()):
            assert (page.parent / next(filter(None, target))).is_file(), f"{page.name}: {target}"


def test_each_row_of_the_papers_has_a_command_and_a_figure_or_a_reason():
    """Commands are scripts with an entry point, linked to a section that runs them."""
    text = (DOCS / "regression-sets.md").read_text()
    rows = text[text.index("(row-by-row)=") :].splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows if row.startswith("| ")][1:]
    assert len(cells) > 30
    for name, *others in cells:
        if name.startswith("**"):  # a paper
            continue
        command, measured, reason = others
        assert (command and measured) or reason, name
        for module, page, anchor in re.findall(r"\[`(\w+)`\]\(([\w.-]*)#([\w-]+)\)", command):
            linked = (DOCS / (page or "regression-sets.md")).read_text()
            labels = set(re.findall(r"^\((.+)\)=$", linked, re.M))
            headings = re.findall(r"^#+ (.+)$", linked, re.M)
            labels |= {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
            assert anchor in labels, f"{name}: {anchor}"
            assert f"pipelines.experiments.{module}" in linked, f"{name}: {module}"


def test_files_that_pages_mention_exist():
    root = DOCS.parent
    for page in [*pages(), root / "README.md"]:
        text = page.read_text()
        for name in re.findall(r"\b((?:tests|docs|deploy)/[\w./-]*\w)", text):
            assert (root / name).exists(), f"{page.name}: {name}"
        for module in re.findall(r"python -m (pipelines(?:\.\w+)*)", text):
            folder = root / module.replace(".", "/")
            runs = [folder.with_suffix(".py"), folder / "__main__.py"]
            assert any(file.is_file() for file in runs), f"{page.name}: {module}"


def test_names_that_pages_mention_exist():
    import cagp_dist

    mentioned = set()
    for page in pages():
        text = page.read_text()
        mentioned |= {("cagp_dist", name) for name in re.findall(r"(?<![\w.])cagp\.([A-Za-z_]\w*)", text)}
        mentioned |= set(re.findall(r"`(cagp_dist(?:\.\w+)*)\.(\w+)[`(]", text))
    assert ("cagp_dist", "condition") in mentioned
    for module, name in sorted(mentioned):
        found = cagp_dist if module == "cagp_dist" else importlib.import_module(module)
        submodule = hasattr(found, "__path__") and importlib.util.find_spec(f"{module}.{name}")
        assert hasattr(found, name) or submodule, f"{module}.{name}"


def test_works_that_docstrings_cite_are_on_the_page_of_references():
    references = (DOCS / "references.md").read_text()
    listed = {
        (line.split()[0].rstrip(","), year)
        for line in references.splitlines()
        for year in re.findall(r"^\S.*\((\d{4})\)$", line)
    }
    cited = {
        (name, year)
        for path in (DOCS.parent / "cagp_dist").rglob("*.py")
        for name, year in re.findall(r"\[([A-Z]\w+)[^\[\]]*? ((?:19|20)\d\d)\b", path.read_text())
    }
    assert ("Hegde", "2025") in cited
    assert cited <= listed


def test_the_readme_quotes_figures_of_the_experiments_and_fits_on_a_few_screens():
    readme = (DOCS.parent / "README.md").read_text()
    table = readme.partition("## How far it goes")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert set(rows) <= set(EXPERIMENTS.splitlines())
    assert len(readme.splitlines()) <= 120


def test_sections_and_identities_that_docstrings_cite_are_on_the_page_of_mathematics():
    text = (DOCS / "math.md").read_text()
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", text, flags=re.MULTILINE))
    identities = set(re.findall(r"\bT\d+\b", text))
    assert {"1.2", "7"} <= sections
    assert {"T2", "T8"} <= identities
    for path in sorted((DOCS.parent / "cagp_dist").rglob("*.py")):
        for cited in re.findall(r"\(math ([^);\[]+)", path.read_text()):
            numbers = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", cited))
            named = set(re.findall(r"T\d+", cited))
            assert numbers <= sections, f"{path.name}: math {cited}"
            assert named <= identities, f"{path.name}: math {cited}"


def test_every_identity_is_in_the_table_of_tests_which_are_there_and_cite_it():
    page, _, table = (DOCS / "math.md").read_text().partition("## 17. Where the identities are tested")
    rows = dict(re.findall(r"^\| (T\d+) \| .* \| (.*) \|$", table, flags=re.MULTILINE))
    assert set(rows) == set(re.findall(r"\bT\d+\b", page))
    assert set(rows) >= {f"T{number}" for number in (*range(1, 26), 36)}
    for identity, tests in rows.items():
        file = re.search(r"`(tests/.*\.py)`", tests)
        source = (
            DOCS.parent / (file.group(1) if file else "tests/conformance/test_identities.py")
        ).read_text()
        defined = {
            name
            for name in re.findall(r"^def (test_\w+)", source, flags=re.MULTILINE)
            if identity.lower() in name.split("_")
        }
        assert defined == set(re.findall(r"`(test_\w+)`", tests)), identity
        assert defined, identity


def test_what_gstat_does_is_translated_call_by_call():
    page = (DOCS / "gallery" / "others.md").read_text()
    section = page[page.index("\n## gstat\n") : page.index("\n## scikit-learn\n")]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    translated = " ".join(row[0] for row in rows)
    calls = ("variogram(", "fit.variogram(", "vgm(", "krige(", "krige.cv(", "nsim", "nmax", "block", "anis")
    assert not [call for call in calls if call not in translated]
    for name in re.findall(r"`model\.(\w+)\(", section):
        assert hasattr(cagp_dist.Kriging, name)
    given = set(re.findall(r"[`(\s](\w+)=", " ".join(row[1] for row in rows)))
    assert given <= {*inspect.signature(cagp_dist.Kriging).parameters, "kind", "below"}


def test_the_list_of_keys_of_a_job_has_the_type_default_and_meaning_of_each():
    spec = importlib.util.spec_from_file_location("job_keys", DOCS / "job_keys.py")
    job_keys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job_keys)
    listed = job_keys.markdown()
    for name, tables in job_keys.sections().items():
        assert f"## [{name}]" in listed
        inner = [each for table in tables for field in table.model_fields.values()
                 for each in job_keys.tables_in(field.annotation)]  # fmt: skip
        for table in (*tables, *inner):
            for key, field in table.model_fields.items():
                where, kind = f"{table.__name__}.{key}", job_keys.type_of(field)
                text = job_keys.text_of(table, key, field)
                assert re.fullmatch(r"(text|integer|number|true or false|list|table| or )+", kind), where
                holds = re.match(r"An? (integer|number|whole number)|True or false|The name of a", text)
                # what is expected alone does not say what it is for
                assert not holds or ":" in text or len(text.split()) > 12, where
                assert f"| `{key}` | {kind} |" in listed
                assert text in listed
    assert "typing" not in listed
    runtime = listed[listed.index("## [runtime]") :]
    assert "| `attempts` | integer | `3` | How often in all" in runtime
    for page in ("how-to/job.md", "reference/index.md"):
        assert "job-file.md" in (DOCS / page).read_text()
