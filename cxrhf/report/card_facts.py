"""A run folder, a model's name and its weights -> facts of the model's card: plain values, nothing of single patients.

Weights are not opened: what is known of them stands in JSON files beside them. Everything that a card says and that is
no RESULT row is in its facts, so that rows and facts together write the card again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

from cxrhf.errors import RunError
from cxrhf.report.book import DECODING, MACRO, PRETEST, REPORTS, Book, Key, Subject, open_books, subjects
from cxrhf.report.files import RECORDED
from cxrhf.report.numbers import is_finite
from cxrhf.report.sections.pretest import CHOSEN
from cxrhf.report.sections.reports import first_pair, quality_metrics
from cxrhf.report.sections.reports_table import REFERENCE, WORDS, Writer, writers
from cxrhf.report.sections.reports_words import choose_words, words_of
from cxrhf.report.sections.slices import AUDIT as SLICES
from cxrhf.report.sections.slices import Cut, Slice, Trait, cuts, distinct_confirmed_traits
from cxrhf.report.sections.view import Rows
from cxrhf.run import Run, fingerprint, is_finished, read_run, record_of, standing, wrong_field
from cxrhf.tables.files import read_object
from cxrhf.tables.folders import check_inside

CLASSIFIER, WRITER, CONTEXT = "image classifier", "report writer", "context model"
ABOUT, ADAPTER, MANIFEST = "cxrhf.json", "adapter_config.json", "manifest.json"
_RUN_PATTERNS = ("", "*/", "*/*/")  # a run, the runs in it, and theirs: the demo keeps its models so
_NETWORK = ("backbone", "outputs", "look", "sha256", "seed", "start", "trained", "images")
_LORA = ("base", "prompt", "size", "seed", "examples", "trained")
# Facts of a build, with their kinds: those who write about them need not ask again.
_TEXT, _COUNT = (str,), (int, float)
_BUILD: dict[str, tuple[type, ...]] = {
    "dataset": _TEXT, "labels": _TEXT, "fingerprint": _TEXT, "settings": (dict,), "splits": (dict,), "splits.*": _COUNT,
}  # fmt: skip
_PAGE = r"labelling sheets|thumbnails"  # notes on what lies beside the page, which no card has
_NAMED = 12  # words of a category
_CATEGORIES = {"erased": ("omitted", "neutralised"), "new": ("new",), "flipped": ("flip",)}


# --- weights ---------------------------------------------------------------------------------------------------------


def find_weights(run: Path, model: str) -> Path | None:
    """The folder with a model's weights in a run or in the runs that it holds; of several seeds the first."""
    for near in _RUN_PATTERNS:
        if model == CHOSEN:
            places = [each.parent for each in sorted(run.glob(f"{near}models/context/{MANIFEST}"))]
        else:
            networks = [each.parent for each in run.glob(f"{near}models/seed-*/{ABOUT}") if _seed(each.parent) >= 0]
            places = sorted(networks, key=lambda each: (each.parent, _seed(each)))
            places += [each.parent for each in sorted(run.glob(f"{near}adapter/{ABOUT}"))]
            places = [each for each in places if _name(each, run) == model]
        if places:
            check_inside(run, [places[0], *places[0].glob("*.json")])
            return places[0]
    return None


def _seed(folder: Path) -> int:
    """`seed-3` -> 3; -1 for other names."""
    number = folder.name.removeprefix("seed-")
    return int(number) if number.isdecimal() else -1


def _name(weights: Path, run: Path) -> str:
    """What a model is called in the tables: `cxrhf generate --model` may have given an adapter another name."""
    for near in _RUN_PATTERNS if (weights / ADAPTER).is_file() else ():
        for each in sorted(run.glob(f"{near}run.json")):
            said = record_of(each.parent, "generate").get("config", {})
            if said.get("model") and PurePath(str(said.get("source"))).name in (weights.name, weights.parent.name):
                return str(said["model"])
    return str(_json(weights / ABOUT).get("name"))


def _json(path: Path) -> dict[str, Any]:
    """An object of a JSON file; empty where there is none."""
    return read_object(path, next_step="copy the run again, or repeat it") if path.is_file() else {}


