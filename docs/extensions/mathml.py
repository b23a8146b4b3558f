"""Formulas in LaTeX -> MathML in the page, made when the site is built: no script, no font, no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def mathml(formula: str, display: str) -> str:
    """Bars as fences: by their own name they would be set apart from what they enclose."""
    return convert(formula.replace(r"\lvert", r"\left|").replace(r"\rvert", r"\right|"), display=display)


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    # A long formula is moved sideways on a phone; the page is not.
    writer.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
