"""Commands that are printed, in help and in errors, are valid as they stand: verb, flags, values."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cxrhf
from cxrhf import cli
from cxrhf.cli import flags, where_curves_are
from cxrhf.cli.completion import commands
from cxrhf.errors import CxrhfError
from cxrhf.hub.connection import HubError
from cxrhf.hub.model import model_artefact
from cxrhf.hub.settings import PushModelConfig
from cxrhf.models.train_run import TrainedRun
from tests.refusals import refused

PACKAGE = Path(cxrhf.__file__).parent


class Parsed(BaseException):
    """A command was understood; it is not run."""


@pytest.fixture
def only_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = flags.parse

    def understood(*args: Any, **named: Any) -> None:
        parse(*args, **named)
        raise Parsed

    monkeypatch.setattr(flags, "parse", understood)


def _examples() -> Iterator[str]:
    """`  cxrhf train data/twin --config quick      words` of all helps, also under accelerate and torchrun."""
    texts = [cli.HELP]
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = _text(node)
            if text and "\nexamples:\n" in text:
                texts.append(text)
    for text in texts:
        for line in text.partition("\nexamples:\n")[2].splitlines():
            found = re.match(r"  (?:(?:accelerate launch|torchrun) .*?-m cxrhf\.models\.|cxrhf )(.*?)(?:  .*)?$", line)
            if found:
                yield found[1].partition(" | ")[0].partition(" > ")[0].replace("USER", "tester")


def test_every_example_of_every_help_is_valid(only_parse: None) -> None:
    examples = list(dict.fromkeys(_examples()))
    assert len(examples) > 60
    for example in examples:
        with pytest.raises(Parsed):
            raise AssertionError((example, cli.main([*shlex.split(example), "--debug"])))


def _text(node: ast.AST) -> str | None:
    """A text of the source, VALUE where one is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
    return None


def _printed() -> Iterator[tuple[str, str]]:
    """Place and words of every `cxrhf VERB ... --flag` in the texts of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"cxrhf [a-z ]+[^\n]* -", source):
            continue
        tree = ast.parse(source)
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in inside or not (text := _text(node)):
                continue
            for found in re.finditer(r"\bcxrhf ((?:(?:context|push) )?[a-z]+)((?: [^\s;()`:'\"]+)*)", text):
                words = re.split(r", | or ", found[1] + found[2])[0]
                yield f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}", words


def test_every_flag_of_a_printed_command_exists() -> None:
    known = {command.words: {name for flag in command.flags for name in flag.names} for command in commands()}
    seen = 0
    for place, words in _printed():
        verb = next((each for each in known if tuple(words.split()[: len(each)]) == each), None)
        for flag in re.findall(r"(?<= )--?[a-z][a-z-]*", words) if verb else []:
            seen += 1
            assert flag in known[verb], f"{place}: cxrhf {words}"  # type: ignore[index]
    assert seen > 100


WRONG = """
    audit | report | report a b | report a --out x | report --diff a b --cards c | push metric | push model a |
    push dataset a | push model | generate | generate model | train | train nowhere | finetune nowhere |
    predict nowhere | embed nowhere | calibrate nowhere | probe nowhere | zeroshot nowhere | score nowhere |
    context fit nowhere | context predict nowhere | context explain nowhere | audit nowhere | build chexpert |
    doctor chexpert | audit full | report full | predict full | train full | push model full --to u/n --dry-run |
    push dataset full --to u/n --dry-run | score full | generate full --build full | context explain full |
    audit words --only overview | push model words --to u/n --dry-run | push model writer --to u/n --dry-run |
    generate writer
"""


@pytest.mark.parametrize("words", [" ".join(each.split()) for each in WRONG.split("|")])
def test_the_next_step_of_an_error_can_be_typed(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("full", "words", "writer/adapter"):
        Path(name).mkdir(parents=True)
    Path("full/other.txt").write_text("x")
    Path("words/generations.parquet").write_text("x")
    with refused(CxrhfError) as refusal:
        cli.main([*shlex.split(words), "--debug"])
    said = refusal.error.next_step or ""
    parse = flags.parse

    def understood(*args: Any, **named: Any) -> None:
        parse(*args, **named)
        raise Parsed

    monkeypatch.setattr(flags, "parse", understood)
    for found in re.finditer(r"\bcxrhf ((?:(?:context|push) )?[a-z]+(?: [^\s;(]+)*)", said):
        typed = re.split(r", | or | then |; ", found[1])[0]
        if typed.split()[0] not in cli.VERBS or re.search(r" (?:made|makes|explains|lists|says)\b", typed):
            continue
        typed = typed.replace("DATASET", "synthetic")
        typed = re.sub(r"\b(?:USER/NAME|USER)\b", "tester/name" if "USER/" in typed else "tester", typed)
        with pytest.raises((Parsed, SystemExit)):
            raise AssertionError((said, cli.main([*shlex.split(typed), "--debug"])))


def _adapter(folder: Path) -> None:
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    about = {"name": "writer", "base": {"source": "x"}, "learned_from": {"dataset": "synthetic"}}
    (folder / "adapter" / "cxrhf.json").write_text(json.dumps(about))


def test_a_writer_is_audited_by_its_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cxrhf audit` of a run of cxrhf finetune cannot work: it has nothing that can be audited."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cxrhf.hub.model.seen", lambda *_: None)
    monkeypatch.setattr("cxrhf.hub.model.check_allowed", lambda *_, **__: None)
    _adapter(Path("my writer"))
    with refused(HubError, fix="cxrhf generate 'my writer' --build BUILD --out 'my writer-reports'") as refusal:
        model_artefact(PushModelConfig("my writer", to="tester/x"))
    assert "cxrhf audit 'my writer-reports'" in str(refusal.error.next_step)
    assert "--results 'my writer-reports'" in str(refusal.error.next_step)


def test_of_a_run_of_reports_the_writer_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _adapter(Path("writer"))
    Path("words").mkdir()
    Path("words/generations.parquet").write_text("x")
    with refused(HubError, fix="cxrhf push model WRITER --results words --to USER/NAME"):
        model_artefact(PushModelConfig("words", to="tester/x"))
    Path("words/run.json").write_text(json.dumps({"config": {"source": "writer"}}))
    with refused(HubError, fix="cxrhf push model writer --results words --to USER/NAME"):
        model_artefact(PushModelConfig("words", to="tester/x"))


def test_a_training_ends_with_where_its_curves_are(tmp_path: Path) -> None:
    done = TrainedRun(tmp_path, "net", (0,), [], {})
    assert where_curves_are(done) == []
    (tmp_path / "history-0.jsonl").write_text("")
    (line,) = where_curves_are(done)
    assert str(tmp_path / "history-0.jsonl") in line
    assert "--tracker tensorboard" in line
    assert where_curves_are(replace(done, curves="curves: tensorboard --logdir runs/x/cxrhf")) == []
