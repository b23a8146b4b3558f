"""Recipes clean texts as their slow twins in plain Python do, whatever stands in the texts."""

from __future__ import annotations

import string

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cxrhf.context.words import BATCH, STOP_WORDS, clean, lower_texts
from cxrhf.encode.settings import RECIPES
from cxrhf.errors import ConfigError
from tests.refusals import refused

HEAD = (
    " \nName:  ___                    Unit No:   ___\n \nAdmission Date:  ___              Discharge Date:   ___\n"
    " \nDate of Birth:  ___             Sex:   F\n \nService: MEDICINE\n"
)
PIECES = [
    *("no", "No", "NO", "the", "The", "effusion", "x-ray", "don't", "___", "...", "3.5", "of", "Date of Birth:", HEAD),
    *("\x95", "\x95no", "\x00", " ", "\n", "\t\r\n", "\u00a0", "\u2003", "\x1c", "\u0085", "\u200b"),
    *("caf\u00e9", "No\u00eb", "no\u00eb", "\U0001fac1", "\u0130stanbul", "\u039f\u0394\u039f\u03a3", "stra\u00dfe"),
    *("\u201cquoted\u201d", "e\u0301"),
]
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
                  st.lists(st.sampled_from(PIECES), max_size=12).map("".join))  # fmt: skip


def plain(text: str | None) -> str:
    return "" if text is None else text.lower()


def oberst(text: str | None) -> str:
    kept, word = [], ""
    for letter in [*(text or ""), " "]:
        if letter.isspace():
            if word and word not in STOP_WORDS:
                kept.append(word)
            word = ""
        elif letter not in string.punctuation:
            word += letter
    pieces = " ".join(kept).split("Name Unit No Admission Date Discharge Date Date Birth ")
    return "".join(letter for piece in pieces for letter in piece if letter != "\x95").lower()


def test_stop_words_are_those_of_the_public_code() -> None:
    """NLTK's English list, not scikit-learn's: system, without and never stay."""
    assert len(STOP_WORDS) == 179
    assert clean(pa.array(["without system, never back; no not nor the"]), "oberst").to_pylist() == [
        "without system never back"
    ]


TWINS = {"plain": plain, "oberst": oberst}


@pytest.mark.parametrize("recipe", RECIPES)
@settings(max_examples=80, deadline=None)
@given(texts=st.lists(st.one_of(st.none(), TEXTS), max_size=5))
@example(texts=[HEAD + "no effusion, No pneumothorax"])
@example(texts=[HEAD + HEAD])
@example(texts=["\x00", "a\x00no\x00", "", " ", string.punctuation, "_" * 300, None])
def test_recipes_are_their_twins(recipe, texts):
    got = clean(pa.array(texts, pa.string()), recipe)
    assert isinstance(got, pa.ChunkedArray)
    assert got.type == pa.string()
    assert got.to_pylist() == [TWINS[recipe](text) for text in texts]


def test_what_oberst_does_to_a_note():
    note = HEAD + "Allergies:\nNo Known Allergies\nThere was no effusion, and NOT an x-ray.\x95 Edema \x95 3.5 mg"
    assert clean(pa.array([note]), "oberst").to_pylist() == [
        "sex f service medicine allergies no known allergies there effusion not xray edema  35 mg"
    ]
    assert clean(pa.array([note]), "plain").to_pylist() == [note.lower()]
    assert clean(pa.array(["no effusion", "No effusion"]), "oberst").to_pylist() == ["effusion", "no effusion"]
    short = "Name: ___ Unit No: ___\nAdmission Date: ___\nSex: M"  # not the whole header: it stays
    assert clean(pa.array([short]), "oberst").to_pylist() == ["name unit no admission date sex m"]
    loud = clean(pa.array([HEAD.upper()]), "oberst")[0].as_py()  # nor are capitals
    assert loud.startswith("name unit no admission date discharge date date of birth sex f")
    assert clean(pa.array(["Sex: M " + HEAD]), "oberst").to_pylist() == ["sex m sex f service medicine"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_long_texts(recipe):
    texts = ["No effusion. " * 16_000, "_" * 200_000, "," * 200_000, "\u00e9" * 200_000, "no " * 70_000, "a" * 200_000]
    assert clean(pa.array(texts), recipe).to_pylist() == [TWINS[recipe](text) for text in texts]


@pytest.mark.parametrize("recipe", RECIPES)
def test_chunks_slices_and_types_do_not_matter(recipe):
    texts = [None if at % 5 == 0 else f"Note {at}: no EFFUSION" + "\u00c9" * (at % 700 == 3) for at in range(1_203)]
    wanted = [TWINS[recipe](text) for text in texts]
    whole = clean(pa.array(texts), recipe)
    assert whole.to_pylist() == wanted
    assert whole.num_chunks == -(-len(texts) // BATCH)  # a batch at a time
    assert (
        clean(pa.chunked_array([texts[:1], [], texts[1:701], texts[701:]], pa.string()), recipe).to_pylist() == wanted
    )
    assert clean(pa.array(texts, pa.large_string()).slice(7, 600), recipe).to_pylist() == wanted[7:607]
    assert clean(pa.array(texts).dictionary_encode(), recipe).to_pylist() == wanted
    assert clean(pa.array([None, None]), recipe).to_pylist() == ["", ""]
    for empty in (pa.array([], pa.string()), pa.chunked_array([], type=pa.string()), pa.array([])):
        assert clean(empty, recipe).to_pylist() == []


def test_a_recipe_that_is_not_there():
    with refused(ConfigError, "recipe", "plain", "oberst", got="obrest", fix="'oberst'"):
        clean(pa.array(["text"]), "obrest")


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_cleaning_by_plain_twice_changes_nothing(texts):
    once = lower_texts(pa.array(texts))
    assert lower_texts(once).equals(once)
