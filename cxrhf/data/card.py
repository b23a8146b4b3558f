"""A finished build -> its dataset card: what it is, how it was made, what was left out, under which terms it stands.

The same card lies in the folder of a build and, with `Published`, on the Hub: there it also says under which name it is
loaded, what each table holds and whom to credit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa

from cxrhf.findings import display_name

# Configuration of a dataset repository -> its splits -> the files of each.
Configs = Mapping[str, Mapping[str, str]]

# Tables, file names and flags say `validate`; the Hub and `datasets` expect `validation`.
_PUBLISHED_SPLITS = {"validate": "validation"}
# What the Hub lists a dataset under: those that have reports, and those that have labels.
_TASKS = {"rexgradient": ("image-to-text",), "chexpert_plus": ("image-classification", "image-to-text")}


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a source stands. `credentialed`: nothing of it may leave the user's machines."""

    name: str
    licence: str
    credentialed: bool
    said: str
    link: str = ""  # where it is handed out
    cite: str = ""
    limits: str = ""


_STANFORD = "Stanford University Dataset Research Use Agreement: do not share this folder."
_PHYSIONET = (
    "PhysioNet Credentialed Health Data License: do not share or push this folder, do not send its notes to a remote "
    "service."
)
_ROWS = "Each row has its own licence (attribute `licence`): CC BY, CC BY-NC-SA and others. Check it before you share."
TERMS: Mapping[str, Terms] = {
    "mimic_cxr_context": Terms(
        "MIMIC-CXR with prior notes", "other", True, _PHYSIONET, "https://physionet.org/content/mimic-cxr-jpg/"
    ),
    "chexpert": Terms("CheXpert", "other", True, _STANFORD, "https://stanfordmlgroup.github.io/competitions/chexpert/"),
    "chexpert_plus": Terms(
        "CheXpert Plus", "other", True, _STANFORD,
        "https://stanfordaimi.azurewebsites.net/datasets/5158c524-d3ab-4e02-96e9-6ee9efc110a1",
    ),
    "rexgradient": Terms(
        "ReXGradient-160K", "other", True, "Data use agreement: do not share this folder.",
        "https://huggingface.co/datasets/rajpurkarlab/ReXGradient-160K",
    ),
    "nih_chestxray14": Terms(
        "NIH ChestX-ray14", "other", False, "NIH Clinical Center: free use with attribution (Wang et al. 2017).",
        "https://nihcc.app.box.com/v/ChestXray-NIHCC",
        "The data were provided by the NIH Clinical Center. Xiaosong Wang, Yifan Peng, Le Lu, Zhiyong Lu, Mohammadhadi "
        "Bagheri, Ronald M. Summers. ChestX-ray8: Hospital-scale Chest X-ray Database and Benchmarks on "
        "Weakly-Supervised Classification and Localization of Common Thorax Diseases. IEEE CVPR, 3462-3471, 2017.",
        "Labels were mined from the text of reports and are noisy. Patients have several images: split and resample by "
        "patient.",
    ),
    "covid_chestxray": Terms(
        "COVID-19 image data collection", "other", False, _ROWS,
        "https://github.com/ieee8023/covid-chestxray-dataset",
        "Joseph Paul Cohen, Paul Morrison, Lan Dao, Karsten Roth, Tim Q. Duong, Marzyeh Ghassemi. COVID-19 Image Data "
        "Collection: Prospective Predictions Are the Future. arXiv:2006.11988, 2020. Authors and source of each "
        "image: columns `doi` and `url` of metadata.csv in that repository, in the row whose `filename` is the "
        "`image_id` here.",
        "The images come from publications and show severe and unusual cases from many hospitals. The authors of the "
        "notes knew the outcome. Days are relative; the dates are synthetic.",
    ),
    "synthetic": Terms(
        "Synthetic twin", "apache-2.0", False, "No real patients are in the data.", "", "",
        "The images are drawn and the texts are assembled from sentences. Results show whether code and audits work, "
        "and nothing about patients.",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """What a card says only on the Hub: the name, more of its front matter (dataset_info), and paragraphs."""

    repo: str
    front: Mapping[str, Any] = field(default_factory=dict)
    said: Sequence[str] = ()


def card(
    dataset: str,
    record: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    labels: pl.DataFrame | None,
    published: Published | None = None,
) -> str:
    """README.md of a build. It holds counts only: no id, no text and no path of the source."""
    terms = TERMS[dataset]
    settings = record["settings"]
    n_rows = sum(record["splits"].values()) or record["n_notes"]
    lines = front(dataset, terms.name, configs(record), n_rows, published.front if published else {})
    files = "synthetic files" if dataset == "synthetic" else "the published files"
    lines += [f"# {terms.name}", "", f"Built by cxrhf from {files}. {terms.said}", ""]
    if terms.credentialed:
        lines += ["**Credentialed data. `cxrhf push dataset` refuses this folder; with `--recipe` it publishes only "
                  "settings, ids and splits. `push_to_hub` of `datasets` does not check these terms: never use it "
                  "on the tables of this folder.**", ""]  # fmt: skip
    for each in published.said if published is not None else ():
        lines += [each, ""]
    lines += ["## Load", "", "```python", "from datasets import load_dataset", ""]
    lines += _local(record) if published is None else loading(published.repo, configs(record))
    lines += ["```", "", *(_usage_lines(published.repo, dataset, terms) if published is not None else ())]
    lines += _labels(labels, settings)
    lines += ["## How it was made", "", *setting_lines(settings), ""]
    figure = "Figure: `flow.svg`." if published is None else "![Flow diagram of the exclusions](flow.svg)"
    lines += ["## Attrition", "", f"Published counts, where they exist, are in brackets. {figure}", ""]
    lines += attrition_lines(steps)
    if record["checked"]:
        lines += ["", _checked_line(record["checked"])]
    lines += ["", f"Fingerprint of settings, sources and version: `{record['fingerprint']}`.", ""]
    if published is not None and terms.cite:
        lines += ["## Credit", "", f"{terms.cite} Original: {terms.link}", ""]
    return "\n".join(lines)


def configs(record: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The tables of a build as configurations, the default one first."""
    found = {}
    if record["splits"]:
        found["images"] = {published_split(name): f"images/{name}-*.parquet" for name in record["splits"]}
    if record["n_notes"]:
        found["notes"] = {"train": "notes/notes-*.parquet"}
    if record["attributes"]:
        found["attributes"] = {"train": "attributes.parquet"}
    if record.get("planted"):
        found["planted"] = {"train": "planted.parquet"}
    return found


def published_split(split: str) -> str:
    """A split as `datasets` and the Hub call it.

    >>> published_split("validate"), published_split("train")
    ('validation', 'train')
    """
    return _PUBLISHED_SPLITS.get(split, split)


def front(
    dataset: str, name: str, tables: Configs, n_images: int, more: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """The front matter, from `---` to `---` and an empty line: what the Hub and `load_dataset` read."""
    import yaml  # type: ignore[import-untyped]

    terms = TERMS[dataset]
    about: dict[str, Any] = {"pretty_name": name, "license": terms.licence}
    if terms.licence == "other" and terms.link:
        about |= {"license_name": f"{dataset.replace('_', '-')}-terms", "license_link": terms.link}
    if set(tables) != {"notes"}:
        about["task_categories"] = list(_TASKS.get(dataset, ("image-classification",)))
    about |= {"size_categories": [size_category(n_images)], "tags": ["chest-x-ray", "cxrhf"]}
    about["configs"] = [
        {"config_name": config, **({"default": True} if not number else {})}
        | {"data_files": [{"split": split, "path": path} for split, path in splits.items()]}
        for number, (config, splits) in enumerate(tables.items())
    ]
    text = yaml.safe_dump(about | dict(more), sort_keys=False, allow_unicode=True, width=1000)
    return ["---", *text.splitlines(), "---", ""]


def size_category(rows: int) -> str:
    """The Hub's word for a number of rows.

    >>> size_category(999), size_category(1_000), size_category(112_120)
    ('n<1K', '1K<n<10K', '100K<n<1M')
    """
    ends = ["1K", "10K", "100K", "1M", "10M"]
    place = max(len(str(rows)) - 3, 0)
    return f"n<{ends[0]}" if not place else f"{ends[place - 1]}<n<{ends[place]}" if place < len(ends) else "10M<n<100M"


def loading(repo: str, tables: Configs) -> list[str]:
    """A line of Python for each configuration."""
    default, *others = tables
    return [f'{default} = load_dataset("{repo}")', *(f'{each} = load_dataset("{repo}", "{each}")' for each in others)]


def counted_labels(images: pa.Table, findings: Sequence[str]) -> pl.DataFrame:
    """How often each raw label stands in IMAGE rows."""
    from cxrhf.data.fields import label_counts

    frame = pl.from_arrow(images.select(list(findings)))
    assert isinstance(frame, pl.DataFrame)
    return label_counts(frame, findings)


def _usage_lines(repo: str, dataset: str, terms: Terms) -> list[str]:
    """What it is for and what not, and how cxrhf takes it."""
    lines = ["A download is a build folder that every cxrhf command can read:", "", "```bash",
             f"hf download {repo} --repo-type dataset --local-dir data/{dataset}",
             f"cxrhf train data/{dataset} --out runs/{dataset}", "```", ""]  # fmt: skip
    return [*lines, "## Use and limits", "", "For research on the evaluation of models, not for patient care. "
            f"{terms.limits}", ""]  # fmt: skip


def _local(record: Mapping[str, Any]) -> list[str]:
    lines = []
    if record["splits"]:
        some = ", ".join(f'"{split}": "{files}"' for split, files in configs(record)["images"].items())
        lines += [f'images = load_dataset("parquet", data_files={{{some}}})']
    if record["n_notes"]:
        lines += ['notes = load_dataset("parquet", data_files="notes/notes-*.parquet")']
    return lines


def _checked_line(checked: Mapping[str, int]) -> str:
    """What was looked for and not found, and nothing that was not looked for."""
    found = ["no patient is in two splits"]
    if "pairs" in checked:
        found.append("every linked note is strictly before its image")
        found.append(
            "no linked note contains the image's own report"
            if "reports" in checked
            else "whether a note contains the image's own report was not checked, because the reports are absent"
        )
    return f"Leakage: checked {', '.join(f'{n:,} {what}' for what, n in checked.items())}; {'; '.join(found)}."


def _labels(labels: pl.DataFrame | None, settings: Mapping[str, Any]) -> list[str]:
    if labels is None or not labels.height:
        return []
    lines = ["## Labels", "", "The tables store raw labels: 1, 0, -1 (uncertain), null (blank). "
             f"`cxrhf.data.load.load_images` applies the recorded policy, `{settings['labels']}`.", ""]  # fmt: skip
    lines += ["| finding | positive | negative | uncertain | blank |", "|---|---|---|---|---|"]
    for row in labels.iter_rows(named=True):
        counts = " | ".join(f"{row[name]:,}" for name in ("positive", "negative", "uncertain", "blank"))
        lines.append(f"| {display_name(row['finding'])} | {counts} |")
    return [*lines, ""]


def setting_lines(settings: Mapping[str, Any]) -> list[str]:
    """The settings that say something, a line each; a seed of 0 does."""
    return [f"- {name}: {value}" for name, value in settings.items() if value is not None and value is not False]


def attrition_lines(steps: Sequence[Mapping[str, Any]], *, notes: bool = True) -> list[str]:
    """The attrition as a table; `notes=False`: counts alone."""
    from cxrhf.data.attrition import COUNTS, format_count

    used = [name for name in COUNTS if any(row[name] is not None for row in steps)]
    last = ["note"] if notes else []
    lines = ["| " + " | ".join(["step", *used, *last]) + " |", "|---" * (1 + len(used) + len(last)) + "|"]
    for row in steps:
        cells = [row["step"], *(format_count(row, name) for name in used), *([row["note"] or ""] if notes else [])]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
