"""Markdown pages, docstrings and settings -> the documentation site, read offline as well as online.

`python -m sphinx -W -b html docs build/docs`. Nothing in the pages is fetched from elsewhere: no fonts, no scripts;
formulas are MathML, which browsers draw themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "extensions")]

from cxrhf import __version__  # noqa: E402 (after the path)

project = "cxrhf"
author = "The cxrhf authors"
copyright = "The cxrhf authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml", "docstrings", "commands", "tables"]
exclude_patterns = ["extensions"]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# "--config" must stay what one types.
smartquotes = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 110
add_module_names = False

html_theme = "furo"
html_title = "cxrhf"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_extra_path = [str(made) for made in [Path(__file__).parent.parent / "build" / "gallery"] if made.is_dir()]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []
