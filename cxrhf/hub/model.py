"""A run with weights and an audit's results -> the files of a model repository, with a card written from the results.

Image networks stand at the root as transformers and timm load them, further seeds in seed-N/; adapters as peft loads
them, with the base in base/ where it was made here and is nowhere else to be had; models of notes as a run folder that
`cxrhf context predict` reads. Nothing of single patients goes along: no predictions, vectors, examples or logs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrhf.config_push import PushModelConfig
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.connection import HubError
from cxrhf.hub.seen import Seen, builds_of, check_allowed, seen
from cxrhf.report.card_facts import about_weights
from cxrhf.run import read_record
from cxrhf.tables.json_files import read_object
from cxrhf.tables.places import check_inside, check_links

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
    from cxrhf.hub.scan_known import known_of
    from cxrhf.report.card import card_files, facts_of

    run, repo = Path(config.run), str(config.to)
    check_links(run)  # what a link points to is not of this run
    weights = find(run)
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


def _notes(data: Seen, source: Path, config: PushModelConfig) -> tuple[str, ...]:
    from cxrhf.run import public_path

    notes = [
        f"results from {public_path(str(source))}",
        f"trained on: {', '.join(data.names) or 'unknown data'} ({data.standing})",
    ]
    if data.standing != "open":
        notes.append("you confirmed that the data agreement allows sharing")
    return tuple(notes)


# --- the weights ---------------------------------------------------------------------------------------------------


def find(run: Path) -> Weights:
    """The weights of a run; where it has none of its own, the error names the runs below it that have."""
    if not run.is_dir():
        raise HubError(f"{run} is not a folder", next_step="cxrhf push model RUN --to USER/NAME")
    for look in (_network, _adapter, _context):
        if (found := look(run)) is not None:
            return found
    below = sorted({each.parent for pattern in ("models", "adapter") for depth in ("*", "*/*")
                    for each in run.glob(f"{depth}/{pattern}") if each.is_dir() and _has(each.parent)})  # fmt: skip
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
    writer = shlex.quote(source) if isinstance(source, str) and _has(Path(source)) else "WRITER"
    return (
        f"publish the fine-tuned model that generated its reports: cxrhf push model {writer} "
        f"--results {shlex.quote(str(run))} --to USER/NAME"
    )


def _has(run: Path) -> bool:
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
    from cxrhf.schema import RESULT, read_table

    places = [Path(given)] if given else [run, *list(run.resolve().parents)[:3]]
    seen_names: dict[Path, list[str]] = {}
    for place in places:
        if not (place / "results.parquet").is_file():
            continue
        rows = read_table(place / "results.parquet", RESULT).to_pylist()
        seen_names[place] = names = sorted({str(row["model"]) for row in rows if row["model"]})
        if any(_is_of(name, model) for name in names):
            return place, rows
    if seen_names:
        place, names = next(iter(seen_names.items()))
        raise HubError(f'{place} has no results of the model "{model}"', got=f"results of {', '.join(names)}",
                       next_step=f"pass --model NAME, or audit the model: {_audited(run)}")  # fmt: skip
    where = Path(given) if given else run
    raise HubError(
        f"{where} has no results, which the model card requires",
        next_step=f"pass the audited run as --results, or run {_audited(where)}",
    )


def _audited(run: Path) -> str:
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


def _is_of(name: str, model: str) -> bool:
    """`network (seed 1)` is a run of `network`."""
    return name == model or (name.startswith(f"{model} (seed ") and name.endswith(")"))
