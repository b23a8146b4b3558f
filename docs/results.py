"""Commands of the task pages -> the tables and figures of their results, written into the pages by `make results`.

A result stands in a page between `<!-- made by make results: NAME DIGEST -->` and `<!-- end -->`. The digest is of
what it was made from: the commands, the input file and the function that writes it. tests/test_docs.py holds it.
`python docs/results.py STEP ...` makes the results of some steps, and runs the steps that they follow.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FIGURES = DOCS / "_results"
INPUT = ROOT / "examples" / "nih_predictions.csv.gz"
RESULT = re.compile(r"<!-- made by make results: (\S+) (\w+) -->\n(.*?)\n<!-- end -->", re.DOTALL)
FOUR = ["cardiomegaly", "pleural_effusion", "pneumothorax", "hernia"]


class Step(NamedTuple):
    """Commands as their page has them, the results they give, and the step that must have run before."""

    commands: tuple[str, ...]
    results: tuple[Callable[[Path], str], ...]
    after: str = ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows])


def figure(path: Path, name: str, what: str) -> str:
    """Copy a figure of a run into the site; `what` it shows is for those who cannot see it."""
    FIGURES.mkdir(exist_ok=True)
    shutil.copyfile(path, FIGURES / f"{name}{path.suffix}")
    return f"![{what}](../_results/{name}{path.suffix})"


def title(finding: str) -> str:
    return "mean over findings" if finding == "macro" else finding.replace("_", " ")


class Rows:
    """RESULT rows of a run: `rows("auroc", finding="edema")` is a value with its interval, as text."""

    def __init__(self, run: Path, audit: str) -> None:
        self.rows = pl.read_parquet(run / "results.parquet").filter(pl.col("audit") == audit)

    def row(self, metric: str, *, versus: str | None = None, slice: str = "all", **where: str) -> dict[str, object]:
        keys = {"metric": metric, "slice": slice, **where}
        found = self.rows.filter(
            pl.col("versus").eq_missing(pl.lit(versus)), *(pl.col(key) == value for key, value in keys.items())
        )
        return found.row(0, named=True) | {"rows": found.height}

    def __call__(self, metric: str, **where: str | None) -> str:
        row = self.row(metric, **where)  # type: ignore[arg-type]
        value, low, high = row["value"], row["ci_low"], row["ci_high"]
        assert isinstance(value, float) and row["rows"] == 1, (metric, where, row["rows"])
        if value != value:
            return "–"
        interval = f" ({low:.2f} to {high:.2f})" if isinstance(low, float) and low == low else ""
        return f"{value:.2f}{interval}"


# NIH ChestX-ray14 and a public reproduction of CheXNet.


def nih_context(at: Path) -> str:
    rows = Rows(at / "runs/nih", "reweighted")
    metrics = ("auroc", "auroc_context", "auroc_att")
    lines = [
        (title(each), f"{rows.row('auroc', finding=each)['n_pos']:,}", *(rows(metric, finding=each) for metric in metrics))
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
    rows = pl.read_parquet(at / "runs/nih/results.parquet").filter(
        pl.col("audit") == "subgroups",
        pl.col("finding") == "pleural_effusion",
        pl.col("metric").is_in(["tpr_balanced", "fpr_balanced"]),
        pl.col("slice").is_in(["sex=F", "sex=M", "view=AP", "view=PA"]),
        pl.col("versus").is_not_null(),
    )
    names = {"tpr_balanced": "sensitivity, balanced", "fpr_balanced": "false alarms, balanced"}
    lines = [
        (
            f"{row['slice']} minus {row['versus']}",
            names[row["metric"]],
            f"{row['value']:.2f} ({row['ci_low']:.2f} to {row['ci_high']:.2f})",
            "below 0.001" if row["p_value"] < 0.001 else f"{row['p_value']:.2f}",
        )
        for row in rows.sort("slice", "metric").iter_rows(named=True)
    ]
    return table(("largest gap", "rate", "difference", "corrected p value"), lines)


def nih_compared(at: Path) -> str:
    rows = pl.read_parquet(at / "runs/compared/results.parquet")
    lines = []
    for finding in [*FOUR, "macro"]:
        of = rows.filter(
            pl.col("finding") == finding, pl.col("slice") == "all", pl.col("metric") == "auroc", pl.col("seed").is_null()
        )
        network, context = (
            of.filter(pl.col("audit") == "overview", pl.col("model") == model)["value"].item()
            for model in ("nih_predictions", "context")
        )
        difference = of.filter(pl.col("audit") == "compare").row(0, named=True)
        p = difference["p_value"]
        lines.append(
            (
                title(finding),
                f"{network:.2f}",
                f"{context:.2f}",
                f"{difference['value']:.2f} ({difference['ci_low']:.2f} to {difference['ci_high']:.2f})",
                "–" if p is None or p != p else "below 0.001" if p < 0.001 else f"{p:.2f}",
            )
        )
    return table(("finding", "network", "context", "difference", "corrected p value"), lines)


CONTEXT_AS_MODEL = """\
import polars as pl

rows = pl.read_parquet("runs/nih/predictions.parquet")
rows.with_columns(prob="pretest", model=pl.lit("context")).drop("logit").write_parquet("context.parquet")
"""

STEPS = {
    "nih": Step(
        ("cxrhf audit examples/nih_predictions.csv.gz --pretest from:age,sex,view,prior_labels --out runs/nih",),
        (nih_context, nih_enough, nih_subgroups, nih_gaps),
    ),
    "compare": Step(
        (
            CONTEXT_AS_MODEL,
            "cxrhf audit examples/nih_predictions.csv.gz context.parquet --only overview,compare --out runs/compared",
        ),
        (nih_compared,),
        after="nih",
    ),
}


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
            made[result.__name__.replace("_", "-")] = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return made


def run(command: str, at: Path) -> None:
    """A command of cxrhf or python, or lines of Python."""
    words = shlex.split(command, comments=True) if command.startswith(("cxrhf ", "python ")) else ["python", "-c", command]
    words = [sys.executable, *(["-m", "cxrhf"] if words[0] == "cxrhf" else []), *words[1:]]
    subprocess.run(words, cwd=at, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


def write(result: str, digest: str, text: str) -> None:
    """Put a result into the page that has its place."""
    for page in DOCS.rglob("*.md"):
        old = page.read_text(encoding="utf-8")
        new = RESULT.sub(
            lambda found: (
                f"<!-- made by make results: {result} {digest} -->\n{text}\n<!-- end -->"
                if found[1] == result
                else found[0]
            ),
            old,
        )
        if new != old:
            page.write_text(new, encoding="utf-8")


def main(names: Sequence[str]) -> None:
    known = digests()
    wanted = list(names) or list(STEPS)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        (at / "examples").symlink_to(ROOT / "examples")
        for name in dict.fromkeys(each for wanted_one in wanted for each in chain(wanted_one)):
            for command in STEPS[name].commands:
                run(command, at)
            for result in STEPS[name].results:
                key = result.__name__.replace("_", "-")
                write(key, known[key], result(at))


if __name__ == "__main__":
    main(sys.argv[1:])
