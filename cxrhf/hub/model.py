"""A run with weights and an audit's results -> the files of a model repository, with a card written from the results.

Image networks stand at the root as transformers and timm load them, further seeds in seed-N/; adapters as peft loads
them, with the base in base/ where it was made here and is nowhere else to be had; models of notes as a run folder that
`cxrhf context predict` reads. Nothing of single patients goes along: no predictions, vectors, examples or logs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.connection import HubError
from cxrhf.hub.settings import PushModelConfig
from cxrhf.report.card_facts import about_weights
from cxrhf.run import Standing, credentialed, read_record, standing
from cxrhf.tables.files import read_object
from cxrhf.tables.folders import check_inside, check_links

NETWORK = ("config.json", "model.safetensors", "cxrhf.json", "calibration.json")
ADAPTER = ("adapter_model.safetensors", "processor_config.json", "tokenizer.json", "tokenizer_config.json",
           "chat_template.jinja", "special_tokens_map.json", "preprocessor_config.json",
           "video_preprocessor_config.json")  # fmt: skip
BASE = ("config.json", "generation_config.json", "model.safetensors", *ADAPTER[1:])
# Facts of a run that go along with models of notes; the rest of run.json is about this machine.
RECORD = ("format", "verb", "config", "seed", "inputs", "versions", "commit", "started", "finished", "notes")


@dataclass(frozen=True, slots=True)
class Weights:
    """What a run has to publish: its kind, what its file says of it, and its pieces."""

    kind: str  # "network", "adapter", "context"
    folder: Path
    name: str
    about: Mapping[str, Any]
    pieces: Callable[[str], list[Piece]]  # of the repository's name

    @property
    def words(self) -> bool:
        """Whether it can give back what was written about patients."""
        return self.kind != "network"


def model_artefact(config: PushModelConfig) -> Artefact:
    """Everything that `cxrhf push model` publishes; refused where the terms of the data say so."""
    from cxrhf.hub.scan_people import known_of
    from cxrhf.report.card import card_files, facts_of

    run, repo = Path(config.run), str(config.to)
    check_links(run)  # what a link points to is not of this run
    weights = find_weights(run)
    data = seen(run, weights.about)
    check_allowed(data, words=weights.words, allows=config.data_agreement_allows,
                  allows_words=config.data_agreement_allows_words)  # fmt: skip
    name = config.model or weights.name
    source, rows = results_of(run, config.results, name)
    check_links(source)
    facts = facts_of(source, name, weights.folder)
    drawn = card_files(rows, facts, repo=repo)
    pieces = weights.pieces(repo)
    check_inside(run, (piece.content for piece in pieces if isinstance(piece.content, Path)))
    pieces += [Piece(path, content, drawn=path.endswith((".png", ".svg"))) for path, content in drawn.items()]
    known = known_of(sorted({run, source, *builds_of(run)}))
    return Artefact("model", name, tuple(sorted(pieces, key=lambda piece: piece.path)), known=known,
                    notes=_notes(data, source, config))  # fmt: skip


def _notes(data: TrainingSources, source: Path, config: PushModelConfig) -> tuple[str, ...]:
    from cxrhf.run import public_path

    notes = [
        f"results from {public_path(str(source))}",
        f"trained on: {', '.join(data.names) or 'unknown data'} ({data.standing})",
    ]
    if data.standing != "open":
        notes.append("you confirmed that the data agreement allows sharing")
    return tuple(notes)


# --- the weights ---------------------------------------------------------------------------------------------------


def find_weights(run: Path) -> Weights:
    """The weights of a run; where it has none of its own, the error names the runs below it that have."""
    if not run.is_dir():
        raise HubError(f"{run} is not a folder", next_step="cxrhf push model RUN --to USER/NAME")
    for look in (_network, _adapter, _context):
        if (found := look(run)) is not None:
            return found
    patterns = [f"{depth}/{name}" for name in ("models", "adapter") for depth in ("*", "*/*")]
    found_below = [each for pattern in patterns for each in run.glob(pattern)]
    below = sorted({each.parent for each in found_below if each.is_dir() and _has_weights(each.parent)})
    raise HubError(
        f"{run} has no weights",
        allowed="a run of cxrhf train (models/seed-0), finetune (adapter) or context fit (models/context)",
        next_step=" or ".join(f"cxrhf push model {shlex.quote(str(each))} --to USER/NAME" for each in below)
        or _writer_of(run)
        or "train one: cxrhf train BUILD",
    )


def _writer_of(run: Path) -> str | None:
    """What to publish where a run holds reports: the model that wrote them, with the run as its results."""
    if not (run / "generations.parquet").is_file():
        return None
    given = _read(run / "run.json").get("config") if (run / "run.json").is_file() else {}
    source = given.get("source") if isinstance(given, dict) else None
    writer = shlex.quote(source) if isinstance(source, str) and _has_weights(Path(source)) else "WRITER"
    return (
        f"publish the fine-tuned model that generated its reports: cxrhf push model {writer} "
        f"--results {shlex.quote(str(run))} --to USER/NAME"
    )


def _has_weights(run: Path) -> bool:
    return any(look(run) is not None for look in (_network, _adapter, _context))


def _network(run: Path) -> Weights | None:
    folders = sorted((each for each in run.glob("models/seed-*") if (each / "cxrhf.json").is_file()), key=_seed)
    if not folders:
        return None

    def pieces(repo: str) -> list[Piece]:
        made = []
        for at, folder in enumerate(folders):
            inside = "" if at == 0 else f"{folder.name}/"
            made += [Piece(f"{inside}{name}", folder / name) for name in NETWORK if (folder / name).is_file()]
        return made

    about = about_weights(folders[0])
    for each in folders:
        for name in NETWORK[:2]:
            if not (each / name).is_file():
                raise HubError(f"{each} has no {name}", next_step="train again, or copy the whole folder again")
    return Weights("network", folders[0], str(about.get("name") or run.name), about, pieces)


def _seed(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("seed-")
    return (int(number) if number.isdigit() else 1 << 62, folder.name)


def _adapter(run: Path) -> Weights | None:
    folder = run / "adapter"
    if not (folder / "adapter_config.json").is_file():
        return None
    about = about_weights(folder)
    own = (run / "base").is_dir()  # a base made here

    def pieces(repo: str) -> list[Piece]:
        settings = _read(folder / "adapter_config.json")
        told = json.loads(json.dumps(about))
        if own:
            settings["base_model_name_or_path"] = repo
            told["base"]["source"] = "base"
        made = [Piece("adapter_config.json", _json(settings)), Piece("cxrhf.json", _json(told))]
        made += [Piece(name, folder / name) for name in ADAPTER if (folder / name).is_file()]
        if own:
            made += [Piece(f"base/{name}", run / "base" / name) for name in BASE if (run / "base" / name).is_file()]
        return made

    return Weights("adapter", folder, str(about.get("name") or run.name), about, pieces)


def _context(run: Path) -> Weights | None:
    folder = run / "models" / "context"
    if not (folder / "manifest.json").is_file():
        return None
    listed = sorted(_read(folder / "manifest.json").get("files", {}))
    choices = _read(run / "context.json")
    about = {each: choices.get(each) for each in ("dataset", "credentialed")}

    def pieces(repo: str) -> list[Piece]:
        record = read_record(run, HubError) or {}
        kept = {name: record.get(name) for name in RECORD} | {"tables": {}}
        made = [Piece(f"models/context/{name}", folder / name) for name in ("manifest.json", *listed)]
        return [*made, Piece("run.json", _json(kept)), Piece("context.json", run / "context.json")]

    return Weights("context", folder, "context", about, pieces)


def _read(path: Path) -> dict[str, Any]:
    return read_object(path, next_step="copy the run again, or repeat it", error=HubError)


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()


# --- the results ---------------------------------------------------------------------------------------------------


def results_of(run: Path, given: str | None, model: str) -> tuple[Path, list[dict[str, Any]]]:
    """The run that was audited and all its RESULT rows: `given`, else RUN or a folder above it that knows the model.

    The card picks the model's own rows; those of whom it is compared with stand under other names.
    """
    from cxrhf.schema import RESULT
    from cxrhf.tables.files import read_table

    places = [Path(given)] if given else [run, *list(run.resolve().parents)[:3]]
    seen_names: dict[Path, list[str]] = {}
    for place in places:
        if not (place / "results.parquet").is_file():
            continue
        rows = read_table(place / "results.parquet", RESULT).to_pylist()
        seen_names[place] = names = sorted({str(row["model"]) for row in rows if row["model"]})
        if any(_is_model_name(name, model) for name in names):
            return place, rows
    if seen_names:
        place, names = next(iter(seen_names.items()))
        raise HubError(f'{place} has no results of the model "{model}"', got=f"results of {', '.join(names)}",
                       next_step=f"pass --model NAME, or audit the model: {_audit_commands(run)}")  # fmt: skip
    where = Path(given) if given else run
    raise HubError(
        f"{where} has no results, which the model card requires",
        next_step=f"pass the audited run as --results, or run {_audit_commands(where)}",
    )


def _audit_commands(run: Path) -> str:
    """The commands that give a run's model results: an audit needs what the model said of images."""
    typed = shlex.quote(str(run))
    if (run / "predictions.parquet").is_file() or (run / "generations.parquet").is_file():
        return f"cxrhf audit {typed}"
    if (run / "adapter").is_dir():
        reports = shlex.quote(f"{run}-reports")
        return (
            f"cxrhf generate {typed} --build BUILD --out {reports}, cxrhf audit {reports}, and pass --results {reports}"
        )
    if (run / "models" / "context").is_dir():
        return f"cxrhf context fit BUILD --out {typed} --overwrite"
    if (run / "models").is_dir():
        return f"cxrhf predict {typed}, cxrhf audit {typed}"
    return f"cxrhf audit PREDICTIONS --out {typed}"


