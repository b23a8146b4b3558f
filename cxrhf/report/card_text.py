"""Facts of a model -> what its card says in words: what it is, what it is for and not for, and its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.report.blocks import finding_name
from cxrhf.report.book import Book, Cell, seed_of
from cxrhf.report.card_facts import CLASSIFIER, CONTEXT, WRITER
from cxrhf.report.card_sections import bullets, code, escape_markdown, fold_lines, paragraphs
from cxrhf.report.numbers import format_number, is_finite, join_names
from cxrhf.report.sections.methods import group_warnings, methods
from cxrhf.report.sections.provenance import mapping
from cxrhf.report.sections.view import correction_of

Facts = Mapping[str, Any]
_MADE_UP = {"synthetic", "demo"}
_WHAT = {
    CLASSIFIER: "A model that scores findings",
    WRITER: "A report model",
    CONTEXT: "A context model that reads prior notes",
}
_USES = (
    "Research on the evaluation of chest X-ray models: comparing a model with patient context alone, finding subgroups "
    "and slices in which it fails, and testing evaluation tools.",
)
_NOT = (
    "Not a medical device. Not for diagnosis, triage, treatment or any decision about a patient.",
    "Not for inferring the sex, race, age or identity of patients.",
    "Not as an estimate of performance in another hospital: measure it there.",
)
_MADE_UP_NOTE = (
    "Synthetic data: a program generated images, notes, labels and reports, with known flaws. The numbers show what "
    "the evaluation detects; they do not describe patients."
)


def is_made_up(facts: Facts) -> bool:
    """Whether all that the numbers and the model come from is made up."""
    names = {str(each) for each in (*facts["datasets"], facts["data"].get("dataset")) if each}
    return bool(names) and names <= _MADE_UP and not facts["data"].get("credentialed")


def split_of(facts: Facts) -> str:
    """The split that was measured, as the notes say it; "" where they say nothing."""
    start = "only the split "
    return next((note[len(start) :].split(" ")[0] for note in facts["notes"] if note.startswith(start)), "")


def model_description(facts: Facts) -> list[str]:
    """What the model is, in a sentence or two."""
    made = facts["weights"] or {}
    what, outputs = _WHAT[facts["kind"]], len(made.get("outputs") or [])
    if facts["simulated"]:
        said = f"{what}, simulated with known flaws. It has no weights: a program generated its output."
    elif not made:
        said = f"{what}, audited from its output. Its weights are not included."
    elif facts["kind"] == WRITER:
        base, side = mapping(made.get("base")), made.get("size")
        whose = base_name(facts) or "a small model with weights in base/"
        said = (
            f"A LoRA adapter (rank {made.get('rank')}) for {base.get('architecture')} ({whose}) that writes the report "
            f"of a chest X-ray. Its input is an image of {side} x {side} pixels and the prompt “{made.get('prompt')}”"
        )
    elif facts["kind"] == CONTEXT:
        said = (
            f"Classifiers that estimate the pre-test probability of {outputs} findings from prior notes, without any "
            f"image (features: {join_names(made.get('families') or [])}). They measure how much of an image model's "
            "performance context explains."
        )
    else:
        look = mapping(made.get("look"))
        side, grey = look.get("size"), "grey levels" if look.get("channels") == 1 else "three channels"
        fit = "resized" if look.get("fit") == "squash" else "resized and centre-cropped"
        said = (
            f"A {made.get('backbone')} that predicts the probabilities of {outputs} findings of a chest X-ray. Its "
            f"input is the image, {fit} to {side} x {side} pixels, {grey}."
        )
    return paragraphs([said])


def base_name(facts: Facts) -> str:
    """The Hub's name of the model that an adapter belongs to; "" where that is a folder."""
    source = str(mapping((facts["weights"] or {}).get("base")).get("source") or "")
    parts = source.split("/")
    return source if len(parts) == 2 and all(each and each[0].isalnum() for each in parts) else ""


def intended_use() -> list[str]:
    """What it is for, and what not; the same for every model."""
    return ["### For", "", *bullets(_USES), "### Not for", "", *bullets(_NOT)]


