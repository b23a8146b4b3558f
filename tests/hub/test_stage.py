"""Staging: a copy that loads without cxrhf and gives the same bits; what is refused, and how it is said."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cxrhf import __version__
from cxrhf.errors import CxrhfError
from cxrhf.hub import metric as stage_files
from cxrhf.hub.metric import StageError, find_folder, main, relative_imports, seen_by_evaluate, stage, widget_imports
from cxrhf.paths import metric_path, shipped
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
NAME = "context_gap"

# A real module with every kind of import: of a file, of the package, several lines, inside a function; `matching` needs
# `matching_apart` only inside a function of its own.
SCRIPT = '''"""How much of an AUROC goes when context is held equal."""

import datasets
import evaluate

from cxrhf.metrics import InputError as Refused, auroc
from cxrhf.metrics.matching import (
    match_pairs,  # pairs of different patients
    matched_auroc,
)

_DESCRIPTION = """
Quoted text is no import:
from cxrhf.metrics.language import tokenize
"""


def brier(y):
    """A name that the script has for itself, here: → the mean."""
    return sum(y) / len(y)


class ContextGap(evaluate.Metric):
    """Plain less matched AUROC."""

    def _info(self):
        single = {name: datasets.Value("float64") for name in ("predictions", "references", "context")}
        features = datasets.Features(single | {"clusters": datasets.Value("string")})
        return evaluate.MetricInfo(
            description=_DESCRIPTION, citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references, context, clusters, n_resamples=0, seed=0):
        from cxrhf.metrics.intervals import count_units, interval
        from cxrhf.metrics.resample import bootstrap, draw

        if len(predictions) < 2:
            raise Refused("predictions are too few")
        plain, matched = auroc(references, predictions), matched_auroc(references, predictions, context)
        pairs = match_pairs(references, context, clusters=clusters)
        draws = draw(clusters, y=references, n_resamples=n_resamples, seed=seed)
        out = {"context_gap": plain - matched, "pairs": float(sum(pairs.negatives)), "prevalence": brier(references)}
        for metric, value, extra in (("auroc", plain, {}), ("matched_auroc", matched, {"pretest": context})):
            replicates = bootstrap(metric, references, predictions, draws=draws, **extra)
            found = interval(value, replicates, units=count_units(references, clusters), metric=metric)
            out |= {f"{metric}_low": found.low, f"{metric}_high": found.high, f"{metric}_mean": replicates.mean()}
        return out
'''

APP = '"""The page."""\n\nfrom pathlib import Path\n\nimport gradio\n\nprint(Path, gradio.__version__)\n'
CARD = """---
title: Context gap
sdk: gradio
sdk_version: 6.31.0
app_file: app.py
tags:
- evaluate
- metric
---

# Context gap
"""

WITHOUT_TRANSFORMERS = (ROOT / "tests" / "without_transformers.py").read_text(encoding="utf-8")
# The same computation with the repository's module and with the copy; run where cxrhf can and cannot be imported.
RUN = """
import json, sys

script, blocked = sys.argv[1], sys.argv[2] == "blocked"
if blocked:

    class NoCxrhf:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "cxrhf":
                raise ImportError(f"{name} is not here")

    sys.meta_path.insert(0, NoCxrhf())
    try:
        import cxrhf
    except ImportError:
        pass
    else:
        raise SystemExit("cxrhf is here")
import evaluate
import numpy as np
from evaluate.loading import get_imports

rng = np.random.default_rng(7)
context = rng.beta(1, 3, 300)
references = (rng.random(300) < context).astype(float)
predictions = np.round(context + rng.normal(0, 0.3, 300) + 0.3 * references, 2)
clusters = [f"p{k}" for k in rng.integers(0, 120, 300)]
metric = evaluate.load(script)
out = metric.compute(predictions=predictions, references=references, context=context, clusters=clusters, n_resamples=64)
try:
    metric.compute(predictions=[0.5], references=[1.0], context=[0.5], clusters=["a"])
except ValueError as error:
    said = f"{type(error).__name__}: {error}"
fetched = [name for kind, name, *_ in get_imports(script) if kind == "internal"]
print(json.dumps([{key: float(value).hex() for key, value in out.items()}, said, fetched, "cxrhf" in sys.modules]))
"""


def write_module(folder: Path, script: str = SCRIPT, app: str = APP, card: str = CARD) -> Path:
    folder.mkdir(parents=True)
    (folder / f"{folder.name}.py").write_text(script, encoding="utf-8")
    (folder / "app.py").write_text(app, encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_module(tmp_path / "metrics" / NAME)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("staged")
    return stage(write_module(base / "source" / NAME), base / NAME).path


def answers_of(staged: Path) -> list[list[Any]]:
    """What the repository's module and the copy answer, each in its own process."""
    base = staged.parent
    (base / "elsewhere").mkdir()
    running = []
    for script, how in ((base / "source" / NAME / f"{NAME}.py", "repository"), (staged / f"{NAME}.py", "blocked")):
        env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HF_ENDPOINT")}
        env |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(base / f"home-{how}")}
        env |= {"PYTHONPATH": str(ROOT)} if how == "repository" else {}
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", WITHOUT_TRANSFORMERS + RUN, str(script), how],
                env=env,
                cwd=base / "elsewhere",
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    answers = []
    try:
        for process in running:
            out, err = process.communicate(timeout=400)
            assert process.returncode == 0, err
            answers.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in running:
            process.kill()
    return answers


