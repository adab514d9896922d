"""The build of the documentation fails when the tutorial loses a figure."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"

REMEDY = 'os.environ.pop("MPLBACKEND", None)\n'
SOURCE = """
```{code-cell} ipython3
import matplotlib.pyplot as plt
```

```{code-cell} ipython3
fig, axis = plt.subplots()
axis.plot([0, 1]);
```

![a picture of the prose](elsewhere.png)
"""
CELL = '<div class="cell docutils container"><div class="cell_input">{code}</div>{output}</div>\n'
OUTPUT = '<div class="cell_output docutils container">{shown}</div>'
IMAGE = '<img alt="figure" src="_images/one.png" />'


@pytest.fixture(scope="module")
def missing_figures():
    spec = importlib.util.spec_from_file_location("drawn", DOCS / "drawn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.missing_figures


@pytest.fixture
def built(tmp_path):
    def build(shown, picture=b"PNG"):
        (tmp_path / "_images").mkdir()
        (tmp_path / "_images" / "one.png").write_bytes(picture)
        (tmp_path / "tutorial.md").write_text(SOURCE)
        page = CELL.format(code="import", output="") + CELL.format(
            code="subplots", output=OUTPUT.format(shown=shown)
        )
        (tmp_path / "tutorial.html").write_text(page)
        return tmp_path / "tutorial.md", tmp_path / "tutorial.html"

    return build


def test_a_page_with_its_figures_passes(missing_figures, built):
    assert missing_figures(*built(IMAGE)) == []


def test_a_page_without_images_fails(missing_figures, built):
    source, page = built("<pre>&lt;Figure size 640x480 with 1 Axes&gt;</pre>")
    assert missing_figures(source, page) == [
        "cell 2 of tutorial.md draws a figure and tutorial.html shows none"
    ]


def test_a_picture_of_the_prose_is_not_the_figure_of_a_cell(missing_figures, built):
    source, page = built("")
    page.write_text(page.read_text().replace('<div class="cell_output docutils container"></div>', IMAGE))
    assert len(missing_figures(source, page)) == 1


def test_an_empty_picture_fails(missing_figures, built):
    found = missing_figures(*built(IMAGE, picture=b""))
    assert found == ["cell 2 of tutorial.md: the picture _images/one.png is not there"]


def test_a_page_that_was_not_executed_fails(missing_figures, built):
    source, page = built(IMAGE)
    page.write_text("<p>the text alone</p>")
    assert missing_figures(source, page) == ["tutorial.html has 0 executed cells; tutorial.md has 2"]


PAGE = """---
file_format: mystnb
kernelspec:
  name: python3
---

# Tutorial
""" + SOURCE.rpartition("\n!")[0]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.exhaustive
def test_the_build_shows_the_figures_whatever_the_environment_says_and_fails_without(tmp_path, lost):
    """`make` exports MPLBACKEND; a build whose kernel is given it nevertheless is one that loses figures."""
    folder = tmp_path / "docs"
    folder.mkdir()
    settings = (DOCS / "conf.py").read_text().replace('html_static_path = ["_static"]', "")
    if lost:
        assert REMEDY in settings
        settings = settings.replace(REMEDY, "")
    (folder / "conf.py").write_text(settings)
    for extension in ("drawn.py", "formulas.py"):
        (folder / extension).write_text((DOCS / extension).read_text())
    shutil.copytree(DOCS / "_templates", folder / "_templates")
    (folder / "index.md").write_text("# Pages\n\n$a_1 < b$\n\n```{toctree}\ntutorial\n```\n")
    (folder / "tutorial.md").write_text(PAGE)
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-b", "html", folder, tmp_path / "html"],
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    if lost:
        assert run.returncode != 0
        assert "figures are missing: cell 2 of tutorial.md" in run.stderr
    else:
        assert run.returncode == 0, run.stderr
        page = (tmp_path / "html" / "index.html").read_text()
        assert '<span class="math notranslate nohighlight">a_1 &lt; b</span>' in page
        assert "katex/katex.min.js" in page
        assert re.findall(r'<(?:script|link)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', page) == []


@pytest.fixture(scope="module")
def prose():
    spec = importlib.util.spec_from_file_location("prose", DOCS / "prose.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROSE = """# Title

```python
teh = "law"
```

The laws of `teh` are $colour$, and
[teh](law.md) is wrong. {long}.
"""


def test_faults_in_the_english_of_a_page_are_found_in_its_prose_alone(prose):
    page = prose.prose_of(PROSE.format(long=" ".join(["word"] * 41)))
    found = list(
        prose.faults(
            "docs/page.md", page, {"the", "of", "are", "and", "is", "wrong", "word", "laws", "title"}
        )
    )
    assert found[0] == 'docs/page.md:7: write "distribution", not "laws"'
    assert "'teh' is in no list of words" in found[1]
    assert found[2].startswith("docs/page.md: 41 words: word word")
    assert len(found) == 3


def test_messages_of_a_module_are_checked_and_its_docstrings_are_not(prose):
    source = 'def f(x):\n    """Of a law."""\n    raise ValueError(f"the law {x} is learnt")\n'
    (message,) = prose.messages(source)
    assert message == "the law N is learnt"
    written = sorted(fault.partition(": ")[2] for fault in prose.faults("cagp_dist/f.py", message, set()))
    assert written == ['write "distribution", not "law"', 'write "learned", not "learnt"']
