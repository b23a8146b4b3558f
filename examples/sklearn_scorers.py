"""scikit-learn's cross_validate and GridSearchCV -> cxrhf metrics, with folds, weights and context by patient.

    python examples/sklearn_scorers.py

A linear probe on synthetic image features, one of which only reflects the patient's context. It shows:

- `cxrhf.metrics.scorer(name)` sets the sign (scikit-learn maximises, so metrics for which lower is better are negated)
  and uses probabilities where the metric requires them. Metrics disagree about the best model; do not choose by
  balanced_brier, which is not a proper scoring rule.
- Folds by patient: StratifiedGroupKFold(groups = patient). Images of a patient in both training and test would leak.
- Weights and pre-test probabilities require metadata routing. Without it, `cross_validate(params={"sample_weight":
  ...})` weights the fit but not the score, and GridSearchCV.fit(sample_weight=...) weights both.
- A fold without positives scores NaN, with a warning that gives the reason. scikit-learn continues: the mean is NaN,
  and in a grid search every candidate is NaN, all rank first, and `best_params_` is the first of the grid.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn import config_context
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold, cross_val_predict, cross_validate

from cxrhf.metrics import auroc, bootstrap, count_units, draw, interval, scorer

FOLDS = 5
SCORERS = {
    "auroc": {},
    "sensitivity_at_specificity": {"specificity": 0.9},
    "balanced_brier": {},
    "brier_skill_score": {},
    "adaptive_calibration_error": {"bins": 10},
}


def make_features(n: int, seed: int, prevalence: float = 0.3) -> dict[str, np.ndarray]:
    """Features of images: the first repeats the patient's history, the next two show the finding, the rest is noise."""
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, n // 3, n))
    history = rng.normal(size=n // 3)[patient]
    pretest = 1 / (1 + np.exp(-(np.log(prevalence / (1 - prevalence)) + 1.2 * history)))
    y = (rng.random(n) < pretest).astype(int)
    x = rng.normal(size=(n, 20))
    x[:, 0] += 1.5 * history
    x[:, 1:3] += 0.5 * y[:, None]
    return {"x": x, "y": y, "patient": patient, "pretest": pretest, "weight": 1 / np.bincount(patient)[patient]}


def routed_scorers() -> dict:
    """The scorers, each asking for what it needs; only inside config_context(enable_metadata_routing=True)."""
    weighted = {name: scorer(name, **option).set_score_request(sample_weight=True) for name, option in SCORERS.items()}
    return weighted | {"matched_auroc": scorer("matched_auroc").set_score_request(pretest=True)}


def by_fold(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scores of every fold, patients kept together, every patient with the same weight in fit and score."""
    with config_context(enable_metadata_routing=True):
        found = cross_validate(
            LogisticRegression(C=0.1).set_fit_request(sample_weight=True),
            data["x"],
            data["y"],
            cv=StratifiedGroupKFold(FOLDS),
            scoring=routed_scorers(),
            params={"groups": data["patient"], "sample_weight": data["weight"], "pretest": data["pretest"]},
            error_score="raise",
        )
    return {name.removeprefix("test_"): score for name, score in found.items() if name.startswith("test_")}


def choose(data: dict[str, np.ndarray]) -> dict[str, float]:
    """The regularisation that each scorer would choose, from one search; `refit` says whose choice is fitted."""
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            LogisticRegression().set_fit_request(sample_weight=True),
            {"C": [0.001, 0.01, 0.1, 1.0]},
            cv=StratifiedGroupKFold(FOLDS),
            scoring=routed_scorers(),
            refit="brier_skill_score",
            error_score="raise",
        )
        search.fit(data["x"], data["y"], groups=data["patient"], sample_weight=data["weight"], pretest=data["pretest"])
    found = search.cv_results_
    return {name: float(found["param_C"][found[f"rank_test_{name}"].argmin()]) for name in search.scorer_}


def rare() -> dict:
    """A finding too rare for its folds: what scikit-learn makes of NaN, and a way out."""
    data = make_features(120, seed=0, prevalence=0.02)
    x, y, patient = data["x"], data["y"], data["patient"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        search = GridSearchCV(LogisticRegression(), {"C": [1e-9, 0.1]}, cv=GroupKFold(FOLDS), scoring=scorer("auroc"))
        search.fit(x, y, groups=patient)
    reasons = {str(each.message) for each in said if issubclass(each.category, UndefinedMetricWarning)}
    # Every row is scored once, by a model that has not seen its patient. Pooling takes the scores of these models for
    # comparable; the interval draws patients.
    cv = StratifiedGroupKFold(min(FOLDS, int(y.sum())))
    p = cross_val_predict(LogisticRegression(C=0.1), x, y, groups=patient, cv=cv, method="predict_proba")[:, 1]
    draws = draw(patient, y=y, n_resamples=1000, seed=0)
    value = auroc(y, p)
    ends = interval(value, bootstrap("auroc", y, p, draws=draws), metric="auroc", units=count_units(y, patient))
    return {
        "positives": int(y.sum()),
        "grid_means": search.cv_results_["mean_test_score"].tolist(),
        "grid_ranks": search.cv_results_["rank_test_score"].tolist(),
        "grid_best": search.best_params_,
        "reasons": sorted(reasons),
        "pooled": [value, ends.low, ends.high],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--out", type=Path, help="write all scores to this JSON file")
    given = parser.parse_args()

    data = make_features(given.images, seed=0)
    scores, best = by_fold(data), choose(data)
    print(f"{'metric':<28}{'mean':>7}   {'each fold':<{7 * FOLDS}} best C")
    for name, each in scores.items():
        print(f"{name:<28}{each.mean():>7.3f}   {' '.join(f'{value:6.3f}' for value in each)}  {best[name]:g}")

    found = rare()
    value, low, high = found["pooled"]
    print(f"\nrare finding with {found['positives']} positives: in some folds, {'; '.join(found['reasons'])}")
    print(f"  grid search: means {found['grid_means']}, ranks {found['grid_ranks']}, chosen: {found['grid_best']}")
    print(f"  pooled out-of-fold scores instead: AUROC {value:.3f} (95% interval by patient {low:.2f} to {high:.2f})")
    if given.out:
        lists = {name: each.tolist() for name, each in scores.items()}
        given.out.write_text(json.dumps({"scores": lists, "best": best, "rare": found}))


if __name__ == "__main__":
    main()
