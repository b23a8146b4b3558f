"""What is known of an image -> the question that a vision-language model is asked, and the report it should give."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Mapping
from typing import Any

from cxrhf.errors import ConfigError, did_you_mean

DEFAULT_PROMPT = (
    "You are an experienced radiologist. Write the report of this frontal chest X-ray: first the findings, then the "
    "impression. Describe only what the image shows."
)
FIELDS = ("indication", "age", "sex", "view", "comparison")
NOT_GIVEN = "not given"


def check_template(template: str) -> None:
    """A prompt whose fields are not known is an error before anything is read."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError(
            f"--prompt is not a valid template ({error})",
            allowed="text with fields such as {indication}",
            next_step="write {{ for a brace",
        ) from None
    if not template.strip():
        raise ConfigError("--prompt", got="nothing", allowed="text")
    for name in names:
        if name not in FIELDS:
            raise ConfigError(
                "--prompt", got=f"{{{name}}}", allowed=" or ".join(f"{{{each}}}" for each in FIELDS),
                next_step=did_you_mean(name, FIELDS),
            )  # fmt: skip


def prompt_for(template: str, row: Mapping[str, Any]) -> str:
    """A prompt with what is known of an image put in.

    >>> prompt_for("Age {age}, {sex}. Indication: {indication}", {"age": 61.0, "sex": "F"})
    'Age 61, F. Indication: not given'
    """
    check_template(template)
    return template.format(**{name: _shown(row.get(name)) for name in FIELDS})


def _shown(value: Any) -> str:
    if isinstance(value, float):
        value = None if math.isnan(value) else round(value)
    text = "" if value is None else " ".join(str(value).split())
    return text or NOT_GIVEN


def report_of(row: Mapping[str, Any]) -> str:
    """The reference: findings and impression, whichever are there, white space as single blanks.

    >>> report_of({"findings": "Clear  lungs.", "impression": None})
    'Clear lungs.'
    """
    parts = (row.get("findings"), row.get("impression"))
    return re.sub(r"\s+", " ", " ".join(str(each) for each in parts if each)).strip()