def about_weights(weights: Path) -> dict[str, Any]:
    """What cxrhf.json beside weights says, every field of its kind; empty where there is none."""
    said = _json(weights / ABOUT)
    if (wrong := wrong_field(said)) is not None:
        raise RunError(
            f"{weights / ABOUT} is damaged: {wrong} has the wrong type",
            next_step="copy the whole folder again from its source, or train again",
        )  # fmt: skip
    return said


def _check_fields(made: dict[str, Any], wanted: Mapping[str, tuple[type, ...]], where: Path) -> dict[str, Any]:
    """The same, every field of its kind, absent or null."""
    for name, kinds in wanted.items():
        outer, _, inner = name.partition(".")
        held = made.get(outer)
        several = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
        values = [held] if not inner else several if inner == "*" else [held.get(inner)] if held else []
        if not all(isinstance(each, kinds) or (each is None and inner != "*") for each in values):
            raise RunError(
                f"{where} is damaged: {name} has the wrong type",
                next_step="copy it again, or repeat it",
            )
    return made


def _weights_facts(weights: Path, run: Path) -> dict[str, Any]:
    """What the files beside weights say of them; `run` is the one that was audited."""
    if (weights / MANIFEST).is_file():
        models = _json(weights / "contents.json").get("models")
        models = models if isinstance(models, list) else []
        models = [each for each in models if isinstance(each, dict) and "finding" in each]
        return {"kind": CONTEXT, "outputs": [each["finding"] for each in models],
                "families": sorted({str(each.get("family")) for each in models})}  # fmt: skip
    said = about_weights(weights)
    if (weights / ADAPTER).is_file():
        lora = _check_fields(_json(weights / ADAPTER), {"r": _COUNT}, weights)
        return {"kind": WRITER, **{name: said.get(name) for name in _LORA}, "rank": lora.get("r")}
    seeds = sorted(_seed(each.parent) for each in weights.parent.glob(f"seed-*/{ABOUT}"))
    return {"kind": CLASSIFIER, **{name: said.get(name) for name in _NETWORK}, "seeds": seeds,
            "calibration": calibration_facts(weights, run)}  # fmt: skip


# --- the data behind them --------------------------------------------------------------------------------------------


def _run_of(weights: Path) -> Path | None:
    """The run that made weights: RUN/models/seed-0, RUN/models/context, RUN/adapter."""
    return next((each for each in (weights.parent, weights.parent.parent) if (each / "run.json").is_file()), None)


def _build_of(run: Path, records: list[dict[str, Any]]) -> Path | None:
    """The build that a run was made from, if it still lies where it may be looked for: the very same, by its hash."""
    verbs = [each for record in records for each in (record, *record.get("earlier", {}).values())]
    digests = {each.get("sha256") for record in verbs for each in record.get("inputs") or []}
    named = [Path(str(path)) for record in verbs if (path := (record.get("config") or {}).get("build"))]
    places = [
        each.parent for near in (*_RUN_PATTERNS, "../*/") for each in sorted(run.glob(f"{near}build.json"))
    ] + named
    found = (each for each in places if (each / "build.json").is_file())
    return next((each for each in found if fingerprint(each / "build.json").sha256 in digests), None)


def _data(build: Path | None, weights: Path | None) -> dict[str, Any]:
    """What a model learned from: its name, whether it is credentialed, images and patients of each split."""
    said = about_weights(weights) if weights is not None else {}
    record = _build_record(build)
    name = record.get("dataset") or said.get("dataset")
    strict = record.get("credentialed") or said.get("credentialed")
    data: dict[str, Any] = {"dataset": name, "credentialed": bool(strict) or standing([name]) == "credentialed"}
    if build is not None:
        data |= {name: record.get(name) for name in ("labels", "splits", "fingerprint")}
        data["patients"] = {split: _patients(build, split) for split in record.get("splits") or {}}
    return data


def _build_record(build: Path | None) -> dict[str, Any]:
    return {} if build is None else _check_fields(_json(build / "build.json"), _BUILD, build)


