"""People -> covid-chestxray-dataset as its repository holds it: metadata.csv with notes in it, and images/."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.errors import ConfigError
from cxrhf.twin.films import write_pictures
from cxrhf.twin.models import Planted, of_patients, ordered_images, pick, planted_findings
from cxrhf.twin.people import People
from cxrhf.twin.texts import level_of
from cxrhf.twin.truth import write_known

COLUMNS = (
    "patientid", "offset", "sex", "age", "finding", "RT_PCR_positive", "survival", "intubated", "intubation_present",
    "went_icu", "in_icu", "needed_supplemental_O2", "extubated", "temperature", "pO2_saturation", "leukocyte_count",
    "neutrophil_count", "lymphocyte_count", "view", "modality", "date", "location", "folder", "filename", "doi", "url",
    "license", "clinical_notes", "other_notes",
)  # fmt: skip
# What a patient's pneumonia is called: name of the label, share of patients, findings of the twin that it makes true.
CAUSES = (
    ("Pneumonia/Viral/COVID-19", 0.5, ("viral_pneumonia", "covid_19")),
    ("Pneumonia/Bacterial/Streptococcus", 0.2, ("bacterial_pneumonia",)),
    ("Pneumonia/Fungal/Pneumocystis", 0.1, ("fungal_pneumonia",)),
    ("Pneumonia", 0.2, ()),
)
# What the labels in the files do to the truth.
LABEL_TRUTH = {
    "keeps_every_truth": None,
    "note": "'todo' stands in rows by lot, whatever is true of them: policy masked, which leaves them out, keeps the "
    "truths of pneumonia and no_finding, and positive_only does not. Causes are blank where only 'Pneumonia' is said.",
}
_MOST_STUDIES = 6
_VIEWS = {"PA": ("PA",), "AP": ("AP", "AP Supine", "AP Erect"), "LATERAL": ("L",)}
_LICENCES = ("CC BY-NC-SA", "CC BY 4.0", "CC BY-SA")
# The chart context of pneumonia in six levels, in words that name no diagnosis.
_STORIES = (
    "Felt well; film before a dental procedure.",
    "Mild sore throat after a long flight, no fever.",
    "Dry cough and tiredness, temperature normal on arrival.",
    "Fever for three days, productive cough, pain when breathing in.",
    "High fever and shaking chills, short of breath when walking.",
    "Breathless at rest, drowsy, lips blue, oxygen by mask.",
)
_PROGRESS = (
    "Seen again on the ward, observations recorded every four hours.",
    "Transferred to another room; family informed.",
    "Physiotherapy twice a day, eats half of the meals.",
    "Film after a change of medication.",
)


def write_covid(
    people: People, folder: str | Path, *, seed: int = 0, pixels: bool = True, size: int = 256, dirty: bool = False
) -> None:
    """metadata.csv and images/ below `folder`.

    Most patients have one text at all their images, as the published table has; the others a first text that tells
    the chart, and later ones that do not. Every third patient with pneumonia has a text that names the diagnosis.
    Some images have no day, and the diagnosis of some is "todo": both by lot, whatever is true of them.

    `dirty`: further unknown diagnoses, odd ages, sex not said, CT slices in the table, and pictures that are missing
    or cannot be opened, all listed in defects.json.
    """
    if "pneumonia" not in people.findings:
        raise ConfigError(
            "covid, findings of the patients", allowed="pneumonia among them", got=", ".join(people.findings)
        )
    root = Path(folder)
    (root / "images").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 47])
    names = covid_names(people, seed)
    findings = covid_findings(people, names)
    table = _table(people, names, rng)
    defects: dict[str, list[str]] = {}
    if dirty:
        table, defects = _spoil_table(table, names, rng)
    table.write_csv(root / "metadata.csv")
    if pixels:
        paths = [root / "images" / each for each in names.get_column("filename")]
        defects |= write_pictures(people, names, paths, size, seed=seed, trouble=rng if dirty else None)
    write_known(people, root, names, LABEL_TRUTH, findings=findings, defects=defects if dirty else None)


def covid_names(people: People, seed: int = 0) -> pl.DataFrame:
    """The first studies of every patient with patient_id, study_id, image_id, filename, day and the cause by lot.

    A name keeps its ending in the id, and a study is a patient's day, or a file where the day is not known: as the
    reader has it. Studies lie a few days apart here, not years.
    """
    rng = np.random.default_rng([seed, 47, 1])
    frame = ordered_images(people).filter(pl.col("nth_study") <= _MOST_STUDIES)
    numbers = int(frame.get_column("number").max() or 0)  # type: ignore[arg-type]
    cause = rng.choice(len(CAUSES), size=numbers, p=[share for _, share, _ in CAUSES])
    gap = rng.integers(1, 6, size=(numbers, _MOST_STUDIES))
    first = rng.integers(0, 8, size=numbers)
    number, nth = (frame.get_column(name).to_numpy() - 1 for name in ("number", "nth_study"))
    day = first[number] + np.cumsum(gap, axis=1)[number, nth] - gap[number, 0]
    letter = np.where(rng.random(numbers) < 0.1, "a", "")[number]
    ending = np.where(rng.random(frame.height) < 0.3, "png", "jpg")
    known = rng.random(frame.height) > 0.1
    frame = frame.with_columns(
        patient_id=pl.col("number").cast(pl.String) + pl.Series(letter),
        cause=pl.Series(cause[number]),
        day=pl.when(pl.Series(known)).then(pl.Series(day)),
    )
    filename = pl.format("twin-{}-{}-{}.{}", "patient_id", "nth_study", "nth_view", pl.Series(ending))
    return frame.with_columns(
        filename=filename,
        image_id=filename,
        study_id=pl.format("{}/{}", "patient_id", pl.coalesce(pl.col("day").cast(pl.String), filename)),
    )


def covid_findings(people: People, names: pl.DataFrame) -> list[Planted]:
    """Pneumonia, its causes and No Finding. The cause is by lot, so each has its share of the pre-test probability."""
    base = next(each for each in planted_findings(people) if each.finding == "pneumonia")
    cause = np.zeros(len(base.y), dtype=np.int64)
    cause[names.get_column("image").to_numpy()] = names.get_column("cause").to_numpy()
    out = [base]
    for name in dict.fromkeys(name for _, _, made in CAUSES for name in made):
        makes = np.array([name in made for _, _, made in CAUSES])
        share = sum(part for _, part, made in CAUSES if name in made)
        pretest = base.pretest * share
        out.append(Planted(name, base.y * makes[cause], base.context, pretest, base.shown, base.of, share))
    return [*out, Planted("no_finding", 1 - base.y, -base.context, 1 - base.pretest, -base.shown, base.of)]


def _table(people: People, names: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    rows = names.get_column("image").to_numpy()
    at = people.findings.index("pneumonia")
    y = people.y[rows, at]
    cause = names.get_column("cause").to_list()
    finding = [CAUSES[each][0] if label else "No Finding" for label, each in zip(y.tolist(), cause, strict=True)]
    written = np.where(rng.random(len(rows)) < 0.06, "todo", finding)
    tube = people.images.get_column("et_tube").gather(rows)
    view = [str(rng.choice(_VIEWS.get(each, (each,)))) for each in names.get_column("view")]
    swab = (pl.Series(y) == 1) & (names.get_column("cause") == 0)
    filled: dict[str, pl.Expr | pl.Series] = {
        "patientid": pl.col("patient_id"),
        "offset": pl.col("day"),
        "sex": of_patients(people, "sex", names),
        "age": people.images.get_column("age").gather(rows).round().cast(pl.Int64),
        "finding": pl.Series(written),
        "RT_PCR_positive": pl.when(swab).then(pl.lit("Y")),
        "intubation_present": pl.when(tube).then(pl.lit("Y")).otherwise(pl.lit("N")),
        "view": pl.Series(view),
        "modality": pl.lit("X-ray"),
        "date": pl.lit("2020"),
        "location": pl.lit("Twin Hospital, Nowhere"),
        "folder": pl.lit("images"),
        "license": pl.Series(rng.choice(_LICENCES, size=len(rows))),
        "clinical_notes": pl.Series(_notes(people, names, written, rng), dtype=pl.String),
    }
    blank = {name: pl.lit(None, pl.String) for name in COLUMNS if name not in (*filled, "filename")}
    return names.select(pl.all().exclude("view", "time"), **blank, **filled).select(COLUMNS)


def _notes(
    people: People, names: pl.DataFrame, finding: NDArray[np.str_], rng: np.random.Generator
) -> list[str | None]:
    """A text for most images: one for the whole patient, or one at the first day and others later."""
    context = people.c[names.get_column("image").to_numpy(), people.findings.index("pneumonia")]
    level = level_of(context)
    frame = names.select("number", "nth_study", "cause", row=pl.int_range(pl.len()))
    texts: list[str | None] = [None] * names.height
    ill = 0  # patients with pneumonia and a text, so far
    for _, part in frame.group_by("number", maintain_order=True):
        mine = part.get_column("row").to_list()
        kind = rng.random()
        if kind < 0.15:  # nobody wrote anything
            continue
        story = _STORIES[int(level[mine[0]])]
        if any(each.startswith("Pneumonia") for each in finding[mine].tolist()):
            if ill % 3 == 0:
                story += f" {_cause_name(int(part.get_column('cause')[0]))}"
            ill += 1
        for row, nth in zip(mine, part.get_column("nth_study").to_list(), strict=True):
            if kind < 0.65 or nth == 1:
                texts[row] = story
            elif rng.random() < 0.7:
                texts[row] = str(rng.choice(_PROGRESS))
    return texts


def _cause_name(cause: int) -> str:
    last = CAUSES[cause][0].rsplit("/", maxsplit=1)[-1]
    return f"The swab was positive for {last}." if cause == 0 else f"Later treated for {last.lower()}."


def _spoil_table(
    table: pl.DataFrame, names: pl.DataFrame, rng: np.random.Generator
) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    ids = names.get_column("image_id")
    patients = names.get_column("patient_id")
    defects = {
        "unknown_diagnosis": pick(ids.filter(table["finding"] == "No Finding").to_list(), 0.03, rng),
        "sex_missing": pick(patients.to_list(), 0.05, rng),
        "age_missing": pick(patients.to_list(), 0.05, rng),
        "odd_age": pick(ids.to_list(), 0.02, rng),
    }
    hit = {
        kind: (patients if kind in ("sex_missing", "age_missing") else ids).is_in(those)
        for kind, those in defects.items()
    }
    table = table.with_columns(
        finding=pl.when(hit["unknown_diagnosis"]).then(pl.lit("Unknown")).otherwise("finding"),
        sex=pl.when(~hit["sex_missing"]).then("sex"),
        age=pl.when(hit["odd_age"]).then(411).when(~hit["age_missing"]).then("age"),
    )
    # Slices of CT volumes stand in the same table, in a folder of their own.
    slices = pick(ids.to_list(), 0.05, rng)
    ct = table.filter(ids.is_in(slices)).with_columns(
        filename=pl.format("ct-{}", "filename"),
        modality=pl.lit("CT"),
        view=pl.lit("Axial"),
        folder=pl.lit("volumes"),
    )
    return pl.concat([table, ct]), defects | {"ct": ct.get_column("filename").to_list()}
