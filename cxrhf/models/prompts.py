"""Finding -> a pair of prompts: what a picture with the finding shows, and what one without it shows.

Every finding of CheXpert, MIMIC and NIH has a pair. The first prompt of each side is used; with `ensemble` all of them,
and their vectors are averaged. A YAML file may bring other pairs, or pairs for other findings:

    pleural_effusion:
      positive: [blunted costophrenic angle, chest x-ray with a pleural effusion]
      negative: chest x-ray with sharp costophrenic angles

All of it is lower case: some models were trained on nothing else, and not every tokenizer lowers for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import CHEXPERT, NIH, NIH_LONG_TAIL, finding_name

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
_WHOLE = {
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
    if finding in _WHOLE:
        pair = _WHOLE[finding]
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
        raise ConfigError(file.name, got=_said(given), allowed=f"lines such as {_EXAMPLE}")
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
        raise ConfigError(where, got=_said(value), allowed=f"a pair of prompts, such as {_EXAMPLE}")
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


def _said(value: Any) -> str:
    return "nothing" if value in (None, {}, "") else f"{type(value).__name__} {value!r}"