def _patients(build: Path, split: str) -> int:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = sorted((build / "images").glob(f"{split}-*.parquet"))
    ids = (pc.unique(pq.read_table(file, columns=["patient_id"])["patient_id"]) for file in files)
    return len({patient for some in ids for patient in some.to_pylist()})


# --- all of it -------------------------------------------------------------------------------------------------------


def facts_of(results_run: Path, model: str, weights: Path | None) -> dict[str, Any]:
    """Facts of a model whose RESULT rows are in a run; `weights` as `find_weights` gives them, None without any."""
    run = read_run(results_run)
    return facts_in(run, model_rows(run.table("results").to_pylist(), model), model, weights)


def facts_in(run: Run, rows: Rows, model: str, weights: Path | None) -> dict[str, Any]:
    """The same from an open run and the model's rows."""
    record = run.record
    if not is_finished(record):
        raise RunError(
            f"{run.path} is not finished, and a card requires complete results", next_step="run its command again"
        )
    made = _weights_facts(weights, run.path) if weights is not None else {}
    maker = _run_of(weights) if weights is not None else None
    records = [record, *([read_run(maker).record] if maker is not None and maker != run.path else [])]
    build = _build_of(run.path, records)
    method = calibrated_outputs(made).get("method", "")
    facts = {
        "model": model,
        "kind": made.pop("kind", None) or _kind(rows),
        "simulated": weights is None and record.get("verb") == "demo",
        "datasets": sorted({row["dataset"] for row in rows if row["dataset"]}),
        "weights": made or None,
        "data": _data(build, weights),
        "words": {},
        "commands": commands(records, _build_record(build), method),
        "notes": _notes(run, model),
        "rows": len(publishable_rows(rows, words=True)),
        "run": {name: record.get(name) for name in RECORDED},
    }
    if is_open(facts):  # a card is there to be published, and so are these facts
        facts["words"] = _words(run, rows)
    return facts


def is_open(facts: Mapping[str, Any]) -> bool:
    """Whether words of the data may stand in what is published: made up or open, by all names that are known."""
    names = [*facts["datasets"], facts["data"].get("dataset")]
    return not facts["data"].get("credentialed") and standing(each for each in names if each) == "open"


def _kind(rows: Rows) -> str:
    """What a model without weights does, by the audits that it has rows of."""
    audits = {row["audit"] for row in rows}
    return CONTEXT if audits == {PRETEST} else WRITER if audits and audits <= {REPORTS, DECODING} else CLASSIFIER


def _notes(run: Run, model: str) -> list[str]:
    """Notes of this model, and of nobody; a name that starts like another is told from it."""
    models = {each for each in run.table("results")["model"].unique().to_pylist() if each}
    kept = []
    for note in map(str, run.record.get("notes") or []):
        if re.search(_PAGE, note):
            continue
        whose = next((each for each in sorted(models, key=len, reverse=True) if note.startswith(f"{each}: ")), model)
        if whose == model or whose.startswith(f"{model} (seed "):
            kept.append(note)
    return kept


def _words(run: Run, rows: Rows) -> dict[str, dict[str, list[str]]]:
    """Words that go with one of two groups, by strategy: erased, new and flipped; of at least five patients."""
    if not (run.path / "words.parquet").is_file():
        return {}
    models = writers(open_books(rows, apart=REPORTS), (), run.table("words").to_pylist())
    found, pair = choose_words(models, may_show=False), first_pair(models[0]) if models else None
    if pair is None:
        return {}
    return {
        book.strategy: {
            name: words_of(found, models[0], book.strategy, pair, kinds)[:_NAMED] for name, kinds in _CATEGORIES.items()
        }
        for book in models[0].strategies
    }


def nested_runs(run: Path) -> list[Path]:
    """A run and the runs in it that have results of their own, the run itself first."""
    found = (each.parent for near in _RUN_PATTERNS for each in sorted(run.glob(f"{near}results.parquet")))
    runs = [each for each in found if (each / "run.json").is_file()]
    check_inside(run, (each / name for each in runs for name in ("results.parquet", "run.json")))
    return runs