def _is_model_name(name: str, model: str) -> bool:
    """`network (seed 1)` is a run of `network`."""
    return name == model or (name.startswith(f"{model} (seed ") and name.endswith(")"))


# A run with weights -> whose data they learned from, and whether they may be published.
#
# What the weights' own file says counts (`cxrhf train` and `finetune` write it there). Where it says nothing,
# everything that lies around does: the build, if it is still there, its name, the tables of the run; the strictest
# wins.

TABLES = ("predictions", "images", "generations")


class TrainingSources(NamedTuple):
    """Names of the datasets that were learned from, and the strictest of their terms."""

    names: tuple[str, ...]
    standing: Standing


def seen(run: Path, about: Mapping[str, Any]) -> TrainingSources:
    """Whose data a model of a run has seen; `about` is what the weights say of themselves."""
    if about.get("dataset"):
        names = [str(about["dataset"])]
        closed = about.get("credentialed") is True
    else:
        found = list(_datasets_around(run))
        names = sorted({name for name, _ in found})
        closed = any(shut for _, shut in found)
    return TrainingSources(tuple(names), "credentialed" if closed else standing(names))


def _datasets_around(run: Path) -> Iterator[tuple[str, bool]]:
    """Names of datasets around a run, and whether it is said that they are credentialed."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for build in _recorded_builds(run):
        for name in credentialed([Path(build).name]):  # data/mimic: the folder's name may be all that is left
            yield name, True
    for folder in builds_of(run):
        made = _read_record_file(folder / "build.json")
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
    places = [
        place / build for build in _recorded_builds(run) for place in (Path(), run, run.parent, run.parent.parent)
    ]
    return [place for place in dict.fromkeys(places) if (place / "build.json").is_file()]


def _recorded_builds(run: Path) -> list[str]:
    """Builds as run.json names them: below the folder that the command ran in, or by the last part alone."""
    record = read_record(run, HubError) or {}
    records = (record, *record.get("earlier", {}).values())
    return [str(build) for each in records if (build := (each.get("config") or {}).get("build"))]


def _read_record_file(path: Path) -> dict[str, Any]:
    """What a record says; a damaged one may have said that the data are credentialed."""
    if not path.is_file():
        return {}
    return read_object(path, next_step="copy it again, or create it again", error=HubError)


def check_allowed(what: TrainingSources, *, words: bool, allows: bool, allows_words: bool) -> None:
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