@pytest.mark.slow
def test_the_copy_gives_the_same_bits_without_cxrhf(staged: Path) -> None:
    # One test, not two: each process compiles its kernels anew.
    (here, said_here, _, _), (there, said_there, fetched, loaded) = answers_of(staged)
    assert here == there
    assert set(here) > {"context_gap", "pairs", "matched_auroc_low"}
    assert not [key for key, value in here.items() if value == "nan"]
    assert said_here == said_there == "InputError: predictions are too few"
    assert not loaded
    beside = {path.stem for path in staged.glob("*.py")} - {NAME, "app"}
    assert sorted(fetched) == sorted(beside)  # by evaluate's own reading of the script
    assert seen_by_evaluate((staged / f"{NAME}.py").read_text(), "script") == beside


def test_the_files_that_are_needed_and_no_others(staged: Path) -> None:
    beside = {path.stem for path in staged.glob("*.py")}
    assert beside > {"matching", "resample", "intervals", "compiled", "checks"}
    assert not beside & {"language", "words", "metrics", "__init__", "widget"}


def test_only_imports_and_the_first_line_differ(staged: Path) -> None:
    for path in staged.glob("*.py"):
        origin, copy = path.read_text().split("\n", 1)
        found = re.fullmatch(rf"# Generated from cxrhf {re.escape(__version__)}, (\S+\.py): edit it there\.", origin)
        assert found, origin
        if not found.group(1).startswith("cxrhf/metrics/"):
            continue
        before, after = (ROOT / found.group(1)).read_text(), ast.parse(copy)
        assert ast.get_docstring(after) == ast.get_docstring(ast.parse(before))
        assert copy.replace("from .", "from cxrhf.metrics.") == before
    script = (staged / f"{NAME}.py").read_text()
    assert "    from .resample import bootstrap, draw\n" in script
    assert "\nfrom .checks import InputError as Refused\nfrom .ranking import auroc\n" in script
    assert "from .matching import (\n    match_pairs,  # pairs of different patients\n" in script
    assert "\nfrom cxrhf.metrics.language import tokenize\n" in script  # inside quotes: not an import
    assert "import brier\n" not in script  # the script has a function of that name
    assert "→ the mean" in script


