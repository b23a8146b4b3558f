"""Parameters -> synthetic data with known answers: the planted truths D1-D5, and a small predictions table.

The front door; each truth has its own file. `context` D1, `slices` and `shortcut` D2, `subgroups` D3 (`diseases`: its
races differ in three disease groups), `words` and `word_reports` D4, `calibrated` D5. Each result carries `truth`, or a
function gives it, computed in closed form or by numeric integration, never by simulation. `demo_predictions` is a
PREDICTION table made of D1 findings.
"""

from __future__ import annotations

from cxrhf.data.planted_calibration import CalibrationTruth, PlantedCalibration, calibrated, calibrated_truth
from cxrhf.data.planted_context import ContextTruth, PlantedContext, context, context_truth
from cxrhf.data.planted_demo import DEMO_FINDINGS, DemoFinding, demo_predictions, demo_truth
from cxrhf.data.planted_slices import (
    CHEXPERT_DRAINS,
    PlantedShortcut,
    PlantedSlices,
    ShortcutTruth,
    SlicesTruth,
    shortcut,
    shortcut_truth,
    slices,
    slices_truth,
)
from cxrhf.data.planted_subgroups import (
    PlantedDiseases,
    PlantedSubgroups,
    PopulationTruth,
    SubgroupsTruth,
    diseases,
    diseases_truth,
    subgroups,
    subgroups_truth,
)
from cxrhf.data.planted_words import PlantedWords, WordReports, WordsTruth, word_reports, words

__all__ = [
    "CHEXPERT_DRAINS",
    "DEMO_FINDINGS",
    "CalibrationTruth",
    "ContextTruth",
    "DemoFinding",
    "PlantedCalibration",
    "PlantedContext",
    "PlantedDiseases",
    "PlantedShortcut",
    "PlantedSlices",
    "PlantedSubgroups",
    "PlantedWords",
    "PopulationTruth",
    "ShortcutTruth",
    "SlicesTruth",
    "SubgroupsTruth",
    "WordReports",
    "WordsTruth",
    "calibrated",
    "calibrated_truth",
    "context",
    "context_truth",
    "demo_predictions",
    "demo_truth",
    "diseases",
    "diseases_truth",
    "shortcut",
    "shortcut_truth",
    "slices",
    "slices_truth",
    "subgroups",
    "subgroups_truth",
    "word_reports",
    "words",
]
