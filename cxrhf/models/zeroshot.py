"""Pictures, a CLIP-style model and a pair of prompts per finding -> logits of the findings; no label was ever seen.

    logit = scale * (cos(picture, positive) - cos(picture, negative)),   probability = sigmoid(logit)

which is the softmax over the two prompts at the model's own temperature. Several prompts of a side: their unit vectors
are averaged and made unit length again, so a pair stays a pair however many prompts it has. SigLIP's bias is the same
for both prompts and falls out.

The probabilities are not calibrated: the scale was learned to tell a caption from thousands of others, not to say how
common a finding is. The order of pictures within a finding is what there is to read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, did_you_mean
from cxrhf.findings import CHEXPERT, NIH, NIH_LONG_TAIL, finding_name
from cxrhf.models.predict import RunUpdate
from cxrhf.models.settings import ZeroshotConfig
from cxrhf.models.train_run import check_packages, choose_splits, findings_of, open_images
from cxrhf.settings import to_mapping

if TYPE_CHECKING:
    from cxrhf.models.clip import Clip, Tensors, Vectors
    from cxrhf.models.data import Images

Floats = NDArray[np.float64]
Progress = Callable[[str], None]


SAME_DIRECTION = 1e-6  # directions closer than this tell nothing apart in float32


class ZeroShot(NamedTuple):
    """Logits (n, k) in the order of the prompts, and the pictures' unit vectors (n, d)."""

    logits: Floats
    embeddings: Vectors


def zero_shot(
    images: Images,
    clip: Clip,
    prompts: Mapping[str, Pair],
    *,
    batch_size: int = 32,
    progress: Progress = lambda _: None,
) -> ZeroShot:
    """A logit for each picture and finding.

    Only one batch of prepared pictures is held, and the next one in the making. `progress` hears a line now and then.
    """
    from cxrhf.encode.notes import prepare_ahead
    from cxrhf.models.seeding import Meter

    n = len(images)
    if batch_size < 1:
        raise ConfigError("batch_size", got=batch_size, allowed="1 or more")
    contrast = clip.scale * directions(clip, prompts)
    logits = np.zeros((n, len(prompts)), dtype=np.float64)
    embeddings = np.zeros((n, clip.dim), dtype=np.float32)

    def prepared(start: int) -> list[Tensors]:
        return [_prepare(images, clip, row) for row in range(start, min(start + batch_size, n))]

    meter = Meter(n, progress, "pictures")
    for batch in prepare_ahead(prepared, range(0, n, batch_size)):
        rows = slice(meter.done, meter.done + len(batch))
        embeddings[rows] = clip.vectors(batch)
        logits[rows] = embeddings[rows].astype(np.float64) @ contrast.T
        meter.add(len(batch), lambda: f"{clip.name}: {meter.done:,} of {n:,}")
    return ZeroShot(logits, embeddings)


def directions(clip: Clip, prompts: Mapping[str, Pair]) -> Floats:
    """Positive minus negative direction of each finding (k, d); a warning names findings whose two are the same."""
    if not prompts:
        raise ConfigError("there are no prompts", next_step="name at least one finding")
    texts = list(dict.fromkeys(text for pair in prompts.values() for text in (*pair.positive, *pair.negative)))
    vectors = dict(zip(texts, clip.text_features(texts).astype(np.float64), strict=True))
    sides = [tuple(_mean(name, side, vectors) for side in (p.positive, p.negative)) for name, p in prompts.items()]
    made = np.array([positive - negative for positive, negative in sides])
    alike = [name for name, each in zip(prompts, made, strict=True) if np.linalg.norm(each) < SAME_DIRECTION]
    if alike:
        warnings.warn(
            f"{clip.name} gives the positive and negative prompts for {', '.join(alike)} the same embedding, so every "
            "image gets a logit near 0. Try other prompts.",
            CxrhfWarning,
            stacklevel=3,
        )
    return made


def _mean(finding: str, texts: tuple[str, ...], vectors: dict[str, Floats]) -> Floats:
    if not texts:
        raise ConfigError(f"prompts for {finding}", got="none on one side", allowed="at least one on each side")
    mean = np.mean([vectors[text] for text in texts], axis=0)
    length = float(np.linalg.norm(mean))
    if length < SAME_DIRECTION:
        raise ConfigError(f"the prompts for {finding} cancel each other", got="; ".join(texts))
    unit: Floats = mean / length
    return unit


