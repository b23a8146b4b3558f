"""Notes tell the chart context and nothing else; reports follow the labels and the planted words."""

from __future__ import annotations

import re
import zlib

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from cxrhf import metrics
from cxrhf.context.mentions import RULES
from cxrhf.context.mentions import mentions as mentions_by_rule
from cxrhf.errors import ConfigError
from cxrhf.twin.laws import DEFAULT
from cxrhf.twin.people import people
from cxrhf.twin.texts import (
    EDGES,
    HISTORIES,
    LEVELS,
    MENTIONED_FROM,
    SEX_WORDS,
    level_chances,
    level_of,
    notes,
    pools,
    report_sections,
    report_text,
)
from cxrhf.twin.truth import truth
from tests.real_data import real_data
from tests.refusals import refused
from tests.thinned import thinned

# The phrases of the CheXpert labeler that name a finding, without those that CONTEXT's Table A.15 removes.
PHRASES = {
    "atelectasis": ("atelecta",),
    "cardiomegaly": ("cardiomegaly", "heart size", "cardiac enlargement", "cardiac size", "cardiac shadow",
                     "cardiac contour", "cardiac silhouette", "enlarged heart"),
    "consolidation": ("consolidat",),
    "edema": ("edema", "heart failure", "chf", "vascular congestion", "pulmonary congestion", "vascular prominence"),
    "enlarged_cardiomediastinum": ("mediastinum", "mediastinal configuration", "mediastinal silhouette",
                                   "pericardial silhouette", "cardiac silhouette and vascularity"),
    "fracture": ("fracture",),
    "lung_lesion": ("nodular densit", "nodular opaci", "nodule", "cavitary lesion", "carcinoma", "neoplasm", "tumor"),
    "lung_opacity": ("opaci", "decreased translucency", "airspace disease", "infiltrat", "interstitial", "reticula",
                     "peribronchial thickening", "scar"),
    "pleural_effusion": ("pleural fluid", "effusion"),
    "pleural_other": ("pleural thickening", "fibrothorax", "pleural scar", "parenchymal scar", "pericardial scar"),
    "pneumonia": ("pneumonia",),
    "pneumothorax": ("pneumothora",),
}  # fmt: skip


def words(text):
    return set(re.findall(r"[a-z]+", text.lower()))


def texts_of(made, **options):
    """patient and text of every note."""
    pairs = [
        (patient, text)
        for rows, texts in notes(made, **options)
        for patient, text in zip(rows["patient"], texts, strict=True)
    ]
    return [patient for patient, _ in pairs], [text for _, text in pairs]


def test_levels_are_bins_of_the_context():
    assert set(HISTORIES) == {law.finding for law in DEFAULT}
    assert level_of(np.array([-9, -0.75, -0.1, 0.0, 0.8, 1.6, 2.25, 9])).tolist() == [0, 1, 1, 2, 3, 4, 5, 5]
    assert len(EDGES) + 1 == LEVELS == len(HISTORIES["edema"])
    chances = level_chances(1.6)
    assert chances.sum(axis=1) == pytest.approx([1, 1])
    c = 1.6 + np.random.default_rng(0).standard_normal(200_000)
    assert np.bincount(level_of(c)) / len(c) == pytest.approx(chances[1], abs=0.005)


def test_every_level_has_words_of_its_own():
    """Two at least, found in no other level, no other finding and no filler."""
    filler = set().union(*(words(piece) for pieces in pools(0).values() for piece in pieces))
    sentences = [(name, level, text) for name, told in HISTORIES.items() for level, text in enumerate(told)]
    for name, level, text in sentences:
        elsewhere = set().union(*(words(other) for n, at, other in sentences if (n, at) != (name, level)))
        assert len(words(text) - elsewhere - filler) >= 2, text


def mentions(text, phrases):
    return any(phrase in text.lower() for phrase in phrases)


