"""What is typed after a verb, and what a YAML file or a notebook gives in its place: read by one rule, refused in one
line."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from cxrhf import cli
from cxrhf.cli.completion import _configs, commands
from cxrhf.cli.flags import parse
from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models.settings import TrainConfig
from cxrhf.settings import AuditConfig, from_mapping, load_mapping
from tests.refusals import refused


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("train b --epochs two", ["--epochs: ", "whole number", "'two'"]),
        ("train b --epochs 1.5", ["--epochs: ", "whole number", "1.5"]),
        ("train b --learning-rate nan", ["--learning-rate: ", "finite number", "nan"]),
        ("train b --lr 3", ["cxrhf train", "--lr", "'--learning-rate'?"]),
        ("train b --bs=3", ["'--batch-size'?"]),
        ("finetune b --lora_r 3", ["'--lora-rank'?"]),
        ("finetune b --rank 3", ["'--lora-rank'?"]),
        ("finetune b --group-by-length", ["'--no-group-by-length'?"]),
        ("train b --zzz 3", ["--zzz", "cxrhf train --help"]),
        ("train b --epochs", ["--epochs needs a value"]),
        ("train b --epochs --freeze", ["--epochs needs a value"]),
        ("train b --findings --freeze", ["--findings needs a value"]),
        ("train b --freeze=yes", ["--freeze takes no value"]),
        ("train b c", ["got c"]),
        ("train", ["BUILD is missing", "cxrhf train BUILD"]),
        ("train --config quick", ["BUILD is missing"]),
        ("train --findings edema nowhere", ["nowhere"]),
        ("audit \udcff.csv", ["UTF-8", r"got \udcff.csv"]),
        ("completion", ["cxrhf completion bash"]),
        ("train b --findings ''", ["--findings is empty"]),
        ("train b --findings ,", ["--findings is empty"]),
        ("train b --out ''", ["--out is empty"]),
        ("audit ''", ["PREDICTIONS is empty"]),
        ("audit x.csv --config quick", ["quick: ", "key"]),
        ("train b --config tiny_qwen", ["recipes of cxrhf train: context_densenet,"]),
    ],
)  # fmt: skip
def test_wrong_words_are_refused_in_one_line(line: str, facts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["" if word == "''" else word for word in line.split()]
    assert cli.main(words) == 2
    got = capsys.readouterr()
    assert got.err.startswith("error: ")
    assert not [each for each in facts if each not in got.err], got.err
    assert got.err.count("\n") == 1
    assert len(got.err) < 400
    assert got.out == ""


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    """YAML 1.1 reads 1e-3 as text; numpy's numbers are not Python's."""
    path = tmp_path / "c.yaml"
    path.write_text("learning_rate: 1e-3\nepochs: 1e1\nseed: 7.0\nfreeze: yes\nmemory: 2\nout: runs/x\n")
    config = from_mapping(TrainConfig, {"build": "b", **load_mapping(str(path))})
    assert (config.learning_rate, config.epochs, config.seed, config.freeze) == (1e-3, 10, 7, True)
    assert [type(each) for each in (config.epochs, config.seed, config.memory)] == [int, int, float]
    of_numpy = {"level": np.float64(0.9), "seed": np.int64(2**60 + 1), "overwrite": np.bool_(True),
                "n_resamples": np.float32(50), "findings": np.array(["Edema", "Mass"]),
                "out": Path("runs") / "x"}  # fmt: skip
    audit = from_mapping(AuditConfig, {"predictions": [Path("a.csv")], **of_numpy})
    assert (audit.level, audit.seed, audit.overwrite, audit.n_resamples) == (0.9, 2**60 + 1, True, 50)
    assert (audit.findings, audit.out, audit.predictions) == (("edema", "mass"), "runs/x", ("a.csv",))
    assert type(audit.seed) is int


@pytest.mark.parametrize(
    "text",
    [
        "seed: .nan", "seed: [1]", "level: .inf", "level: 1e999", "seed: {a: 1}", "findings: {edema: 0.1}",
        "findings: [[edema]]", "findings: [null]", 'out: "\\ud800"', 'findings: ["\\udc80"]', 'out: "a\\0b"',
        "out: 2024-01-02", "out: yes", "overwrite: 1", "seed: yes", "out: ''", "findings: ['']", "1: 2", "null: 2",
        '"\\ud800": 1', "a: " + "[" * 5000, "when: 2024-99-99", "seed: " + "9" * 5000, "seed: !!int x",
        "seed: !!timestamp x", "a: &a [*a]", "seed: &a [*a, *a]", "seed: !!binary AAAA", "? [a]\n: 1", "- 1",
        "seed: !!python/object:os.system x", "seed: 2024-01-01 00:00:00", "\x00",
    ],
)  # fmt: skip
def test_no_recipe_ends_in_something_unexpected(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert cli.main(["audit", "x.csv", "--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert len(said) < 700
    assert "x.csv does not exist" not in said


ODD = [
    None, True, 0, -1, 10**30, 0.5, float("inf"), float("nan"), "", "x", "1e-3", "nan", ",", "=", "a=b", "0-", "5-2",
    "0-99999999", "1/2/3", "nan/1/1", [], [None], [[1]], {"a": 1}, b"x", "\ud800", "a\0b", "race=|", "age=5-1",
    "from:,", "all,all", "%s{}", set(), object(),
]  # fmt: skip


def test_no_setting_of_any_verb_ends_in_something_unexpected() -> None:
    """Every field of every verb's settings, with everything that a YAML file or a notebook may hold."""
    for verb in cli.VERBS:
        for _, kind in _configs(importlib.import_module(f"cxrhf.cli.{verb}")):
            names = [each.name for each in dataclasses.fields(kind)]
            must = {each.name: "x" for each in dataclasses.fields(kind)
                    if each.metadata.get("positional") or each.metadata.get("metavar") == "BUILD"}  # fmt: skip
            for name in names:
                for value in ODD:
                    with contextlib.suppress(CxrhfError):
                        from_mapping(kind, {**must, name: value}, source=name)


