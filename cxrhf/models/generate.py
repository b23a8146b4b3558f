"""A vision-language model, pictures and ways of decoding -> reports, each on disk as soon as its batch is done.

    cxrhf generate RUN --build BUILD
    accelerate launch -m cxrhf.models.generate RUN --build BUILD         all GPUs of the machine

are the same command. Reports are planned in batches of similar length over all that was asked for, whether or not some
are there already; processes take turns at the batches. So after a kill, or with other numbers of processes, a report
meets the same neighbours as before and comes out the same to the last bit. With another batch size scores differ in
their last digits: float32 gives the same words, in bf16 two words that are all but equally likely may change places.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cxrhf.encode.processes import barrier, n_processes, rank
from cxrhf.errors import CxrhfError
from cxrhf.models.generate_journal import Journal, Report, read_journal, report_key
from cxrhf.models.generate_sampling import processors
from cxrhf.models.images import Pictures
from cxrhf.models.meter import Meter, Progress
from cxrhf.models.seeding import number
from cxrhf.models.strategies import Strategy
from cxrhf.models.vlm import Vlm
from cxrhf.models.vlm_batches import question_batch, question_lengths, question_text, stop_tokens


@dataclass(frozen=True, slots=True)
class Ask:
    """One report that is wanted: a picture by its row, what is asked, how it is decoded."""

    row: int
    prompt: str
    strategy: Strategy
    key: str  # in the journal
    draw: int  # key of its random numbers


def plan_asks(
    vlm: Vlm,
    ids: Sequence[str],
    prompts: Sequence[str],
    strategies: Sequence[Strategy],
    *,
    seed: int,
    model: str,
    images: str,
) -> list[Ask]:
    """Every report that is wanted. `model` and `images` tell weights and build from others of the same name."""
    rendered = {each: question_text(vlm, each) for each in set(prompts)}
    asks = []
    for strategy in strategies:
        settings = strategy.settings()
        for row, (image, prompt) in enumerate(zip(ids, prompts, strict=True)):
            key = report_key(
                model=model, strategy=settings, seed=seed if strategy.do_sample else None, question=rendered[prompt],
                image=image, images=images, size=vlm.about["size"], precision=vlm.about["precision"],
                four_bit=vlm.about["four_bit"],
            )  # fmt: skip
            draw = number(seed, "report", image, sorted(settings.items()))
            asks.append(Ask(row, prompt, strategy, key, draw))
    return asks


def batches(asks: Sequence[Ask], lengths: Mapping[str, int], size: int) -> list[list[Ask]]:
    """Reports of one strategy, with questions of similar length; the longest first, where memory is short."""
    made: list[list[Ask]] = []
    for strategy in dict.fromkeys(each.strategy for each in asks):
        own = sorted(
            (each for each in asks if each.strategy == strategy), key=lambda each: (-lengths[each.prompt], each.key)
        )
        rows = max(1, size // strategy.num_beams)
        made += [own[at : at + rows] for at in range(0, len(own), rows)]
    return made


def write_reports(
    vlm: Vlm,
    pictures: Pictures,
    asks: Sequence[Ask],
    folder: Path,
    *,
    batch_size: int,
    progress: Progress,
) -> dict[str, Report]:
    """Every report by its key, from the journal or made now; in the first process. Every process must call it."""
    done, damaged = read_journal(folder)
    prompts = list(dict.fromkeys(each.prompt for each in asks))
    lengths = dict(zip(prompts, question_lengths(vlm, prompts), strict=True)) if prompts else {}
    every = batches(asks, lengths, batch_size)
    left = [batch for batch in every if any(each.key not in done for each in batch)]
    mine = left[rank() :: n_processes()]
    if done and len(left) < len(every):
        progress(f"{sum(each.key in done for each in asks):,} of {len(asks):,} reports are already in the journal")
    if damaged and left:
        progress(f"{damaged:,} lines of the journal are damaged; their reports are generated again")
    barrier()  # nobody adds to the journal before all have read it
    meter = Meter(sum(map(len, mine)), progress, "reports")
    whose = f" (process 1 of {n_processes()})" if n_processes() > 1 else ""
    journal = Journal(folder, rank())
    try:
        for batch in mine:
            texts = decode(vlm, [pictures[each.row] for each in batch], batch)
            journal.add(
                Report(each.key, *text) for each, text in zip(batch, texts, strict=True) if each.key not in done
            )
            name = batch[0].strategy.name
            meter.add(len(batch), lambda name=name: f"{name}: {meter.done:,} of {meter.total:,}{whose}")  # type: ignore[misc]
    finally:
        journal.close()
    barrier()
    if rank():
        return {}
    found, _ = read_journal(folder)
    missing = sum(each.key not in found for each in asks)
    if missing:
        raise CxrhfError(
            f"{missing:,} of {len(asks):,} reports are not in the journal",
            next_step="start all processes with the same command and the same shared folder",
        )
    return {each.key: found[each.key] for each in asks}


def decode(vlm: Vlm, pictures: Sequence[Any], batch: Sequence[Ask]) -> list[tuple[str, int, bool]]:
    """Text, number of tokens, and whether it ended by itself, of each report of a batch of one strategy."""
    strategy = batch[0].strategy
    model = vlm.model
    asked = {
        key: each.to(model.device, model.dtype if each.is_floating_point() else None)
        for key, each in question_batch(vlm, pictures, [each.prompt for each in batch]).items()
    }
    start = asked["input_ids"].shape[1]
    own = processors(strategy, [each.draw for each in batch], start)
    with _only_ours(vlm, strategy) as settings, torch.inference_mode():
        try:
            out = model.generate(**asked, generation_config=settings, logits_processor=own)
        except torch.OutOfMemoryError:
            raise CxrhfError(
                f"the GPU ran out of memory with {len(batch)} reports at a time ({strategy.name})",
                next_step="run again with a smaller --batch-size or with --four-bit; finished reports are kept",
            ) from None
    return [_text(vlm, row, settings.eos_token_id) for row in out[:, start:].tolist()]


def _text(vlm: Vlm, tokens: Sequence[int], stops: Sequence[int]) -> tuple[str, int, bool]:
    end = next((at for at, token in enumerate(tokens) if token in stops), None)
    kept = list(tokens if end is None else tokens[:end])
    text = vlm.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text.strip(), len(kept), end is not None


@contextmanager
def _only_ours(vlm: Vlm, strategy: Strategy) -> Iterator[Any]:
    """Settings that say everything, while those that came with the model are put aside.

    transformers fills whatever a caller leaves open from the model's generation_config.json, and some of it cannot be
    closed (suppressed tokens, a watermark). Of the model's own only the tokens that end a text are kept.
    """
    from transformers import GenerationConfig

    bare = vlm.model.get_base_model() if hasattr(vlm.model, "get_base_model") else vlm.model
    holders = [bare] if bare is vlm.model else [bare, vlm.model]
    before = [each.generation_config for each in holders]
    stops = stop_tokens(vlm)
    ends = {
        "eos_token_id": stops,
        "pad_token_id": vlm.tokenizer.pad_token_id,
        "bos_token_id": vlm.tokenizer.bos_token_id,
    }
    settings = GenerationConfig(
        do_sample=False, num_beams=strategy.num_beams, num_return_sequences=1, use_cache=True,
        max_new_tokens=strategy.max_new_tokens, length_penalty=strategy.length_penalty,
        early_stopping=strategy.early_stopping, repetition_penalty=1.0, no_repeat_ngram_size=0, **ends,
    )  # fmt: skip
    try:
        for each in holders:
            each.generation_config = GenerationConfig(**ends)
        yield settings
    finally:
        for each, own in zip(holders, before, strict=True):
            each.generation_config = own


if __name__ == "__main__":
    from cxrhf.cli import main

    sys.exit(main(["generate", *sys.argv[1:]]))
