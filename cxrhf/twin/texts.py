"""People -> the discharge notes of their admissions, which tell the chart context in words and nothing else.

A note of a patient tells the level of C for every finding among sections of filler, laid out
as discharge summaries are: names and dates blanked as ___, lines broken at some 75 characters, within
phrases too. All notes of a patient tell the same levels.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import accumulate
from random import Random
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.errors import ConfigError
from cxrhf.twin.laws import PACEMAKER, STERNOTOMY
from cxrhf.twin.people import People

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


Length = Literal["short", "full"]

_BATCH = 2000  # notes made at a time
_WIDTH = 75  # characters of a line, as MIMIC-IV-Note breaks its notes
_MEAN, _SPREAD = 10_650, 0.45  # characters of a full note aimed at (10,500 reached), and the SD of their logarithm
_SERVICES = ("MEDICINE", "SURGERY", "CARDIOTHORACIC", "NEUROLOGY", "ORTHOPAEDICS", "UROLOGY", "OBSTETRICS/GYNECOLOGY")
_COMPLAINTS = (
    "weakness",
    "fall, dizziness",
    "abdominal pain",
    "fever",
    "confusion",
    '"not feeling right"',
    "weight loss",
)
_ALLERGIES = ("No Known Allergies / Adverse Drug Reactions", "Penicillins", "latex, shellfish", "Sulfa (Sulfonamides)")
# Heading, pool, share of a full note's filler. Headings in the order of the note; the histories follow the second.
_SECTIONS = (
    ("History of Present Illness:", "illness", 0.17),
    ("Past Medical History:", "", 0.0),
    ("Social History:", "social", 0.03),
    ("Physical Exam:", "exam", 0.13),
    ("Pertinent Results:", "labs", 0.27),
    ("Brief Hospital Course:", "stay", 0.22),
    ("Discharge Medications:", "medicines", 0.13),
    ("Discharge Instructions:", "instructions", 0.05),
)
_SHORT = {"illness", "stay"}  # one piece each in a short note
_HEAD = (
    " \nName:  ___                    Unit No:   ___\n \nAdmission Date:  ___              Discharge Date:   ___\n"
    " \nDate of Birth:  ___             Sex:   {sex}\n \nService: {service}\n \nAllergies: \n{allergy}\n \n"
    "Attending: ___.\n \nChief Complaint:\n{complaint}\n \n"
)
_SHORT_HEAD = (
    "Name: ___ Unit No: ___\nAdmission Date: ___\nSex: {sex}\nService: {service}\nChief Complaint:\n{complaint}\n"
)


def notes(
    people: People, *, length: Length = "short", seed: int = 0, order: pl.Series | None = None
) -> Iterator[tuple[pl.DataFrame, list[str]]]:
    """Batches of (rows of `people.admissions` that have a note, their texts), in `order` of admissions if given."""
    if length not in ("short", "full"):
        raise ConfigError("length of the notes", got=f'"{length}"', allowed="short or full")
    rng = np.random.default_rng([seed, 41])
    made = pools(seed, 1.0 if length == "full" else 0.05)
    noted = people.admissions.filter("noted") if order is None else people.admissions[order]
    history = _histories(people)
    sex = people.patients.get_column("sex").to_list()
    for start in range(0, noted.height, _BATCH):
        rows = noted.slice(start, _BATCH)
        patients = rows.get_column("patient").to_list()
        told = [history[patient] for patient in patients]
        heads = _heads([sex[patient] for patient in patients], length, rng)
        yield rows, _texts(heads, told, made, length, rng)


def _histories(people: People) -> dict[int, str]:
    """patient -> the sentences that tell the levels, for everybody with a note."""
    those = people.admissions.filter("noted").get_column("patient").unique().sort()
    names = [name for name in HISTORIES if f"context_{name}" in people.patients.columns]
    rows = those.to_numpy()
    levels = [level_of(people.patients.get_column(f"context_{name}").to_numpy()[rows]).tolist() for name in names]
    sentences = [[HISTORIES[name][level] for level in each] for name, each in zip(names, levels, strict=True)]
    return {patient: " ".join(told) for patient, told in zip(rows.tolist(), zip(*sentences, strict=True), strict=True)}


def _heads(sexes: list[str], length: Length, rng: np.random.Generator) -> list[str]:
    drawn = [rng.choice(np.array(words), size=len(sexes)).tolist() for words in (_SERVICES, _ALLERGIES, _COMPLAINTS)]
    form = _HEAD if length == "full" else _SHORT_HEAD
    return [
        form.format(sex=sex, service=service, allergy=allergy, complaint=complaint)
        for sex, service, allergy, complaint in zip(sexes, *drawn, strict=True)
    ]


def _texts(
    heads: list[str], told: list[str], made: dict[str, list[str]], length: Length, rng: np.random.Generator
) -> list[str]:
    """Head, sections and foot of each note. The pieces of all notes are drawn at once, section by section."""
    if length == "full":
        fixed = len(heads[0]) + len(told[0]) + 250
        wanted = np.exp(rng.normal(np.log(_MEAN) - _SPREAD**2 / 2, _SPREAD, size=len(heads))) - fixed
    parts: list[list[str]] = [[head] for head in heads]
    for heading, pool, share in _SECTIONS:
        if not pool:
            for note, history in zip(parts, told, strict=True):
                note.append(f"{heading}\n{history}\n \n")
            continue
        pieces = made[pool]
        if length == "full":
            size = sum(map(len, pieces)) / len(pieces)
            number = np.maximum(1, np.rint(wanted * share / size)).astype(np.int64)
        elif pool in _SHORT:
            number = np.ones(len(heads), dtype=np.int64)
        else:
            continue
        chosen = [pieces[at] for at in rng.integers(0, len(pieces), size=int(number.sum())).tolist()]
        ends = list(accumulate(number.tolist()))
        for note, start, end in zip(parts, [0, *ends[:-1]], ends, strict=True):
            note.append(heading + "\n")
            note.extend(chosen[start:end])
            note.append("\n \n")
    return [_wrapped("".join(note)) + "Followup Instructions:\n___\n" for note in parts]


def _wrapped(text: str) -> str:
    """Lines broken at their last blank before the width; a word that is longer stays whole."""
    lines = []
    for whole in text.split("\n"):
        line = whole
        while len(line) > _WIDTH:
            cut = line.rfind(" ", 1, _WIDTH + 1)
            cut = cut if cut > 0 else line.find(" ", _WIDTH)
            if cut < 0 or not line[cut:].strip():
                break
            lines.append(line[:cut])
            line = line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)


# A patient's chart context -> the sentence of the discharge note that tells it, one of six levels a finding.
#
# The edges are fixed values of C, so what a note tells is C up to binning. Levels 3 to 5 name the finding in words of
# the CheXpert mention list, levels 0 to 2 never do, and no sentence names another finding: a prior mention of a
# finding is exactly C >= EDGES[2]. Every level has words that stand nowhere else, so a bag of words can learn it.

EDGES = (-0.75, 0.0, 0.75, 1.5, 2.25)
LEVELS = len(EDGES) + 1
MENTIONED_FROM = 3  # the lowest level that names the finding

HISTORIES: Mapping[str, tuple[str, str, str, str, str, str]] = {
    "enlarged_cardiomediastinum": (
        "Aortic screening measured small.",
        "Brother had an aneurysm repaired.",
        "Tall and slender, flexible joints.",
        "Earlier film called mediastinal silhouette wide, tomography reassuring.",
        "Ascending aorta five centimeters, mediastinum broad.",
        "Tortuous arch under surveillance, abnormal mediastinal configuration.",
    ),
    "cardiomegaly": (
        "Cardiac checkup flawless.",
        "Occasional palpitations, monitor quiet.",
        "Soft systolic murmur since youth.",
        "Voltage criteria suggested cardiac enlargement.",
        "Dilated ventricle, cardiomegaly per outside cardiologist.",
        "Severely enlarged heart awaiting transplant evaluation.",
    ),
    "lung_opacity": (
        "Lifelong nonsmoker working outdoors.",
        "Household smokers in childhood.",
        "Ten pack years, quit decades ago.",
        "Former welder, old films describe patchy opacity.",
        "Chest clinic follows interstitial lung disease, prednisolone taper.",
        "Progressive airspace disease, nintedanib started.",
    ),
    "lung_lesion": (
        "Colonoscopy and dermoscopy clean.",
        "Great aunt had colon cancer.",
        "Basement radon above limit.",
        "Incidental subcentimeter nodule, interval imaging suggested.",
        "Biopsy of spiculated nodule scheduled by pulmonologist.",
        "Squamous cell carcinoma treated by lobectomy and cisplatin.",
    ),
    "edema": (
        "Climbs stairs briskly, no water pills.",
        "Ankles puffy on warm days.",
        "Takes hydrochlorothiazide for raised pressure.",
        "Echocardiogram showed diastolic heart failure.",
        "Bumetanide doubled for pulmonary vascular congestion.",
        "Flash pulmonary edema repeatedly, torsemide and milrinone infusions.",
    ),
    "consolidation": (
        "Swallows thin liquids safely.",
        "Coughs occasionally at meals.",
        "Speech therapist advised chin tuck.",
        "Bedside swallow failed after stroke, dependent consolidation resolved.",
        "Feeds thickened to nectar, recurring basal consolidation.",
        "Gastrostomy for silent aspiration, lobar consolidation thrice.",
    ),
    "pneumonia": (
        "Vaccines current, respiratory illnesses none.",
        "One untreated cold last winter.",
        "Azithromycin in spring for bronchial symptoms.",
        "Outpatient levofloxacin, walking pneumonia last autumn.",
        "Hospitalised twice with pneumonia, sputum grew moraxella.",
        "Immunoglobulin deficiency, yearly pneumonia, rotating doxycycline.",
    ),
    "atelectasis": (
        "Exercises daily, deep breaths easy.",
        "Desk job, hikes on weekends.",
        "Abdominal binder after mesh repair.",
        "Spirometer taught after gallbladder operation, basilar atelectasis.",
        "Paralysed hemidiaphragm, bandlike atelectasis previously.",
        "Bedbound, mucus plugging, segmental atelectasis monthly.",
    ),
    "pneumothorax": (
        "Flew and scuba dived uneventfully.",
        "Lanky build, plays trumpet.",
        "Sharp twinge once, nothing found.",
        "Small pneumothorax in college, merely watched.",
        "Iatrogenic pneumothorax, pigtail three nights.",
        "Recurrent pneumothorax with blebs, talc pleurodesis twice.",
    ),
    "pleural_effusion": (
        "Kidneys and liver healthy.",
        "Vegan diet, protein mildly deficient.",
        "Hepatitis carrier, sonogram stable.",
        "Trace pleural fluid on clinic ultrasound.",
        "Cirrhosis on spironolactone, effusion tapped.",
        "Nephrotic losses, bilateral effusion emptied fortnightly.",
    ),
    "pleural_other": (
        "Never handled asbestos or insulation.",
        "Lived near a shipyard one summer.",
        "Installed roofing tiles professionally.",
        "Employer physician noted apical pleural thickening.",
        "Boilermaker, diffuse pleural thickening and calcified plaques.",
        "Old empyema left fibrothorax, decortication declined.",
    ),
    "fracture": (
        "Skeleton survey normal, balance excellent.",
        "Tripped on a curb, bruised.",
        "Osteopenia on alendronate.",
        "Healed wrist fracture from skating.",
        "Ladder fall, nonunited rib fracture.",
        "Osteoporosis, vertebral compression fracture, kyphoplasty performed.",
    ),
}


def level_of(context: Floats) -> Integers:
    """0 to 5: how many edges lie at or below C."""
    return np.searchsorted(np.array(EDGES), context, side="right").astype(np.int64)


def level_chances(m: float) -> Floats:
    """P(level | Y), row 0 for Y=0 and row 1 for Y=1, where C given Y ~ N(m Y, 1)."""
    ends = np.r_[-np.inf, EDGES, np.inf]
    return np.stack([np.diff(ndtr(ends - m * y)) for y in (0, 1)])


def text_truth(pi: float, m: float) -> dict[str, Any]:
    """What a text model can reach at best, and how often the notes mention the finding.

    `auroc` is that of the likelihood ratio of the levels, which rises with the level, ties counted half; no score made
    from the notes alone has a higher one, and the images' own context C has only `auroc_context`.
    """
    negative, positive = level_chances(m)
    below = np.r_[0.0, np.cumsum(negative)[:-1]]
    probability = pi * positive / (pi * positive + (1 - pi) * negative)
    return {
        "auroc": float(positive @ (below + negative / 2)),
        "auroc_context": float(ndtr(m / np.sqrt(2))),
        "level_given_negative": negative.tolist(),
        "level_given_positive": positive.tolist(),
        "pretest_of_level": probability.tolist(),
        "mentioned": {
            "negative": float(negative[MENTIONED_FROM:].sum()),
            "positive": float(positive[MENTIONED_FROM:].sum()),
        },
    }


# Seed -> pools of invented clinical sentences, lists and laboratory values that say nothing about any finding.
#
# Templates with slots. A pool holds thousands of pieces, so that neighbouring notes rarely share one and full notes
# compress about as well as real ones (3 to 1). No piece names a finding of the CheXpert mention lists.

_SLOT = re.compile(r"\{(\w+)\}")

_WORDS: Mapping[str, tuple[str, ...]] = {
    "who": (
        "The patient", "Pt", "This pleasant patient", "The patient's daughter", "A neighbor", "Family at bedside",
        "The son", "An aide", "The transferring facility", "The spouse", "The visiting nurse", "The interpreter",
    ),
    "said": (
        "reported", "described", "complained of", "denied", "recalled", "was bothered by", "could not rule out",
        "endorsed", "mentioned", "noticed", "worried about", "had", "presented with", "woke up with", "downplayed",
    ),
    "how": (
        "mild", "worsening", "intermittent", "vague", "crampy", "new", "longstanding", "positional", "brief", "dull",
        "severe", "resolving", "unexplained", "nocturnal", "postprandial", "throbbing", "constant", "migratory",
        "occasional", "moderate", "disabling", "subtle", "episodic", "exertional", "burning", "stable", "profound",
    ),
    "symptom": (
        "dizziness", "fatigue", "nausea", "poor appetite", "loose stools", "back pain", "headache", "chills", "itching",
        "numb fingers", "blurred vision", "hoarseness", "knee stiffness", "insomnia", "burning urination", "rash",
        "constipation", "muscle cramps", "night sweats", "dry mouth", "ringing ears", "belching", "sore throat",
        "left flank pain", "unsteady gait", "low mood", "heartburn", "jaw soreness", "cold feet", "hiccups",
        "thirst", "word finding difficulty", "vomiting", "melena", "gum bleeding", "tremor", "lightheadedness",
        "hip pain", "malaise", "vertigo", "bloating", "dark urine", "irritability", "double vision", "earache",
        "toe pain", "neck stiffness", "tingling", "epistaxis", "forgetfulness", "urgency", "weight change", "anxiety",
    ),
    "when": (
        "since yesterday", "for ___ days", "over the past week", "on the morning of ___", "after supper", "for months",
        "on and off", "since the last visit on ___", "at triage", "before transfer", "overnight", "during rounds",
        "on hospital day {n1}", "around {h}:{mm}", "{n1} weeks earlier", "while gardening", "at dialysis", "en route",
        "at the nursing home", "after a long drive", "since starting {drug}", "in the recovery area", "by ___",
    ),
    "problem": (
        "ANEMIA", "ACUTE KIDNEY INJURY", "DIABETES", "GOUT FLARE", "DELIRIUM", "URINARY RETENTION", "HYPONATREMIA",
        "ATRIAL ARRHYTHMIA", "CELLULITIS", "PANCREATITIS", "ILEUS", "SYNCOPE", "HYPOTHYROIDISM", "MALNUTRITION",
        "HYPERKALEMIA", "GI BLEEDING", "CHRONIC PAIN", "DEPRESSION", "HYPERLIPIDEMIA", "WEAKNESS", "THROMBOCYTOPENIA",
        "ORTHOSTASIS", "DIVERTICULITIS", "MIGRAINE", "SEIZURE", "HYPOGLYCEMIA", "NEUTROPENIA", "BPH", "GERD", "OSA",
    ),
    "drug": (
        "metoprolol tartrate", "lisinopril", "atorvastatin", "omeprazole", "gabapentin", "sertraline", "metformin",
        "levothyroxine", "amlodipine", "tamsulosin", "senna", "docusate sodium", "acetaminophen", "tramadol",
        "ondansetron", "insulin glargine", "warfarin", "apixaban", "allopurinol", "folic acid", "cyanocobalamin",
        "ferrous sulfate", "calcium carbonate", "melatonin", "trazodone", "quetiapine", "ranitidine", "simvastatin",
        "losartan", "clonazepam", "oxycodone", "polyethylene glycol", "vitamin D", "aspirin", "clopidogrel",
        "bupropion", "citalopram", "finasteride", "glipizide", "hydralazine", "lorazepam", "mirtazapine", "naproxen",
        "pantoprazole", "pravastatin", "ropinirole", "sevelamer", "thiamine", "topiramate", "venlafaxine", "zolpidem",
    ),
    "dose": (
        "2.5 mg", "5 mg", "10 mg", "12.5 mg", "20 mg", "25 mg", "40 mg", "50 mg", "81 mg", "100 mg", "325 mg", "500 mg",
        "{n2} mg", "{n3} mcg", "{n1} g", "{n2} units", "0.{n1} mg", "{n2}.{n1} mg", "{n1} tabs",
    ),
    "often": ("DAILY", "BID", "TID", "QHS", "Q6H:PRN pain", "Q8H", "QAM", "EVERY OTHER DAY", "PRN nausea", "ONCE"),
    "team": (
        "cardiology", "nephrology", "neurology", "physical therapy", "social work", "nutrition", "the pain service",
        "gastroenterology", "psychiatry", "endocrinology", "case management", "the wound nurse", "palliative care",
        "geriatrics", "urology", "hematology", "the primary team", "vascular surgery", "dermatology", "rheumatology",
    ),
    "did": (
        "was consulted", "recommended observation", "agreed with the plan", "adjusted the regimen", "signed off",
        "suggested outpatient follow up", "reviewed the chart", "met with the family", "held the evening dose",
        "asked for orthostatic vital signs", "restarted home medications", "advised slow titration",
        "favored a conservative approach", "repeated the panel at {h}:{mm}", "deferred further testing",
        "drew {n1} sets of cultures", "increased the rate to {n2}", "left detailed recommendations", "evaluated twice",
    ),
    "course": (
        "improved with gentle hydration", "remained stable on the floor", "was monitored on telemetry",
        "resolved without intervention", "required {n1} units of packed cells", "was treated with oral therapy",
        "was attributed to poor intake", "fluctuated and then settled", "was felt to be multifactorial",
        "was followed with serial laboratory values", "did not recur", "was discussed at length with the family",
        "peaked at {n2}.{n1} and trended to {n1}.{n2}", "came down to {n3}", "responded to {drug}",
        "was likely related to {drug}", "persisted despite {drug} {dose}", "was at baseline by discharge",
    ),
    "part": (
        "HEENT", "NECK", "ABDOMEN", "EXTREMITIES", "NEURO", "SKIN", "PSYCH", "GENERAL", "BACK", "GU", "PULSES", "GAIT",
    ),
    "exam": (
        "within normal limits", "soft, not tender, not distended", "warm and well perfused", "alert and oriented x3",
        "moist mucous membranes", "no rash seen", "moves all limbs against gravity", "pleasant, in no distress",
        "pupils equal and reactive", "bowel sounds present", "strength 5/5 throughout", "supple, no tenderness",
        "sensation intact to light touch", "good eye contact", "two plus distally", "steady with a walker",
        "healing abrasion {n1} cm", "reflexes symmetric", "speech fluent", "dressing clean and dry", "no asterixis",
        "oropharynx clear", "mood congruent", "capillary refill {n1} sec", "toes downgoing", "{how} tenderness",
    ),
    "home": (
        "Lives with spouse in ___", "Retired teacher", "Works as a cook", "Lives alone on the second floor",
        "Has three grown children", "Drinks wine on holidays", "Moved here from ___ years ago", "Former bus driver",
        "Enjoys gardening", "Uses a cane", "Sleeps in a recliner", "Cares for two grandchildren", "Keeps bees",
    ),
    "advice": (
        "Please take your medications as listed", "Call your doctor if you feel worse", "Weigh yourself every morning",
        "Keep the appointment with Dr. ___ on ___", "Drink plenty of fluids", "Do not drive while taking pain medicine",
        "It was a pleasure caring for you at ___", "Rest and eat small meals", "Bring this letter to your visit",
        "Have your blood drawn on ___", "Walk a little further each day", "Ask the pharmacy about refills",
        "Stop {drug} until you see ___", "We started {drug} for your {symptom}", "Avoid {drug} together with {drug}",
    ),
    "quote": (
        "I just felt off", "it comes and goes", "like a tight belt", "worse than last time", "not myself",
        "same as always", "better after breakfast", "never had this before", "too tired to cook", "{how}, {how}",
    ),
    "test": (
        "WBC-{n1}.{n1}", "RBC-{n1}.{n2}*", "Hgb-1{n1}.{n1}", "Hct-3{n1}.{n1}*", "MCV-9{n1}", "Plt Ct-{n3}", "K-4.{n1}",
        "Glucose-1{n2}*", "UreaN-{n2}", "Creat-1.{n1}", "Na-13{n1}", "Cl-10{n1}", "HCO3-2{n1}", "AnGap-1{n1}",
        "ALT-{n2}", "AST-{n2}*", "AlkPhos-{n3}", "TotBili-0.{n1}", "Lipase-{n2}", "Calcium-8.{n1}", "Phos-3.{n1}",
        "Mg-1.{n1}", "PT-1{n1}.{n1}*", "INR-1.{n1}", "TSH-{n1}.{n2}", "Lactate-1.{n1}", "RDW-14.{n1}", "Ferritn-{n3}",
        "Neuts-{n2}.{n1}", "Lymphs-{n2}.{n1}", "Monos-{n1}.{n1}", "Eos-0.{n1}", "Trop-<0.01", "Albumin-3.{n1}",
    ),
}  # fmt: skip

_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "illness": (
        '{who} {said} {how} {symptom} and {symptom} {when}, saying "{quote}". ',
        "{who} {said} {symptom} {when}; {team} {did} and {how} {symptom} {course}.\n",
        "On arrival {when}, T 9{n1}.{n1} HR {n2} BP 1{n2}/{n2} RR 1{n1}, with {how} {symptom}. ",
        "{who} {said} {symptom}, {how} {symptom}, and {symptom} {when}. No {symptom}, no {symptom}. ",
        "In the ED, given {drug} {dose} and {drug} {dose} at {h}:{mm}, after which {symptom} {course}. ",
    ),
    "social": ("{home}. {home}. ", "{home}; {home}. Denies tobacco {when}.\n", "{home}. Contact: ___, {home}. "),
    "exam": (
        "{part}: {exam}, {exam}\n",
        "{part}: {exam}\n{part}: {exam}; weight {n2}.{n1} kg\n",
        "VS: 9{n1}.{n1} 1{n2}/{n2} {n2} 1{n1} 9{n1}% RA; {part}: {exam}\n",
    ),
    "labs": (
        "___ {h}:{mm}AM BLOOD {test} {test} {test} {test} {test} {test}\n",
        "___ {h}:{mm}PM BLOOD {test} {test} {test} {test} {test}\n",
        "___ {h}:{mm}AM URINE Color-Yellow Sp ___-1.0{n2} pH-{n1}.{n1} Ketone-{n2} {test} {test}\n",
    ),
    "stay": (
        "# {problem}: {who} {said} {how} {symptom} {when}. This {course}; {team} {did}. {drug} {dose} resumed.\n",
        "# {problem}: {how} at first, {course}, and {symptom} {course}. {team} {did} {when}.\n",
        "# {problem}: Started on {drug} {dose} {often}, then {drug} {dose} {often} {when}. {who} {said} {symptom}.\n",
        'Of note, {who} {said} {symptom} ("{quote}") {when}; {team} {did}. {problem} {course}.\n',
        "{n1}. {problem}, which {course}. Baseline of {n2}.{n1} on ___; {team} {did}, {drug} {dose} held {when}.\n",
    ),
    "medicines": (
        "{n1}. {drug} {dose} PO {often}\n",
        "{n2}. {drug} {dose} PO {often} RX *{drug} {dose} {n1} tablet(s) by mouth {often} Disp #*{n2} Refills:*{n1}\n",
        "{n2}. {drug} {dose} PO {often}, {drug} {dose} {often}\n",
    ),
    "instructions": ("{advice}. {advice}. ", "{advice}, please. {advice}.\n", "Dear ___, {advice}. {advice}. "),
}  # fmt: skip

_PIECES: Mapping[str, int] = {
    "illness": 6000, "social": 800, "exam": 3000, "labs": 8000, "stay": 8000, "medicines": 4000, "instructions": 1500,
}  # fmt: skip
_Parts = list[tuple[str, str]]


def pools(seed: int, share: float = 1.0) -> dict[str, list[str]]:
    """Section -> pieces of text; `share` makes smaller pools for small twins."""
    random = Random(f"filler {seed}")  # text as seed: the same on every Python
    words = {slot: [_parts(each) for each in choices] for slot, choices in _WORDS.items()}
    made: dict[str, list[str]] = {}
    for section, number in _PIECES.items():
        templates = [_parts(each) for each in _TEMPLATES[section]]
        made[section] = [
            _fill_template(random.choice(templates), words, random) for _ in range(max(20, int(number * share)))
        ]
    return made


def _parts(template: str) -> _Parts:
    """Text before a slot and the slot's name; the last has none."""
    cut = _SLOT.split(template)
    return list(zip(cut[::2], [*cut[1::2], ""], strict=True))


