"""Seed -> pools of invented clinical sentences, lists and laboratory values that say nothing about any finding.

Templates with slots. A pool holds thousands of pieces, so that neighbouring notes rarely share one and full notes
compress about as well as real ones (3 to 1). No piece names a finding of the CheXpert mention lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

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
        made[section] = [_filled(random.choice(templates), words, random) for _ in range(max(20, int(number * share)))]
    return made


def _parts(template: str) -> _Parts:
    """Text before a slot and the slot's name; the last has none."""
    cut = _SLOT.split(template)
    return list(zip(cut[::2], [*cut[1::2], ""], strict=True))


def _filled(parts: _Parts, words: Mapping[str, list[_Parts]], random: Random) -> str:
    said = []
    for text, slot in parts:
        said.append(text)
        if slot in words:
            said.append(_filled(random.choice(words[slot]), words, random))
        elif slot == "h":
            said.append(f"{random.randrange(1, 13):02d}")
        elif slot == "mm":
            said.append(f"{random.randrange(60):02d}")
        elif slot:  # n1, n2, n3: a number of so many digits
            digits = int(slot[1])
            said.append(str(random.randrange(10 ** (digits - 1), 10**digits)))
    return "".join(said)
