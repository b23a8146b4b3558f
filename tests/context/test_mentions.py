"""Phrases are those of the paper, found as whole words; a mention is found whatever surrounds it."""

from __future__ import annotations

import csv
import gzip
import re

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.context import mentions as module
from cxrhf.context.mentions import PARTS, PHRASES, REMOVED, RULES, STEMS, has_phrases, mentions, pattern, places
from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT, NIH
from cxrhf.twin import write
from tests.real_data import real_data
from tests.refusals import refused


def found(text: str, finding: str, rule: str = "words") -> bool:
    return bool(mentions(pa.array([text]), [finding], rule=rule)[0, 0])


def test_lists_are_those_of_the_labeler_less_what_the_paper_removed():
    assert set(PHRASES) == set(CHEXPERT) - {"no_finding"}
    assert {phrase for phrases in PHRASES.values() for phrase in phrases} >= STEMS | PARTS
    for finding, phrases in PHRASES.items():
        removed = REMOVED.get(finding, ())
        assert not set(phrases) & set(removed)
        assert len(set(phrases)) == len(phrases)
    removed = {phrase for phrases in REMOVED.values() for phrase in phrases}
    assert removed == {
        "collapse", "the heart", "indistinctness", "contour", "mass", "lump", "increased density", "wall thickening",
        "fibrosis", "infection", "infectious process", "infectious", "line", "lines", "support",
    }  # fmt: skip


@pytest.mark.real
def test_lists_against_the_labelers_files():
    folder = real_data("chexpert_labeler/phrases/mention")
    for finding, phrases in PHRASES.items():
        lines = (folder / f"{finding}.txt").read_text().splitlines()
        theirs = {line.strip().replace("_", "") for line in lines if line.strip()}
        assert theirs == {*phrases, *REMOVED.get(finding, ())}


@pytest.mark.parametrize(
    ("text", "finding", "words", "substring"),
    [
        ("Platelets 200, tuberculosis, drainage, coiled, deviceless", "support_devices", False, True),
        ("Chest tubes out, 2 screws.", "support_devices", True, True),
        ("ICD.", "support_devices", True, True),
        ("suicidal ideation", "support_devices", False, False),
        ("s/p hip ARTHROPLASTY", "support_devices", True, True),
        ("defibrillator", "support_devices", True, True),
        ("apparatuses", "support_devices", True, True),
        ("Streptococcus pneumoniae", "pneumonia", False, True),
        ("bronchopneumonia", "pneumonia", False, True),
        ("hospital-acquired pneumonia", "pneumonia", True, True),
        ("infection", "pneumonia", False, False),
        ("subsegmental atelectases", "atelectasis", True, True),
        ("lobar collapse", "atelectasis", False, False),
        ("congestive heart\nfailure", "edema", True, True),  # notes break their lines
        ("CHF", "edema", True, True),
        ("No pleural effusions seen", "pleural_effusion", True, True),  # negated: still a mention
        ("it scares her", "lung_opacity", False, True),
        ("old scars", "lung_opacity", True, True),
        ("opacification", "lung_opacity", True, True),
        ("radiopacity", "lung_opacity", False, True),
        ("air-space  diseases", "lung_opacity", True, True),
        ("pneumomediastinum", "enlarged_cardiomediastinum", False, True),
        ("wide mediastinum", "enlarged_cardiomediastinum", True, True),
        ("___fracture___", "fracture", True, True),  # ___ stands for a name
        ("fracture", "fracture", True, True),
        ("fracture2", "fracture", False, True),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}fracture", "fracture", False, True),
        ("pneumothoraces, pneumothoraxes", "pneumothorax", True, True),
        ("", "fracture", False, False),
    ],
)
def test_rules(text, finding, words, substring):
    assert found(text, finding) is words
    assert found(text, finding, "substring") is substring


def test_every_phrase_is_found_in_every_setting():
    for finding, phrases in PHRASES.items():
        for phrase in phrases:
            for text in (phrase, f"Hx of {phrase.upper()}, stable", f"({phrase})", f"x\n{phrase}\ny"):
                assert found(text, finding), (finding, text)
                # The public code cleans the texts and not the phrases.
                lost = {"cardiac silhouette and vascularity", "pleuro-parenchymal scar", "pleuro-pericardial scar"}
                if phrase not in lost or text == phrase:
                    assert found(text, finding, "substring") == (phrase not in lost), (finding, text)


