"""Reports in batches against one by one, with the same tiny Qwen3-VL on a CPU, in one run.

The peer asks transformers' own `generate` for one report at a time, greedily, as one writes it first; ours decodes them
in batches of eight with prompts of different lengths, filled up on the left, and writes each into its journal. Both
take the same pictures, the same processor and the same limit, and must give the same texts. Rounds go in turn, and the
best of each counts. On a GPU the gain is larger: one report at a time leaves most of it idle.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rows import Row, row

REPORTS, BATCH, TOKENS, SIZE, ROUNDS = 48, 8, 48, 64, 3
TARGET = 2.0
TEXTS = [
    "The heart is enlarged. There is no pleural effusion or pneumothorax.",
    "Median sternotomy wires are intact. The lungs are hyperinflated without focal consolidation.",
    "Small left pleural effusion with adjacent atelectasis. No acute osseous abnormality.",
]


def one_by_one(vlm: Any, pictures: list[np.ndarray], prompts: list[str]) -> list[str]:
    """The peer: transformers alone."""
    from cxrhf.models.vlm_data import question_batch

    texts = []
    for picture, prompt in zip(pictures, prompts, strict=True):
        asked = question_batch(vlm, [picture], [prompt])
        with torch.inference_mode():
            out = vlm.model.generate(**asked, do_sample=False, max_new_tokens=TOKENS)
        texts.append(vlm.tokenizer.decode(out[0, asked["input_ids"].shape[1] :], skip_special_tokens=True).strip())
    return texts


def in_batches(vlm: Any, pictures: list[np.ndarray], prompts: list[str], folder: Path) -> list[str]:
    """Ours, with the journal."""
    from cxrhf.models.generate import plan_asks, write_reports
    from cxrhf.models.strategies import BUILT_IN

    greedy = replace(BUILT_IN["greedy"], max_new_tokens=TOKENS)
    ids = [str(at) for at in range(len(prompts))]
    asks = plan_asks(vlm, ids, prompts, [greedy], seed=0, model="tiny", images="drawn")
    found = write_reports(vlm, pictures, asks, folder, batch_size=BATCH, progress=lambda _: None)
    return [found[each.key].text for each in asks]


def run() -> list[Row]:
    from cxrhf.models.lora import tiny_qwen3_vl
    from cxrhf.models.vlm import load_vlm

    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (SIZE, SIZE), dtype=np.uint8) for _ in range(REPORTS)]
    prompts = [f"Report. Indication: {' '.join(['cough'] * int(n))}" for n in rng.integers(1, 20, REPORTS)]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as place:
        vlm = load_vlm(str(tiny_qwen3_vl(Path(place) / "tiny", TEXTS)), size=SIZE)
        one_by_one(vlm, pictures[:2], prompts[:2])
        for number in range(ROUNDS):
            start = time.perf_counter()
            texts = in_batches(vlm, pictures, prompts, Path(place) / f"journal-{number}")
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            expected = one_by_one(vlm, pictures, prompts)
            theirs.append(time.perf_counter() - start)
            if texts != expected:
                raise RuntimeError("batched and single reports differ")
    threads = torch.get_num_threads()
    note = f"{REPORTS} greedy reports of {TOKENS} tokens, batches of {BATCH}, the same texts; {threads} threads"
    return [row("generation: reports in batches against one by one", min(ours), min(theirs), note, target=TARGET)]