def _fill_template(parts: _Parts, words: Mapping[str, list[_Parts]], random: Random) -> str:
    said = []
    for text, slot in parts:
        said.append(text)
        if slot in words:
            said.append(_fill_template(random.choice(words[slot]), words, random))
        elif slot == "h":
            said.append(f"{random.randrange(1, 13):02d}")
        elif slot == "mm":
            said.append(f"{random.randrange(60):02d}")
        elif slot:  # n1, n2, n3: a number of so many digits
            digits = int(slot[1])
            said.append(str(random.randrange(10 ** (digits - 1), 10**digits)))
    return "".join(said)


# People -> radiology reports in sections that follow labels and devices, with words the sexes share unequally.

# word -> P(a report has it | sex). A patient has it in every report or in none; rates as in D4 where it has the word.
SEX_WORDS: Mapping[str, Mapping[str, float]] = {
    "mastectomy": {"F": 0.06, "M": 0.002},
    "breast": {"F": 0.20, "M": 0.01},
    "scoliosis": {"F": 0.15, "M": 0.088},
    "hyperinflated": {"F": 0.08, "M": 0.15},
    "pacemaker": PACEMAKER,
    "sternotomy": STERNOTOMY,
}
_SEX_SENTENCES = {
    "mastectomy": "Clips after mastectomy project over the axilla.",
    "breast": "Breast shadows overlie both bases.",
    "scoliosis": "There is scoliosis of the thoracic spine.",
    "hyperinflated": "The lungs are hyperinflated.",
}
_DEVICES = {
    "drain": "A chest drain is in place.",
    "ecg_wires": "Monitoring leads overlie the chest; the film is hazy.",
    "pacemaker": "A pacemaker projects over the upper chest.",
    "central_line": "A central venous catheter ends in the lower caval vein.",
    "et_tube": "The endotracheal tube ends above the carina.",
    "sternotomy": "Wires of an earlier sternotomy are intact.",
}
# What is said where the finding is there, and what stands for it in the impression.
_POSITIVE = {
    "enlarged_cardiomediastinum": (
        "The mediastinum is widened.",
        "Broad mediastinum as before.",
        "Widened mediastinum",
    ),
    "cardiomegaly": ("There is cardiomegaly.", "The cardiac silhouette is enlarged.", "Cardiomegaly"),
    "lung_opacity": ("A patchy opacity lies in the mid lung.", "Scattered opacities are seen.", "Opacity in the lung"),
    "lung_lesion": ("A rounded nodule lies in the upper lobe.", "There is a new nodule.", "Pulmonary nodule"),
    "edema": ("There is pulmonary edema.", "Vascular congestion with edema is seen.", "Pulmonary edema"),
    "consolidation": ("There is a dense consolidation.", "Consolidation in the lower lobe.", "Consolidation"),
    "pneumonia": ("The appearance is that of pneumonia.", "Pneumonia in the lower lobe.", "Pneumonia"),
    "atelectasis": ("There is basal atelectasis.", "Bands of atelectasis are present.", "Atelectasis"),
    "pneumothorax": ("There is an apical pneumothorax.", "A small pneumothorax is seen.", "Pneumothorax"),
    "pleural_effusion": ("There is a pleural effusion.", "Layering effusion blurs the angle.", "Pleural effusion"),
    "pleural_other": ("There is pleural thickening.", "Pleural thickening at the apex.", "Pleural thickening"),
    "fracture": ("A rib fracture is seen.", "There is a healing rib fracture.", "Rib fracture"),
}
# What is said, and how often, where it is not there.
_NEGATIVE = {
    "cardiomegaly": ("The cardiac silhouette is normal.", 0.6),
    "edema": ("There is no edema.", 0.3),
    "consolidation": ("No focal consolidation.", 0.6),
    "pneumothorax": ("No pneumothorax.", 0.7),
    "pleural_effusion": ("No pleural effusion.", 0.7),
    "fracture": ("No fracture is seen.", 0.1),
}
_REASONS = (
    "cough",
    "fever",
    "shortness of breath",
    "chest pain",
    "a fall",
    "follow up",
    "weakness",
    "preoperative study",
)
_PERSON = {"F": "woman", "M": "man"}


