"""Encoding prior notes: every distinct note once, and kept, against the way of CONTEXT's public code, image by image.

The twin writes MIMIC and is built; each image has the list of its prior notes, as many as the twin plants. The peer
takes image after image, tokenizes its prior notes anew, cuts the same windows, and reads the windows of that image as
one batch. Both use minilm on this machine and the pooling of the paper, and must give the same vectors. Ours counts
opening the model, hashing and writing the cache, which is empty at first; the second row runs it again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.rows import Row, row, timed
from cxrhf.data.build import build
from cxrhf.data.load import load_images, load_notes
from cxrhf.data.settings import BuildConfig
from cxrhf.encode import encode_sets, encode_texts
from cxrhf.encode.encoder import Encoder, load_model, open_encoder, token_ids
from cxrhf.encode.settings import EncodeConfig
from cxrhf.encode.windows import cut
from cxrhf.twin import write

N_PATIENTS, SEED = 60, 4
SETTINGS = EncodeConfig("minilm", pooling="paper", device="cpu", dtype="float32")


def twin(folder: Path) -> tuple[list[str], list[list[int]]]:
    """Texts of notes, and for each image the numbers of its prior notes in time order."""
    write("mimic", folder / "raw", n_patients=N_PATIENTS, seed=SEED, pixels=False, reports=False)
    build(BuildConfig("mimic_cxr_context", root=(str(folder / "raw"),), out=str(folder / "built"), no_pixels=True))
    notes = load_notes(folder / "built")
    number = {name: at for at, name in enumerate(notes["note_id"].to_pylist())}
    lists = load_images(folder / "built", columns=["image_id", "prior_note_ids"])["prior_note_ids"].to_pylist()
    return [text.lower() for text in notes["text"].to_pylist()], [[number[each] for each in ids] for ids in lists]


def image_by_image(model: Any, encoder: Encoder, texts: list[str], images: list[list[int]]) -> np.ndarray:
    """The peer: nothing is shared between images."""
    import torch

    made = []
    for image in images:
        parts, note = [], []
        for at, which in enumerate(image):
            ids = token_ids(encoder.tokenizer, [texts[which]])[0]
            for start, end in cut(len(ids), encoder.frame.window, encoder.frame.overlap):
                parts.append(ids[start:end])
                note.append(at)
        longest = max(map(len, parts))
        ids = torch.tensor([part + [0] * (longest - len(part)) for part in parts])
        mask = torch.tensor([[1] * len(part) + [0] * (longest - len(part)) for part in parts])
        with torch.inference_mode():
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask[:, :, None].float()
        means = ((hidden * weight).sum(1) / weight.sum(1)).numpy()
        pooled = np.array([means[np.array(note) == at].mean(axis=0) for at in range(len(image))])
        made.append((pooled / np.linalg.norm(pooled, axis=1, keepdims=True)).mean(axis=0))
    return np.array(made)


def run() -> list[Row]:
    """Time both once; ratio = peer seconds over our seconds."""
    with tempfile.TemporaryDirectory(prefix="cxrhf-encoding-") as name:
        folder = Path(name)
        texts, images = twin(folder)
        encoder = open_encoder(SETTINGS)
        model = load_model(encoder)
        encode_texts(texts[:3], SETTINGS, cache="off")  # imports and first touches are not what is measured
        image_by_image(model, encoder, texts, images[:3])

        image = np.repeat(np.arange(len(images)), [len(each) for each in images])
        note = np.concatenate([np.array(each) for each in images])
        sets = sparse.csr_array((np.ones(len(image)), (image, note)), shape=(len(images), len(texts)))

        def ours() -> np.ndarray:
            return encode_sets(texts, sets, SETTINGS, cache=folder / "notes")

        fresh_seconds, fresh = timed(ours)
        peer_seconds, peer = timed(lambda: image_by_image(model, encoder, texts, images))
        warm_seconds, warm = timed(ours)
    apart = float(np.abs(fresh - peer).max())
    if apart > 1e-4 or not np.array_equal(fresh, warm):
        raise RuntimeError(f"the peer and we compute different vectors (by {apart:.2g}); the comparison means nothing")
    size = (
        f"{len(images)} images with {len(image) / len(images):.2f} prior notes each: {len(image)} readings of "
        f"{len(texts)} notes ({len(set(texts))} distinct) of {np.mean([len(text) for text in texts]):.0f} characters"
    )
    return [
        row(
            "encoding prior notes once, cache empty", fresh_seconds, peer_seconds,
            f"{size}; peer: image by image as in the public code; vectors differ by {apart:.1g} at most", target=3.0,
        ),
        row(
            "encoding prior notes again, cache full", warm_seconds, fresh_seconds,
            "peer: our first run; the weights are not loaded, the vectors are equal",
        ),
    ]  # fmt: skip
