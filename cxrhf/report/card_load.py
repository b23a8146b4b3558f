"""Facts of a model -> code that loads it from the Hub and computes one number of its card with `evaluate`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cxrhf.report.blocks import finding_name
from cxrhf.report.book import Book, Cell, seed_of
from cxrhf.report.card_about import base_name, split_of
from cxrhf.report.card_facts import CONTEXT, WRITER
from cxrhf.report.card_markdown import code, paragraphs
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.provenance import mapping

Facts = Mapping[str, Any]
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


def example_of(books: Sequence[Book]) -> tuple[str, Cell] | None:
    """The finding with the most positives that has an AUROC, and that AUROC."""
    found = [(each, book.get("overview", each, "auroc")) for book in books[:1] for each in book.findings]
    there = [(each, cell) for each, cell in found if known(cell.value)]
    return max(there, key=lambda each: each[1].n_pos) if there else None


def _network(facts: Facts, books: Sequence[Book], name: str, owner: str) -> list[str]:
    made = facts["weights"]
    outputs = made.get("outputs") or []
    mode = "L" if is_grey(made) else "RGB"
    example = example_of(books)
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
        + (f"  # {number(example[1].value)} in the table" if example and example[0] == finding else ""),
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
        *_plain(words),
        *_calibrated(made, finding),
        *_plain(["With timm:"]),
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


def _plain(words: Sequence[str]) -> list[str]:
    return [line for each in words for line in (each, "")]


def _calibrated(made: Mapping[str, Any], finding: str) -> list[str]:
    """How logits become the probabilities that the calibration columns are about."""
    raw = "Probabilities are `torch.sigmoid(logits)`"
    calibration = mapping(made.get("calibration"))
    if not calibration or not calibration.get("fitted"):
        return _plain([f"{raw}; the network was not calibrated after training."])
    if calibration.get("applied", True) is False:
        return _plain([f"{raw}, and the numbers of this card rest on these. The calibrators in calibration.json "
                       f"({calibration['method']}) were not applied."])  # fmt: skip
    if finding not in calibration.get("outputs", (finding,)):
        return _plain([f"{raw} for {finding}, which has no calibrator in calibration.json."])
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
    return [*_plain([head]), *code("python", lines)]


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
    example = example_of(books)
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
        f"  # {number(cell.value)} for {finding_name(finding)}, as in the table",
    ]
    words = "There are no weights to load. A number of this card, computed from the predictions of the run:"
    return [*paragraphs([words]), *code("python", lines)]
