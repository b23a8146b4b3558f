"""Name of a metric or dataset builder -> the folder that holds it, in an installation or in a clone.

>>> metric_path("weighted_auroc").endswith("weighted_auroc")
True
"""

from __future__ import annotations

from pathlib import Path

from cxrhf.errors import CxrhfError, did_you_mean

_HERE = Path(__file__).resolve().parent
# A clone keeps the folders beside the package, so that edits count at once; a wheel carries them inside it.
_ROOT = _HERE.parent if (_HERE.parent / "pyproject.toml").is_file() else _HERE / "shipped"


def metric_path(name: str) -> str:
    """Folder of an `evaluate` module of ours, for `evaluate.load(cxrhf.metric_path("weighted_auroc"))`."""
    return _folder("metrics", name)


def builder_path(name: str) -> str:
    """Folder of a dataset builder of ours."""
    return _folder("dataset_scripts", name)


def shipped(kind: str) -> list[str]:
    """Names of the folders of a kind ("metrics" or "dataset_scripts"), in alphabetical order."""
    return sorted(path.stem for path in (_ROOT / kind).glob("*/*.py") if path.stem == path.parent.name)


def _folder(kind: str, name: str) -> str:
    known = shipped(kind)
    if name in known:
        return str(_ROOT / kind / name)
    raise CxrhfError(
        f'unknown name "{name}" in {kind}',
        allowed=f"one of {', '.join(known)}" if known else "nothing: this installation ships none",
        next_step=did_you_mean(name, known),
    )
