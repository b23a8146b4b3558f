"""Words and phrases of radiology reports and clinical notes -> what each counts in `scan_notes`.

How the lists came about: words were counted in half of the public reports of Indiana University, of the notes of
covid-chestxray and of reports that a public system wrote, against all texts of this project and five papers; words of
hospital stays were added by hand.
"""

from __future__ import annotations

import re

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