@pytest.mark.parametrize("finding", thinned(PHRASES, list(PHRASES)[::3]))
def test_a_mention_is_a_high_level(finding):
    for name, told in HISTORIES.items():
        for level, text in enumerate(told):
            assert mentions(text, PHRASES[finding]) == (name == finding and level >= MENTIONED_FROM), text
    assert not [piece for pieces in pools(1).values() for piece in pieces if mentions(piece, PHRASES[finding])]


@pytest.mark.real
def test_the_phrases_are_the_labelers():
    """Our list covers the published one, so the notes mention nothing by accident."""
    removed = {"collapse", "the heart", "indistinctness", "contour", "mass", "lump", "increased density", "fibrosis",
               "wall thickening", "infection", "infectious process", "infectious"}  # fmt: skip
    for finding, ours in PHRASES.items():
        path = real_data("chexpert_labeler") / "phrases" / "mention" / f"{finding}.txt"
        for line in path.read_text().splitlines():
            phrase = line.strip().strip(";").strip("_").replace("_", " ")
            if phrase and phrase not in removed and "air-space" not in phrase and "air space" not in phrase:
                assert mentions(phrase, ours) or any(phrase in each for each in ours), (finding, phrase)


def test_notes_tell_the_levels_of_their_patient():
    made = people(60, seed=4)
    patients, texts = texts_of(made)
    assert len(texts) == made.admissions["noted"].sum()
    for name, told in HISTORIES.items():
        levels = level_of(made.patients[f"context_{name}"].to_numpy())
        for patient, text in zip(patients, texts, strict=True):
            assert [told.index(each) for each in told if each in " ".join(text.split())] == [levels[patient]]
    assert texts == texts_of(made)[1]
    assert texts != texts_of(made, seed=1)[1]
    length = np.array([len(text) for text in texts])
    assert 600 < length.mean() < 1100
    joined = "".join(texts)
    assert "___" in joined
    assert '"' in joined
    assert "," in joined
    with refused(ConfigError, "short or full", got="long"):
        next(notes(made, length="long"))


@pytest.mark.parametrize("length", ["short", "full"])
def test_lines_are_broken_in_the_middle_of_phrases_and_every_rule_finds_them(length):
    """The twin's notes used to break no phrase, so nothing showed whether a search crosses lines."""
    made = people(60, seed=4)
    patients, texts = texts_of(made, length=length)
    assert 70 < max(len(line.rstrip()) for text in texts for line in text.split("\n")) <= 75
    told = [(text, phrase) for text in texts for phrases in PHRASES.values() for phrase in phrases if " " in phrase]
    there = [(text, phrase) for text, phrase in told if phrase in " ".join(text.lower().split())]
    cut = [phrase for text, phrase in there if phrase not in text.lower()]
    assert 0.05 < len(cut) / len(there) < 0.5
    assert "heart failure" in cut
    levels = [level_of(made.patients[f"context_{name}"].to_numpy()[patients]) for name in HISTORIES]
    for rule in RULES:
        found = mentions_by_rule(pa.array(texts), list(HISTORIES), rule=rule)
        assert np.array_equal(found, np.stack(levels, axis=1) >= MENTIONED_FROM), rule


def test_full_notes_are_as_long_and_as_dense_as_real_ones():
    made = people(200, seed=4)
    _, texts = texts_of(made, length="full")
    length = np.array([len(text) for text in texts])
    assert length.mean() == pytest.approx(10_500, rel=0.1)
    assert np.median(length) < length.mean()
    assert length.max() > 20_000
    raw = "".join(texts).encode()
    assert 2.5 < len(raw) / len(zlib.compress(raw, 1)) < 3.6
    assert raw.isascii()
    headings = re.findall(r"^([A-Z][A-Za-z ]+):$", texts[0], flags=re.M)
    assert headings[:3] == ["Chief Complaint", "History of Present Illness", "Past Medical History"]