def limits(facts: Facts, books: Sequence[Book], doubts: Sequence[str]) -> list[str]:
    """What the numbers cannot say: their source, findings without enough data, warnings of the audits."""
    said = [_MADE_UP_NOTE if is_made_up(facts) else "", _source(facts), *doubts]
    said += [f"{finding_name(name)} has no AUROC: {why}." for name, why in _undefined(books)]
    told = dict(methods(books, correction_of(facts["run"]))) if books else {}
    drop = "What a drop means"
    said += [
        f"{drop}: {told[drop]}" if drop in told else "",
        told.get("Multiple comparisons", ""),
        told.get("Limits", ""),
    ]
    return [*bullets(escape_markdown(each) for each in said if each), *fold_lines(*_warnings(facts, books))]


def _source(facts: Facts) -> str:
    """Whether model and numbers come from the same place."""
    learned, tested = facts["data"].get("dataset"), facts["datasets"]
    if facts["simulated"]:
        return ""
    if not facts["weights"] or not learned or not tested:
        return "The training data are unknown and may include patients of the test set."
    if tested == [learned]:
        return f"Trained and tested on one source ({learned}), on different patients: expect less elsewhere."
    return f"Trained on {learned}, tested on {join_names(list(tested))}."


def _undefined(books: Sequence[Book]) -> list[tuple[str, str]]:
    found = {}
    for book in books:
        for finding in book.findings:
            cell = book.get("overview", finding, "auroc")
            if cell.note and not is_finite(cell.value):
                found[finding] = cell.note.removeprefix("auroc is undefined: ")
    return list(found.items())


def _warnings(facts: Facts, books: Sequence[Book]) -> tuple[str, list[str]]:
    """All that the audits noted, grouped as on the page."""
    findings = list(dict.fromkeys(finding for book in books for finding in book.findings))
    models = list(dict.fromkeys(book.model for book in books)) or [facts["model"]]
    notes = list(dict.fromkeys(map(str, facts["notes"])))
    lines = list[str]()
    for kind, several in group_warnings(notes, models, findings):
        said = [
            one for each in several for one in each.each or [f"{each.who}: {each.words}" if each.who else each.words]
        ]
        lines += [f"**{escape_markdown(kind)}**", "", *bullets(map(escape_markdown, said))]
    return f"Warnings of the audits ({len(notes)})", lines


# Facts of a model -> code that loads it from the Hub and computes one number of its card with `evaluate`.

ANYBODY = "user"
_GREY = (
    'The network has one grey input channel. `pipeline("image-classification")` converts images to three channels and '
    "fails; use the code above."
)
_NOT_OVERRULED = ("no_finding", "support_devices")  # by No Finding, where labels are masked


def load_lines(facts: Facts, books: Sequence[Book], repo: str | None) -> list[str]:
    """What a reader copies; `repo` is the model's name on the Hub, None where it has none."""
    name = repo or f"{ANYBODY}/name"
    owner = name.partition("/")[0]
    if not facts["weights"]:
        return _from_rows(facts, books, owner)
    if facts["kind"] == WRITER:
        return _writer(facts, name, owner)
    if facts["kind"] == CONTEXT:
        return _context(name)
    return _network(facts, books, name, owner)


def example_number(books: Sequence[Book]) -> tuple[str, Cell] | None:
    """The finding with the most positives that has an AUROC, and that AUROC."""
    found = [(each, book.get("overview", each, "auroc")) for book in books[:1] for each in book.findings]
    there = [(each, cell) for each, cell in found if is_finite(cell.value)]
    return max(there, key=lambda each: each[1].n_pos) if there else None


def _network(facts: Facts, books: Sequence[Book], name: str, owner: str) -> list[str]:
    made = facts["weights"]
    outputs = made.get("outputs") or []
    mode = "L" if is_grey(made) else "RGB"
    example = example_number(books)
    finding = example[0] if example and example[0] in outputs else (outputs or ["finding"])[0]
    lines = [
        "import evaluate",
        "import torch",
        "from datasets import load_dataset",
        "from transformers import AutoImageProcessor, AutoModelForImageClassification",
        "",
        f'name = "{name}"',
        "processor = AutoImageProcessor.from_pretrained(name)",
        "model = AutoModelForImageClassification.from_pretrained(name).eval()",
        "",
        "",
        "def logits(images):",
        f'    inputs = processor([image.convert("{mode}") for image in images], return_tensors="pt")',
        "    with torch.no_grad():",
        "        return model(**inputs).logits",
        "",
        "",
        f'finding = "{finding}"',
        "at = model.config.label2id[finding]",
        f'test = load_dataset("{dataset_id(facts, owner)}", split="test")  # the images of the tables',
        'scores = [logits([row["image"]])[0, at].item() for row in test]',
        *label_lines(str(facts["data"].get("labels")), finding),
        f'metric = evaluate.load("{owner}/weighted_auroc")',
        'print(metric.compute(predictions=scores, references=labels)["weighted_auroc"])'
        + (f"  # {format_number(example[1].value)} in the table" if example and example[0] == finding else ""),
    ]
    words = [_GREY] if is_grey(made) else []
    words += [
        "With `context=` (pre-test probabilities from cxrhf context) the same metric holds context equal. Scores equal "
        "those of the table up to rounding of resized images.",
    ]
    timm = [
        "import timm",
        "",
        f'model = timm.create_model("hf-hub:{name}", pretrained=True).eval()  # the same weights',
    ]
    return [
        *code("python", lines),
        *_with_blank_lines(words),
        *_calibration_lines(made, finding),
        *_with_blank_lines(["With timm:"]),
        *code("python", timm),
    ]


