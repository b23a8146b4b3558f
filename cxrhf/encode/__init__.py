"""Texts of notes -> vectors of a language model, each distinct text once, kept by content for the next run.

`encode_texts` gives a vector a text, `encode_sets` a vector a set of notes (the notes known before an image).

    from cxrhf.encode.settings import EncodeConfig
    from cxrhf.encode import encode_sets
    vectors = encode_sets(notes["text"], sets, EncodeConfig("minilm"), progress=True)

Encoders: files.py (minilm needs no network), a folder, any id of the Hugging Face Hub. Texts are taken as they are;
what is encoded is what is hashed. Nothing is sent anywhere, and no text is written anywhere.

Several processes share the work when a launcher starts them, one for each GPU, or for each group of cores:
    accelerate launch --multi_gpu --num_processes 2 -m cxrhf context fit BUILD
    torchrun --nproc_per_node 2 -m cxrhf context fit BUILD
Both lines also start two processes on a machine without a GPU. `accelerate launch --cpu --num_processes 2` does not: in
accelerate 1.15, --cpu always takes its launcher for one process, unless an MPI host file is given. Vectors are the same
to 1e-5 as from one process. Only `main_process()` goes on, prints and writes.

Known gaps: a model that does not fit on one GPU is not spread over several; notes are cut by tokens, not by sentences;
shards of the cache are not merged.
"""

from __future__ import annotations

import os

from cxrhf.encode.encoder import identity, same_encoder, saved_settings
from cxrhf.encode.files import PRESETS
from cxrhf.encode.notes import encode_sets, encode_texts
from cxrhf.encode.processes import main_process

__all__ = ["PRESETS", "encode_sets", "encode_texts", "identity", "main_process", "same_encoder", "saved_settings"]

# As in cxrhf.models: AMX that a virtual machine names but does not grant would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
