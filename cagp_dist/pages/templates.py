"""Pages made of templates: every text that is put into one is escaped, and the page can load nothing.

Markup comes from the files in ``data`` and from Matplotlib alone. A policy in the page lets the browser run
and apply what these files hold, told by its digest, and nothing that a name in the data may have brought in.
"""

import base64
import hashlib
import io
from collections.abc import Sequence
from functools import cache
from importlib import resources

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray


def fill(name: str, *, scripts: Sequence[str] = (), **values: object) -> str:
    """Fill the template ``data/<name>.html``, with its style, scripts of ``data`` and its policy."""
    style = _text("base.css") + _text(f"{name}.css")
    run = Markup().join(_text(script) for script in scripts)
    page = _environment().get_template(f"{name}.html")
    return page.render(values, style=style, script=run, policy=_policy(style, run))


def picture_address(pixels: NDArray[np.uint8]) -> str:
    """Encode a picture (height, width, 4) as a ``data:`` address: WebP, or PNG with a palette."""
    from PIL import Image, features

    file, kind = io.BytesIO(), "webp" if features.check("webp") else "png"
    if kind == "webp":
        Image.fromarray(pixels, "RGBA").save(file, "WEBP", quality=82, method=4)
    else:
        Image.fromarray(pixels, "RGBA").quantize(128).save(file, "PNG", optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


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
    return Markup((resources.files("cagp_dist.pages") / "data" / name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cagp_dist.pages", "data"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