def is_grey(made: Mapping[str, Any]) -> bool:
    """Whether a network reads one channel."""
    return mapping(made.get("look")).get("channels") == 1


def label_lines(policy: str, finding: str) -> list[str]:
    """Code that makes the labels that were counted of raw ones (1, 0, -1 = uncertain, None), as `cxrhf build` does."""
    if policy == "ones":
        return ["labels = [int(value in (1, -1)) for value in test[finding]]"]
    if policy != "masked":
        return ["labels = [int(value == 1) for value in test[finding]]"]
    if finding in _NOT_OVERRULED:
        return ["labels = [value if value in (0, 1) else None for value in test[finding]]"]
    return [
        'healthy = test["no_finding"] if "no_finding" in test.column_names else [0] * len(test)',
        "pairs = zip(test[finding], healthy)",
        "labels = [0 if normal == 1 else value if value in (0, 1) else None for value, normal in pairs]",
    ]


def _with_blank_lines(words: Sequence[str]) -> list[str]:
    return [line for each in words for line in (each, "")]


def _calibration_lines(made: Mapping[str, Any], finding: str) -> list[str]:
    """How logits become the probabilities that the calibration columns are about."""
    raw = "Probabilities are `torch.sigmoid(logits)`"
    calibration = mapping(made.get("calibration"))
    if not calibration or not calibration.get("fitted"):
        return _with_blank_lines([f"{raw}; the network was not calibrated after training."])
    if calibration.get("applied", True) is False:
        line = (
            f"{raw}, and the numbers of this card rest on these. The calibrators in calibration.json "
            f"({calibration['method']}) were not applied."
        )
        return _with_blank_lines([line])
    if finding not in calibration.get("outputs", (finding,)):
        return _with_blank_lines([f"{raw} for {finding}, which has no calibrator in calibration.json."])
    lines = [
        "import json",
        "",
        "from huggingface_hub import hf_hub_download",
        "",
        'fitted = json.load(open(hf_hub_download(name, "calibration.json")))["fitted"][finding]',
    ]
    if calibration["method"] == "isotonic":
        lines += [
            "import numpy as np",
            "",
            'odds = np.log(fitted["y"]) - np.log1p(-np.array(fitted["y"]))',
            'probability = 1 / (1 + np.exp(-np.interp(scores, fitted["x"], odds)))',
        ]
    else:
        lines.append('probability = torch.sigmoid(torch.tensor(scores) * fitted["x"][0] + fitted["y"][0])')
    head = f"Probabilities are calibrated ({calibration['method']}) with calibration.json:"
    if calibration.get("applied", True) is None:
        head = (f"calibration.json has calibrators ({calibration['method']}). The predictions of this card have no "
                "logits, so cxrhf could not check whether its numbers rest on calibrated probabilities:")  # fmt: skip
    return [*_with_blank_lines([head]), *code("python", lines)]


def dataset_id(facts: Facts, owner: str) -> str:
    """The dataset's name on the Hub: as given, else under the model's owner."""
    given = facts.get("dataset_id")
    name = next(iter(facts["datasets"]), None) or facts["data"].get("dataset") or "dataset"
    return str(given or f"{owner}/{str(name).replace(' ', '-')}")