def test_a_bomb_of_anchors_is_not_written_out() -> None:
    bomb: list[object] = ["x"] * 10
    for _ in range(30):
        bomb = [bomb] * 10
    with refused(ConfigError, "seed", "whole number") as refusal:
        from_mapping(AuditConfig, {"predictions": "a.csv", "seed": bomb})
    assert len(str(refusal.error)) < 500


def test_a_switch_of_a_recipe_can_be_turned_either_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("overwrite: true\n")
    for flag in ("--overwrite", "--no-overwrite"):
        assert cli.main(["audit", "x.csv", "--config", str(path), flag]) == 2
        assert "x.csv does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_every_help_can_be_read_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    helps = [["--help"], ["push", "--help"], ["context", "--help"], *([*each.words, "--help"] for each in commands())]
    for words in helps:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
        assert cli.main(words) == 0
        text = raw.getvalue().decode(encoding)
        assert "usage: cxrhf" in text
        assert "\N{WORD JOINER}" not in text
        assert "\\u" not in text


def test_lists_are_shown_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", "--help"]) == 0
    assert "(default: validate,test)" in capsys.readouterr().out


def test_many_flags_stand_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """The groups of the config, in its order; every flag in one of them, and `--config` and `--out` before all."""
    for words, kind in (each for verb in cli.VERBS for each in _configs(importlib.import_module(f"cxrhf.cli.{verb}"))):
        assert cli.main([*words, "--help"]) == 0
        boxes = re.split(r"(?m)^ ([a-z, ]+?) *\n -{20,} *$", capsys.readouterr().out)[1:]
        titles, texts = boxes[::2], boxes[1::2]
        own = sorted(dataclasses.fields(kind), key=lambda field: bool(field.kw_only))
        groups = [each.metadata["group"] for each in own if "group" in each.metadata]
        assert titles[-len(groups) - 1 :] == ["options", *(f"{group} options" for group in groups)]
        assert len(groups) == len(set(groups))
        flags = [len(re.findall(r"(?m)^  -", text)) for text in texts]
        assert max(flags) <= 17, words
        assert "--config" in texts[titles.index("options")]


def test_a_flag_of_a_group_beats_the_recipe(tmp_path: Path) -> None:
    parsed = parse(TrainConfig, ["b", "--config", "quick", "--size", "32"], verb="train", about="x\n\ny")
    recipe = load_mapping("quick")
    assert (parsed.size, parsed.backbone, parsed.epochs) == (32, recipe["backbone"], recipe["epochs"])


def test_output_that_its_encoding_lacks_is_written_in_other_letters() -> None:
    from cxrhf.cli import SafeStream

    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    SafeStream(stream).write("0.1–0.2 Δ 模 naïve\n")
    assert raw.getvalue().decode() == "0.1-0.2 delta  \\u6a21 na\\xefve\n"


@pytest.mark.slow
def test_no_flag_is_an_abbreviation_of_one_of_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    """torchrun reads the words of the script too, and refuses what it takes for its own: --n alone."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    refused = set()
    for command in commands():
        for flag in command.flags:
            for name in (each for each in flag.names if each.startswith("--") and each != "--help"):
                try:
                    parser.parse_args(["-m", f"cxrhf.models.{command.words[0]}", "runs/x", name, "1"])
                except SystemExit:
                    refused.add((command.words[0], name))
    assert refused == {("generate", "--n")}
    assert cli.main(["generate", "--help"]) == 0
    assert "Under torchrun --n-images" in " ".join(capsys.readouterr().out.split())