# calibration.json beside weights, and the predictions that were audited -> what a card may say of both.
#
# `cxrhf calibrate` writes calibrators and tables one after the other, and `cxrhf predict --raw` leaves calibrators
# aside. So a calibration.json says nothing of the numbers of a card: the probabilities themselves are compared with
# what the calibrators make of their logits.

CALIBRATION, CALIBRATION_ABOUT = "calibration.json", "cxrhf.json"
CLOSE = 1e-4  # probabilities may have been rounded on their way


def calibration_facts(weights: Path, run: Path) -> dict[str, Any] | None:
    """Method, split and outputs of a network's calibration; None where nothing could be fitted.

    `applied`: whether the predictions in `run` are calibrated by it; None where they have no logits to tell. Some that
    are and some that are not are an error: the table is from before, or was written in part.
    """
    said = _read_calibration(weights)
    fitted = said.get("fitted")
    if not isinstance(fitted, dict) or not fitted:
        return None
    return {"method": said.get("method"), "split": said.get("split"), "fitted": len(fitted),
            "outputs": sorted(fitted), "applied": _is_applied(weights, run, fitted)}  # fmt: skip


def _read_calibration(folder: Path) -> dict[str, Any]:
    path = folder / CALIBRATION
    return read_object(path, next_step="cxrhf calibrate RUN") if path.is_file() else {}


def _is_applied(weights: Path, run: Path, fitted: Mapping[str, Any]) -> bool | None:
    """Compare the rows of every seed that lies beside these weights."""
    import numpy as np
    import pyarrow.compute as pc
    from scipy.special import expit

    from cxrhf.schema import PREDICTION
    from cxrhf.tables.files import read_table

    path = run / "predictions.parquet"
    if not path.is_file():
        return None
    table = read_table(path, PREDICTION)
    found: set[str] = set()  # of "calibrated", "raw", "neither"
    for folder in sorted(each.parent for each in weights.parent.glob(f"*/{CALIBRATION_ABOUT}")):
        about = read_object(folder / CALIBRATION_ABOUT, next_step="copy the whole folder again, or train again")
        seed = about.get("seed")
        rows = table.filter(pc.equal(table["model"], str(about.get("name"))))
        rows = rows.filter(pc.is_null(rows["seed"]) if seed is None else pc.equal(rows["seed"], seed))
        # A seed without calibrators beside one that has them is of before, or a calibration was stopped.
        calibrators = (
            _read_calibration(folder).get("fitted") if (folder / CALIBRATION).is_file() else dict.fromkeys(fitted)
        )
        for finding, calibrator in (calibrators or {}).items():
            mine = rows.filter(pc.equal(rows["finding"], finding))
            logit = np.asarray(mine["logit"].to_numpy(), dtype=np.float64)
            prob = np.asarray(mine["prob"].to_numpy(), dtype=np.float64)
            there = np.isfinite(logit) & np.isfinite(prob)
            if not there.any():
                continue
            ways = {"raw": expit(logit[there])}
            if calibrator is not None:
                ways = {"calibrated": _apply_calibrator(calibrator, logit[there], folder), **ways}
            near = [name for name, made in ways.items() if np.abs(made - prob[there]).max() <= CLOSE]
            found.add(near[0] if near else "neither")
    if not found:
        return None
    if len(found) > 1 or "neither" in found:
        raise RunError(
            f"the probabilities in {run} do not match {CALIBRATION} of the weights: calibration was repeated or "
            "interrupted",
            next_step=f"cxrhf calibrate {shlex.quote(str(weights.parent.parent))}, then audit the run again",
        )
    return found == {"calibrated"}


def _apply_calibrator(calibrator: Any, logit: Any, folder: Path) -> Any:
    import numpy as np

    from cxrhf.learn import Calibrator, apply_calibrator, method_of

    try:
        x, y = (np.asarray(calibrator[each], dtype=np.float64) for each in ("x", "y"))
        return apply_calibrator(Calibrator(method_of(calibrator["method"]), x, y), logit)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunError(
            f"{folder / CALIBRATION} is damaged ({type(error).__name__})", next_step="cxrhf calibrate RUN"
        ) from None


