"""A share, or a number of patients -> how many patients, admissions, notes, studies and images there are, exactly."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from cxrhf.errors import ConfigError

MOST_ADMISSIONS, MOST_STUDIES = 40, 170  # of one patient
_GROUPED = ("admitted", "admissions", "noted", "notes")  # counted for imaged patients and for the others


@dataclass(frozen=True, slots=True)
class Sizes:
    """Totals of a twin; the defaults are those of MIMIC-CXR-JPG 2.0.0, MIMIC-IV 3.0 and MIMIC-IV-Note 2.2.

    `imaged_*` count only what belongs to patients with labelled images. `studies` are those of the metadata file, of
    which `unlabelled` are in no label file; `admitted_studies` are labelled studies of patients with an admission.
    """

    imaged: int = 65_379
    imaged_admitted: int = 51_851
    admitted: int = 223_452
    admissions: int = 546_028
    imaged_admissions: int = 219_727
    noted: int = 145_914
    imaged_noted: int = 45_921
    notes: int = 331_793
    imaged_notes: int = 162_996
    studies: int = 227_835
    unlabelled: int = 8
    admitted_studies: int = 204_036
    images: int = 377_110

    def __post_init__(self) -> None:
        """Say which totals contradict each other, before any patient is drawn."""
        labelled, not_admitted = self.studies - self.unlabelled, self.imaged - self.imaged_admitted
        others = {name: getattr(self, name) - getattr(self, f"imaged_{name}") for name in _GROUPED}
        rules = {
            "1 <= imaged, 0 <= imaged_admitted <= imaged": self.imaged >= 1
            and 0 <= self.imaged_admitted <= self.imaged,
            "labelled studies of imaged_admitted: 1 to 170 a patient": (
                self.imaged_admitted <= self.admitted_studies <= MOST_STUDIES * self.imaged_admitted
            ),
            "labelled studies of the other imaged: 1 to 170 a patient": (
                not_admitted <= labelled - self.admitted_studies <= MOST_STUDIES * not_admitted
            ),
            "0 <= unlabelled, studies <= images <= 3 * studies": (
                self.unlabelled >= 0 and self.studies <= self.images <= 3 * self.studies
            ),
        }
        for who, group in {
            "imaged": {name: getattr(self, f"imaged_{name}") for name in _GROUPED},
            "others": others,
        }.items():
            people, stays, noted, notes = (group[name] for name in _GROUPED)
            rules[f"{who}: 1 to 40 admissions an admitted patient"] = 0 <= people <= stays <= MOST_ADMISSIONS * people
            rules[f"{who}: noted <= admitted, noted <= notes"] = 0 <= noted <= min(people, notes)
            rules[f"{who}: notes <= admissions of the noted"] = notes <= (stays - people + noted if noted else 0)
        for rule, holds in rules.items():
            if not holds:
                raise ConfigError("sizes of the twin contradict each other", got=str(self), allowed=rule)

    @property
    def patients(self) -> int:
        """Everybody: admitted, imaged or both."""
        return self.admitted + self.imaged - self.imaged_admitted

    def scaled(self, share: float) -> Sizes:
        """The same shape at a share of the size: every total rounded, then moved by a few where rounding disagrees."""
        if not 0 < share <= 1:
            raise ConfigError("share of the size", got=share, allowed="a number above 0 and at most 1")
        return _repaired({each.name: round(getattr(self, each.name) * share) for each in fields(self)})


MIMIC_SIZE = Sizes()


def sizes_for(n_patients: int) -> Sizes:
    """A small twin: `n_patients` with images in MIMIC's proportions, and a quarter as many without any image."""
    if n_patients < 1:
        raise ConfigError("number of patients of the twin", got=n_patients, allowed="at least 1")
    part = n_patients / MIMIC_SIZE.imaged
    whole = {each.name: round(getattr(MIMIC_SIZE, each.name) * part) for each in fields(Sizes)}
    others = 0.25 * n_patients / (MIMIC_SIZE.admitted - MIMIC_SIZE.imaged_admitted)
    for name in _GROUPED:
        rest = getattr(MIMIC_SIZE, name) - getattr(MIMIC_SIZE, f"imaged_{name}")
        whole[name] = whole[f"imaged_{name}"] + round(rest * others)
    whole["studies"] -= whole["unlabelled"]
    whole["unlabelled"] = 0
    return _repaired(whole)


def _repaired(counts: dict[str, int]) -> Sizes:
    """Rounded totals with the smallest changes that make them agree; totals that agree already stay as they are."""

    def between(low: int, value: int, high: int) -> int:
        return max(low, min(value, high))

    at = dict(counts)
    at["imaged"] = max(1, at["imaged"])
    at["imaged_admitted"] = between(0, at["imaged_admitted"], at["imaged"])
    rest = {name: max(0, at[name] - at[f"imaged_{name}"]) for name in _GROUPED}
    own = {name: at[f"imaged_{name}"] for name in _GROUPED}
    for group in (own, rest):
        people = group["admitted"]
        group["admissions"] = between(people, group["admissions"], MOST_ADMISSIONS * people)
        group["noted"] = between(0, group["noted"], people)
        most = group["admissions"] - (people - group["noted"]) if group["noted"] else 0
        group["notes"] = between(group["noted"], group["notes"], most)
    for name in _GROUPED:
        at[f"imaged_{name}"] = own[name]
        at[name] = own[name] + rest[name]
    at["admitted_studies"] = between(own["admitted"], at["admitted_studies"], MOST_STUDIES * own["admitted"])
    others = at["imaged"] - own["admitted"]
    labelled = between(others, at["studies"] - at["unlabelled"] - at["admitted_studies"], MOST_STUDIES * others)
    at["studies"] = at["admitted_studies"] + labelled + at["unlabelled"]
    at["images"] = between(at["studies"], at["images"], 3 * at["studies"])
    return replace(MIMIC_SIZE, **at)
