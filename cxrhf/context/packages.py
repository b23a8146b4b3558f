"""What is read of the notes -> the optional packages that it needs, looked for before hours are spent."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.errors import need_packages

# What is read -> modules; "" is what every fit needs to keep its models.
_NEEDED = {"": ("skops", "safetensors"), "boosted": ("xgboost",), "encoder": ("torch", "transformers", "accelerate")}


def check_packages(features: Sequence[str]) -> None:
    """A missing package as an error that says how to get it."""
    light = not {"boosted", "encoder"} & set(features)  # the extra that brings all of it: one install, not two
    other = "" if light else ", or pip install 'cxrhf[words]' and pass --features words"
    for feature in (*features, ""):
        what = f"--features {feature}" if feature else "context models"
        need_packages(what, _NEEDED.get(feature, ()), "words" if light else "context", other)
