"""Made-up rows of the audits encoding, features, slices and shortcut, named as the audits name them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from tests.report.made import RECORD, Rows, everything

SHOWN: Mapping[str, Any] = {**RECORD, "may_show": True}
NETWORKS = ("net", "random", "imagenet", "sexes", "multi")
MAPS = ("pca 1-2", "pca 3-4", "t-sne", "logits")
TRAITS = ("drain=1", "view=AP", "sex=F", "edema=1")
LEVELS = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1)
_SPLIT = {"net": 0.93, "random": 0.71, "imagenet": 0.92, "multi": 0.99}
_TASKS = {"net": "single task: findings", "random": "frozen: embeddings only", "imagenet": "frozen: embeddings only",
          "sexes": "single task: sex", "multi": "multitask: findings, sex, race"}  # fmt: skip


def encoding(dataset: str | None = None, sex: str = "sex=F") -> list[dict[str, Any]]:
    """Five networks, two of them never trained on findings, two with an output for sex."""
    out = []
    for network in NETWORKS:
        made = Rows(network, dataset)
        made.add("encoding", "tasks", None, 1, note=_TASKS[network], ci_low=None, ci_high=None)
        for name, less in ((sex, 0.0), ("race=Asian", 0.1), ("race=Black", 0.12), ("race=White", 0.14), ("race", 0.12)):
            if network in _SPLIT:
                value = _SPLIT[network] - less
                how = "logistic regression on frozen vectors; 0.95 percentile, patients resampled"
                made.add("encoding", "split_auroc", name, value, width=0.01, method=how)
                if "=" in name:
                    for metric, rate in (("tpr", 0.8), ("fpr", 0.2), ("j", 0.6)):
                        made.add("encoding", f"split_{metric}", name, rate)
                if network != "random":
                    made.add("encoding", "split_auroc", name, value - 0.71 + less, width=0.02, versus="model=random")
        if network in ("sexes", "multi"):
            made.add("encoding", "auroc", sex, 0.99 if network == "multi" else 0.985, width=0.004)
        if network == "multi":
            made.add("encoding", "auroc", sex, 0.005, width=0.006, versus="model=sexes")
        out += made.rows
    whole = Rows("", dataset)
    whole.add("encoding", "verdict", sex.partition("=")[0], 0.93, model=None, note="It can be read: B or C.")
    return [*out, *whole.rows]


def features(made: Rows, races: Sequence[str] = ("White", "Asian", "Black")) -> None:
    """KS statistics of four modes and two outputs."""
    pairs = [("disease=No Finding", "disease=Pleural Effusion"), ("sex=F", "sex=M")]
    pairs += [(f"race={races[0]}", f"race={other}") for other in races[1:]]
    for k, mode in enumerate(("pca_1", "pca_2", "pca_3", "pca_4", "logit_no_finding", "logit_pleural_effusion")):
        for at, (one, two) in enumerate(pairs):
            value, p_value = (0.5 - 0.07 * k, 1e-9) if at == 0 else (0.04 + 0.01 * k, 0.02 if k == 3 else 0.6)
            how = {"ci_low": None, "ci_high": None, "n": 2000 + at, "p_value": p_value}
            made.add("features", f"ks.{mode}", None, value, slice=one, versus=two, **how)
        if mode.startswith("pca"):
            made.add("features", f"explained_variance.{mode}", None, 0.31 / (k + 1), ci_low=None, ci_high=None)
    made.add("features", "n_components", None, 42, ci_low=None, ci_high=None)


def points(
    n: int = 300, model: str = "net", races: Sequence[str] = ("White", "Asian", "Black"), seed: int = 0
) -> list[dict[str, Any]]:
    """Patients in four maps: the disease parts along the first axis, sex along the second; some races are unknown."""
    random = np.random.default_rng(seed)
    diseases, ages = ("Other", "No Finding", "Pleural Effusion"), ("0-19", "20-39", "40-59", "60-79", "80+")
    disease, age = random.integers(0, 3, n), random.choice(5, n, p=[0.03, 0.17, 0.3, 0.35, 0.15])
    sex, race = random.integers(0, 2, n), random.integers(0, len(races), n)
    out = []
    for name in MAPS:
        x, y = random.normal(size=n) + 1.6 * (disease == 2), random.normal(size=n) + 0.5 * sex
        if name == "t-sne":
            angle = 2.1 * disease
            x, y = 3 * np.cos(angle) + random.normal(size=n), 3 * np.sin(angle) + random.normal(size=n)
        out += [
            {
                "image_id": f"secret-image-{k:05d}", "model": model, "map": name, "x": float(x[k]), "y": float(y[k]),
                "disease": diseases[disease[k]], "sex": "FM"[sex[k]], "age": ages[age[k]],
                "race": None if k % 50 == 0 else races[race[k]],
            }
            for k in range(n)
        ]  # fmt: skip
    return out


def slices(
    made: Rows, finding: str, *, confirmed: str = "", methods: Sequence[str] = ("mixture",), n_slices: int = 4
) -> None:
    """Both classes cut into slices; the trait `confirmed` stands in the worst slice of the positives."""
    for side in ("positive", "negative"):
        for at, method in enumerate(methods):
            _cut(made, finding, f"{method}:{side}", confirmed if side == "positive" else "", n_slices + at)
        for trait in TRAITS:
            versus = f"{side} & {trait[:-1]}0" if trait.endswith("=1") else f"{side} & not {trait}"
            made.add("slices", "brier_gap", finding, -0.12 if trait == "sex=F" else 0.12, width=0.04,
                     slice=f"{side} & {trait}", versus=versus, p_value=0.001)  # fmt: skip
        made.add("slices", "gap_statistic.k", finding, 3, slice=side, ci_low=None, ci_high=None)
        for k in range(1, 9):
            gap = 0.5 - 0.04 * abs(k - 3)
            point = {"x": float(k), "y": gap, "low": gap - 0.03, "high": gap + 0.03}
            made.curves.append(
                {"model": made.model, "finding": finding, "kind": "gap_statistic", "slice": side, **point}
            )


def _cut(made: Rows, finding: str, whole: str, confirmed: str, n_slices: int) -> None:
    plain: dict[str, Any] = {"ci_low": None, "ci_high": None}
    made.add("slices", "n_slices", finding, n_slices, slice=whole, note="BIC over 4 to 16 components", **plain)
    made.add("slices", "seconds", finding, 3.25, slice=whole, **plain)
    for k in range(1, n_slices + 1):
        name = f"{whole}:{k}"
        made.add("slices", "brier", finding, 0.4 / k, slice=name, width=0.03, n=100 * k, n_patients=90 * k)
        made.add("slices", "share", finding, k / (n_slices * (n_slices + 1) / 2), slice=name)
        traits = TRAITS[:3] if k == 1 else TRAITS[2:] if k == n_slices else ()
        for j, trait in enumerate(traits):
            place, odds = f"{name} & {trait}", 3.9 - 0.8 * j
            ends = {"ci_low": odds / 1.5, "ci_high": odds * 1.5, "p_value": 0.001}
            made.add("slices", "odds_ratio", finding, odds, slice=place, **ends)
            made.add("slices", "prevalence", finding, 0.72 - 0.1 * j, slice=place, **plain)
            made.add("slices", "prevalence_rest", finding, 0.4 - 0.1 * j, slice=place, **plain)
            stands = k == 1 and trait == confirmed
            made.add(
                "slices", "confirmed", finding, float(stands), slice=place, p_value=0.003 if stands else 0.4, **plain
            )
    made.add("slices", "worst", finding, 0.35, slice=f"{whole}:1", **plain)
    made.add("slices", "best", finding, 0.06, slice=f"{whole}:{n_slices}", **plain)


def shortcut(made: Rows, finding: str, attribute: str = "drain", *, explains: bool = True) -> None:
    """A gap between the sexes that the attribute explains, or does not."""
    rest = 0.0 if explains else 0.022
    for group, natural, equal in (("sex=F", 0.817, 0.805 + rest), ("sex=M", 0.793, 0.805), ("", 0.805, 0.805)):
        part = f"{attribute} known & {group}" if group else f"{attribute} known"
        made.add("shortcut", "auroc", finding, natural, slice=part, width=0.01)
        made.add("shortcut", "auroc_equalised", finding, equal, slice=part, width=0.01)
    pair = {"slice": f"{attribute} known & sex=F", "versus": f"{attribute} known & sex=M"}
    made.add("shortcut", "auroc", finding, 0.024, p_value=0.002, width=0.01, **pair)
    made.add("shortcut", "auroc_equalised", finding, rest, p_value=0.9 if explains else 0.003, width=0.01, **pair)
    made.add(
        "shortcut", "auroc_gap_explained", finding, 0.024 - rest, p_value=0.01 if explains else 0.7, width=0.006, **pair
    )
    for sex in "FM":
        for label in (0, 1):
            made.add("shortcut", "share", finding, 0.147 + 0.35 * label + 0.05 * (sex == "M"),
                     slice=f"sex={sex} & label={label} & {attribute}=1")  # fmt: skip
            for value in (1, 0):
                part = f"sex={sex} & label={label} & {attribute}={value}"
                level = 0.25 + 0.3 * label + 0.2 * value
                made.add("shortcut", "confidence", finding, level, slice=part)
                made.add("shortcut", "brier", finding, 0.05 + 0.2 * (label != value), slice=part, width=0.02)
                for x in LEVELS:
                    y = level + 0.4 * (x - 0.5)
                    row = {"model": made.model, "finding": finding, "kind": "confidence", "slice": part, "x": float(x)}
                    made.curves.append({**row, "y": y, "low": None, "high": None})


def thumbnail(shade: int) -> bytes:
    """A small grey JPEG."""
    file = io.BytesIO()
    grey = (np.linspace(0, 120, 64)[:, None] + np.linspace(0, 60, 64)[None, :] + shade % 61).astype(np.uint8)
    Image.fromarray(grey).save(file, "JPEG")
    return file.getvalue()


def gallery(finding: str, model: str = "net", n: int = 6, n_slices: int = 4, start: int = 0) -> list[dict[str, Any]]:
    """Images of the worst and the best slice of each class; one id needs quotes in a sheet."""
    out = []
    for at, side in enumerate(("positive", "negative")):
        for role, place in (("worst", 1), ("best", n_slices)):
            for k in range(n):
                number = start + 1000 * at + (100 if role == "best" else 0) + k
                name = 'shown, "1"' if number == 0 else f"shown-{number:04d}"
                row = {"image_id": name, "model": model, "finding": finding, "slice": f"mixture:{side}:{place}"}
                out.append({**row, "role": role, "thumbnail": thumbnail(11 * number)})
    return out


def whole(findings: Sequence[str] = ("pneumothorax", "edema"), model: str = "net") -> Rows:
    """All audits of one model, with those of its vectors; the first finding has what can be found."""
    made = everything(findings, model=model)
    features(made)
    for k, finding in enumerate(findings):
        slices(made, finding, confirmed="" if k else "drain=1")
        shortcut(made, finding, explains=k == 0)
    made.rows += encoding()
    return made


def data_of(text: str) -> list[dict[str, Any]]:
    """What a page holds for its script."""
    return [json.loads(each) for each in re.findall(r'<script type="application/json">(.*?)</script>', text)]
