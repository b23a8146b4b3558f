"""A tiny Qwen3-VL writes: greedily as by hand, in batches as alone, drawn by each report's own numbers, once each."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from cxrhf.errors import CxrhfError, RunError
from cxrhf.models import generate
from cxrhf.models import seeding as meter
from cxrhf.models.generate import (
    Journal,
    Report,
    ReportRequest,
    batches,
    decode,
    gumbel,
    plan_asks,
    processors,
    read_journal,
    report_key,
    write_reports,
)
from cxrhf.models.lora import tiny_qwen3_vl
from cxrhf.models.seeding import number
from cxrhf.models.strategies import BUILT_IN, Strategy, find_strategies
from cxrhf.models.vlm import Vlm, load_vlm
from cxrhf.models.vlm_data import question_batch, stop_tokens
from tests.refusals import refused

TEXTS = [
    "The heart is enlarged. No pleural effusion.", "Clear lungs. No acute process.", "Small left effusion, edema.",
    "Median sternotomy wires. The lungs are hyperinflated.", "Right lower lobe opacity may be pneumonia.",
]  # fmt: skip
# Questions of different lengths: batches must fill them up.
PROMPTS = [f"Report. Indication: {' '.join(['cough'] * n)}" for n in (1, 7, 2, 12, 3)]
SIZE = 32


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vlm") / "tiny"
    return tiny_qwen3_vl(folder, TEXTS, hidden=32, layers=2, heads=2, vision_hidden=32, vision_layers=1, vocabulary=300)


@pytest.fixture(scope="module")
def vlm(tiny: Path) -> Vlm:
    return load_vlm(str(tiny), size=SIZE)


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 255, (SIZE, SIZE), dtype=np.uint8) for _ in PROMPTS]


def planned(vlm: Vlm, *strategies: Strategy, seed: int = 0, prompts: list[str] = PROMPTS) -> list[ReportRequest]:
    ids = [f"image {at}" for at in range(len(prompts))]
    return plan_asks(vlm, ids, prompts, strategies, seed=seed, model="m", images="b")


def short(name: str, tokens: int = 12) -> Strategy:
    return replace(BUILT_IN[name], max_new_tokens=tokens)


def texts(vlm: Vlm, pictures: list[np.ndarray], asks: list[ReportRequest], size: int) -> list[str]:
    """Reports of the asks in their order, `size` at a time."""
    found = []
    for at in range(0, len(asks), size):
        some = asks[at : at + size]
        found += [text for text, _, _ in decode(vlm, [pictures[each.row] for each in some], some)]
    return found


def by_hand(vlm: Vlm, picture: np.ndarray, prompt: str, n: int) -> list[int]:
    """The likeliest token again and again, without cache, padding or generate."""
    inputs = question_batch(vlm, [picture], [prompt])
    stops = stop_tokens(vlm)
    made: list[int] = []
    while len(made) < n:
        with torch.no_grad():
            token = int(vlm.model(**inputs).logits[0, -1].argmax())
        if token in stops:
            break
        made.append(token)
        for key, each in inputs.items():
            if each.ndim == 2 and each.shape[0] == 1 and key not in ("pixel_values", "image_grid_thw"):
                more = {"input_ids": token, "attention_mask": 1}.get(key, 0)
                inputs[key] = torch.cat([each, each.new_full((1, 1), more)], dim=1)
    return made


def test_greedy_is_the_likeliest_token_each_time(vlm: Vlm, pictures: list[np.ndarray]) -> None:
    asks = planned(vlm, short("greedy"))
    expected = [
        vlm.tokenizer.decode(by_hand(vlm, picture, prompt, 12), skip_special_tokens=True).strip()
        for picture, prompt in zip(pictures, PROMPTS, strict=True)
    ]
    assert texts(vlm, pictures, asks, len(asks)) == expected
    assert len(set(expected)) > 1


def test_batches_write_what_one_alone_writes(vlm: Vlm, pictures: list[np.ndarray]) -> None:
    every = [short(name) for name in BUILT_IN]
    for strategy in every:
        asks = planned(vlm, strategy)
        alone = texts(vlm, pictures, asks, 1)
        assert texts(vlm, pictures, asks, 5) == alone, strategy.name
        assert [*texts(vlm, pictures, asks[::-1], 3)][::-1] == alone, strategy.name


def test_every_report_draws_numbers_of_its_own(vlm: Vlm, pictures: list[np.ndarray]) -> None:
    top_p = short("top_p", 20)
    one = texts(vlm, pictures, planned(vlm, top_p), 5)
    torch.manual_seed(12345)
    assert texts(vlm, pictures, planned(vlm, top_p), 5) == one
    assert texts(vlm, pictures, planned(vlm, top_p, seed=1), 5) != one
    same = [pictures[0]] * 5
    assert len(set(texts(vlm, same, planned(vlm, top_p, prompts=[PROMPTS[0]] * 5), 5))) == 5
    assert len(set(texts(vlm, same, planned(vlm, short("greedy"), prompts=[PROMPTS[0]] * 5), 5))) == 1


@pytest.mark.slow
def test_settings_that_came_with_the_model_stay_outside(tiny: Path, pictures: list[np.ndarray], tmp_path: Path) -> None:
    import shutil

    folder = shutil.copytree(tiny, tmp_path / "qwen")
    clean = load_vlm(str(folder), size=SIZE)
    six = [short(name) for name in BUILT_IN]
    expected = [texts(clean, pictures, planned(clean, each), 5) for each in six]
    first = by_hand(clean, pictures[0], PROMPTS[0], 1)
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text())
    settings |= {
        "do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.7,
        "suppress_tokens": first, "no_repeat_ngram_size": 2, "min_new_tokens": 3, "num_beams": 3,
    }  # fmt: skip
    path.write_text(json.dumps(settings))
    leaky = load_vlm(str(folder), size=SIZE)
    assert leaky.model.generation_config.top_k == 20
    assert [texts(leaky, pictures, planned(leaky, each), 5) for each in six] == expected
    assert leaky.model.generation_config.top_k == 20  # put back
    with torch.no_grad():  # and it would matter
        asked = question_batch(leaky, pictures[:1], PROMPTS[:1])
        loose = leaky.model.generate(**asked, max_new_tokens=12, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert int(loose[0]) != first[0]


def test_the_first_token_is_drawn_as_transformers_draws_it(vlm: Vlm, pictures: list[np.ndarray]) -> None:
    inputs = question_batch(vlm, pictures[:1], PROMPTS[:1])
    with torch.no_grad():
        logits = vlm.model(**inputs).logits[0, -1].float()
    for name in ("rich", "top_k", "top_p"):
        strategy = replace(BUILT_IN[name], temperature=3.0)  # a tiny model is too sure of itself
        n, start = 4000, inputs["input_ids"].shape[1]
        own = processors(strategy, [number(0, "draw", at) for at in range(n)], start)
        scores = logits.expand(n, -1)
        for each in own:
            scores = each(inputs["input_ids"].expand(n, -1), scores)
        ours = Counter(scores.argmax(dim=1).tolist())
        warped = logits.unsqueeze(0)
        for each in own[:-1]:
            warped = each(inputs["input_ids"], warped)
        exact = torch.softmax(warped[0], dim=0).numpy().astype(np.float64)
        with torch.no_grad():
            theirs = vlm.model.generate(
                **inputs, do_sample=True, temperature=strategy.temperature, top_k=strategy.top_k, top_p=strategy.top_p,
                max_new_tokens=1, num_return_sequences=400, pad_token_id=0,
            )[:, start].tolist()  # fmt: skip
        assert set(ours) <= set(np.flatnonzero(exact))
        assert set(theirs) <= set(np.flatnonzero(exact))
        for drawn, count in ((ours, n), (Counter(theirs), 400)):
            kept = np.argsort(-exact)[:20]
            seen = np.array([drawn[token] for token in kept] + [count - sum(drawn[token] for token in kept)])
            wanted = np.append(exact[kept], max(1 - exact[kept].sum(), 1e-12)) * count
            big = wanted >= 5
            seen = np.append(seen[big], seen[~big].sum())
            wanted = np.append(wanted[big], wanted[~big].sum())
            usable = wanted > 1
            statistic = float(((seen - wanted)[usable] ** 2 / wanted[usable]).sum())
            assert stats.chi2.sf(statistic, usable.sum() - 1) > 1e-4, name


def test_noise_is_gumbel_and_unlike_at_every_place() -> None:
    noise = gumbel([number(0, at) for at in range(40)], 3, 1000)
    assert stats.kstest(noise.numpy().ravel(), stats.gumbel_r.cdf).pvalue > 1e-3
    assert noise.unique().numel() > 39_990
    for other in (
        gumbel([number(1, at) for at in range(40)], 3, 1000),
        gumbel([number(0, at) for at in range(40)], 4, 1000),
    ):
        assert abs(np.corrcoef(noise.numpy().ravel(), other.numpy().ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(noise[:, :-1].numpy().ravel(), noise[:, 1:].numpy().ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(noise[:-1].numpy().ravel(), noise[1:].numpy().ravel())[0, 1]) < 0.02
    assert torch.equal(gumbel([7, 8], 0, 50)[1], gumbel([8], 0, 50)[0])


def test_penalties_look_at_the_report_alone(
    vlm: Vlm, pictures: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = planned(vlm, Strategy("once", no_repeat_ngram_size=1, repetition_penalty=1.3, max_new_tokens=15))
    assert texts(vlm, pictures, asks, 5) == texts(vlm, pictures, asks, 1)
    monkeypatch.setattr(generate, "_text", lambda vlm, tokens, stops: (tokens, 0, True))
    made: Any = texts(vlm, pictures, asks, 5)
    assert [len(set(each)) for each in made] == [15] * 5
    plain: Any = texts(vlm, pictures, planned(vlm, short("greedy", 15)), 5)
    assert min(len(set(each)) for each in plain) < 15


def test_an_empty_report_and_one_that_is_cut(tiny: Path, pictures: list[np.ndarray]) -> None:
    model = load_vlm(str(tiny), size=SIZE)
    asks = planned(model, short("greedy", 6))
    assert [ended for _, _, ended in decode(model, pictures, asks)] == [False] * 5
    first = by_hand(model, pictures[0], PROMPTS[0], 1)[0]
    model.model.generation_config.eos_token_id = [first]
    text, tokens, ended = decode(model, pictures[:1], asks[:1])[0]
    assert (text, tokens, ended) == ("", 0, True)


def test_batches_hold_like_lengths_and_beams_count() -> None:
    asks = [
        ReportRequest(at, "x" * (at % 7), each, f"{at:02d}{each.name}", 0)
        for each in (BUILT_IN["greedy"], BUILT_IN["beam"])
        for at in range(20)
    ]
    made = batches(asks, {"x" * n: n for n in range(7)}, 8)
    assert sorted(each.key for batch in made for each in batch) == sorted(each.key for each in asks)
    assert [len(batch) for batch in made] == [8, 8, 4] + [2] * 10
    lengths = [len(each.prompt) for batch in made[:3] for each in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert batches(asks[::-1], {"x" * n: n for n in range(7)}, 8)[-3:] == made[:3]  # strategies in the order given


def test_a_stopped_run_goes_on_and_does_only_what_is_missing(
    vlm: Vlm, pictures: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = planned(vlm, *(short(name) for name in ("greedy", "top_p")))
    run: dict[str, Any] = {"vlm": vlm, "pictures": pictures, "asks": asks, "progress": lambda _: None}
    whole = write_reports(folder=tmp_path / "whole", batch_size=2, **run)
    real, calls = decode, []

    def counted(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3 and not (tmp_path / "again").exists():
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(generate, "decode", counted)
    with pytest.raises(KeyboardInterrupt):
        write_reports(folder=tmp_path / "part", batch_size=2, **run)
    path = tmp_path / "part" / "part-0.jsonl"
    assert len(path.read_bytes().splitlines()) == 4
    path.write_bytes(path.read_bytes()[:-9])  # as a kill in the middle of a write leaves it
    (tmp_path / "again").touch()
    calls.clear()
    assert write_reports(folder=tmp_path / "part", batch_size=2, **run) == whole
    assert len(calls) == 5  # of six batches; the one that was cut is done again with the neighbours it had
    calls.clear()
    assert write_reports(folder=tmp_path / "part", batch_size=2, **run) == whole
    assert write_reports(folder=tmp_path / "part", batch_size=5, **run) == whole
    assert not calls
    assert write_reports(folder=tmp_path / "large", batch_size=5, **run) == whole
    others = planned(vlm, short("greedy"), short("top_p"), seed=1)
    greedy = {each.key for each in asks if each.strategy.name == "greedy"}
    assert {each.key for each in others} & {each.key for each in asks} == greedy  # only draws depend on the seed


def test_the_journal_survives_damage_and_is_for_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "local" / "journal"
    entries = [Report(report_key(n=n), "größe\n\u2028 \x00" * n, n, n % 2 == 0) for n in range(4)]
    journal = Journal(folder, 0)
    journal.add(entries[:2])
    journal.close()
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    path = folder / "part-0.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("ab") as file:
        file.write(b'0123 {"key": "half')
    journal = Journal(folder, 0)
    journal.add(entries[2:3])
    journal.close()
    other = Journal(folder, 1)
    other.add(entries[3:])
    other.close()
    found, damaged = read_journal(folder)
    assert (list(found.values()), damaged) == (entries, 1)
    data = bytearray(path.read_bytes())
    data[data.index(b"gr") + 1] ^= 1  # a letter of the second report
    path.write_bytes(bytes(data))
    found, damaged = read_journal(folder)
    assert (len(found), damaged) == (3, 2)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        Journal(tmp_path / "file", 0)


def test_reports_that_another_process_lost_are_missed(
    vlm: Vlm, pictures: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "n_processes", lambda: 2)
    monkeypatch.setattr(generate, "barrier", lambda: None)
    with refused(CxrhfError, "2 of 5 reports"):
        write_reports(vlm, pictures, planned(vlm, short("greedy")), tmp_path, batch_size=2, progress=lambda _: None)


def test_strategies_of_the_command_line_all_run(
    vlm: Vlm, pictures: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "EVERY", 0.0)
    lines: list[str] = []
    asks = planned(vlm, *find_strategies("all", max_new_tokens=8))
    found = write_reports(vlm, pictures, asks, tmp_path, batch_size=4, progress=lines.append)
    assert len(found) == 6 * 5
    assert {each.ended for each in found.values()} <= {True, False}
    assert "30 of 30, " in lines[-1]
    assert " reports/" in lines[-1]
