"""An Accelerate evaluation loop -> identical metrics from one process or several.

    python examples/accelerate_metrics.py
    torchrun --standalone --nproc_per_node 2 examples/accelerate_metrics.py --cpu
    accelerate launch --num_processes 2 examples/accelerate_metrics.py            (on two GPUs)

Check the number of processes it prints: `accelerate launch --cpu --num_processes 2` starts one without a warning,
unless MPI is set up (Accelerate 1.15). There are two ways:

- `gathered` is the usual one. Every process gets the results of every batch (`gather_for_metrics`), and the main
  process computes the metrics. If rows do not divide evenly, Accelerate repeats some to fill the last batches and drops
  them again. Row numbers are gathered too, to verify this and to restore the order of rows, so that sums do not depend
  on the number of processes. (If a model's output for a row depends on the batch size, as small matrix products may in
  the last bit, so does the last digit here.)
- `by_files`: every process passes its rows to `evaluate`, which stores them in files that the first process reads.
  Processes exchange no rows, and texts may have any length, but all machines must share the cache folder. Repeated rows
  are not dropped here, so rows are split without padding, in contiguous blocks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import evaluate
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch.utils.data import DataLoader

import cxrhf

FINDINGS = ["pleural_effusion", "cardiomegaly"]
MODULES = ["weighted_auroc", "balanced_brier"]
BATCH = 16  # of each process


def make_studies(n: int, seed: int) -> dict[str, np.ndarray]:
    """Noise with a bright band (effusion) or a bright middle (heart); a fifth of the labels is missing."""
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, n // 2, n))
    context = rng.beta(2, 4, (n // 2, 2))[patient]
    truth = rng.random((n, 2)) < context
    image = rng.normal(0, 2, (n, 1, 32, 32))
    image[:, 0, 24:] += truth[:, 0, None, None] * 0.3
    image[:, 0, 8:24, 12:20] += truth[:, 1, None, None] * 0.4
    labels = np.where(rng.random((n, 2)) < 0.2, np.nan, truth)
    return {"image": image, "labels": labels, "context": context, "patient": np.array([f"p{k}" for k in patient])}


def make_model(studies: dict[str, np.ndarray]) -> torch.nn.Module:
    """Stands in for your trained model: a linear readout of 8 x 8 blocks, its weights the difference of class means."""
    blocks = studies["image"].reshape(-1, 4, 8, 4, 8).mean(axis=(2, 4)).reshape(-1, 16)
    model = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(16, 2))
    for k, y in enumerate(studies["labels"].T):
        positive, negative = blocks[y == 1].mean(axis=0), blocks[y == 0].mean(axis=0)
        slope = 10 * (positive - negative)
        model[2].weight.data[k] = torch.tensor(slope)
        model[2].bias.data[k] = float(-slope @ (positive + negative) / 2)
    return model


def as_dataset(studies: dict[str, np.ndarray]) -> list[dict]:
    """Rows with their number: what joins results with patients afterwards, never their position."""
    tensors = {name: torch.tensor(studies[name], dtype=torch.float32) for name in ("image", "labels", "context")}
    return [{"row": k, **{name: each[k] for name, each in tensors.items()}} for k in range(len(studies["labels"]))]


def sigmoid(logits: torch.Tensor) -> np.ndarray:
    return 1 / (1 + np.exp(-logits.double().cpu().numpy()))


@torch.no_grad()
def gathered(accelerator: Accelerator, model, studies, **options) -> dict | None:
    """Results in the main process, None in the others."""
    loader = accelerator.prepare(DataLoader(as_dataset(studies), batch_size=BATCH))
    parts = []
    for batch in loader:
        mine = (batch["row"], model(batch["image"]), batch["labels"], batch["context"])
        parts.append([each.cpu() for each in accelerator.gather_for_metrics(mine)])
    if not accelerator.is_main_process:
        return None
    row, logits, labels, context = (torch.cat(each) for each in zip(*parts, strict=True))
    if sorted(row.tolist()) != list(range(len(studies["labels"]))):
        raise RuntimeError(f"{len(row)} rows gathered ({len(row.unique())} distinct) of {len(studies['labels'])}")
    order = row.argsort()
    shared = {
        "predictions": sigmoid(logits[order]),
        "references": labels[order],
        # Names need not travel: the row number leads to them.
        "clusters": studies["patient"][row[order]],
        "label_names": FINDINGS,
        **options,
    }
    auroc, brier = (evaluate.load(cxrhf.metric_path(name)) for name in MODULES)
    return auroc.compute(context=context[order], **shared) | brier.compute(**shared)


@torch.no_grad()
def by_files(accelerator: Accelerator, model, studies, **options) -> dict | None:
    """The same by evaluate's own means; every process needs at least one row."""
    # Rows of two runs at a time must not meet in one file: all processes agree on a number that no other run has.
    run = int(broadcast(torch.randint(2**31, (1,), device=accelerator.device)))
    with accelerator.main_process_first():
        auroc, brier = (
            evaluate.load(
                cxrhf.metric_path(name),
                num_process=accelerator.num_processes,
                process_id=accelerator.process_index,
                experiment_id=f"run-{run}",
            )
            for name in MODULES
        )
    with accelerator.split_between_processes(list(range(len(studies["labels"])))) as mine:
        dataset = as_dataset(studies)
        for batch in DataLoader([dataset[k] for k in mine], batch_size=BATCH):
            shared = {
                "predictions": sigmoid(model(batch["image"].to(accelerator.device))),
                "references": batch["labels"],
                "clusters": studies["patient"][batch["row"]],
            }
            auroc.add_batch(context=batch["context"], **shared)
            brier.add_batch(**shared)
    options = {"label_names": FINDINGS, **options}
    found = [auroc.compute(**options), brier.compute(**options)]  # every process calls, only the first gets an answer
    return found[0] | found[1] if accelerator.is_main_process else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=333, help="number of images to evaluate; need not divide evenly")
    parser.add_argument("--n-resamples", type=int, default=1000, help="bootstrap replicates for the intervals")
    parser.add_argument("--cpu", action="store_true", help="required for several processes without GPUs")
    parser.add_argument("--out", type=Path, help="write both results and their rows to this JSON file")
    given = parser.parse_args()

    accelerator = Accelerator(cpu=given.cpu)
    model = make_model(make_studies(given.studies, seed=0))
    model = accelerator.prepare_model(model, evaluation_mode=True)  # no gradients to exchange, so nothing is wrapped
    studies = make_studies(given.studies, seed=1)
    found = {
        way.__name__: way(accelerator, model, studies, n_resamples=given.n_resamples) for way in (gathered, by_files)
    }
    if accelerator.is_main_process:
        patients, processes = len(set(studies["patient"])), accelerator.num_processes
        print(f"{given.studies} images, {patients} patients, processes: {processes}")
        print(f"\n{'':<32}{'gathered':>10}{'95% interval':>16}{'by files':>10}")
        one, other = found["gathered"], found["by_files"]
        for name in ("weighted_auroc_unweighted", "weighted_auroc", "weighted_auroc_drop", "balanced_brier"):
            ends = f"{one[f'{name}_ci_low']:.3f} - {one[f'{name}_ci_high']:.3f}" if given.n_resamples else ""
            print(f"{name:<32}{one[name]:>10.4f}{ends:>16}{other[name]:>10.4f}")
        if given.out:
            logits = model(torch.tensor(studies["image"], dtype=torch.float32, device=accelerator.device))
            rows = {name: studies[name].tolist() for name in ("labels", "context", "patient")}
            rows["probability"] = sigmoid(logits.detach()).tolist()
            given.out.write_text(json.dumps({"processes": processes, "rows": rows, **found}))
    accelerator.end_training()


if __name__ == "__main__":
    main()