def calibrated_outputs(made: Mapping[str, Any]) -> Mapping[str, Any]:
    """The calibration that the numbers of a card rest on, as its facts have it; empty without one."""
    found = made.get("calibration")
    return found if isinstance(found, Mapping) and found.get("applied", True) is not False else {}


# Records of runs -> the commands that make them again, in the order they were run. Only settings that were changed.

# Verb -> its config: what is a position, what a flag, and what it is when nobody says anything.
_CONFIGS = {
    "audit": "settings:AuditConfig",
    "build": "data.settings:BuildConfig",
    "calibrate": "models.settings:CalibrateConfig",
    "context fit": "context.settings:ContextFitConfig",
    "context predict": "context.settings:ContextPredictConfig",
    "demo": "cli.demo:DemoConfig",
    "embed": "models.settings:EmbedConfig",
    "finetune": "models.report_settings:FinetuneConfig",
    "generate": "models.report_settings:GenerateConfig",
    "predict": "models.settings:PredictConfig",
    "probe": "models.settings:ProbeConfig",
    "score": "models.report_settings:ScoreConfig",
    "train": "models.settings:TrainConfig",
    "zeroshot": "models.settings:ZeroshotConfig",
}
_NOT_SAID = ("overwrite", "workers", "device", "cache", "dask", "tracker")  # of the machine, not of the numbers