def test_names_of_nih_and_others():
    assert [name for name in NIH if has_phrases(name)] == [
        "atelectasis", "cardiomegaly", "pleural_effusion", "pneumonia", "pneumothorax", "consolidation", "edema",
    ]  # fmt: skip
    assert found("effusion", "Effusion")
    assert not has_phrases("No Finding")
    with refused(ConfigError, '"hernia"', "pneumothorax"):
        pattern("hernia")
    with pytest.raises(ConfigError, match="words, substring, affirmed"):
        pattern("edema", "letters")


def slow(text: str, finding: str) -> bool:
    """The rule of whole words, spelled out word by word."""
    words = re.findall(r"[a-z0-9]+|[^a-z0-9\s]", text.lower().replace("_", " "))
    for phrase in PHRASES[finding]:
        parts = re.findall(r"[a-z0-9]+|[^a-z0-9\s]", phrase)
        for start in range(len(words) - len(parts) + 1):
            head, last = words[start : start + len(parts) - 1], words[start + len(parts) - 1]
            plural = "es" if phrase[-1] in "sx" else "s"
            same = last.startswith(parts[-1]) if phrase in STEMS else last in (parts[-1], parts[-1] + plural)
            if head == parts[:-1] and same:
                return True
    return False


def test_against_a_slow_twin(monkeypatch):
    rng = np.random.default_rng(0)
    phrases = [phrase for each in PHRASES.values() for phrase in each]
    pieces = [*phrases, *(f"{phrase}s" for phrase in phrases), *(f"{phrase}ing" for phrase in phrases),
              "no", "the", "heart", "failure", "pleural", "12", "___", "size", "disease", "lung"]  # fmt: skip
    joints = [" ", "\n", ", ", ". ", "  ", "_", "/"]
    texts = [
        "".join(part for piece in rng.choice(pieces, 6) for part in (piece, rng.choice(joints))) for _ in range(400)
    ]
    findings = list(PHRASES)
    expected = [[slow(text, finding) for finding in findings] for text in texts]
    quick = mentions(pa.array(texts), findings)
    assert quick.tolist() == expected
    assert [[any(places(text, finding)) for finding in findings] for text in texts] == expected
    assert 0.02 < quick.mean() < 0.6
    monkeypatch.setattr(module, "BATCH", 7)
    chunks = pa.chunked_array([texts[:100], [None], texts[100:]], pa.large_string())
    again = mentions(chunks, findings)
    assert not again[100].any()
    assert np.delete(again, 100, axis=0).tolist() == expected


def test_places_are_where_arrow_finds_a_mention():
    """Two engines, one rule, whatever letters stand around a phrase."""
    rng = np.random.default_rng(1)
    phrases = [phrase for each in PHRASES.values() for phrase in each]
    letters = list("aes \n_-.,1\t\v\u00a0\u00e9\u00df\u4e2d\u00b2\u2167\u0661\u200d\u0301I\u0130\U00010400")
    texts = []
    for _ in range(3_000):
        pieces = [part for phrase in rng.choice(phrases, 3) for part in ("".join(rng.choice(letters, 2)), phrase)]
        texts.append(
            "".join([*pieces, *rng.choice(letters, 2)]).replace(" ", rng.choice([" ", "\n", "\v", "  "])).lower()
        )
    quick = mentions(pa.array(texts), list(PHRASES))
    for row, text in enumerate(texts):
        for column, finding in enumerate(PHRASES):
            found = list(places(text, finding))
            assert bool(found) == quick[row, column], text
            for place in found:
                inside = " ".join(text[place.start : place.end].split())
                assert any(inside.startswith(phrase) for phrase in PHRASES[finding])
                assert place.part == any(inside.startswith(phrase) for phrase in PARTS & set(PHRASES[finding]))


def test_affirmed_is_words_where_nothing_is_negated(tmp_path):
    """The made-up hospital's notes deny a lot, but no finding."""
    write("mimic", tmp_path, n_patients=60, seed=4, pixels=False, reports=False, note_length="full")
    with gzip.open(tmp_path / "mimic-iv-note/2.2/note/discharge.csv.gz", "rt", encoding="utf-8", newline="") as file:
        texts = pa.array([row["text"] for row in csv.DictReader(file)])
    words, substring, affirmed = (mentions(texts, list(PHRASES), rule=rule) for rule in RULES)
    assert len(texts) > 100
    assert 0.1 < words.mean() < 0.6
    assert (affirmed == words).all()
    assert (substring >= words)[:, list(PHRASES).index("pneumonia")].all()


def test_nothing_to_look_at():
    assert mentions(pa.array([], pa.string()), ["edema"]).shape == (0, 1)
    assert mentions(pa.chunked_array([], pa.string()), ["edema"]).shape == (0, 1)
    assert mentions(pa.array(["edema"]), []).shape == (1, 0)
