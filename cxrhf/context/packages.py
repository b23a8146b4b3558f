"""What is read of the notes -> the optional packages that it needs, looked for before hours are spent."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from cxrhf.errors import CxrhfError

# What is read -> modules; "" is what every fit needs to keep its models.
_NEEDED = {"": ("skops", "safetensors"), "boosted": ("xgboost",), "encoder": ("torch", "transformers", "accelerate")}


def check_packages(features: Sequence[str]) -> None:
    """A missing package as an error that says how to get it."""
    for feature in ("", *features):
        for name in _NEEDED.get(feature, ()):
            if not _there(name):
                asked = f"--features {feature} needs" if feature else "context models need"
                extra = "context" if feature else "words"
                other = "; or --features words, which does without" if feature else ""
                raise CxrhfError(
                    f"{asked} the Python package {name}, which is not installed",
                    next_step=f'pip install "cxrhf[{extra}]"{other}',
                )


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
