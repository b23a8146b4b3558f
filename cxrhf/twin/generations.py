"""People and their reports -> GENERATION rows of simulated report writers, whose words of the sexes moved as planted.

The ideas of planted truth D4, on the twin's own words. One report a patient by default: a patient has a word in every
report or in none, and tests of words count tokens as if each stood alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.schema import GENERATION
from cxrhf.tables.checks import check
from cxrhf.twin.models import default_ids
from cxrhf.twin.people import People
from cxrhf.twin.texts import SEX_WORDS, report_sections

KINDS = {
    "faithful": "describes the same findings in words of its own choice, with the references' rates",
    "collapsed": "the same two sentences for everybody",
    "planted": "the reference with some of its sentences left out or put in, at rates by sex",
    "mostly_men": "the reference, but women's own words as rare as in reports of men: it hardly ever read of them",
    "mostly_women": "the reference, but men's own words as rare as in reports of women",
}
TEMPLATE = "The lungs are clear. No acute cardiopulmonary process."


@dataclass(frozen=True, slots=True)
class Edit:
    """What the planted writer does with the sentences that hold a word.

    `said`: the share of reports of each sex that have it, chosen anew; or `kept`: the share that keep the reference's
    own sentences; neither: they stay. `moves_with`: the other words of these sentences.
    """

    category: str
    moves_with: tuple[str, ...] = ()
    said: Mapping[str, float] | None = None
    kept: Mapping[str, float] | None = None


def _mean(word: str) -> float:
    return (SEX_WORDS[word]["F"] + SEX_WORDS[word]["M"]) / 2


def _exchanged_rates(word: str) -> dict[str, float]:
    return {"F": SEX_WORDS[word]["M"], "M": SEX_WORDS[word]["F"]}


# Sentences about effusion and pneumothorax are left out at rates that cost both sexes about as many words, so that
# the other words keep their share of the text.
EDITS: Mapping[str, Edit] = {
    "mastectomy": Edit("omitted", ("after", "axilla", "clips", "project", "over"), said={"F": 0.0, "M": 0.0}),
    "scoliosis": Edit("neutralised", ("spine", "thoracic"), said=dict.fromkeys("FM", _mean("scoliosis"))),
    "pacemaker": Edit("flip", ("chest", "projects", "over", "upper"), said=_exchanged_rates("pacemaker")),
    "hyperinflated": Edit("amplified", ("lungs",), said={"F": 0.02, "M": 0.21}),
    "effusion": Edit("new", ("angle", "blurs", "layering", "pleural", "no"), kept={"F": 1.0, "M": 0.6}),
    "pneumothorax": Edit("new", ("apical", "seen", "small", "no"), kept={"F": 0.1, "M": 1.0}),
    "sternotomy": Edit("preserved"),
    "breast": Edit("preserved"),
}

# A writer that saw few of one sex and writes of them as of the others: their own words go, nothing else moves. (A
# writer that mixes the sexes up instead would move the words of both, those of the majority more; see
# docs/tasks/reports.md.)
SKEWED: Mapping[str, Mapping[str, Edit]] = {
    kind: {
        word: Edit("omitted" if rate[few] > 2 * rate[many] else "neutralised", said=dict.fromkeys("FM", rate[many]))
        for word, rate in SEX_WORDS.items()
        if rate[few] > rate[many]
    }
    for kind, few, many in (("mostly_men", "F", "M"), ("mostly_women", "M", "F"))
}


def generations(
    people: People,
    reports: pl.DataFrame | None = None,
    *,
    kind: str = "planted",
    seed: int = 0,
    ids: pl.DataFrame | None = None,
    one_per_patient: bool = True,
) -> pa.Table:
    """One row a patient (his first frontal image), or one a frontal image's study; `kind` is the model's name.

    The reference is findings and impression of `reports` (report_sections(people) by default).
    """
    if kind not in KINDS:
        raise ConfigError(
            "unknown simulated report model",
            got=f'"{kind}"',
            allowed=f"one of {', '.join(KINDS)}",
            next_step=did_you_mean(kind, KINDS),
        )
    names = default_ids(people) if ids is None else ids
    images = people.images.select("patient", "study", "view", "age", image=pl.int_range(pl.len()))
    rows = (
        names.select("image", "image_id", "patient_id")
        .join(images, on="image", how="left", maintain_order="left")
        .filter(pl.col("view").is_in(["PA", "AP"]))
        .sort("patient", "study", "image")
        .unique("patient" if one_per_patient else "study", keep="first", maintain_order=True)
    )
    written = report_sections(people) if reports is None else reports
    reference = _texts(rows, written)
    rng = np.random.default_rng([seed, 59])
    patients = people.patients.select("patient", "sex", "race")
    rows = rows.join(patients, on="patient", how="left", maintain_order="left")
    if kind == "faithful":
        # Other words for the same findings: the reports once more, from another seed than anybody else's.
        generated = _texts(rows, report_sections(people, int(rng.integers(2**31, 2**32))))
    elif kind == "collapsed":
        generated = [TEMPLATE] * rows.height
    else:
        edits = SKEWED.get(kind, EDITS)
        generated = _edited(reference, rows.get_column("sex").to_list(), rng, edits)
    table = pa.table(
        {
            "image_id": rows.get_column("image_id").to_arrow(),
            "patient_id": rows.get_column("patient_id").to_arrow(),
            "model": pa.array([kind] * rows.height, pa.string()),
            "strategy": pa.array(["greedy"] * rows.height, pa.string()),
            "reference": pa.array(reference, pa.string()),
            "generated": pa.array(generated, pa.string()),
            "sex": rows.get_column("sex").to_arrow(),
            "age": rows.get_column("age").to_arrow(),
            "race": rows.get_column("race").to_arrow(),
        }
    )
    return check(table, GENERATION, source=f"simulated report writer {kind}")


def generation_truth(kind: str = "planted") -> dict[str, Any]:
    """What happened to each of the twin's words: category, P(a report has it | sex) in references and generations.

    Words that share a sentence with one of these move with it. "new" words are equally frequent in reports of both
    sexes; but reports of women are a little longer, and a sample has its chances, so that the share of all words may
    show a weak association in the references: then new reads as flip or amplified. A faithful writer displaces
    nothing; a collapsed one omits everything.
    """
    everywhere = {word: dict(rates) for word, rates in SEX_WORDS.items()}
    if kind in SKEWED:
        return {
            word: {
                "category": SKEWED[kind][word].category if word in SKEWED[kind] else "preserved",
                "reference": everywhere[word],
                "generated": dict(SKEWED[kind][word].said or {}) if word in SKEWED[kind] else everywhere[word],
            }
            for word in everywhere
        }
    if kind != "planted":
        category = "preserved" if kind == "faithful" else "omitted"
        said = everywhere if kind == "faithful" else {word: {"F": 0.0, "M": 0.0} for word in everywhere}
        return {word: {"category": category, "reference": everywhere[word], "generated": said[word]} for word in said}
    return {
        word: {
            "category": edit.category,
            "reference": everywhere.get(word),
            "generated": dict(edit.said) if edit.said is not None else everywhere.get(word),
            "moves_with": list(edit.moves_with),
            "sentences_kept": dict(edit.kept) if edit.kept is not None else None,
        }
        for word, edit in EDITS.items()
    }


def _texts(rows: pl.DataFrame, reports: pl.DataFrame) -> list[str]:
    """Findings and impression of each row's study."""
    text = pl.concat_str("findings", "impression", separator=" ", ignore_nulls=True)
    joined = rows.select("study").join(reports, on="study", how="left", maintain_order="left")
    return joined.select(text.str.strip_chars()).to_series().fill_null("").to_list()


