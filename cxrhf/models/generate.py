"""A vision-language model, pictures and ways of decoding -> reports, each on disk as soon as its batch is done.

    cxrhf generate RUN --build BUILD
    accelerate launch -m cxrhf.models.generate RUN --build BUILD         all GPUs of the machine

are the same command. Reports are planned in batches of similar length over all that was asked for, whether or not some
are there already; processes take turns at the batches. So after a kill, or with other numbers of processes, a report
meets the same neighbours as before and comes out the same to the last bit. With another batch size scores differ in
their last digits: float32 gives the same words, in bf16 two words that are all but equally likely may change places.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from cxrhf.encode.processes import barrier, n_processes, rank
from cxrhf.errors import CxrhfError, RunError
from cxrhf.models.data import Pictures
from cxrhf.models.seeding import Meter, Progress, number
from cxrhf.models.strategies import Strategy
from cxrhf.models.vlm import Vlm
from cxrhf.models.vlm_data import question_batch, question_lengths, question_text, stop_tokens


@dataclass(frozen=True, slots=True)
class ReportRequest:
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
) -> list[ReportRequest]:
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
            asks.append(ReportRequest(row, prompt, strategy, key, draw))
    return asks


def batches(asks: Sequence[ReportRequest], lengths: Mapping[str, int], size: int) -> list[list[ReportRequest]]:
    """Reports of one strategy, with questions of similar length; the longest first, where memory is short."""
    made: list[list[ReportRequest]] = []
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
    asks: Sequence[ReportRequest],
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


def decode(vlm: Vlm, pictures: Sequence[Any], batch: Sequence[ReportRequest]) -> list[tuple[str, int, bool]]:
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


# Finished reports <-> a journal on disk that survives a kill at any moment.
#
#     RUN/local/generating/part-0.jsonl        one line a report, one file a process, only ever added to
#
# A line is a checksum and an object: the key of everything that makes the text, the text, its tokens, whether it
# ended by itself. A line that was cut, or is damaged, does not count, and its report is written again. Lines hold no
# ids: the key is a hash. Texts are confidential, so the folder is for its owner alone.

FOLDER = "local/generating"


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report. `ended`: by itself, not by the limit of its length."""

    key: str
    text: str
    tokens: int
    ended: bool