def command(verb: str, config: Mapping[str, Any]) -> str:
    """`cxrhf VERB ...` with what differs from the defaults; "" for a verb that is not known.

    >>> command("demo", {"n_patients": 60, "seed": 0, "out": "runs/x", "overwrite": True})
    'cxrhf demo --out runs/x --n-patients 60'
    """
    if verb not in _CONFIGS:
        return ""
    module, _, name = _CONFIGS[verb].partition(":")
    words, flags = list[str](), list[str]()
    for each in fields(getattr(import_module(f"cxrhf.{module}"), name)):
        value = config.get(each.name)
        default = list(each.default) if isinstance(each.default, tuple) else each.default
        if value is None or value == default or each.name in _NOT_SAID or (value == [] and default is MISSING):
            continue
        said = [str(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        if each.metadata.get("positional"):
            words += said
        else:
            flags += [f"--{each.name.replace('_', '-')}", *([] if isinstance(value, bool) else said)]
    return shlex.join(["cxrhf", *verb.split(), *words, *flags])


def build_command(build: Mapping[str, Any], out: str) -> str:
    """The command of a build, from what build.json says; where its files lie is nobody's business."""
    settings = {**build.get("settings", {}), "dataset": build.get("dataset"), "out": out}
    made = command("build", settings) if build.get("dataset") else ""
    return made if not made or build.get("dataset") == "synthetic" else f"{made} --root FOLDER"


def commands(records: Iterable[Mapping[str, Any]], build: Mapping[str, Any], calibration: str = "") -> list[str]:
    """All that leads to the numbers. `records`: of run.json files, each with the verbs that came before it.

    The demo does all of it in one command. What `cxrhf predict` and `cxrhf calibrate` (by the method `calibration`) add
    to a training leaves no record of its own.
    """
    verbs = [each for record in records for each in (*record.get("earlier", {}).values(), record)]
    if demo := next((each for each in verbs if each.get("verb") == "demo"), None):
        verbs, build = [demo], {}
    verbs.sort(key=lambda each: str(each.get("started") or ""))
    named = (str((each.get("config") or {}).get("build") or "") for each in verbs)
    made = [build_command(build, next(filter(None, named), "BUILD"))]
    for each in verbs:
        made.append(command(str(each.get("verb")), each.get("config") or {}))
        if each.get("verb") == "train":
            run = str((each.get("config") or {}).get("out") or "RUN")
            made += [command("calibrate", {"run": run, "method": calibration})] if calibration else []
            made.append(command("predict", {"run": run}))
    return [each for each in dict.fromkeys(made) if each]


# RESULT rows of a run -> the rows of one model, and of those the ones that its card stands on.
#
# A card is made from `shown` rows alone, so that it can be written again from a small file: `shown(shown(rows))` is
# `shown(rows)`. Everything else stays in the run and in what is published with the model.

Row = Mapping[str, Any]
MOST_SLICE_ROWS = 10  # rows of a table of slices
_RANKING = ("auroc", "average_precision", "prevalence", "sensitivity_at_specificity", "brier", "brier_skill_score",
            "adaptive_calibration_error", "expected_ace", "calibration_slope", "calibration_intercept",
            "calibration_in_the_large", "verdict")  # fmt: skip
_CONTROLLED = ("auroc", "auroc_context", "auroc_att", "matched_auroc", "auroc_drop", "verdict")
MEAN = "imbalance"  # the audit that means over runs and their spread (".sd") are written under
# Audit -> its numbers of the whole sample that a card has.
WHOLE = {
    "overview": _RANKING,
    "reweighted": _CONTROLLED,
    "matched": _CONTROLLED,
    "encoding": ("split_auroc", "auroc", "tasks"),
    PRETEST: (*_RANKING, "images_without_notes", "chosen", "cv_auroc", "validation_auroc"),
}
GROUPS = ("auroc", "auroc_balanced", "tpr", "fpr")
_SHORTCUT = ("auroc", "auroc_equalised", "auroc_gap_explained", "mann_whitney", "mann_whitney_equalised")
_WORDS = {
    *(metric.name for metric in WORDS if "." not in metric.name),
    *(f"{name}.chance" for name in ("erasure", "new", "flip")),
    *(f"wae_prediction{end}" for end in ("", ".null", ".association")),
}


def models_of(rows: Rows) -> list[str]:
    """Models that have a card: image models, models that write reports, and the one that reads prior notes."""
    names = [subject.model for subject in subjects(open_books(rows))]
    names += [model.model for model in writers(open_books(rows, apart=REPORTS), (), ())]
    names += [CHOSEN] if any(row["audit"] == PRETEST and row["model"] == CHOSEN for row in rows) else []
    return [name for name in dict.fromkeys(names) if name]


def model_rows(rows: Rows, model: str) -> list[Row]:
    """The rows of one model, of all its runs; with them those of the references, or of the families it chose from."""
    run = re.compile(rf"{re.escape(model)} \(seed .*\)", re.DOTALL)
    from_notes = model == CHOSEN

    def own(row: Row) -> bool:
        name = row["model"] or ""
        if name == model or run.fullmatch(name):
            return True
        return (from_notes and row["audit"] == PRETEST) or (row.get("strategy") == REFERENCE and not name)

    return [row for row in rows if own(row)]


def publishable_rows(rows: Rows, *, words: bool) -> list[Row]:
    """Rows as they may leave: without the text of a report, and without the words of notes unless they are open."""
    kept = []
    for row in rows:
        if not words and row["audit"] == PRETEST and row["slice"].startswith("word="):
            continue
        kept.append({**row, "note": None} if row["metric"] == "top_template" else row)
    return kept


def card_rows(rows: Rows) -> list[Row]:
    """The rows that a card of these stands on, in their order."""
    wanted: set[tuple[str, str, str, *Key]] = set()
    counted: set[str] = set()  # runs that are told of in the mean alone
    for subject in subjects(open_books(rows)):
        wanted |= {_place(book, key) for book, key in _of_subject(subject)}
        counted |= {book.model for book in subject.runs[1:]}
    for model in writers(open_books(rows, apart=REPORTS), (), ()):
        wanted |= {_place(book, key) for book, key in _of_reports(model)}
    # Numbers of pairs stand behind those of weights: what both give is told once.
    paired = any(row["audit"] == "reweighted" for row in rows)
    told_once = [row for row in rows if not (paired and row["audit"] == "matched" and row["metric"] != "matched_auroc")]
    return [row for row in told_once if _is_whole_sample(row, counted) or _row_place(row) in wanted]


def _place(book: Book, key: Key) -> tuple[str, str, str, *Key]:
    return book.dataset, book.model, book.strategy, *key


def _row_place(row: Row) -> tuple[str, str, str, *Key]:
    """Where a row stands: the same as `_place` of its cell."""
    key = (row["audit"], row["finding"] or MACRO, row["metric"], row["slice"], row["versus"] or "")
    return row["dataset"] or "", row["model"] or "", row.get("strategy") or "", *key


def _is_whole_sample(row: Row, counted: set[str]) -> bool:
    """Numbers of the whole sample: by audit and name, whosever they are."""
    named = row["metric"] in (("auroc",) if row["model"] in counted else WHOLE.get(row["audit"], ()))
    drop = row["metric"] == "auroc_drop" and row["versus"] in ("auroc_att", "matched_auroc")
    return named and row["slice"] == "all" and (not row["versus"] or drop)


def _of_subject(subject: Subject) -> Iterator[tuple[Book, Key]]:
    """Groups, slices and shortcuts of the run that is shown in detail, and of the mean of all runs."""
    if subject.mean is not None:
        for key in subject.mean.keys(MEAN):
            if key[2].removesuffix(".sd") in (*_RANKING, *_CONTROLLED) and key[3] == "all":
                yield subject.mean, key
    for book in filter(None, (subject.book, subject.mean)):
        everyone = MACRO if len(book.findings) > 1 else next(iter(book.findings), MACRO)
        for key in book.keys("subgroups"):
            _, finding, metric, part, versus = key
            if " & " not in part and (
                (metric in GROUPS and (versus or finding == everyone)) or metric.startswith("threshold_at_fpr")
            ):
                yield book, key
        for key in book.keys("shortcut"):
            if key[4] and key[2] in _SHORTCUT:
                yield book, key
        for key in _of_slices(book):
            yield book, key


def _of_slices(book: Book) -> Iterator[Key]:
    found = cuts(book)
    traits = set[tuple[str, str]]()
    for cut, part, trait in confirmed_traits(found):
        traits.add((cut.finding, f"{cut.side} & {trait.name}"))
        yield from _of_slice(cut, part, trait)
    for cut, part in worst_slices(found):
        yield from _of_slice(cut, part, next(iter(part.frequent), None))
    yield from (key for key in book.keys(SLICES) if key[2] == "brier_gap" and (key[1], key[3]) in traits)


def _of_slice(cut: Cut, part: Slice, trait: Trait | None) -> Iterator[Key]:
    for metric in ("brier", "share", "worst"):
        yield SLICES, cut.finding, metric, part.name, ""
    if trait is not None:
        for metric in ("prevalence", "prevalence_rest", "odds_ratio", "confirmed"):
            yield SLICES, cut.finding, metric, f"{part.name} & {trait.name}", ""


def confirmed_traits(found: Sequence[Cut]) -> list[tuple[Cut, Slice, Trait]]:
    """What held-out patients confirm, the largest gap in error first."""
    return [(cut, part, trait) for cut, part, trait, _ in distinct_confirmed_traits(found)[:MOST_SLICE_ROWS]]


def worst_slices(found: Sequence[Cut]) -> list[tuple[Cut, Slice]]:
    """The worst slice of each class by the first way of finding slices: positives before negatives, worst first.

    Errors of the two classes cannot be compared: of a rare finding those of its positives are always larger.
    """
    first = next((cut.method for cut in found), "")
    ends = [(cut, cut.worst) for cut in found if cut.worst is not None and cut.method == first]
    ends = [(cut, end) for cut, end in ends if is_finite(end.brier.value)]
    return sorted(ends, key=lambda each: (each[0].side != "positive", -each[1].brier.value))[:MOST_SLICE_ROWS]


def _of_reports(model: Writer) -> Iterator[tuple[Book, Key]]:
    """Strategies side by side, words of the first pair of groups, how much the others lose, likeness by group."""
    first, alike = next(iter(model.pairs), None), likeness(model)
    for book in (model.reference, *model.strategies):
        for key in book.keys(REPORTS):
            _, _, metric, part, versus = key
            if part == "all":
                keep = not versus
            elif first is not None and (part, versus) == tuple(first):
                keep = metric in _WORDS or metric == alike
            else:
                keep = " & " not in part and (
                    metric == alike or (bool(versus) and metric in ("erasure", "n_associated"))
                )
            if keep:
                yield book, key


def likeness(model: Writer) -> str:
    """The number of likeness that groups are compared by."""
    there = quality_metrics(model)
    return next((name for name in ("bertscore_f1", "rougeL", *there) if name in there), "")