def _edited(
    reference: list[str], sexes: list[str], rng: np.random.Generator, edits: Mapping[str, Edit] = EDITS
) -> list[str]:
    """The references with the planted edits; a word that is put in comes with a sentence of the references.

    A report that loses everything gets the references' most frequent sentence that holds no edited word.
    """
    sentences = [[f"{each}." for each in text.removesuffix(".").split(". ") if each] for text in reference]
    female = np.array(sexes) == "F"
    other = Counter(each for text in sentences for each in text if not any(word in each.lower() for word in edits))
    plain = max(other, key=lambda each: (other[each], each), default=TEMPLATE)
    for word, edit in edits.items():
        if edit.said is not None:
            example = next((each for text in sentences for each in text if word in each.lower()), f"{word.title()}.")
            says = _lot(edit.said, female, rng)
            for text, put in zip(sentences, says.tolist(), strict=True):
                text[:] = [each for each in text if word not in each.lower()] + [example] * put
        elif edit.kept is not None:
            keeps = _lot(edit.kept, female, rng)
            for text, keep in zip(sentences, keeps.tolist(), strict=True):
                if not keep:
                    text[:] = [each for each in text if word not in each.lower()]
    return [" ".join(text) or plain for text in sentences]


def _lot(chance: Mapping[str, float], female: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Exactly the stated share of each sex, who by lot; once a report, so its sentences about a word stand together.

    Were it a coin for each report, a word that the truth calls neutral would look associated in one sample of three.
    """
    chosen = np.zeros(len(female), dtype=bool)
    for sex, those in (("F", np.flatnonzero(female)), ("M", np.flatnonzero(~female))):
        chosen[rng.permutation(those)[: round(chance[sex] * len(those))]] = True
    return chosen
