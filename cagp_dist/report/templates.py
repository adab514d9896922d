"""Pages made of templates: every text that is put into one is escaped, and the page can load nothing.

Markup comes from the files in ``data`` and from Matplotlib alone. A policy in the page lets the browser run
and apply what these files hold, told by its digest, and nothing that a name in the data may have brought in.
"""

import base64
import hashlib
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def fill(name: str, *, script: str = "", **values: object) -> str:
    """Fill the template ``data/<name>.html``, with its style and its policy."""
    style = _text("base.css") + _text(f"{name}.css")
    run = _text(script) if script else Markup()
    page = _environment().get_template(f"{name}.html")
    return page.render(values, style=style, script=run, policy=_policy(style, run))


def _policy(style: str, script: str) -> str:
    """Content security policy: this style, this script and pictures that are part of the page.

    Matplotlib writes colours and widths into attributes, whose digests nobody could list.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest(script)}",
            f"style-src {_digest(style)}",
            "style-src-attr 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    """Name a text in a policy; no text is allowed where there is none."""
    if not text:
        return "'none'"
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> Markup:
    """Read a style sheet or a script, which are markup as they are."""
    return Markup((resources.files("cagp_dist.report") / "data" / name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cagp_dist.report", "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
