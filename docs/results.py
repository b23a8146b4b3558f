"""Commands of the task pages -> the tables and figures of their results, written into the pages by `make results`.

A result stands in a page between `<!-- made by make results: NAME DIGEST -->` and `<!-- end -->`. The digest is of
what it was made from: the commands, the input file and the function that writes it. tests/test_docs.py holds it.
`python docs/results.py STEP ...` makes the results of some steps, and runs the steps that they follow.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
INPUT = ROOT / "examples" / "nih_predictions.csv.gz"
FIGURE = DOCS / "waterfall.svg"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RESULT = re.compile(r"<!-- made by make results: (\S+) (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
MODELS = ("nih_predictions", "context")  # of nih_compared
FOUR = ["cardiomegaly", "pleural_effusion", "pneumothorax", "hernia"]


class Step(NamedTuple):
    """Commands as their page has them, the results they give, and the step that must have run before."""

    commands: tuple[str, ...]
    results: tuple[Callable[[Path], str], ...]
    after: str = ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows])


def printed(at: Path) -> str:
    """What the last command printed."""
    return (at / "printed.txt").read_text(encoding="utf-8")


def p_text(p: object) -> str:
    if not isinstance(p, float) or math.isnan(p):
        return "–"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def interval(row: dict[str, Any]) -> str:
    """Value (low to high)."""
    value, low, high = row["value"], row["ci_low"], row["ci_high"]
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if low is None or math.isnan(low) else f"{value:.2f} ({low:.2f} to {high:.2f})"


def title(finding: str) -> str:
    return "mean over findings" if finding == "macro" else finding.replace("_", " ")


class Rows:
    """RESULT rows of a run: `rows("auroc", finding="edema")` is a value with its interval, as text."""

    def __init__(self, run: Path, audit: str) -> None:
        self.rows = pl.read_parquet(run / "results.parquet").filter(pl.col("audit") == audit)

    def row(self, metric: str, **where: str) -> dict[str, Any]:
        """The one row of this metric; of the whole sample, and no difference, unless `where` says otherwise."""
        keys = {"metric": metric, "slice": "all", "versus": None} | where
        found = self.rows.filter(pl.col(key).eq_missing(pl.lit(value)) for key, value in keys.items())
        assert found.height == 1, (keys, found.height)
        return found.row(0, named=True)

    def __call__(self, metric: str, **where: str) -> str:
        return interval(self.row(metric, **where))


# NIH ChestX-ray14 and a public reproduction of CheXNet.


def nih_headline(at: Path) -> str:
    """The first numbers of the README; its first figure beside them."""
    figure = at / "runs/nih/figures/waterfall.svg"
    FIGURE.write_text(figure.read_text(encoding="utf-8"), encoding="utf-8")
    rows = Rows(at / "runs/nih", "reweighted")
    whole = rows.row("auroc", finding="macro")
    overall, context, equal = (
        rows.row(metric, finding="macro")["value"] for metric in ("auroc", "auroc_context", "auroc_att")
    )
    return (
        f"On {whole['n']:,} NIH images of {whole['n_patients']:,} patients, a public reproduction of CheXNet reaches a "
        f"mean AUROC of **{overall:.3f}**.\nAge, sex, view and the labels of earlier images alone, without the image, "
        f"reach **{context:.3f}**.\nWith these held equal between positives and negatives, the model reaches "
        f"**{equal:.3f}**."
    )


def nih_context(at: Path) -> str:
    rows = Rows(at / "runs/nih", "reweighted")
    metrics = ("auroc", "auroc_context", "auroc_att")
    lines = [
        (
            title(each),
            f"{rows.row('auroc', finding=each)['n_pos']:,}",
            *(rows(metric, finding=each) for metric in metrics),
        )
        for each in [*FOUR, "macro"]
    ]
    return table(("finding", "images with it", "AUROC", "context alone", "context held equal"), lines)


def nih_enough(at: Path) -> str:
    predictions = pl.read_parquet(at / "runs/nih/predictions.parquet").filter(pl.col("label") == 1)
    patients = dict(predictions.group_by("finding").agg(pl.col("patient_id").n_unique()).iter_rows())
    rows = Rows(at / "runs/nih", "overview")
    lines = [
        (title(each), patients[each], rows("auroc", finding=each), rows("sensitivity_at_specificity", finding=each))
        for each in FOUR
    ]
    return table(("finding", "patients with it", "AUROC", "sensitivity at 95% specificity"), lines)


def nih_subgroups(at: Path) -> str:
    rows, finding = Rows(at / "runs/nih", "subgroups"), "pleural_effusion"
    metrics = ("tpr", "tpr_balanced", "fpr", "fpr_balanced")
    lines = [
        (part, *(rows(metric, finding=finding, slice=part) for metric in metrics))
        for part in ("sex=F", "sex=M", "view=AP", "view=PA")
    ]
    head = ("pleural effusion", "sensitivity", "the same, balanced", "false alarms", "the same, balanced")
    return table(head, lines)


def nih_gaps(at: Path) -> str:
    rows, lines = Rows(at / "runs/nih", "subgroups"), []
    for metric, name, high, low in (
        ("tpr_balanced", "sensitivity", "sex=F", "sex=M"),
        ("fpr_balanced", "false alarms", "sex=M", "sex=F"),
        ("tpr_balanced", "sensitivity", "view=PA", "view=AP"),
        ("fpr_balanced", "false alarms", "view=AP", "view=PA"),
    ):
        row = rows.row(metric, finding="pleural_effusion", slice=high, versus=low)
        lines.append((f"{name}, {high} minus {low}", interval(row), p_text(row["p_value"])))
    return table(("pleural effusion, balanced", "gap", "corrected p value"), lines)


def nih_compared(at: Path) -> str:
    overview, compare = (Rows(at / "runs/compared", audit) for audit in ("overview", "compare"))
    lines = []
    for finding in ("cardiomegaly", "pleural_effusion", "nodule", "fibrosis", "macro"):
        network, context = (overview.row("auroc", finding=finding, model=model)["value"] for model in MODELS)
        row = compare.row("auroc", finding=finding, versus=f"model={MODELS[1]}")
        lines.append((title(finding), f"{network:.2f}", f"{context:.2f}", interval(row), p_text(row["p_value"])))
    return table(("finding", "network", "context", "difference", "corrected p value"), lines)


# The synthetic twin: runs from its images and notes, and simulated models with planted flaws.


def selfcheck(at: Path) -> str:
    lines = [line.strip() for line in printed(at).splitlines()]
    checks = [line for line in lines if line.startswith("ok ")]
    return "\n".join(["```text", *checks[:4], "...", lines[-1], "```"])


def twin_build(at: Path) -> str:
    steps = pl.read_parquet(at / "data/twin/attrition.parquet")
    wanted = ["images", "studies", "patients", "notes"]
    counts = [
        [row["step"], *("" if row[of] is None else f"{row[of]:,}" for of in wanted)]
        for row in steps.iter_rows(named=True)
    ]
    return table(["step", *wanted], counts)


def twin_context(at: Path) -> str:
    rows, lines = Rows(at / "runs/context", "pretest"), []
    fitted = json.loads((at / "runs/context/context.json").read_text())["findings"]
    for finding in ("edema", "cardiomegaly", "atelectasis", "pneumonia"):
        features = fitted[finding]["families"]["words"]["features"][:5]
        words = ", ".join(f"{each['word']} {'+' if each['value'] > 0 else '−'}" for each in features)
        row = rows.row("auroc", finding=finding, model="context")
        lines.append((title(finding), f"{row['n_pos']:,}", interval(row), words))
    return table(("finding", "test images with it", "AUROC of the notes alone", "words"), lines)


def twin_train(at: Path) -> str:
    rows = Rows(at / "runs/quick", "overview")
    findings = ["support_devices", "atelectasis", "pleural_effusion", "pneumothorax", "pneumonia", "macro"]
    lines = [
        (title(each), f"{rows.row('auroc', finding=each)['n_pos']:,}", rows("auroc", finding=each)) for each in findings
    ]
    return table(("finding", "test images with it", "AUROC"), lines)


def twin_calibrate(at: Path) -> str:
    before, after = (Rows(at / "runs" / run, "overview") for run in ("before", "after"))
    names = {
        "brier": "Brier score",
        "adaptive_calibration_error": "calibration error",
        "expected_ace": "calibration error expected by chance",
        "auroc": "AUROC",
    }
    lines = [(name, before(metric, finding="macro"), after(metric, finding="macro")) for metric, name in names.items()]
    return table(("mean over findings", "before", "after"), lines)


def twin_push(at: Path) -> str:
    return f"```text\n{printed(at).strip()}\n```"


def twin_learned(at: Path) -> str:
    run = at / "runs/learned"
    encoding, slices, shortcut = (Rows(run, audit) for audit in ("encoding", "slices", "shortcut"))
    lines = [
        (
            "encoding",
            model,
            "AUROC of sex, read from the embeddings",
            encoding("split_auroc", finding="sex=F", model=model),
        )
        for model in ("ideal", "blind")
    ]
    found = (
        slices.rows.filter(
            pl.col("metric") == "confirmed",
            pl.col("model") == "ideal",
            pl.col("finding") == "atelectasis",
            pl.col("slice").str.ends_with("hazy=1"),
            pl.col("slice").str.contains("positive"),
        )
        .sort("value", descending=True)
        .row(0, named=True)
    )
    where = {"slice": found["slice"], "model": "ideal", "finding": "atelectasis"}
    share, rest = (
        100 * float(str(slices.row(metric, **where)["value"])) for metric in ("prevalence", "prevalence_rest")
    )
    verdict = "confirmed" if found["value"] == 1 else "not confirmed"
    lines += [
        (
            "slices",
            "ideal",
            "hazy images in a slice of atelectasis",
            f"{share:.0f}% of the slice, {rest:.0f}% of the rest: {verdict}",
        )
    ]
    sexes = {
        "slice": "drain known & sex=F",
        "versus": "drain known & sex=M",
        "finding": "pneumothorax",
        "model": "shortcut",
    }
    p = shortcut.row("auroc_gap_explained", **sexes)["p_value"]
    lines += [
        ("shortcut", "shortcut", "AUROC of pneumothorax, women minus men", shortcut("auroc", **sexes)),
        ("shortcut", "shortcut", "the same, drains equally frequent", shortcut("auroc_equalised", **sexes)),
        ("shortcut", "shortcut", "explained by drains", f"{shortcut('auroc_gap_explained', **sexes)}, {p_text(p)}"),
    ]
    return table(("audit", "model", "what", "result"), lines)


def twin_reports(at: Path) -> str:
    rows = Rows(at / "runs/reports", "reports")
    lines = []
    for model in ("faithful", "mostly_men", "mostly_women", "collapsed"):
        groups = {"slice": "sex=F", "versus": "sex=M", "model": model, "strategy": "greedy"}
        count, of, chance = (
            rows.row(metric, **groups)["value"] for metric in ("erasure", "n_associated", "erasure.chance")
        )
        whole = {"model": model, "strategy": "greedy"}
        different = rows.row("n_templates", **whole)["value"]
        lines.append(
            (f"`{model}`", rows("rougeL", **whole), f"{different:,.0f}", f"{count:.0f} of {of:.0f}", f"{chance:.2f}")
        )
    return table(("model", "ROUGE-L", "different reports", "words erased", "by chance"), lines)


CONTEXT_AS_MODEL = """\
import polars as pl

