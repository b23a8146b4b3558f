"""transformers.Trainer -> metrics for several findings with missing labels, weights and patients in compute_metrics.

    python examples/trainer_metrics.py

The script generates its images and trains from scratch: no download, less than 30 seconds on a CPU. One of the three
findings is a trap. The image never shows the pneumothorax, only the drain of patients whose prior notes mention one.
The model learns the drain and ranks better than chance. With `context` held equal, its AUROC is near 0.5. It shows:

- `make_compute_metrics`: Trainer passes only predictions and labels. Patients, weights and context come from the
  closure, in the order of the dataset; comparing the labels detects another dataset or order. (`include_for_metrics`
  would gather all images.)
- `masked_loss`: -100 is Trainer's value for "no label". Trainer counts the other labels over all processes and
  accumulated batches (`num_items_in_batch`), so the loss is the mean over known labels, however they are distributed.
- `numbers`: loggers accept floats, not lists and sentences.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from pathlib import Path

import evaluate
import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import (
    PrinterCallback,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
    Trainer,
    TrainingArguments,
)
from transformers.utils.logging import disable_progress_bar

import cxrhf

FINDINGS = ["pleural_effusion", "cardiomegaly", "pneumothorax"]
MISSING = -100.0
SIZE = 32
SEED = 0


def make_studies(n: int, seed: int) -> dict[str, np.ndarray]:
    """Images with two lungs and a heart; labels follow the chart's probability; a fifth of the labels is missing."""
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, n // 2, n))
    context = rng.beta(2, 4, (n // 2, 3))[patient]
    truth = rng.random((n, 3)) < context
    row, column = np.mgrid[0:SIZE, 0:SIZE] / (SIZE - 1)
    lungs = (np.minimum(abs(column - 0.27), abs(column - 0.73)) / 0.2) ** 2 + ((row - 0.5) / 0.4) ** 2 < 1
    image = 0.8 - 0.6 * lungs + rng.normal(0, 0.25, (n, SIZE, SIZE))
    for k in range(n):
        fluid = rng.normal(0.78 if truth[k, 0] else 0.9, 0.07)  # its upper edge
        image[k] += 0.5 * (row > fluid)
        width = rng.normal(0.24 if truth[k, 1] else 0.16, 0.04)
        image[k] += 0.5 * (((column - 0.5) / width) ** 2 + ((row - 0.65) / 0.2) ** 2 < 1)
        if context[k, 2] > 0.35:  # the drain follows the chart; the air itself shows nowhere
            image[k] += 1.5 * (abs(column - 0.2 - 0.3 * row) < 0.03)
    return {
        "image": image,
        "labels": np.where(rng.random((n, 3)) < 0.2, np.nan, truth),
        "patient": patient,
        "context": context,
        "weight": 1 / np.bincount(patient)[patient],  # every patient counts once, however many images there are
    }


def as_dataset(studies: dict[str, np.ndarray]) -> list[dict[str, torch.Tensor]]:
    """Rows as Trainer wants them."""
    labels = np.nan_to_num(studies["labels"], nan=MISSING)
    return [
        {"pixel_values": torch.tensor(x[None], dtype=torch.float32), "labels": torch.tensor(y, dtype=torch.float32)}
        for x, y in zip(studies["image"], labels, strict=True)
    ]


def masked_loss(outputs, labels, num_items_in_batch=None):
    """Mean over known labels; the models' own multi-label loss would take a missing label for a number."""
    known = labels != MISSING
    total = binary_cross_entropy_with_logits(outputs.logits[known], labels[known], reduction="sum")
    return total / (known.sum() if num_items_in_batch is None else num_items_in_batch).clamp(min=1)


def make_compute_metrics(studies: dict[str, np.ndarray], *, n_resamples: int = 0):
    """compute_metrics for one dataset: floats only, as loggers want them; sentences go to the log."""
    auroc = evaluate.load(cxrhf.metric_path("weighted_auroc"))
    brier = evaluate.load(cxrhf.metric_path("balanced_brier"))

    def compute_metrics(prediction):
        references = np.where(prediction.label_ids == MISSING, np.nan, prediction.label_ids)
        if not np.array_equal(references, studies["labels"], equal_nan=True):
            raise ValueError(
                f"labels: expected those of the dataset in its order, of shape {studies['labels'].shape}, got other "
                f"labels of shape {references.shape}. Create one compute_metrics for each dataset."
            )
        probability = 1 / (1 + np.exp(-prediction.predictions.astype(np.float64)))
        shared = {
            "predictions": probability,
            "references": references,
            "sample_weight": studies["weight"],
            "clusters": studies["patient"],
            "label_names": FINDINGS,
            "n_resamples": n_resamples,
        }
        return numbers(auroc.compute(context=studies["context"], **shared)) | numbers(brier.compute(**shared))

    return compute_metrics


def numbers(result: dict) -> dict[str, float]:
    """The result of a module without lists and sentences: `x_per_label` becomes `x_edema`, `x_effusion`, ..."""
    flat = {}
    for key, value in result.items():
        for label, each in value.items() if isinstance(value, dict) else [("", value)]:
            name = key.replace("per_label", label)
            if isinstance(each, (int, float)):
                flat[name] = float(each)
            elif not name.endswith("_ci_method"):  # why a number is undefined, or not to be trusted
                logging.getLogger(__name__).warning("%s: %s", name, each)
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=400, help="number of images to train, tune and test on")
    parser.add_argument("--n-resamples", type=int, default=1000, help="bootstrap replicates for the intervals")
    parser.add_argument("--out", type=Path, help="write the metrics and their rows to this JSON file")
    given = parser.parse_args()

    disable_progress_bar()
    training, tuning, test = (make_studies(given.studies, SEED + part) for part in range(3))
    torch.manual_seed(SEED)
    # Any timm model will do: "densenet121", "resnet50". A real run would start from trained weights.
    config = TimmWrapperConfig(architecture="test_resnet", num_labels=len(FINDINGS), model_args={"in_chans": 1})
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            num_train_epochs=5,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            learning_rate=2e-3,
            eval_strategy="epoch",
            save_strategy="best",
            load_best_model_at_end=True,
            # NaN is never the best. For balanced_brier say greater_is_better=False: only names in "loss" are known.
            metric_for_best_model="weighted_auroc",
            logging_strategy="no",
            dataloader_pin_memory=torch.cuda.is_available(),
            disable_tqdm=True,
            seed=SEED,
        )
        trainer = Trainer(
            model=TimmWrapperForImageClassification(config),
            args=settings,
            train_dataset=as_dataset(training),
            eval_dataset=as_dataset(tuning),
            compute_loss_func=masked_loss,
            compute_metrics=make_compute_metrics(tuning),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        for entry in trainer.state.log_history:
            if "eval_weighted_auroc" in entry:
                print(f"epoch {entry['epoch']:.0f}  eval_weighted_auroc {entry['eval_weighted_auroc']:.3f}")
        # The epoch was chosen on the tuning images, so the numbers to report come from others, now with intervals.
        trainer.compute_metrics = make_compute_metrics(test, n_resamples=given.n_resamples)
        found = trainer.evaluate(as_dataset(test))
        if given.out:
            rows = {name: test[name].tolist() for name in ("labels", "patient", "context", "weight")}
            rows["logits"] = trainer.predict(as_dataset(test)).predictions.tolist()
            given.out.write_text(json.dumps({"metrics": found, "rows": rows}))

    print(f"\n{'test images':<18}{'AUROC':>7}{'context held equal':>21}{'95% interval':>15}{'balanced Brier':>16}")
    for label in ("", *(f"_{each}" for each in FINDINGS)):
        plain, held = found[f"eval_weighted_auroc_unweighted{label}"], found[f"eval_weighted_auroc{label}"]
        low, high = found[f"eval_weighted_auroc{label}_ci_low"], found[f"eval_weighted_auroc{label}_ci_high"]
        brier = found[f"eval_balanced_brier{label}"]
        print(f"{label[1:] or 'mean':<18}{plain:>7.3f}{held:>21.3f}{f'{low:.2f} - {high:.2f}':>15}{brier:>16.3f}")


if __name__ == "__main__":
    main()
