"""Prompts: every finding has a pair, files are read and refused in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT, MIMIC, NIH, NIH_LONG_TAIL
from cxrhf.models.zeroshot import PROMPTED, Pair, as_mapping, prompts_for, read_prompts, shipped_pair
from tests.refusals import refused


@pytest.mark.parametrize("finding", sorted({*CHEXPERT, *MIMIC, *NIH, *NIH_LONG_TAIL}))
@pytest.mark.parametrize("ensemble", [False, True])
def test_every_finding_has_a_pair(finding: str, ensemble: bool) -> None:
    pair = shipped_pair(finding, ensemble=ensemble)
    assert pair is not None
    for side in (pair.positive, pair.negative):
        assert len(side) == len(set(side)) == (4 if ensemble else 1)
        for text in side:
            assert text == " ".join(text.lower().split())
            assert "{" not in text
            assert "_" not in text
            assert len(text.split()) < 25  # CLIP reads 77 tokens
    assert not set(pair.positive) & set(pair.negative)


def test_no_two_findings_share_a_positive_prompt() -> None:
    texts = [text for name in PROMPTED for text in shipped_pair(name, ensemble=True).positive]  # type: ignore[union-attr]
    assert len(texts) == len(set(texts))


def test_the_words() -> None:
    assert shipped_pair("edema") == Pair(
        ("chest x-ray showing pulmonary edema",), ("chest x-ray with no pulmonary edema",)
    )
    assert shipped_pair("no_finding") == Pair(("normal chest x-ray",), ("abnormal chest x-ray",))
    assert shipped_pair("bone_cyst") is None


def test_findings_in_order_whatever_their_spelling() -> None:
    made = prompts_for(["Effusion", "edema", "pleural_effusion"])
    assert list(made) == ["pleural_effusion", "edema"]
    assert made["edema"] == shipped_pair("edema")
    assert prompts_for(["edema"], ensemble=True)["edema"] == shipped_pair("edema", ensemble=True)


def write(folder: Path, text: str) -> Path:
    file = folder / "prompts.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_goes_first(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
Pleural Effusion:
  positive: [blunted  costophrenic angle, "chest x-ray: effusion"]
  negative: sharp costophrenic angles
bone_cyst: {positive: a bone cyst, negative: intact bones}
mass: {positive: a mass, negative: no mass}
""",
    )
    made = prompts_for(["edema", "bone_cyst", "pleural_effusion"], file=file)  # mass was not asked for
    assert list(made) == ["edema", "bone_cyst", "pleural_effusion"]
    assert made["edema"] == shipped_pair("edema")
    assert made["bone_cyst"] == Pair(("a bone cyst",), ("intact bones",))
    effusion = Pair(("blunted costophrenic angle", "chest x-ray: effusion"), ("sharp costophrenic angles",))
    assert made["pleural_effusion"] == effusion
    assert as_mapping(made)["pleural_effusion"] == {
        "positive": ["blunted costophrenic angle", "chest x-ray: effusion"],
        "negative": ["sharp costophrenic angles"],
    }


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "tasks" / "zeroshot.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    assert set(read_prompts(write(tmp_path, example))) == {"pleural_effusion", "bone_cyst"}


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    import yaml

    made = prompts_for(PROMPTED, ensemble=True)
    file = write(tmp_path, yaml.safe_dump(as_mapping(made)))
    assert read_prompts(file) == made


@pytest.mark.parametrize(
    ("text", "facts", "got"),
    [
        ("", (), "nothing"),
        ("- edema", (), "list"),
        ("edema: [", ("YAML",), None),
        ("edema: pulmonary edema", ("edema", "a pair of prompts"), "str 'pulmonary edema'"),
        ("edema: {positive: a}", ("edema has no negative",), None),
        ("edema: {}", ("edema has no positive", "no negative"), None),
        ("edema: {positive: a, negativ: b}", ("edema", "did you mean 'negative'?"), "'negativ'"),
        ("edema: {positive: a, negative: b, weight: 2}", ("edema", "positive or negative"), "'weight'"),
        ("edema: {positive: a, negative: no}", ("edema: negative", "quotes"), "False"),
        ("edema: {positive: [a, 1], negative: b}", ("edema: positive", "quotes"), "1"),
        ("edema: {positive: [], negative: b}", ("edema: positive",), "nothing"),
        ("edema: {positive: ' ', negative: b}", ("edema: positive",), "nothing"),
        ("edema: {positive: , negative: b}", ("edema: positive",), "None"),
        ("edema: {positive: [a, a], negative: b}", ("edema: positive", "twice"), "'a'"),
        ("edema: {positive: a, negative: [b, a]}", ("edema", "both sides"), "'a'"),
        ("edema: {positive: a, negative: b, positive: c}", ('"positive" twice',), None),
        ("edema: {positive: a, negative: b}\nedema: {positive: c, negative: d}", ('"edema" twice',), None),
        ("edema: {positive: a, negative: b}\nOedema: {positive: c, negative: d}", ('"edema" twice',), None),
        ("1: {positive: a, negative: b}", ("name of a finding", "quotes"), "1"),
        ("edma: {positive: a, negative: b}", ('"edma"', "one of the findings (edema)"), None),
    ],
)
def test_bad_files(tmp_path: Path, text: str, facts: tuple[str, ...], got: str | None) -> None:
    with refused(ConfigError, "prompts.yaml", *facts, got=got):
        prompts_for(["edema"], file=write(tmp_path, text))


def test_misspelt_names_are_guessed(tmp_path: Path) -> None:
    with refused(ConfigError, fix="did you mean 'edema'"):
        prompts_for(["edema"], file=write(tmp_path, "edma: {positive: a, negative: b}"))


def test_no_file_and_bytes(tmp_path: Path) -> None:
    with refused(ConfigError, "none.yaml", "No such file"):
        read_prompts(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with refused(ConfigError, "bytes.yaml", "YAML"):
        read_prompts(tmp_path / "bytes.yaml")


def test_findings_without_prompts() -> None:
    with refused(ConfigError, "bone_cyst, scoliosis", fix="bone_cyst: {positive: .., negative: ..}"):
        prompts_for(["edema", "bone_cyst", "scoliosis"])
