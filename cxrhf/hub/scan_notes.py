"""Text of unknown origin -> the places where it reads like a radiology report or a clinical note.

The rule, which is a word list and a sum. Every word has points: words that reports and notes are made of have more than
0 (`mediastinum` 4, `effusion` 2, `unchanged` 2, `seen` 1), everyday function words 0, words that are not listed -1,
words of models, metrics and code -3. Some phrases add to that (`year old` 5, `history of present illness` 8, a line
that begins with `IMPRESSION:` 3, a blank `___` 2). The points are summed word by word, never below 0: where the sum
reaches 10, the text reads like a report. Talk about findings does not get there, for its words of models pull it down.

What does not count, since cards and examples are full of it: cells and lines of fewer than four words, lists of four
and more short items (`effusion, opacity, edema, nodule`), names with underscores; and text that is made of nothing but
the sentences of `STOCK`, which stand in the examples of our metrics and are said of no one.

On the half of the public reports that the lists (`scan_lexicon`) were not made from it finds, by two sentences, three,
and the whole text: of the Indiana reports 87%, 97%, 99%; of the written ones 92%, 99%, 100%; of the covid notes 74%,
85%, 91% (on the other half the same within three points). Of made-up discharge notes it finds every whole one, of two
lines of them a quarter. No card, metric or page of this project reads like a report but one that lists prompts, and of
95 MB of other packages four lists do. Gaps: English only; one short sentence is never enough, nor is "No active
disease."; everyday sentences of a note. Notes that are known are found by `scan_known`, however they read.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.findings import CHEXPERT, NIH, NIH_LONG_TAIL, display_name
from cxrhf.hub.scan_words import (
    Hashes,
    Places,
    Words,
    hash_phrase,
    look_up_hashes,
    offsets_of,
    segments,
    windows,
    words_of,
)
from cxrhf.metrics.compiled import compiled

Floats = NDArray[np.float64]


ENOUGH = 10.0  # points in a row that make a report
OF_ITS_OWN, DIFFERENT = 6.0, 2  # of them points, and different words, that are not of stock sentences
_UNLISTED, _NUMBER, _BELOW_ONE = -1.0, -0.25, -2.0
_FEW_WORDS, _SHORT_ITEM, _LONG_LIST = 4, 2, 4

_CELL_ENDS = b"\n|\x1f\"'`[]{}<>"
_SENTENCE_ENDS, _ITEM_ENDS = _CELL_ENDS + b".!?;", _CELL_ENDS + b",;()"
_UNIT_END = 0x1F  # between texts that have nothing to do with each other


class Passage(NamedTuple):
    """A stretch of text that reads like a report: its first byte, and the byte after it."""

    start: int
    end: int


def passages(data: bytes) -> list[Passage]:
    """Where a text reads like a report or a note. The byte 0x1f parts texts that are judged one by one."""
    words = words_of(data)
    if not len(words):
        return []
    points = _points(data, words)
    own = np.where(_stock(data, words), np.minimum(points, 0.0), points)
    begin = np.empty(len(words), np.int64)
    reads = np.empty(len(words), np.bool_)
    _sum_up(points, own, begin, reads)
    at = np.flatnonzero(reads)
    last = at[np.flatnonzero(np.diff(begin[at], append=-1))] if len(at) else at
    return [
        Passage(int(words.start[first]), int(words.end[end]))
        for first, end in zip(begin[last].tolist(), last.tolist(), strict=True)
        if len(np.unique(words.hash[first : end + 1][own[first : end + 1] > 0])) >= DIFFERENT
    ]


@compiled
def _sum_up(points: Floats, own: Floats, begin: Places, reads: NDArray[np.bool_]) -> None:
    """Where the sum of all points, and that of points which are not of stock sentences, are both high enough.

    `begin`: the word at which the second sum left 0. The first is bounded, or a page of examples would lift what
    stands after it.
    """
    total, alone, first = 0.0, 0.0, 0
    for at in range(len(points)):
        if alone <= 0.0:
            first = at
        total = min(max(total + points[at], 0.0), 2.0 * ENOUGH)
        alone = max(alone + own[at], 0.0)
        begin[at] = first
        reads[at] = total >= ENOUGH and alone >= OF_ITS_OWN


def _points(data: bytes, words: Words) -> Floats:
    """What every word counts."""
    keys, values = _lexicon()
    listed, where = look_up_hashes(keys, words.hash)
    points = np.where(listed, values[where], _UNLISTED)
    text = np.frombuffer(data, np.uint8)
    number = _is_digit(text[words.start])
    points[~listed & number] = _NUMBER
    # Behind the point of a number below 1: tables and pictures of results are full of them.
    padded = np.concatenate([[32] * 3, text, [32]]).astype(np.uint8)
    before, further = padded[words.start + 2], padded[words.start + 1]
    below_one = ~_is_digit(further) | ((further == ord("0")) & ~_is_digit(padded[words.start]))
    points[number & (before == ord(".")) & below_one] = _BELOW_ONE
    for length, (phrases, worth) in _phrases().items():
        hit, which = look_up_hashes(phrases, windows(words.hash, length))
        points[: len(hit)][hit] += worth[which[hit]]
    name = (before == ord("_")) | np.isin(padded[words.end + 3], list(b"_(=\\"))  # pleural_effusion, f(x), n=3
    points[(name | _not_prose(data, words) | _finding_names(data, words)) & (points > 0)] = 0.0
    for letters, mark, extra in MARKS:
        if any(each.encode() in data for each in letters.split()):
            for found in mark.finditer(data):
                at = int(np.searchsorted(words.start, found.start()))
                if at < len(words):
                    points[at] = max(points[at], 0.0) + extra
    ends = np.flatnonzero(text == _UNIT_END)
    at_ends = np.searchsorted(words.start, ends)
    # Down to nothing before the first word of the next text; that word's own points start anew.
    points[at_ends[at_ends > 0] - 1] -= 1e6
    return points


def _is_digit(letters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((letters >= ord("0")) & (letters <= ord("9")))


def _not_prose(data: bytes, words: Words) -> NDArray[np.bool_]:
    """Words of short cells and lines, and of lists."""
    _, count = segments(words, offsets_of(data, _CELL_ENDS))
    apart = np.repeat(count < _FEW_WORDS, count)
    ends = np.concatenate([offsets_of(data, _ITEM_ENDS), words.start[words.hash == words_of(b"and").hash[0]] - 1])
    _, count = segments(words, np.sort(ends))
    short = np.concatenate([[False], count <= _SHORT_ITEM, [False]])
    edges = np.flatnonzero(np.diff(short))
    begin, end = edges[::2], edges[1::2]
    long = end - begin >= _LONG_LIST
    in_list = np.zeros(len(count) + 1, np.int64)
    np.add.at(in_list, begin[long], 1)
    np.add.at(in_list, end[long], -1)
    return np.asarray(apart | np.repeat(np.cumsum(in_list)[:-1] > 0, count))


def _finding_names(data: bytes, words: Words) -> NDArray[np.bool_]:
    """Words of findings that are named, not seen: `Pleural effusion` with a capital in the middle of a sentence."""
    named = np.zeros(len(words), np.bool_)
    names = tuple(sorted(display_name(name) for name in {*CHEXPERT, *NIH, *NIH_LONG_TAIL}))
    for length, known in _hashes_by_length(names).items():
        for at in np.flatnonzero(look_up_hashes(known, windows(words.hash, length))[0]):
            start = int(words.start[at])
            before = data[max(0, start - 40) : start].rstrip(b" *`")[-1:]
            in_a_sentence = before not in (b"", b".", b"!", b"?", b"\n")
            named[at : at + length] |= data[start : start + 1].isupper() and in_a_sentence
    return named


def _stock(data: bytes, words: Words) -> NDArray[np.bool_]:
    """Words of sentences that stand in our examples."""
    stock = np.zeros(len(words), np.bool_)
    first, count = segments(words, offsets_of(data, _SENTENCE_ENDS))
    for length, known in _hashes_by_length(tuple(STOCK.split("."))).items():
        begin = first[count == length]
        if len(begin):
            same = begin[look_up_hashes(known, windows(words.hash, length)[begin])[0]]
            stock[(same[:, None] + np.arange(length)).ravel()] = True
    return stock


@functools.cache
def _lexicon() -> tuple[Hashes, Floats]:
    """Sorted hashes of the listed words, and their points."""
    hashes = np.concatenate([words_of(words.encode()).hash for words in POINTS.values()])
    values = np.concatenate([np.full(len(words.split()), points) for points, words in POINTS.items()])
    keys, first = np.unique(hashes, return_index=True)
    return keys, values[first]


@functools.cache
def _phrases() -> dict[int, tuple[Hashes, Floats]]:
    """Number of words -> sorted hashes of the phrases with so many, and their points."""
    made: dict[int, dict[int, float]] = {}
    for points, texts in PHRASES.items():
        for text in texts.split(","):
            length, value = hash_phrase(text)
            made.setdefault(length, {})[int(value)] = points
    return {
        length: (np.array(sorted(of), np.uint64), np.array([of[each] for each in sorted(of)]))
        for length, of in made.items()
    }


@functools.cache
def _hashes_by_length(texts: tuple[str, ...]) -> dict[int, Hashes]:
    """Number of words -> sorted hashes of the texts with so many."""
    made: dict[int, set[int]] = {}
    for text in texts:
        length, value = hash_phrase(text)
        if length:
            made.setdefault(length, set()).add(int(value))
    return {length: np.array(sorted(of), np.uint64) for length, of in made.items()}


# Words and phrases of radiology reports and clinical notes -> what each counts in `scan_notes`.
#
# How the lists came about: words were counted in half of the public reports of Indiana University, of the notes of
# covid-chestxray and of reports that a public system wrote, against all texts of this project and five papers; words
# of hospital stays were added by hand.

POINTS: dict[float, str] = {
    0: """the a an of in on at to and or is are was were be been being has have had with without as by from this that
    these those it its which who for not no than then but so also there may can could would into over under after
    before during since until both all any each other more most some such if when while due per via up down out off s x
    one two three four five six seven eight nine ten few several day days week weeks month months year years old time
    hour hours age aged today yesterday findings finding""",
    -3: """np numpy import return def float int str len true false none model models label labels metric metrics column
    columns table path file files folder row rows array arrays value values dict list tuple class error config run runs
    auroc auc brier seed score scores data dataset datasets threshold weight weights split train validate test
    predictions prediction predict references probability probabilities calibration calibrated bootstrap resamples
    python json csv parquet torch self lambda module function argument arguments default option options classifier
    network networks trained training batch epochs sensitivity specificity roc curve ci confidence bias audit audits
    subgroup subgroups slice slices prevalence word words vocabulary token tokens learning performance baseline
    benchmark accuracy precision recall estimate estimates mean median bins sample samples sampled paper figure appendix
    algorithm method methods shortcut shortcuts annotations annotated license licence software code version package
    install prompt prompts positive negative evaluate images labelled labeled labelling labeler""",
    1: """seen noted identified evidence within limits size appear appears appearing appearance visualized visible
    demonstrated demonstrates demonstrate remain remains compared previous previously prior recent again likely
    probably possible possibly probable suggest suggests suggesting suggestive consistent compatible
    representing represent represents reflect reflecting present patient changes change area areas base bases
    region position positioned tip terminates ends projects projecting overlie overlies removed placed placement
    improved improvement increasing increased decreased resolved resolution large grossly definite significant
    significantly slight slightly otherwise limited exam examination study comparison view views frontal lateral
    portable film history evaluation extent severity interval low loss border line lines tube tubes wires leads
    clips clear normal normally stable small soft free overall including partially secondary general structures
    active right left upper lower mid middle hospital emergency department admission admit transferred surgery
    clinic treated treatment therapy symptoms condition oral iv pt alert daily bedside family care intensive
    onset sick alone home""",
    2: """unchanged mild mildly moderate moderately minimal minimally severe acute subacute focal diffuse diffusely
    patchy streaky hazy dense scattered peripheral ecg widespread bilateral bilaterally zone zones lobe lobes
    lobar basal apex apical apices intact enlarged enlargement enlarging prominent prominence elevated elevation
    thickening scarring scar density densities markings spine spinal bone bones rib ribs chest lung lungs heart
    cardiac pleural pulmonary vascular effusion effusions pneumothorax pneumothoraces consolidation
    consolidations opacity opacities opacification atelectasis edema oedema pneumonia infiltrate infiltrates
    cardiomegaly nodule nodules nodular mass masses lesion lesions fracture fractures displaced hernia emphysema
    fibrosis congestion infection disease abnormality abnormalities process contour contours volume volumes
    aorta aortic air fluid fissure inflated expanded aeration catheter catheters drain pacemaker sternotomy
    suspicious concerning recommend recommended followup ct chronic radiograph radiographs radiographic
    radiological worsening xxxx cm mm man woman male female gentleman lady boy girl admitted presented presents
    presenting complains complained complaint diagnosed reports reported developed underwent started continued
    discharge discharged pain fever fevers febrile cough breath breathing shortness respiratory distress oxygen
    saturation saturations blood pressure sputum culture cultures antibiotics smoker smoking abdominal abdomen
    liver renal kidney knee nausea headache dizziness weakness fatigue swelling bleeding surgical physical
    physician allergies medications medication tablet tablets capsule dose doses mg mcg mmhg bpm dl ng
    ventilation ventilator collapse aspiration trauma lives died drinks alcohol daughter wife husband brother
    sister mother father married divorced retired worsened contacts conditions tightness generalized diminished
    wrist arm leg arms legs neck ankle ankles feet foot shoulder hip medical sounds bowel rhythm regular
    irregular intermittent sudden radiating progressive occasional he she his her him""",
    3: """malaise rigors emesis dysuria hematuria hematochezia presyncope lightheadedness lightheaded vertigo
    photophobia confusion somnolent angina rash pruritus jaundice cyanosis clubbing tenderness guarding bruising
    numbness tingling paresthesia seizure seizures neurologic neuropathy tremor stridor hoarseness dysphagia
    anorexia cachexia palpation percussion normoactive pupils extremities vitals hypothyroidism nephropathy esrd
    ckd gerd bph dvt uti pna sob cellulitis bacteremia hepatitis pancreatitis cholecystitis appendicitis
    appendectomy hysterectomy colectomy angioplasty stent bypass grafting ablation anticoagulation
    adenocarcinoma lymphoma leukemia melanoma metastasis metastases resection biopsy neoplasm hiv influenza
    immunizations arthritis gout osteoporosis dementia delirium overdose hemoglobin hematocrit platelets
    leukocytes neutrophils lymphocytes sodium potassium bicarbonate glucose lactate bilirubin albumin bnp
    procalcitonin crp urinalysis cbc lfts ultrasound colonoscopy endoscopy bronchoscopy thoracentesis
    paracentesis apixaban rivaroxaban clopidogrel losartan carvedilol diltiazem digoxin amiodarone
    spironolactone torsemide bumetanide levothyroxine methotrexate rituximab cisplatin carboplatin bevacizumab
    ciprofloxacin doxycycline amoxicillin piperacillin meropenem ibuprofen oxycodone morphine hydromorphone
    lorazepam sertraline citalopram quetiapine tamsulosin allopurinol famotidine ondansetron docusate consulted
    outpatient inpatient hospitalization hospitalizations nurse surgeon neurology cardiology oncology nephrology
    gastroenterology rheumatology psychiatry urology orthopedics hospice rehab micu sicu pcp mr mrs ms asa yo
    alcoholic nonsmoker siblings deceased wheeze breaths menses obese hypercholesterolemia arrhythmia tachypnea
    hypoxemia pallor ascites hepatomegaly splenomegaly fistula catheterized""",
    4: """unremarkable silhouette silhouettes mediastinum mediastinal cardiomediastinal hilar hilum hila costophrenic
    cardiophrenic hemidiaphragm hemidiaphragms diaphragm diaphragms osseous bony skeletal vasculature vascularity
    thoracic thorax thoracolumbar vertebral vertebra vertebrae degenerative osteophytes osteophyte spondylosis granuloma
    granulomas granulomatous calcified calcification calcifications tortuous tortuosity ectatic ectasia atherosclerotic
    atherosclerosis hyperinflated hyperinflation hyperexpanded hyperexpansion hypoinflated hypoinflation hypoventilatory
    cardiopulmonary airspace bibasilar basilar perihilar retrocardiac subsegmental bronchovascular interstitial alveolar
    parenchymal parenchyma midlung hemithorax lingula lingular trachea tracheal carina endotracheal nasogastric enteric
    tracheostomy picc subclavian jugular cavoatrial svc midline blunting blunted adenopathy lymphadenopathy
    emphysematous kyphosis dextroscoliosis levoscoliosis eventration hiatal cholecystectomy pneumomediastinum
    pneumoperitoneum intraperitoneal bronchograms bronchial peribronchial biapical radiopaque cabg ett ngt tissues
    clavicle humerus posteroanterior anteroposterior subpleural denies denied endorses endorsed afebrile dyspnea
    dyspnoea tachypneic tachycardic tachycardia bradycardia hypotension hypotensive hypertension hypertensive hypoxic
    hypoxia hyperlipidemia diabetes mellitus copd chf asthma cirrhosis tuberculosis anemia sepsis septic intubated
    extubated auscultation crackles wheezes wheezing rhonchi murmurs gallops nontender nondistended tender distended
    diaphoresis diaphoretic vomiting diarrhea constipation chills lethargy hemoptysis melena orthopnea palpitations
    syncope prn po qd qhs nkda lasix furosemide metoprolol lisinopril aspirin warfarin coumadin heparin
    insulin metformin atorvastatin simvastatin amlodipine prednisone levofloxacin vancomycin ceftriaxone azithromycin
    albuterol omeprazole pantoprazole gabapentin acetaminophen hydrochlorothiazide hx pmh hpi wbc hgb hct creatinine
    troponin ekg echocardiogram catheterization hospitalized hospitalised myocardial infarction coronary atrial
    fibrillation metastatic carcinoma chemotherapy lumbar icu spo2 lymphopenia leukocytosis dialysis""",
}  # fmt: skip
PHRASES: dict[float, str] = {
    1: """there is, there are, there is no, is normal, are normal, are unremarkable, history of, heart size, no pleural,
    is seen, are seen, is noted, are noted, in place, normal limits""",
    2: "are clear, blood pressure, no acute, no focal, no active, heart rate, pack years",
    3: """patient was, patient had, patient presented, patient presents, patient reports, patient denies, no evidence
    of, within normal limits, shortness of breath, short of breath, chest pain, family history, chest pa and
    lateral, ground glass, reactive protein""",
    4: "status post, social history, vital signs, no known allergies",
    5: """patient is a, year old, years old, y o, yo male, yo female, yo man, yo woman, physical exam, physical
    examination, review of systems, hospital course, attending physician, unit no, reason for exam, clinical
    information""",
    6: """chief complaint, past medical history, past surgical history, discharge instructions, discharge condition,
    discharge disposition, admission date, discharge date, date of birth, pertinent results, followup instructions""",
    8: """history of present illness, brief hospital course, discharge medications, discharge diagnosis,
    discharge summary, medications on admission""",
}
# Marks that words alone do not show: letters of which some are there, pattern, points for the word that follows.
_HEADS = "FINDING IMPRESSION INDICATION COMPARISON TECHNIQUE HISTORY EXAMINATION CONCLUSION ASSESSMENT PLAN HPI PMH"
_LESSER_HEADS = "Findings Impression Indication Comparison Technique Assessment"
_VITALS, _TIMES, _SHORT = "BP HR RR SpO2 Temp Sat", "BID TID QID QHS QD PRN NPO", "s/p p/w c/o h/o r/o w/o w/"
_UNITS = "mg mcg mEq units mg/dL ng/mL g/dL K/uL mmHg bpm"


def _one_of(words: str) -> bytes:
    return b"(?:" + b"|".join(re.escape(word.encode()) for word in words.split()) + b")"


MARKS: tuple[tuple[str, re.Pattern[bytes], float], ...] = (
    (_HEADS, re.compile(rb"\b" + _one_of(_HEADS) + rb"S?\s*:"), 3.0),
    (_LESSER_HEADS, re.compile(rb"(?m)^\W*" + _one_of(_LESSER_HEADS) + rb"\s*:"), 2.0),
    ("___ [**", re.compile(rb"_{3}(?<![\w-]___)_*(?!\w)|\[\*\*[^\n]{0,60}?\*\*\]"), 2.0),
    (
        "yo y/o yr F M",
        re.compile(rb"\b\d{1,3}[ -]?(?:y/?o|yr|F|M)\b(?= (?:with|w/|s/p|present|wo?man|(?:fe)?male|[MF]\b))"),
        5.0,
    ),
    (_VITALS, re.compile(rb"\b" + _one_of(_VITALS) + rb"\b[:= ]{1,2}\d"), 3.0),
    (_UNITS, re.compile(rb"\b\d+(?:\.\d+)? ?" + _one_of(_UNITS) + rb"\b"), 3.0),
    (_SHORT, re.compile(rb"(?<![\w/])" + _one_of(_SHORT) + rb"(?![\w/])"), 3.0),
    (_TIMES, re.compile(rb"\b" + _one_of(_TIMES) + rb"\b"), 3.0),
)
# Sentences of the examples of our own metrics.
STOCK = """The lungs are clear. The heart is normal. The heart is enlarged. The heart size is normal. Lungs clear.
No pleural effusion or pneumothorax. No pleural effusion. Small left effusion. Small left pleural effusion.
Clips after mastectomy. Clips after left mastectomy. Right lower lobe opacity. Sternotomy wires are intact.
Left pleural effusion, unchanged. New right chest port. Mild scoliosis. Heart enlarged. Pacemaker leads.
Lungs clear. Left mastectomy, mastectomy clips. Mastectomy, mastectomy clips. Mastectomy, mastectomy scar.
left right basal apical small large mild new effusion opacity edema nodule scar clips wires."""