rows = pl.read_parquet("runs/nih/predictions.parquet")
context = rows.with_columns(prob="pretest", model=pl.lit("context")).drop("logit")
context.write_parquet("context.parquet")
"""
SIMULATED = "python -m cxrhf.twin mimic twin --patients 1000 --no-pixels --models"

STEPS = {
    "nih": Step(
        ("cxrhf audit examples/nih_predictions.csv.gz --pretest from:age,sex,view,prior_labels --out runs/nih",),
        (nih_headline, nih_context, nih_enough, nih_subgroups, nih_gaps),
    ),
    "compare": Step(
        (
            CONTEXT_AS_MODEL,
            "cxrhf audit examples/nih_predictions.csv.gz context.parquet --only overview,compare --out runs/compared",
        ),
        (nih_compared,),
        after="nih",
    ),
    "selfcheck": Step(("cxrhf selfcheck",), (selfcheck,)),
    "build": Step(("cxrhf build synthetic --out data/twin --n-patients 1000 --size 64",), (twin_build,)),
    "context": Step(
        ("cxrhf context fit data/twin --out runs/context --features words",), (twin_context,), after="build"
    ),
    "train": Step(
        (
            "cxrhf build synthetic --out data/images --n-patients 1000 --size 64 --configuration images",
            "cxrhf train data/images --config quick --out runs/quick",
            "cxrhf predict runs/quick",
            "cxrhf audit runs/quick --only overview",
        ),
        (twin_train,),
    ),
    "push": Step(("cxrhf push model runs/quick --to USER/quick --dry-run",), (twin_push,), after="train"),
    "calibrate": Step(
        (
            "cxrhf train data/images --config quick --class-weights balanced --out runs/weighted",
            "cxrhf predict runs/weighted",
            "cxrhf audit runs/weighted --only overview --out runs/before",
            "cxrhf calibrate runs/weighted --method platt",
            "cxrhf audit runs/weighted --only overview --out runs/after",
        ),
        (twin_calibrate,),
        after="train",
    ),
    "representations": Step(
        (
            SIMULATED,
            "cxrhf audit twin/models/predictions.parquet --embeddings twin/models/embeddings.parquet "
            "--attributes twin/models/attributes.parquet --findings atelectasis,pneumothorax "
            "--only overview,encoding,slices,shortcut --primary shortcut:drain:pneumothorax --out runs/learned",
        ),
        (twin_learned,),
    ),
    "reports": Step(
        ("cxrhf audit twin/models/generations.parquet --only reports,decoding --out runs/reports",),
        (twin_reports,),
        after="representations",
    ),
}


def key(result: Callable[[Path], str]) -> str:
    """The name of a result in the pages."""
    return result.__name__.replace("_", "-")


def chain(name: str) -> list[str]:
    """The steps up to this one."""
    step = STEPS[name]
    return [*(chain(step.after) if step.after else []), name]


def digests() -> dict[str, str]:
    """Result -> digest of what it is made from."""
    data = hashlib.sha256(INPUT.read_bytes()).hexdigest()
    made = {}
    for name, step in STEPS.items():
        commands = [command for each in chain(name) for command in STEPS[each].commands]
        for result in step.results:
            whole = "\n".join([data, *commands, inspect.getsource(result)])
            made[key(result)] = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return made


def run(command: str, at: Path) -> None:
    """A command of cxrhf or python, or lines of Python."""
    words = (
        shlex.split(command, comments=True) if command.startswith(("cxrhf ", "python ")) else ["python", "-c", command]
    )
    words = [sys.executable, *(["-m", "cxrhf"] if words[0] == "cxrhf" else []), *words[1:]]
    with (at / "printed.txt").open("w") as out:
        subprocess.run(words, cwd=at, check=True, stdout=out, env=os.environ | {"PYTHONPATH": str(ROOT)})


def write(result: str, digest: str, text: str) -> None:
    """Put a result into the page that has its place."""
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        block = f"<!-- made by make results: {result} {digest} -->\n{text}\n<!-- end -->"
        new = RESULT.sub(lambda found: block if found[1] == result else found[0], old)  # noqa: B023
        if new != old:
            page.write_text(new, encoding="utf-8")


def main(names: Sequence[str]) -> None:
    made = digests()
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        (at / "examples").symlink_to(ROOT / "examples")
        for name in dict.fromkeys(step for wanted in names or STEPS for step in chain(wanted)):
            for command in STEPS[name].commands:
                run(command, at)
            for result in STEPS[name].results:
                write(key(result), made[key(result)], result(at))


if __name__ == "__main__":
    main(sys.argv[1:])