def test_the_script_of_a_copy_is_lint_free(staged: Path) -> None:
    words = ["check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), str(staged / f"{NAME}.py")]
    done = subprocess.run([sys.executable, "-m", "ruff", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_other_files(staged: Path) -> None:
    lines = (staged / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "datasets>=4.0",
        "evaluate>=0.4.6",
        "numba>=0.61",
        "numpy>=2.0",
        "scipy>=1.14",
    ]
    assert (staged / "README.md").read_text() == CARD
    assert (staged / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    marker = json.loads((staged / ".staged.json").read_text())
    assert (marker["name"], marker["version"]) == (NAME, __version__)
    assert set(marker["sha256"]) == {path.name for path in staged.iterdir()} - {".staged.json"}


@pytest.mark.parametrize("name", shipped("metrics"))
def test_every_module_of_the_repository_can_be_staged(name: str, tmp_path: Path) -> None:
    script = Path(metric_path(name), f"{name}.py").read_text(encoding="utf-8")
    done = stage(write_module(tmp_path / "source" / name, script), tmp_path / name)
    python = {file: (done.path / file).read_text() for file in done.files if file.endswith(".py")}
    for file, text in python.items():
        assert not any(each == "cxrhf" for each in stage_files._libraries(text)), file
    assert seen_by_evaluate(python[f"{name}.py"], name) == {Path(file).stem for file in python} - {name, "app"}


# --- what is refused


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("import cxrhf.metrics.matching", ["line 7", "`import cxrhf.metrics.matching`"]),
        ("import numpy, cxrhf", ["`import cxrhf`"]),
        ("from cxrhf import metrics", ["cxrhf", "a file of cxrhf.metrics"]),
        ("from cxrhf.metrics import matching", ['"matching"', "from cxrhf.metrics.<file>"]),
        ("from cxrhf.metrics import matched_auorc", ["did you mean 'matched_auroc'?"]),
        ("from cxrhf.metrics.matchin import match_pairs", ["did you mean 'matching'?"]),
        ("from cxrhf.metrics.nothing import f", ["cxrhf/metrics/nothing.py"]),
        ("from cxrhf.schema import RESULT", ["cxrhf.schema"]),
        ("from cxrhf.metrics.matching import *", ["from cxrhf.metrics.matching import *"]),
        ("from .helper import f", ["relative import"]),
        ("from cxrhf . metrics . ranking import auroc", ["cxrhf . metrics . ranking"]),
        ("def f():\n    return __import__('cxrhf.metrics')", ["line 8", "__import__()"]),
        ("from cxrhf.metrics.ranking import auroc  # why", ["line 7", "comment"]),
        ("from cxrhf.metrics.ranking import (  # why\n    auroc,\n)", ["put the comment on the line above"]),
        ('X = \'"""\'', ['keep imports at the top, and """ in pairs above them']),
        ("X = '''\nfrom .nowhere import f\n'''", ["evaluate", "nowhere"]),
        ("import pandas", ["context_gap.py", "pandas"]),
        ("import (", ["line 7", "Python"]),
    ],
)
def test_scripts_that_cannot_be_staged(line: str, facts: list[str], tmp_path: Path) -> None:
    folder = write_module(tmp_path / NAME, SCRIPT.replace("import evaluate\n\n", f"import evaluate\n\n\n{line}\n", 1))
    with refused(StageError, *facts):
        stage(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_module_may_not_be_called_like_a_file_it_needs(tmp_path: Path) -> None:
    folder = write_module(tmp_path / "source" / "matching")
    with refused(StageError, "matching.py"):
        stage(folder, tmp_path / "matching")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: Context gap\n", "", "lacks title"),
        ("sdk: gradio", "sdk: docker", "lacks sdk: gradio"),
        ("sdk_version: 6.31.0\napp_file: app.py\n", "", "lacks sdk_version, app_file: app.py"),
        ("- metric\n", "", "lacks tag metric"),
        ("tags:\n- evaluate\n- metric\n", "", "lacks tag evaluate, tag metric"),
        ("tags:\n- evaluate\n- metric\n", "tags: evaluate, metric\n", "lacks tag evaluate, tag metric"),
        ("---\ntitle", "title", "lacks title, sdk_version, sdk: gradio"),
        ("title: Context", "title: a: b", "YAML"),
    ],
)
def test_a_card_that_lacks_something(old: str, new: str, said: str, tmp_path: Path) -> None:
    folder = write_module(tmp_path / NAME, card=CARD.replace(old, new))
    with refused(StageError, said):
        stage(folder, tmp_path / "out")


@pytest.mark.parametrize("file", ["app.py", "README.md", f"{NAME}.py"])
def test_a_folder_that_lacks_a_file(file: str, source: Path, tmp_path: Path) -> None:
    (source / file).unlink()
    with pytest.raises(StageError, match=f"has no {file}"):
        stage(source, tmp_path / "out")


# --- the page


def test_the_widget_goes_along(tmp_path: Path) -> None:
    app = '"""The page."""\n\nfrom cxrhf.hub.widget import metric_app\n\nprint(metric_app)\n'
    done = stage(write_module(tmp_path / "source" / NAME, app=app), tmp_path / "out")
    assert "\nfrom widget import metric_app\n" in (done.path / "app.py").read_text()
    for path in (ROOT / "cxrhf/hub").glob("widget*.py"):
        copy = (done.path / path.name).read_text().split("\n", 1)[1]
        assert copy == path.read_text().replace("from cxrhf.hub.widget_", "from widget_")
    assert not any("widget" in file for file in seen_by_evaluate((done.path / f"{NAME}.py").read_text(), NAME))
    assert "gradio" not in (done.path / "requirements.txt").read_text()


def test_nothing_else_of_cxrhf_goes_into_a_space() -> None:
    with refused(StageError, "app.py, line 2", "cxrhf.schema", "cxrhf.hub.widget"):
        widget_imports("from cxrhf.hub.widget import metric_app\nfrom cxrhf.schema import RESULT\n", "app.py")
    with refused(StageError, "widget.py, line 2", "cxrhf.errors"):
        widget_imports("def f():\n    from cxrhf.errors import CxrhfError\n    return CxrhfError\n", "widget.py")


# --- imports and requirements, small


def test_imports_are_rewritten_in_place() -> None:
    before = (
        'if x: é = "é"; from cxrhf.metrics import InputError, auroc as a; y = 1\n\tfrom cxrhf.metrics import tokenize\n'
    )
    before = before.replace("\n\t", "\nif x:\n\t")
    after = relative_imports(before, "m.py")
    assert after[0] == (
        'if x: é = "é"; from .checks import InputError; from .ranking import auroc as a; y = 1\n'
        "if x:\n\tfrom .language import tokenize\n"
    )
    assert after[1] == {"checks", "ranking", "language"}


def test_requirements_come_from_the_imports() -> None:
    app = "import gradio\nimport helper\nimport json\ndef f():\n    from sklearn.svm import SVC\n"
    assert stage_files.requirements({"app.py": app, "helper.py": "from .x import numpy\n"}) == ["scikit-learn>=1.6"]
    for line in stage_files._declared().values():
        assert re.fullmatch(r"[\w.-]+[<>=!~][\w.,<>=!~ *]+", line)
        assert not line.startswith("cxrhf")


# --- the place


def test_staging_again_gives_the_same(source: Path, tmp_path: Path) -> None:
    first = stage(source, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in first.path.iterdir()}
    (first.path / "resample.py").unlink()
    (first.path / "__pycache__").mkdir()
    (first.path / "__pycache__" / "x.pyc").write_bytes(b"")
    assert stage(str(source), str(tmp_path / "out")) == first
    assert {path.name: path.read_bytes() for path in first.path.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics", "out"]
    assert first.path.stat().st_mode == source.stat().st_mode


def test_edited_files_are_not_lost(source: Path, tmp_path: Path) -> None:
    out = stage(source, tmp_path / "out").path
    (out / "matching.py").write_text("# mine\n")
    with refused(StageError, str(out), "matching.py", fix="--force"):
        stage(source, out)
    assert (out / "matching.py").read_text() == "# mine\n"
    stage(source, out, force=True)
    assert "# mine" not in (out / "matching.py").read_text()
    (out / "notes").mkdir()
    (out / "notes" / "mine.txt").write_text("mine")
    for force in (False, True):
        with refused(StageError, "notes/mine.txt", fix="move them"):
            stage(source, out, force=force)
    assert (out / "notes" / "mine.txt").read_text() == "mine"


def test_places_that_are_taken(source: Path, tmp_path: Path) -> None:
    for inside in (source, source / "copy"):
        with refused(StageError, "inside the source"):
            stage(source, inside)
    for force in (False, True):
        with refused(StageError, "not empty"):
            stage(source, tmp_path / "metrics", force=force)
    (tmp_path / "file").write_text("")
    with refused(StageError, str(tmp_path / "file"), "a file"):
        stage(source, tmp_path / "file")
    with refused(CxrhfError, str(tmp_path / "file" / "out")):
        stage(source, tmp_path / "file" / "out")
    (tmp_path / "empty").mkdir()
    out = stage(source, tmp_path / "empty").path
    with refused(StageError, "context_gap", "other"):
        stage(write_module(tmp_path / "metrics" / "other"), out, force=True)
    (out / ".staged.json").write_text("[]")
    with refused(StageError, ".staged.json"):
        stage(source, out)


def test_a_source_that_broke_leaves_the_earlier_copy(source: Path, tmp_path: Path) -> None:
    out = stage(source, tmp_path / "out").path
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (source / f"{NAME}.py").write_text(SCRIPT + "\nfrom cxrhf import schema\n")
    with pytest.raises(StageError):
        stage(source, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics", "out"]


def test_folders_by_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(StageError, fix="did you mean 'context_gap'?"):
        stage(source.with_name("contextgap"), tmp_path / "out")
    with refused(CxrhfError, fix="did you mean 'weighted_auroc'?"):
        stage("weighted_auorc", tmp_path / "out")
    assert find_folder("weighted_auroc") == ROOT / "metrics" / "weighted_auroc"
    assert find_folder(source / f"{NAME}.py") == source
    with refused(StageError, "staged copy"):
        stage(stage(source, tmp_path / NAME).path, tmp_path / "again")
    # A copy in the current folder does not hide the module of its name.
    monkeypatch.chdir(tmp_path)
    stage(write_module(tmp_path / "metrics" / "cad"), "weighted_auroc")
    assert find_folder("weighted_auroc") == ROOT / "metrics" / "weighted_auroc"


# --- command line


def test_one_folder_and_several(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source / "notes.txt").write_text("for ourselves")
    assert main([str(source), str(tmp_path / "one")]) == 0
    out = capsys.readouterr().out
    assert f'evaluate.load("{tmp_path / "one" / NAME}.py")' in out
    assert "notes.txt" in out
    write_module(tmp_path / "metrics" / "other")
    (tmp_path / "metrics" / "README.md").write_text("# Modules\n")
    given = sorted(str(path) for path in (tmp_path / "metrics").iterdir())  # as the shell's metrics/*
    assert main([*given, str(tmp_path / "many")]) == 0
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == [NAME, "other"]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for words in ("loads without cxrhf", "examples:", "--all staged", "--force", "Edit the repository"):
        assert words in out


def test_errors_are_one_line(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(source), str(source / "copy")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for words in (["out"], ["--all", str(source), "out"], []):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2
