"""Sphinx settings. The site is built with warnings as errors and the tutorial is executed: `make docs`."""

import os
import sys
import warnings
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

sys.path.insert(0, str(Path(__file__).parent))
from drawn import make_thumbnail, missing_figures

project = "cagp_dist"
author = "The cagp_dist authors"
copyright = author  # noqa: A001 (the name that Sphinx reads)
release = installed_version("cagp-dist")
version = release

extensions = [
    "formulas",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "jupyter_execute"]
default_role = "py:obj"
templates_path = ["_templates"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "substitution"]
# Figures that other pages quote from the tables of experiments.md, the one place where they are written down
# (tests/test_docs.py).
myst_substitutions = {
    "kept_tiles": "340 MiB",
    "cg_too_narrow": "1.60",
    "wrong_mean_exact": "89.4 %",
    "wrong_mean_one_sweep": "55.3 %",
}
myst_heading_anchors = 3
myst_dmath_double_inline = True
html_math_renderer = "katex"
math_numfig = False
math_eqref_format = "({number})"

# Executed anew at every build: a cache knows the notebook, not the package that the notebook shows.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = -1  # a slow machine is no fault of a page
nb_merge_streams = True
nb_render_markdown_format = "myst"
# It would reach the kernel of the notebook, whose own backend is the one that shows figures.
os.environ.pop("MPLBACKEND", None)

autosummary_generate = True
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "cagp_dist"
html_static_path = ["_static"]
html_css_files = ["gallery.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_show_sourcelink = False

warnings.filterwarnings("ignore", category=DeprecationWarning)  # of the tools, not of the package


def keep_words(app: Sphinx, doctree: nodes.document) -> None:
    """Leave lower-case words of type descriptions ("array, shape (n,)") as text, not as links to names."""
    for reference in list(doctree.findall(pending_xref)):
        if reference["reftype"] == "class" and reference["reftarget"].islower():
            reference.replace_self(reference.children)


def describe_data(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Give a constant of `cagp_dist` the text below it where it is defined, not the docstring of its type."""
    package, _, short = name.rpartition(".")
    if what == "data" and package == "cagp_dist":
        home = f"{package}.{import_module(package)._HOME[short]}"
        lines[:] = ModuleAnalyzer.for_module(home).find_attr_docs()["", short]


def check_figures(app: Sphinx, exception: Exception | None) -> None:
    """End the build with an error if a page lost a figure; make the thumbnails of the gallery."""
    if exception is not None or app.builder.name != "html":
        return
    source, built = Path(app.srcdir), Path(app.outdir)
    gallery = sorted(path.stem for path in source.glob("gallery/*.md") if path.stem != "index")
    missing = []
    for page in ("tutorial", *(f"gallery/{name}" for name in gallery)):
        missing += missing_figures(source / f"{page}.md", built / f"{page}.html")
    if missing:
        raise ExtensionError("figures are missing: " + "; ".join(missing))
    for name in gallery:
        make_thumbnail(built / "gallery" / f"{name}.html", built / "_images" / f"gallery-{name}.png")


def setup(app: Sphinx) -> None:
    """Sphinx calls this at the start of a build."""
    app.connect("doctree-read", keep_words)
    app.connect("autodoc-process-docstring", describe_data)
    app.connect("build-finished", check_figures)