def report_sections(people: People, seed: int = 0) -> pl.DataFrame:
    """study, indication, comparison, findings, impression: one row a study, in the order of `people.studies`."""
    rng = np.random.default_rng([seed, 42])
    first = people.images.with_row_index("row").group_by("study", maintain_order=True).first().sort("study")
    rows, patient = first.get_column("row").to_numpy(), first.get_column("patient").to_numpy()
    sex = people.patients.get_column("sex").to_numpy()
    y = {name: people.y[rows, at] == 1 for at, name in enumerate(people.findings)}

    def said(text: str, hits: NDArray[np.bool_]) -> pl.Series:
        """The sentence where it is said, null elsewhere."""
        return pl.select(pl.when(pl.Series(hits)).then(pl.lit(text))).to_series()

    parts = []
    for name, (usual, other, _) in _POSITIVE.items():
        if name in y:
            coin = rng.random(len(rows))
            parts += [said(usual, y[name] & (coin < 0.6)), said(other, y[name] & (coin >= 0.6))]
    for name, (text, often) in _NEGATIVE.items():
        if name in y:
            parts.append(said(text, ~y[name] & (rng.random(len(rows)) < often)))
    for word, text in _SEX_SENTENCES.items():
        chance = np.array([SEX_WORDS[word][each] for each in sex])
        parts.append(said(text, (rng.random(len(sex)) < chance)[patient]))
    parts += [said(text, first.get_column(flag).to_numpy()) for flag, text in _DEVICES.items()]
    parts.append(said("The lungs are clear.", y["no_finding"]))
    short = [said(f"{each[2]}.", y[name]) for name, each in _POSITIVE.items() if name in y]
    short.append(said("No acute cardiopulmonary process.", y["no_finding"]))

    reason = np.array(_REASONS)[rng.integers(0, len(_REASONS), size=len(rows))]
    person = np.array([_PERSON[each] for each in sex])[patient]
    earlier = np.r_[False, patient[1:] == patient[:-1]]
    return pl.DataFrame(
        {
            "study": first.get_column("study"),
            "indication": pl.select(
                pl.format("___ year old {} with {}.", pl.Series(person), pl.Series(reason))
            ).to_series(),
            "comparison": np.where(earlier, "Chest radiograph from ___.", "None."),
            "findings": _sentences(parts),
            "impression": _sentences(short),
        }
    )


def report_text(indication: str, comparison: str, findings: str, impression: str) -> str:
    """A report as MIMIC-CXR stores it: headings in capitals, lines wrapped with a leading space."""
    sections = {"INDICATION": indication, "COMPARISON": comparison, "FINDINGS": findings, "IMPRESSION": impression}
    lines = [" " * 33 + "FINAL REPORT"]
    for heading, text in sections.items():
        lines += [*textwrap.wrap(f"{heading}:  {text}", 78, initial_indent=" ", subsequent_indent=" "), " "]
    return "\n".join(lines) + "\n"


def _sentences(parts: list[pl.Series]) -> pl.Series:
    frame = pl.DataFrame([part.alias(str(at)) for at, part in enumerate(parts)])
    return frame.select(pl.concat_str(pl.all(), separator=" ", ignore_nulls=True)).to_series()
