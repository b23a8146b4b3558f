"""Files of `templates/` -> style, script and the palette of standalone pictures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection
from functools import cache
from importlib import resources


@cache
def asset(name: str) -> str:
    """The text of a file beside the templates."""
    return (resources.files("cxrhf.report") / "templates" / name).read_text(encoding="utf-8").strip()


def page_style() -> str:
    """The page's style sheet."""
    return "\n".join(asset(name) for name in ("palette.css", "style.css", "maps.css", "words.css", "figure.css"))


def page_script(kinds: Collection[str]) -> str:
    """The page's script; that of maps, galleries and plots of words where there are such blocks."""
    used = ["page", *(["marks"] if {"map", "words"} & set(kinds) else [])]
    used += [name for name in ("map", "gallery", "words") if name in kinds]
    return "\n".join(asset(f"{name}.js") for name in used)


def policy(script: str) -> str:
    """The page's content policy: no request to anywhere, no script but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


@cache
def palette(dark: bool = False) -> dict[str, str]:
    """Names of colours -> their values, in the light or the dark scheme."""
    light, _, other = asset("palette.css").partition("@media")
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]+)", other if dark else light))


@cache
def figure_style() -> str:
    """The style of a picture on its own: light colours, no variables, so that it opens anywhere."""
    colours = palette()
    style = re.sub(r"var\(--([\w-]+)\)", lambda found: _solid(colours[found[1]]), asset("figure.css"))
    return f"svg {{ font-family: Roboto, 'Helvetica Neue', Arial, sans-serif; }}\n{style}"


def _solid(colour: str) -> str:
    """#rrggbbaa as rgba(), which older readers of SVG know too."""
    if len(colour) != 9:
        return colour
    red, green, blue, alpha = (int(colour[k : k + 2], 16) for k in (1, 3, 5, 7))
    return f"rgba({red},{green},{blue},{alpha / 255:.2f})"
