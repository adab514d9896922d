"""Formulas drawn by KaTeX, which lies in ``_static/katex``: the site needs no network to be read.

A formula is written into the page as LaTeX, and `draw.js` draws it when the page is opened.
"""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    latex = translator.encode(node.astext())
    translator.body.append(f'<span class="math notranslate nohighlight">{latex}</span>')
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math-block notranslate nohighlight"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append(f'<div class="math-display">{translator.encode(node.astext())}</div></div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.min.css")
    app.add_css_file("formulas.css")
    app.add_js_file("katex/katex.min.js")
    app.add_js_file("draw.js")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
