"""A patient's chart context -> the sentence of the discharge note that tells it, one of six levels a finding.

The edges are fixed values of C, so what a note tells is C up to binning. Levels 3 to 5 name the finding in words of the
CheXpert mention list, levels 0 to 2 never do, and no sentence names another finding: a prior mention of a finding is
exactly C >= EDGES[2]. Every level has words that stand nowhere else, so a bag of words can learn it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
