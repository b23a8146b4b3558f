"""Seed -> a PREDICTION table of six findings whose share of chart context is planted, for the demo and the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from cxrhf.data.planted_context import ContextTruth, context_of, context_truth

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_IMAGES = 8


@dataclass(frozen=True, slots=True)
class DemoFinding:
    """Parameters of D1 for one finding; `masked` is the share of labels hidden at random, which moves no truth."""

    finding: str
    pi: float
    m: float
    g: float
    eta: float
    d0: float
    masked: float = 0.0
    story: str = ""


DEMO_FINDINGS = (
    DemoFinding("pleural_effusion", 0.25, 1.0, 0.8, 0.4, 1.8, story="common, some context"),
    DemoFinding("atelectasis", 0.20, 0.8, 0.5, 0.2, 1.2, story="common, a little context"),
    DemoFinding("edema", 0.12, 1.6, 1.2, 0.0, 0.3, story="mostly context: the chart gives it away"),
    DemoFinding("pneumothorax", 0.06, 0.8, 0.0, 0.0, 1.6, story="no context in the score at all"),
    DemoFinding("consolidation", 0.10, 1.0, 0.6, 0.3, 1.3, masked=0.2, story="a fifth of the labels is masked"),
    DemoFinding("fracture", 0.008, 0.7, 0.4, 0.2, 1.5, story="few positives: intervals are wide"),
)


def demo_truth() -> dict[str, ContextTruth]:
    """finding -> population values that the demo's audits must come close to."""
    return {f.finding: context_truth(pi=f.pi, m=f.m, g=f.g, eta=f.eta, d0=f.d0) for f in DEMO_FINDINGS}


def demo_predictions(n_patients: int = 1500, seed: int = 0) -> pa.Table:
    """`n_patients` patients with 1 to 8 images each, one row per image and finding.

    Age, sex, race and view are drawn without any bearing on label or score: an audit of subgroups must find nothing.
    """
    import pyarrow as pa

    from cxrhf.schema import PREDICTION, check

    rng = np.random.default_rng(seed)
    odds = 0.7 ** np.arange(_MOST_IMAGES)
    images = rng.choice(np.arange(1, _MOST_IMAGES + 1), size=n_patients, p=odds / odds.sum())
    patient = np.repeat(np.arange(n_patients), images)
    n = len(patient)
    # Two thirds of the images open a new study; the first image of a patient always does.
    opens = (rng.random(n) < 2 / 3) | np.r_[True, patient[1:] != patient[:-1]]
    study = np.cumsum(opens)
    age = np.clip(np.round(rng.normal(61, 17, size=n_patients)), 18, 95)[patient]
    sex = rng.choice(["F", "M"], size=n_patients)[patient]
    race = rng.choice(["white", "black", "asian"], size=n_patients, p=[0.70, 0.20, 0.10])[patient]
    view = rng.choice(["AP", "PA"], size=n, p=[0.6, 0.4])
    image_id = np.array([f"image{i:06d}" for i in range(n)])
    patient_id = np.array([f"patient{i:05d}" for i in range(n_patients)])[patient]
    study_id = np.array([f"study{i:06d}" for i in study])

    tables = []
    for f in DEMO_FINDINGS:
        rows = context_of(patient, rng, pi=f.pi, m=f.m, g=f.g, eta=f.eta, d0=f.d0)
        hidden = rng.random(n) < f.masked
        mention = rows.context + rng.standard_normal(n) > 1.0
        tables.append(
            pa.table(
                {
                    "image_id": image_id,
                    "study_id": study_id,
                    "patient_id": patient_id,
                    "dataset": np.repeat("demo", n),
                    "split": np.repeat("test", n),
                    "model": np.repeat("demo", n),
                    "seed": np.zeros(n, dtype=np.int64),
                    "finding": np.repeat(f.finding, n),
                    "label": pa.array(rows.y.astype(np.int8), mask=hidden),
                    "prob": rows.prob,
                    "logit": logit(rows.prob),
                    "pretest": rows.pretest,
                    "mention": mention,
                    "weight": np.ones(n),
                    "age": age,
                    "sex": sex,
                    "race": race,
                    "view": view,
                }
            )
        )
    return check(pa.concat_tables(tables).combine_chunks(), PREDICTION, source="demo")