@pytest.fixture(scope="module")
def bags():
    """One image and one note of each patient: the people, the image's row, the words of the note."""
    from sklearn.feature_extraction.text import CountVectorizer

    made = people(8000, seed=7)
    patients, texts = texts_of(made)
    first = pl.DataFrame({"patient": patients, "note": np.arange(len(texts))}).unique("patient", keep="first")
    rows = (
        made.images.select("patient", "image").unique("patient", keep="first").join(first, on="patient").sort("patient")
    )
    return (
        made,
        rows["image"].to_numpy(),
        CountVectorizer(min_df=5, binary=True).fit_transform([texts[at] for at in rows["note"]]),
    )


@pytest.mark.parametrize("finding", ["edema", "cardiomegaly", "pleural_effusion"])
def test_a_bag_of_words_learns_the_context(bags, finding):
    """Its AUROC comes close to the best that any reader of the notes can have, and not beyond it but by luck."""
    from sklearn.linear_model import LogisticRegression

    made, rows, counts = bags
    column = made.findings.index(finding)
    y, q = made.y[rows, column], made.q[rows, column]
    train = np.arange(len(y)) % 2 == 0
    model = LogisticRegression(C=0.05, max_iter=300).fit(counts[train], y[train])
    prob = model.predict_proba(counts[~train])[:, 1]
    best = truth(made.laws)["findings"][finding]["text"]
    error = np.sqrt(best["auroc"] * (1 - best["auroc"]) / y[~train].sum())
    assert best["auroc"] - 0.02 - 3 * error < metrics.auroc(y[~train], prob) < best["auroc"] + 3 * error
    assert np.corrcoef(prob, q[~train])[0, 1] > 0.75


def test_reports_have_the_planted_words_by_sex(town):
    sections = report_sections(town, seed=1).join(town.studies.select("study", "patient"), on="study")
    one = sections.unique("patient", keep="first").join(town.patients.select("patient", "sex"), on="patient")
    for word, rates in SEX_WORDS.items():
        for sex, expected in rates.items():
            hits = one.filter(pl.col("sex") == sex)["findings"].str.to_lowercase().str.contains(rf"\b{word}\b")
            assert hits.mean() == pytest.approx(expected, abs=3.5 * np.sqrt(expected * (1 - expected) / len(hits))), (
                word
            )
    assert one.filter(pl.col("indication").str.contains("woman"))["sex"].unique().to_list() == ["F"]


def test_reports_follow_labels_and_devices():
    made = people(300, seed=3)
    sections = report_sections(made)
    assert sections.columns == ["study", "indication", "comparison", "findings", "impression"]
    assert sections["study"].equals(made.studies["study"])
    assert sections.equals(report_sections(made))
    assert not sections.equals(report_sections(made, seed=1))
    assert sections["findings"].str.len_chars().min() > 0
    labels = (
        pl.DataFrame(made.y, schema=list(made.findings))
        .with_columns(made.images["study"])
        .unique("study", keep="first")
    )
    table = sections.join(labels, on="study").join(made.images.unique("study").drop("patient"), on="study")
    for finding, phrases in PHRASES.items():
        named = table["impression"].str.to_lowercase().str.contains_any(list(phrases))
        assert (named == (table[finding] == 1)).all(), finding
    assert (table["impression"].str.contains("No acute") == (table["no_finding"] == 1)).all()
    assert (table["findings"].str.contains("drain") == table["drain"]).all()
    first = made.studies.sort("patient", "time").unique("patient", keep="first", maintain_order=True)["study"]
    assert (sections["comparison"] == "None.").sum() == len(first)


def test_report_as_text():
    text = report_text("cough", "None.", "The lungs are clear. " * 20, "Nothing.")
    lines = text.splitlines()
    assert lines[0].strip() == "FINAL REPORT"
    assert all(line.startswith(" ") and len(line) <= 80 for line in lines)
    assert [line for line in lines if line.startswith(" IMPRESSION:  Nothing.")]