def report_key(**made_of: Any) -> str:
    """The name of a report in the journal, by all that makes its text.

    >>> report_key(image="a", seed=0) == report_key(seed=0, image="a") != report_key(image="a", seed=1)
    True
    """
    text = json.dumps(made_of, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_journal(folder: Path) -> tuple[dict[str, Report], int]:
    """Every whole line of every process by its key, and how many lines were damaged."""
    found: dict[str, Report] = {}
    damaged = 0
    for path in sorted(folder.glob("part-*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if not line:
                continue
            entry = _entry(line)
            if entry is None:
                damaged += 1
            else:
                found.setdefault(entry.key, entry)
    return found, damaged


def _entry(line: bytes) -> Report | None:
    said, _, body = line.partition(b" ")
    if said.decode("ascii", "replace") != _checksum(body):
        return None
    values: Mapping[str, Any] = json.loads(body)
    return Report(str(values["key"]), str(values["text"]), int(values["tokens"]), bool(values["ended"]))


def _checksum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


class Journal:
    """The file of one process, open to add to."""

    def __init__(self, folder: Path, process: int) -> None:
        self.path = folder / f"part-{process}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            size = os.fstat(self.file).st_size
            if size and os.pread(self.file, 1, size - 1) != b"\n":
                os.write(self.file, b"\n")  # a line that was cut ends here, and stays damaged
        except OSError as error:
            raise self._unusable(error) from None

    def add(self, entries: Iterable[Report]) -> None:
        """Write reports and wait until they are on the disk."""
        lines = []
        for each in entries:
            body = json.dumps(asdict(each), ensure_ascii=True).encode()  # one line, whatever the text holds
            lines.append(_checksum(body).encode() + b" " + body + b"\n")
        data = b"".join(lines)
        try:
            while data:
                data = data[os.write(self.file, data) :]
            os.fsync(self.file)
        except OSError as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        os.close(self.file)

    def _unusable(self, error: OSError) -> RunError:
        return RunError(
            f"{self.path} cannot be written ({error.strerror or error})",
            next_step="free disk space or choose another --out; finished reports are kept",
        )


# Scores of the next token -> the token that a report's own random numbers choose.
#
# transformers draws a whole batch from one generator, so a report would depend on its neighbours and on how far a run
# had come. Here every report draws from numbers of its own, which follow from (its key, position, token) alone:
# Gumbel noise is added to the scores after temperature, top-k and top-p, and the largest one is taken. That is an
# exact draw from the same distribution. Noise that belongs to a token, rather than one number that is looked up in a
# cumulated sum, also keeps the choice when another batch size changes the last digits of the scores.
#
# The noise comes from a hash in whole numbers, so it is the same on every device, and needs no state to be kept.

_WORD = 0xFFFFFFFF
# Two rounds of a 32-bit mixing function. The second factor stands less 2**32, so that no product leaves 64 bits.
_FACTORS = (0x7FEB352D, 0x846CA68B - 2**32)


def gumbel(keys: Sequence[int], step: int, vocabulary: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """(reports, vocabulary) noise of one step: independent standard Gumbel numbers."""
    seeds = [number(key, "step", step) for key in keys]
    low, high = (
        torch.tensor([each >> shift & _WORD for each in seeds], device=device).unsqueeze(1) for shift in (0, 32)
    )
    tokens = torch.arange(vocabulary, device=device).unsqueeze(0)
    x = _mix_bits((_mix_bits(tokens ^ low) + high) & _WORD)
    if torch.device(device).type == "mps":  # has no float64; its largest noise is 16.6 instead of 22.9
        uniform = ((x.to(torch.float32) + 0.5) / 2**32).clamp(2**-33, 1 - 2**-24)
    else:
        uniform = (x.to(torch.float64) + 0.5) / 2**32
    return uniform.log_().neg_().log_().neg_()


def _mix_bits(x: torch.Tensor) -> torch.Tensor:
    x = x ^ (x >> 16)
    x = (x * _FACTORS[0]) & _WORD
    x = x ^ (x >> 15)
    x = (x * _FACTORS[1]) & _WORD
    return x ^ (x >> 16)


class OwnDraw:
    """A logits processor after which the largest score is the drawn token; one key for each row."""

    def __init__(self, keys: Sequence[int], start: int) -> None:
        self.keys, self.start = list(keys), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert len(scores) == len(self.keys)
        return scores + gumbel(self.keys, input_ids.shape[1] - self.start, scores.shape[1], scores.device)


class OnlyNew:
    """A logits processor that sees the new tokens alone: prompts, and what fills them up, are not repeated words."""

    def __init__(self, processor: Any, start: int) -> None:
        self.processor, self.start = processor, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        new = input_ids[:, self.start :]
        changed: torch.Tensor = self.processor(new, scores) if new.shape[1] else scores
        return changed


def processors(strategy: Strategy, keys: Sequence[int], start: int) -> list[Any]:
    """What turns scores into the choice of a strategy, in transformers' order; `start` is the prompts' length."""
    from transformers.generation import logits_process as usual

    made: list[Any] = []
    if strategy.repetition_penalty != 1:
        made.append(OnlyNew(usual.RepetitionPenaltyLogitsProcessor(strategy.repetition_penalty), start))
    if strategy.no_repeat_ngram_size:
        made.append(OnlyNew(usual.NoRepeatNGramLogitsProcessor(strategy.no_repeat_ngram_size), start))
    if not strategy.do_sample:
        return made
    if strategy.temperature != 1:
        made.append(usual.TemperatureLogitsWarper(strategy.temperature))
    if strategy.top_k:
        made.append(usual.TopKLogitsWarper(strategy.top_k))
    if strategy.top_p < 1:
        made.append(usual.TopPLogitsWarper(strategy.top_p))
    if strategy.min_p:
        made.append(usual.MinPLogitsWarper(strategy.min_p))
    return [*made, OwnDraw(keys, start)]


if __name__ == "__main__":
    from cxrhf.cli import main

    sys.exit(main(["generate", *sys.argv[1:]]))
