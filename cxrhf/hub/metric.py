"""An `evaluate` module of the repository -> the Space that `evaluate.load("user/name")` reads, needing no cxrhf."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.stage import find_folder
from cxrhf.hub.stage_files import contents


def metric_artefact(name: str, to: str) -> Artefact:
    """The self-contained copy of a module; `to` is the user or organisation that the card's examples name."""
    folder = find_folder(name)
    pieces = tuple(Piece(path, content) for path, content in contents(folder, owner=to).items())
    return Artefact("metric", folder.name, pieces)


def chosen(names: Sequence[str], every: bool) -> list[str]:
    """The modules that are meant, by name or folder; an unknown one is an error that lists the known."""
    from cxrhf.paths import shipped

    known = shipped("metrics")
    if every and names:
        raise ConfigError("metrics", got=f"--all and {', '.join(names)}", allowed="either names or --all")
    if every:
        return list(known)
    if not names:
        raise ConfigError(
            "no metric is named", next_step=f"name one of {', '.join(known)}, or run cxrhf push metric --all --to USER"
        )
    for name in names:
        if "/" not in name and name not in known:
            raise ConfigError("metric", got=name, allowed=", ".join(known), next_step=did_you_mean(name, known))
    return list(dict.fromkeys(names))
