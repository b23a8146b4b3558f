"""Floats -> numbers as people write them."""

from __future__ import annotations

import math
import unicodedata


def is_finite(*values: float) -> bool:
    """All are numbers."""
    return all(math.isfinite(value) for value in values)


def format_number(value: float, digits: int = 3) -> str:
    """A number for people: three decimals, a true minus sign, never "-0.000"; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else text.lstrip("-")


def format_percent(value: float, digits: int = 1) -> str:
    """`4.2%`; a dash where there is none."""
    return f"{format_number(100 * value, digits)}%" if is_finite(value) else "–"


def format_p_value(p_value: float) -> str:
    """A p value as people read it: `= 0.012`, `< 0.001` at the least; nothing where none was computed."""
    if not is_finite(p_value):
        return ""
    return "<\u00a00.001" if p_value < 0.001 else f"=\u00a0{format_number(p_value)}"


def text_width(name: str) -> int:
    """How many letters wide a name is: Chinese letters and emoji are two, accents that stand on a letter none."""
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in name)


def shorten(name: str, most: int) -> str:
    """A name that fits beside a picture."""
    if text_width(name) <= most:
        return name
    name = name[: 2 * most]
    while text_width(name) > most - 1:
        name = name[:-1]
    return name + "…"


def join_names(names: list[str], most: int = 6) -> str:
    """`a, b and c`, or `a, b and 12 more`."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
