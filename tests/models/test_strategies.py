"""Names and YAML files become ways of decoding with every setting written out, or an error that says which."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from cxrhf.errors import ConfigError
from cxrhf.models.strategies import BUILT_IN, Strategy, find_strategies, read_strategies
from tests.refusals import refused


def test_the_six_of_the_paper() -> None:
    made = {each.name: each for each in find_strategies("all")}
    drawn = {name: (each.temperature, each.top_k, each.top_p) for name, each in made.items() if each.do_sample}
    assert drawn == {
        "conservative": (0.3, 0, 0.95), "rich": (0.7, 0, 0.95), "top_k": (1.0, 50, 1.0), "top_p": (1.0, 0, 0.9),
    }  # fmt: skip
    assert (made["greedy"].num_beams, made["beam"].num_beams) == (1, 4)
    assert {each.max_new_tokens for each in made.values()} == {512}


def test_names_come_once_and_in_order() -> None:
    assert [each.name for each in find_strategies(("rich,greedy", "rich"))] == ["rich", "greedy"]
    assert find_strategies("greedy", max_new_tokens=9)[0].max_new_tokens == 9
    assert BUILT_IN["greedy"].max_new_tokens == 512


def test_an_unknown_name_says_which_there_are() -> None:
    with refused(ConfigError, "beam, conservative, rich, top_k, top_p", fix="did you mean 'greedy'"):
        find_strategies("greeedy")
    with refused(ConfigError, "--strategies", got="nothing"):
        find_strategies("")


@pytest.mark.parametrize(
    "text",
    [
        "warm: {do_sample: true, temperature: 1.2}\ncool: {do_sample: true, temperature: 0.1}",
        "- {name: warm, do_sample: true, temperature: 1.2}\n- {name: cool, do_sample: true, temperature: 0.1}",
    ],
)
def test_yaml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    made = find_strategies(f"greedy,{path}")
    assert [each.name for each in made] == ["greedy", "warm", "cool"]
    assert made[1] == Strategy("warm", do_sample=True, temperature=1.2)


def test_one_strategy_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("name: wide\nnum_beams: 8\nlength_penalty: 2\nmax_new_tokens: 64\n")
    assert read_strategies(path) == [Strategy("wide", num_beams=8, length_penalty=2.0, max_new_tokens=64)]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("name: a\ntemprature: 0.5", ("did you mean 'temperature'?",)),
        ("name: a\ntemperature: 0.5", ("temperature", "`do_sample: true`")),
        ("name: a\nlength_penalty: 2.0", ("length_penalty", "num_beams")),
        ("name: a\ndo_sample: 1", ("do_sample",)),
        ("name: a\ndo_sample: true\ntop_p: 0", ("top_p",)),
        ("name: a\ndo_sample: true\nnum_beams: 4", ("either do_sample or num_beams > 1",)),
        ("do_sample: true", ("mine.yaml", "`name: mine`")),
        ("name: greedy\nnum_beams: 2", ("mine.yaml", '"greedy"', "rename")),
        ("name: reference", ("reference", "another name")),
        ("- {name: a}\n- {name: a, num_beams: 2}", ("mine.yaml", '"a"', "rename")),
        ("[]", ("mine.yaml", "`key: value`")),
        ("just words", ("mine.yaml", "`key: value`")),
        ("a: [", ("mine.yaml", "YAML")),
        ("name: 'a,b'", ("name of a strategy", "'a,b'")),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, facts: tuple[str, ...]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with refused(ConfigError, *facts):
        read_strategies(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "warm.yaml").write_text("name: warm")
    with refused(ConfigError, fix="did you mean 'warm.yaml'"):
        find_strategies(str(tmp_path / "wram.yaml"))


def test_two_of_one_name_differ(tmp_path: Path) -> None:
    for at, beams in enumerate((2, 3)):
        (tmp_path / f"{at}.yaml").write_text(f"name: wide\nnum_beams: {beams}")
    with refused(ConfigError, "wide", fix="rename"):
        find_strategies([str(tmp_path / "0.yaml"), str(tmp_path / "1.yaml")])


def test_settings_leave_out_only_the_name() -> None:
    each = BUILT_IN["rich"]
    assert {"name": "rich", **each.settings()} == asdict(each)