def _writer(facts: Facts, name: str, owner: str) -> list[str]:
    made = facts["weights"]
    base = base_name(facts)
    # A base beside the adapter is loaded from disk: by the repository's name transformers would take the adapter.
    where = f'"{base}"' if base else 'f"{folder}/base"'
    size = made.get("size")
    lines = [
        "import evaluate",
        "from datasets import load_dataset",
        "from huggingface_hub import snapshot_download",
        "from peft import PeftModel",
        "from transformers import AutoModelForImageTextToText, AutoProcessor",
        "",
        f'folder = snapshot_download("{name}")',
        "processor = AutoProcessor.from_pretrained(folder)",
        f"base = AutoModelForImageTextToText.from_pretrained({where})",
        "model = PeftModel.from_pretrained(base, folder).eval()",
        f"question = {json.dumps(made.get('prompt'))}",
        "",
        "",
        "def report(image):",
        f'    image = image.convert("L").resize(({size}, {size}), resample=2).convert("RGB")  # bilinear',
        '    content = [{"type": "image", "image": image}, {"type": "text", "text": question}]',
        "    inputs = processor.apply_chat_template(",
        '        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=True, return_dict=True,',
        '        return_tensors="pt",',
        "    )",
        "    written = model.generate(**inputs, max_new_tokens=200, do_sample=False)  # greedy",
        '    return processor.decode(written[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)',
        "",
        "",
        f'test = load_dataset("{dataset_id(facts, owner)}", split="test")',
        'frontal = [row["image"] for row in test if row["view"] in ("AP", "PA")]',
        f'metric = evaluate.load("{owner}/lexical_diversity")',
        "print(metric.compute(predictions=[report(image) for image in frontal[:20]]))",
    ]
    return [*code("python", lines), *paragraphs([
        "The table covers one frontal image per patient; the record of the run lists them. An adapter can reproduce "
        "parts of its training reports: treat it as equally confidential."
    ])]  # fmt: skip


def _context(name: str) -> list[str]:
    lines = [
        f"hf download {name} --local-dir context",
        "# Add pre-test probabilities of the images of a build to the predictions of an image model.",
        "cxrhf context predict context --build BUILD --onto predictions.parquet --out with-context.parquet",
        "cxrhf audit with-context.parquet",
    ]
    return [*code("bash", lines), *paragraphs(["Notes are read on your machine; nothing is sent anywhere."])]


def _from_rows(facts: Facts, books: Sequence[Book], owner: str) -> list[str]:
    """Without weights: how a number of the card follows from the run's predictions."""
    example = example_number(books)
    if example is None:
        return paragraphs(["There are no weights to load."])
    finding, cell = example
    asked = {"model": facts["model"], "finding": finding, "split": split_of(facts)}
    asked["dataset"] = books[0].dataset if len(facts["datasets"]) > 1 else ""
    same = " & ".join(f"(rows.{name} == {json.dumps(value)})" for name, value in asked.items() if value)
    if books[0].model != facts["model"]:  # of several runs the table has the first
        same += f" & (rows.seed == {seed_of(books[0].model).removeprefix('seed ')})"
    lines = [
        "import evaluate",
        "import pandas as pd",
        "",
        'rows = pd.read_parquet("RUN/predictions.parquet")',
        f"rows = rows[{same}]",
        'rows = rows.dropna(subset=["label"])',
        f'metric = evaluate.load("{owner}/weighted_auroc")',
        'print(metric.compute(predictions=rows.prob, references=rows.label)["weighted_auroc"])'
        f"  # {format_number(cell.value)} for {finding_name(finding)}, as in the table",
    ]
    words = "There are no weights to load. A number of this card, computed from the predictions of the run:"
    return [*paragraphs([words]), *code("python", lines)]


# Facts of a model -> where it comes from: training data and their terms, commands, versions, how to cite.

_TERMS = {
    "synthetic": "the data are synthetic, contain no real patient and may be shared.",
    "credentialed": "these data are credentialed: access requires a signed data use agreement. This repository "
    "contains none of their images, texts or rows. The agreement decides whether models trained on them may be shared.",
    "other": "check the terms of the dataset before you use or share this model.",
}
_CITE = (
    "@software{cxrhf,",
    "  title  = {cxrhf: honest evaluation of chest X-ray models},",
    "  author = {{The cxrhf authors}},",
    "  note   = {Version VERSION; CITATION.cff lists the papers whose methods it uses},",
    "}",
)