def _prepare(images: Images, clip: Clip, row: int) -> Tensors:
    try:
        return clip.prepare(images.pictures[row])
    except CxrhfError as error:  # the row, never the image's id: messages end up in logs
        raise CxrhfError(f"the image in row {row + 1:,}: {error}") from None


# Finding -> a pair of prompts: what a picture with the finding shows, and what one without it shows.
#
# Every finding of CheXpert, MIMIC and NIH has a pair. The first prompt of each side is used; with `ensemble` all of
# them, and their vectors are averaged. A YAML file may bring other pairs, or pairs for other findings:
#
#     pleural_effusion:
#       positive: [blunted costophrenic angle, chest x-ray with a pleural effusion]
#       negative: chest x-ray with sharp costophrenic angles
#
# All of it is lower case: some models were trained on nothing else, and not every tokenizer lowers for them.

SIDES = ("positive", "negative")
_EXAMPLE = 'edema: {positive: "chest x-ray showing pulmonary edema", negative: "chest x-ray with clear lungs"}'

# The first is the one used alone. Left with the finding, right without it.
_TEMPLATES = (
    ("chest x-ray showing {}", "chest x-ray with {}"),
    ("a chest radiograph with {}", "a chest radiograph with {}"),
    ("frontal chest x-ray of a patient with {}", "frontal chest x-ray of a patient with {}"),
    ("radiology findings: {}", "radiology findings: {}"),
)
# What is seen, and what is seen instead. "no X" shares its words with "X", and a text tower can all but overlook the
# "no": where the clinic has a word for the healthy state, that stands on the right.
_PHRASES = {
    "enlarged_cardiomediastinum": (
        "an enlarged cardiomediastinal silhouette",
        "a normal cardiomediastinal silhouette",
    ),
    "cardiomegaly": ("cardiomegaly", "a normal heart size"),
    "lung_opacity": ("a lung opacity", "clear lungs and no lung opacity"),
    "lung_lesion": ("a lung lesion such as a nodule or mass", "no lung lesion, nodule or mass"),
    "edema": ("pulmonary edema", "no pulmonary edema"),
    "consolidation": ("consolidation", "no consolidation"),
    "pneumonia": ("pneumonia", "no pneumonia"),
    "atelectasis": ("atelectasis", "no atelectasis"),
    "pneumothorax": ("pneumothorax", "no pneumothorax"),
    "pleural_effusion": ("pleural effusion", "no pleural effusion"),
    "pleural_other": ("a pleural abnormality other than effusion", "a normal pleura"),
    "fracture": ("a fracture of a rib or another bone", "intact bones and no fracture"),
    "support_devices": (
        "support devices such as tubes, lines or a pacemaker",
        "no tubes, lines or other support devices",
    ),
    "infiltration": ("a pulmonary infiltrate", "no pulmonary infiltrate"),
    "mass": ("a lung mass", "no lung mass"),
    "nodule": ("a lung nodule", "no lung nodule"),
    "emphysema": ("pulmonary emphysema", "no pulmonary emphysema"),
    "fibrosis": ("pulmonary fibrosis", "no pulmonary fibrosis"),
    "pleural_thickening": ("pleural thickening", "no pleural thickening"),
    "hernia": ("a hiatal hernia", "no hiatal hernia"),
    "calcification_of_the_aorta": ("calcification of the aorta", "no calcification of the aorta"),
    "pneumomediastinum": ("pneumomediastinum", "no pneumomediastinum"),
    "pneumoperitoneum": ("free air under the diaphragm (pneumoperitoneum)", "no free air under the diaphragm"),
    "subcutaneous_emphysema": ("subcutaneous emphysema", "no subcutaneous emphysema"),
    "tortuous_aorta": ("a tortuous aorta", "a normal aorta"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Prompts of one finding; several of a side are averaged."""

    positive: tuple[str, ...]
    negative: tuple[str, ...]


# "No finding" is about the whole picture, not about something in it, so the templates do not fit.
_WHOLE_PICTURE_PAIRS = {
    "no_finding": Pair(
        (
            "normal chest x-ray",
            "a normal chest radiograph with clear lungs and a normal heart",
            "frontal chest x-ray of a healthy patient",
            "radiology findings: no abnormality",
        ),
        (
            "abnormal chest x-ray",
            "an abnormal chest radiograph with a disease of the lungs, heart or pleura",
            "frontal chest x-ray of a sick patient",
            "radiology findings: an abnormality",
        ),
    )
}
PROMPTED = tuple(dict.fromkeys((*CHEXPERT, *NIH, *NIH_LONG_TAIL)))


def shipped_pair(finding: str, *, ensemble: bool = False) -> Pair | None:
    """Our prompts for a finding, None if we have none.

    >>> shipped_pair("pleural_effusion")
    Pair(positive=('chest x-ray showing pleural effusion',), negative=('chest x-ray with no pleural effusion',))
    """
    if finding in _WHOLE_PICTURE_PAIRS:
        pair = _WHOLE_PICTURE_PAIRS[finding]
    elif finding in _PHRASES:
        shown, absent = _PHRASES[finding]
        pair = Pair(tuple(a.format(shown) for a, _ in _TEMPLATES), tuple(b.format(absent) for _, b in _TEMPLATES))
    else:
        return None
    return pair if ensemble else Pair(pair.positive[:1], pair.negative[:1])


def prompts_for(findings: Sequence[str], *, file: str | Path | None = None, ensemble: bool = False) -> dict[str, Pair]:
    """The pair of each finding, in this order: from the file where it has one, ours otherwise.

    The file's prompts are used as they stand: a side with several is averaged, with or without `ensemble`.
    """
    wanted = list(dict.fromkeys(finding_name(each) for each in findings))
    own = read_prompts(file) if file is not None else {}
    for name in own:
        if name not in wanted and name not in PROMPTED:
            raise ConfigError(
                f'{Path(str(file)).name}, finding "{name}"',
                allowed=f"one of the findings ({', '.join(wanted) or 'none were named'})",
                next_step=did_you_mean(name, (*wanted, *PROMPTED)) or "correct or remove the name",
            )
    made = {name: own.get(name) or shipped_pair(name, ensemble=ensemble) for name in wanted}
    without = [name for name, pair in made.items() if pair is None]
    if without:
        raise ConfigError(
            f"cxrhf has no prompts for {', '.join(without)}",
            allowed=f"findings among {', '.join(PROMPTED)}",
            next_step=f"remove it from --findings, or add {without[0]}: {{positive: .., negative: ..}} to --prompts",
        )
    return {name: pair for name, pair in made.items() if pair is not None}


def read_prompts(path: str | Path) -> dict[str, Pair]:
    """The pairs of a YAML file: finding -> {positive: text or list, negative: text or list}."""
    file = Path(path)
    given = _yaml(file)
    if not isinstance(given, dict) or not given:
        raise ConfigError(file.name, got=_describe_value(given), allowed=f"lines such as {_EXAMPLE}")
    pairs: dict[str, Pair] = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise ConfigError(
                f"{file.name}, name of a finding", got=repr(key), allowed="text", next_step="put it in quotes"
            )
        name = finding_name(key)
        if name in pairs:
            raise ConfigError(f'{file.name} names the finding "{name}" twice', next_step="keep one of them")
        pairs[name] = _pair(f"{file.name}: {key}", value)
    return pairs


def as_mapping(prompts: Mapping[str, Pair]) -> dict[str, dict[str, list[str]]]:
    """Prompts as plain values, for run.json; what a prompts file may hold."""
    return {name: {side: list(getattr(pair, side)) for side in SIDES} for name, pair in prompts.items()}


def _yaml(file: Path) -> Any:
    import yaml  # type: ignore[import-untyped]

    try:
        text = file.read_text(encoding="utf-8")
        _refuse_twice(file.name, yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"the prompts file {file} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file.name} is not valid YAML ({' '.join(str(error).split())})") from None


def _refuse_twice(where: str, node: Any) -> None:
    """YAML's reader keeps the last of two equal keys and says nothing."""
    if getattr(node, "id", "") != "mapping":
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise ConfigError(f'{where} has the key "{key.value}" twice', next_step="keep one of them")
        if isinstance(key.value, str):
            seen.add(key.value)
        _refuse_twice(f"{where}: {key.value}", value)


def _pair(where: str, value: Any) -> Pair:
    if not isinstance(value, dict):
        raise ConfigError(where, got=_describe_value(value), allowed=f"a pair of prompts, such as {_EXAMPLE}")
    for key in value:
        if key not in SIDES:
            meant = did_you_mean(str(key), SIDES)
            raise ConfigError(f"{where}, key", got=repr(key), allowed="positive or negative", next_step=meant)
    missing = [side for side in SIDES if side not in value]
    if missing:
        raise ConfigError(f"{where} has no {' and no '.join(missing)} prompt", next_step=f"add it, as in {_EXAMPLE}")
    sides = {side: _texts(f"{where}: {side}", value[side]) for side in SIDES}
    shared = set(sides["positive"]) & set(sides["negative"])
    if shared:
        raise ConfigError(
            f"{where} has the same prompt on both sides", got=repr(min(shared)), next_step="change one of them"
        )
    return Pair(**sides)


def _texts(where: str, value: Any) -> tuple[str, ...]:
    given: Iterable[Any] = value if isinstance(value, list) else [value]
    texts = []
    for each in given:
        if not isinstance(each, str):  # `no` and `1` are not text in YAML
            raise ConfigError(where, got=repr(each), allowed="text", next_step="put the prompt in quotes")
        texts.append(" ".join(each.split()))
    if not texts or not all(texts):
        raise ConfigError(where, got="nothing", allowed="a prompt or a list of prompts")
    if len(set(texts)) < len(texts):
        raise ConfigError(
            f"{where} has the same prompt twice",
            got=next(repr(t) for t in texts if texts.count(t) > 1),
            next_step="keep one of them",
        )
    return tuple(texts)


def _describe_value(value: Any) -> str:
    return "nothing" if value in (None, {}, "") else f"{type(value).__name__} {value!r}"


# A build and prompts -> a run with PREDICTION rows of a CLIP-style model, and its pictures' vectors if asked for.

DEFAULT = ("validate", "test")


def zeroshot_run(config: ZeroshotConfig, show: Progress) -> RunUpdate:
    """Every image of the splits against every pair of prompts."""
    check_packages(*(["open_clip"] if _needs_open_clip(config.model) else []))
    from cxrhf.tables.folders import one_writer

    out = Path(config.out) if config.out else Path("runs") / f"{Path(config.build).resolve().name}-zeroshot"
    with one_writer(out, "zeroshot"):
        return _write_zeroshot(config, out, show)


def _write_zeroshot(config: ZeroshotConfig, out: Path, show: Progress) -> RunUpdate:
    from cxrhf.run import check_folder, fingerprint, open_run

    check_folder(out, overwrite=config.overwrite)
    there = findings_of(config.build)
    from cxrhf.models.clip import load_clip
    from cxrhf.models.data import Task, check_findings
    from cxrhf.models.predict import embedding_rows, prediction_rows

    check_findings(config.findings, there)
    prompts = prompts_for(config.findings or there, file=config.prompts)
    splits = choose_splits(config.build, config.splits, all_of=config.splits != DEFAULT)
    images = open_images(config.build, splits, labels=config.labels)
    show(f"loading {config.model}")
    clip = load_clip(config.model, config.device)
    seen = zero_shot(images, clip, prompts, batch_size=config.batch_size, progress=show)
    name = f"{Path(config.model).name} zero-shot"
    task = Task("findings", "labels", tuple(prompts))
    rows, _ = prediction_rows(images, [task], seen.logits, model=name, seed=None)
    inputs = [fingerprint(Path(config.build) / "build.json")]
    if config.prompts is not None:
        inputs.append(fingerprint(config.prompts))
    run = open_run(out, verb="zeroshot", config=to_mapping(config), inputs=inputs, overwrite=config.overwrite)
    run.add("predictions", rows)
    if config.embed:
        run.add("embeddings", embedding_rows(images, seen.embeddings, model=name))
    run.finish(prompts=as_mapping(prompts), model=name, weights=clip.model_hash())
    lines = [f"{name}: {len(images):,} images of {', '.join(splits)}, {len(prompts)} findings"]
    notes = ["probabilities are not calibrated; on validation images, run cxrhf calibrate RUN --method platt"]
    return RunUpdate(out, lines, notes)


def _needs_open_clip(model: str) -> bool:
    return model == "biomedclip" or model.startswith(("hf-hub:", "open_clip:"))
