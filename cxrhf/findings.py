"""A finding as somebody spells it -> its snake_case name, one for all datasets.

Sources: CheXpert (14), MIMIC-CXR (the same 14), NIH ChestX-ray14 (and the 5 added in NIH's long-tail release), PadChest
and RSNA as torchxrayvision spells them, and what vendors write. Names not in the table are snake_cased and kept.
"Lung Opacity" (CheXpert) and "Infiltration" (NIH) stay apart: they were labelled by different rules.
"""

from __future__ import annotations

import re

CHEXPERT = (
    "no_finding",
    "enlarged_cardiomediastinum",
    "cardiomegaly",
    "lung_opacity",
    "lung_lesion",
    "edema",
    "consolidation",
    "pneumonia",
    "atelectasis",
    "pneumothorax",
    "pleural_effusion",
    "pleural_other",
    "fracture",
    "support_devices",
)
MIMIC = CHEXPERT
NIH = (
    "atelectasis",
    "cardiomegaly",
    "pleural_effusion",
    "infiltration",
    "mass",
    "nodule",
    "pneumonia",
    "pneumothorax",
    "consolidation",
    "edema",
    "emphysema",
    "fibrosis",
    "pleural_thickening",
    "hernia",
)
NIH_LONG_TAIL = (
    "calcification_of_the_aorta",
    "pneumomediastinum",
    "pneumoperitoneum",
    "subcutaneous_emphysema",
    "tortuous_aorta",
)

# Only other spellings of one label: what a clinician may hold to be another thing (a hiatal hernia, a collapse) is kept
# under its own name. Left: how it is written elsewhere, lower-cased, every run of other characters as one underscore.
_SPELLINGS = {
    "effusion": "pleural_effusion",
    "effusions": "pleural_effusion",
    "pleural_effusions": "pleural_effusion",
    "pleuraleffusion": "pleural_effusion",
    "pulmonary_edema": "edema",
    "pulmonary_oedema": "edema",
    "lung_edema": "edema",
    "oedema": "edema",
    "enlarged_heart": "cardiomegaly",
    "cardiac_enlargement": "cardiomegaly",
    "enlarged_cardiom": "enlarged_cardiomediastinum",
    "enlarged_cardiomediastinal_silhouette": "enlarged_cardiomediastinum",
    "enlargedcardiomediastinum": "enlarged_cardiomediastinum",
    "airspace_opacity": "lung_opacity",
    "lungopacity": "lung_opacity",
    "lunglesion": "lung_lesion",
    "atelectases": "atelectasis",
    "pneumothoraces": "pneumothorax",
    "ptx": "pneumothorax",
    "pneumonias": "pneumonia",
    "infiltrate": "infiltration",
    "infiltrates": "infiltration",
    "lung_mass": "mass",
    "masses": "mass",
    "lung_nodule": "nodule",
    "pulmonary_nodule": "nodule",
    "nodules": "nodule",
    "pulmonary_fibrosis": "fibrosis",
    "lung_fibrosis": "fibrosis",
    "pleuralthickening": "pleural_thickening",
    "thickened_pleura": "pleural_thickening",
    "pleuralother": "pleural_other",
    "fractures": "fracture",
    "supportdevices": "support_devices",
    "support_device": "support_devices",
    "medical_devices": "support_devices",
    "nofinding": "no_finding",
    "no_findings": "no_finding",
}


def snake_case(text: str) -> str:
    """`Enlarged Cardiomediastinum`, `enlarged-cardiomediastinum`, `EnlargedCardiomediastinum` -> one spelling.

    Letters of any script are kept; a name without any letter or digit comes back as it is.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text.strip())
    return re.sub(r"[\W_]+", "_", words.lower()).strip("_") or text.strip()


def finding_name(text: str) -> str:
    """The house name of a finding; a characteristic of patients that a network was trained on keeps its name.

    >>> finding_name("Effusion"), finding_name("Pleural_Thickening"), finding_name("Bone Cyst"), finding_name("sex=F")
    ('pleural_effusion', 'pleural_thickening', 'bone_cyst', 'sex=F')
    """
    if "=" in text:
        return text.strip()
    name = snake_case(text)
    return _SPELLINGS.get(name, name)


def display_name(name: str) -> str:
    """The name as people read it: `pleural_effusion` -> `Pleural effusion`."""
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]
