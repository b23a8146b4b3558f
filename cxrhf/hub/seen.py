"""A run with weights -> whose data they learned from, and whether they may be published.

What the weights' own file says counts (`cxrhf train` and `finetune` write it there). Where it says nothing, everything
that lies around does: the build, if it is still there, its name, the tables of the run; the strictest wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.hub.connection import HubError
from cxrhf.run import read_record
from cxrhf.tables.json_files import read_object
from cxrhf.terms import Standing, credentialed, standing

TABLES = ("predictions", "images", "generations")


class Seen(NamedTuple):
    """Names of the datasets that were learned from, and the strictest of their terms."""

    names: tuple[str, ...]
    standing: Standing


def seen(run: Path, about: Mapping[str, Any]) -> Seen:
    """Whose data a model of a run has seen; `about` is what the weights say of themselves."""
    if about.get("dataset"):
        names = [str(about["dataset"])]
        closed = about.get("credentialed") is True
    else:
        found = list(_around(run))
        names = sorted({name for name, _ in found})
        closed = any(shut for _, shut in found)
    return Seen(tuple(names), "credentialed" if closed else standing(names))


def _around(run: Path) -> Iterator[tuple[str, bool]]:
    """Names of datasets around a run, and whether it is said that they are credentialed."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for build in _named(run):
        for name in credentialed([Path(build).name]):  # data/mimic: the folder's name may be all that is left
            yield name, True
    for folder in builds_of(run):
        made = _said_in(folder / "build.json")
        if made.get("dataset"):
            yield str(made["dataset"]), made.get("credentialed") is True
    for table in TABLES:
        path = run / f"{table}.parquet"
        if path.is_file() and "dataset" in pq.read_schema(path).names:
            for name in pc.unique(pq.read_table(path, columns=["dataset"])["dataset"]).to_pylist():
                if name:
                    yield str(name), False


def builds_of(run: Path) -> list[Path]:
    """The builds that a run was made from, where they are still to be found."""
    places = [place / build for build in _named(run) for place in (Path(), run, run.parent, run.parent.parent)]
    return [place for place in dict.fromkeys(places) if (place / "build.json").is_file()]


def _named(run: Path) -> list[str]:
    """Builds as run.json names them: below the folder that the command ran in, or by the last part alone."""
    record = read_record(run, HubError) or {}
    records = (record, *record.get("earlier", {}).values())
    return [str(build) for each in records if (build := (each.get("config") or {}).get("build"))]


def _said_in(path: Path) -> dict[str, Any]:
    """What a record says; a damaged one may have said that the data are credentialed."""
    if not path.is_file():
        return {}
    return read_object(path, next_step="copy it again, or create it again", error=HubError)


def check_allowed(what: Seen, *, words: bool, allows: bool, allows_words: bool) -> None:
    """Refuse what the terms of the data do not let out, and say what would be allowed.

    `words`: whether the model can give back what was written about patients.
    """
    if what.standing == "open":
        return
    names = ", ".join(what.names)
    who = f"{names}: credentialed data" if what.standing == "credentialed" else (
        f"{names}: not known to be open data" if names else "its training data are not recorded"
    )  # fmt: skip
    if words and not allows_words:
        raise HubError(
            f"this model can reproduce text of notes or reports, and its training data are not open ({who})",
            next_step="keep the model with the data, and publish results and a recipe instead (cxrhf push dataset "
            "--recipe). If your data agreement allows sharing text models, pass --data-agreement-allows-words.",
        )
    if not words and not allows:
        raise HubError(
            f"the training data of this network are not open ({who})",
            next_step="read the data agreement, and if it allows sharing weights, pass --data-agreement-allows",
        )