def training_data(facts: Facts) -> list[str]:
    """What it learned from, how long, and under which terms that stands."""
    data, made = facts["data"], facts["weights"] or {}
    if facts["simulated"]:
        return paragraphs(["None: the model is simulated."])
    if not made:
        return paragraphs(["Unknown: only the output of the model was audited."])
    patients = mapping(data.get("patients"))
    splits = [
        f"{name} {n:,} images of {patients.get(name, 0):,} patients" for name, n in mapping(data.get("splits")).items()
    ]
    seeds = made.get("seeds") or ([made["seed"]] if made.get("seed") is not None else [])
    said = {
        "Dataset": data.get("dataset") or "not recorded",
        "Splits, by patient": ", ".join(splits),
        "Labels": f"policy {data['labels']}" if data.get("labels") else "",
        "Training set": _training_images_text(made),
        "Training": _training_steps_text(mapping(made.get("trained"))),
        "Initial weights": made.get("start"),
        "Seeds": ", ".join(map(str, seeds)),
        "Calibration": _calibration(facts),
    }
    terms = "synthetic" if is_made_up(facts) else "credentialed" if data.get("credentialed") else "other"
    lines = bullets(f"{name}: {escape_markdown(str(each))}" for name, each in said.items() if each)
    return [*lines, *paragraphs([f"Terms: {_TERMS[terms]}"])]


def _training_images_text(made: Mapping[str, Any]) -> str:
    examples = dict(mapping(made.get("examples")))
    if not examples:
        return f"{made['images']:,} images" if made.get("images") else ""
    whole = f"{examples.pop('images', 0):,} images of {examples.pop('patients', 0):,} patients"
    return whole + (f" ({', '.join(f'{name} {n:,}' for name, n in examples.items())})" if examples else "")


def _training_steps_text(facts: Mapping[str, Any]) -> str:
    if not facts:
        return ""
    kept = facts.get("best_step", facts.get("kept_step"))
    return f"{facts.get('steps') or 0:,} steps, {facts.get('epochs') or 0:,} epochs" + (
        f"; kept step {kept:,}" if kept is not None else ""
    )


def _calibration(facts: Facts) -> str:
    found = mapping((facts["weights"] or {}).get("calibration"))
    if found and found.get("fitted"):
        said = f"{found['method']}, fitted on the split {found['split']} for {found['fitted']} outputs"
        applied = found.get("applied", True)
        doubt = {True: "", False: "; not applied: the numbers rest on raw probabilities", None: "; not checked"}[
            applied
        ]
        return f"{said} (calibration.json){doubt}"
    return "none; probabilities are those of the network" if facts["kind"] == CLASSIFIER else ""


def reproduce(facts: Facts) -> list[str]:
    """The commands, in order; what is written in capitals is for the reader to name."""
    if not facts["commands"]:
        return paragraphs(["The run does not record its commands."])
    version = mapping(facts["run"].get("versions")).get("cxrhf", "")
    run = str(mapping(facts["run"].get("config")).get("out") or "RUN")
    last = f"cxrhf report {run} --cards model_cards"
    return code("bash", [f'pip install "cxrhf[all]=={version}"', *facts["commands"], last])


def provenance(facts: Facts) -> list[str]:
    """Versions, commit, times and hashes; how the card itself is made."""
    run, digest = facts["run"], (facts["weights"] or {}).get("sha256")
    versions = mapping(run.get("versions"))
    packages = ", ".join(f"{name} {text}" for name, text in versions.items() if name != "cxrhf")
    said = [
        f"Made by cxrhf {versions.get('cxrhf', '')} ({_commit(run)}), seed {run.get('seed')}, on "
        f"{str(run.get('finished') or run.get('started') or '')[:10]}",
        f"Python {run.get('python')}, {packages}",
        *(f"Input: {each.get('name')}, SHA-256 {str(each.get('sha256'))[:16]}…" for each in run.get("inputs") or []),
        f"Dataset fingerprint: {facts['data']['fingerprint']}" if facts["data"].get("fingerprint") else "",
        f"Weights: SHA-256 {str(digest)[:16]}…" if digest else "",
    ]
    words = (
        "Every number of this card is a rounded row of results.json, which also has its interval, sample sizes, method "
        "and note. cxrhf report wrote the card from that file."
    )
    return [*paragraphs([words]), *bullets(escape_markdown(each) for each in said if each)]


def _commit(run: Mapping[str, Any]) -> str:
    commit = str(run.get("commit") or "")
    if commit.endswith("-dirty"):
        return "sources with uncommitted changes"
    return f"commit {commit}" if commit else "commit not recorded"


def citation(facts: Facts) -> list[str]:
    """How to cite the evaluation."""
    version = str(mapping(facts["run"].get("versions")).get("cxrhf", ""))
    return code("bibtex", [line.replace("VERSION", version) for line in _CITE])
