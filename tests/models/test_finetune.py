"""The loop that trains adapters: it learns, touches nothing else, goes on exactly, and no batch is lost."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cxrhf.errors import ConfigError, CxrhfError
from cxrhf.models.data import Images
from cxrhf.models.finetune import Finetuned, answer_loss, fit, whole_weights
from cxrhf.models.loop import read_history
from cxrhf.models.lora import add_lora, tiny_qwen3_vl
from cxrhf.models.processes import make_accelerator
from cxrhf.models.report_settings import FinetuneConfig
from cxrhf.models.vlm import Vlm, load_vlm
from cxrhf.models.vlm_data import Examples, LengthPlan, make_examples, question_batch, read_examples
from tests.refusals import refused

SIDE, PROMPT = 32, "Write."
PARTS = ("The lungs are clear.", "There is cardiomegaly.", "No pleural effusion.", "A chest drain is in place.")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finetune") / "tiny"
    return tiny_qwen3_vl(folder, [" ".join(PARTS), PROMPT], hidden=32, vision_hidden=32, patch=8)


def examples(vlm: Vlm, n: int, first: int = 0, max_length: int = 200) -> Examples:
    """Bright and dark squares with reports of one to four sentences."""
    rng = np.random.default_rng(first)
    films = [np.full((SIDE, SIDE), int(each), np.uint8) for each in rng.integers(0, 256, n)]
    reports = [" ".join(PARTS[: 1 + at % len(PARTS)]) for at in range(n)]
    ids = [f"i{at + first}" for at in range(n)]
    images = Images(pa.table({"image_id": ids, "patient_id": ids}), films)
    return make_examples(vlm, images, [PROMPT] * n, reports, max_length)


def opened(tiny: Path, config: FinetuneConfig) -> Vlm:
    vlm = load_vlm(str(tiny), size=SIDE)
    vlm.model = add_lora(vlm, rank=config.lora_rank, alpha=config.lora_alpha, dropout=config.lora_dropout,
                         embeddings=config.train_embeddings, four_bit=False, seed=config.seed)  # fmt: skip
    return vlm


BASE = FinetuneConfig(
    "build", size=SIDE, lora_rank=8, lora_alpha=16, epochs=100, max_steps=12, batch_size=8, learning_rate=0.01,
    validate_every=6, save_every=4, workers=0, device="cpu",
)  # fmt: skip


def trained(
    tiny: Path, folder: Path, config: FinetuneConfig = BASE, progress: Any = None, other: str | None = None
) -> tuple[Vlm, Finetuned]:
    vlm = opened(tiny, config)
    held = examples(vlm, 8, 100) if other is None else replace(examples(vlm, 8, 100), answers=[other] * 8)
    done = fit(
        vlm, examples(vlm, 24), held, config, accelerator=make_accelerator(device="cpu"),
        folder=folder / "checkpoints", history=folder / "history.jsonl", key="k", progress=progress or (lambda _: None),
    )  # fmt: skip
    return vlm, done


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_history(folder / "history.jsonl") if "loss" in line]


def written(vlm: Vlm) -> list[str]:
    asked = question_batch(vlm, [np.full((SIDE, SIDE), 9, np.uint8)], [PROMPT])
    with torch.no_grad():
        out = vlm.model.eval().generate(**asked, max_new_tokens=12, do_sample=False)
    texts: list[str] = vlm.tokenizer.batch_decode(out[:, asked["input_ids"].shape[1] :])
    return texts


def test_it_learns_and_touches_nothing_but_its_adapters(tiny: Path, tmp_path: Path) -> None:
    told: list[str] = []
    config = replace(BASE, max_steps=40, validate_every=20)
    before = load_vlm(str(tiny), size=SIDE)
    frozen = dict(before.model.state_dict())
    vlm, done = trained(tiny, tmp_path, config, told.append)
    found = losses(tmp_path)
    assert len(found) == 40
    assert np.mean(found[-5:]) < 0.5 * found[0]
    after = {name.replace(".base_layer", ""): each for name, each in vlm.model.get_base_model().state_dict().items()}
    assert sum("visual" in name for name in frozen) > 10
    assert all(torch.equal(each, after[name]) for name, each in frozen.items())
    assert written(vlm) != written(before)
    assert done.facts["steps"] == 40
    assert done.facts["examples"] == 24
    assert done.facts["learned_parameters"] == sum(each.numel() for each in done.tensors.values())
    assert any("validation loss" in line for line in told)


def test_one_step_is_the_plain_loss_over_all_answer_tokens(tiny: Path, tmp_path: Path) -> None:
    config = replace(BASE, max_steps=1)
    trained(tiny, tmp_path, config)
    vlm = opened(tiny, config)
    made = examples(vlm, 24)
    rows = next(iter(LengthPlan(made.ids, 0, 8, lengths=made.lengths).steps(1, 1))).rows
    total, count = 0.0, 0
    for row in rows:  # one by one: no filling up, the model's own loss
        batch = next(read_examples(vlm, made, [np.array([row])], workers=0))
        with torch.no_grad():
            total += float(vlm.model(**batch.inputs).loss) * made.learned[row]
        count += int((batch.inputs["labels"] >= 0).sum())
    assert count == made.learned[rows].sum()
    assert losses(tmp_path)[0] == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize(
    "change",
    [{"gradient_checkpointing": True}, {"accumulate": 4}, {"workers": 2}],
    ids=["gradient_checkpointing", "accumulate", "workers"],
)
def test_what_must_not_change_the_loss(change: dict[str, Any], tiny: Path, tmp_path: Path) -> None:
    trained(tiny, tmp_path / "a", replace(BASE, max_steps=5))
    trained(tiny, tmp_path / "b", replace(BASE, max_steps=5, **change))
    np.testing.assert_allclose(losses(tmp_path / "b"), losses(tmp_path / "a"), rtol=2e-5)


def test_logits_are_asked_for_only_where_an_answer_stands(tiny: Path) -> None:
    vlm = opened(tiny, BASE)
    made = examples(vlm, 5)
    inputs = next(read_examples(vlm, made, [np.arange(5)], workers=0)).inputs

    class Plain(torch.nn.Module):
        """A model that gives logits of all tokens only."""

        def forward(self, **inputs: Any) -> Any:
            return vlm.model(**inputs)

    with torch.no_grad():
        torch.testing.assert_close(answer_loss(vlm.model, inputs), answer_loss(Plain(), inputs))


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.2])
def test_a_stopped_training_goes_on_to_the_same_bits(dropout: float, tiny: Path, tmp_path: Path) -> None:
    config = replace(BASE, lora_dropout=dropout)
    _, whole = trained(tiny, tmp_path / "whole", config)

    class Killed(Exception):
        pass

    def kill(text: str) -> None:  # between a checkpoint (step 4) and the next
        if text.startswith("step 6"):
            raise Killed

    with pytest.raises(Killed):
        trained(tiny, tmp_path / "cut", config, kill)
    told: list[str] = []
    _, done = trained(tiny, tmp_path / "cut", config, told.append)
    assert any("after step 4 of 12" in line for line in told)
    assert done.facts == whole.facts
    assert all(torch.equal(done.tensors[name], each) for name, each in whole.tensors.items())
    assert (tmp_path / "cut/history.jsonl").read_bytes() == (tmp_path / "whole/history.jsonl").read_bytes()


@pytest.mark.slow
def test_the_best_adapter_is_kept_or_the_last(tiny: Path, tmp_path: Path) -> None:
    config = replace(BASE, max_steps=12, validate_every=2)
    strange = "qX 7 zW @"  # signs that no report of training has, less likely with every step
    _, best = trained(tiny, tmp_path / "best", config, None, strange)
    _, last = trained(tiny, tmp_path / "last", replace(config, keep="last"), None, strange)
    seen = {each["step"]: each["validate_loss"] for each in read_history(tmp_path / "best/history.jsonl")
            if "validate_loss" in each}  # fmt: skip
    assert best.facts["kept_step"] == min(seen, key=lambda step: seen[step]) < 12
    assert last.facts["kept_step"] == 12
    assert not all(torch.equal(best.tensors[name], each) for name, each in last.tensors.items())


def test_a_loss_that_is_no_number_ends_it(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count(1)
    monkeypatch.setattr(
        "cxrhf.models.finetune.answer_loss",
        lambda model, inputs: answer_loss(model, inputs) * (float("nan") if next(calls) > 5 else 1),
    )
    with refused(CxrhfError, "step 6", "step-00000004 is intact", fix="--learning-rate"):
        trained(tiny, tmp_path)
    assert max(each.name for each in (tmp_path / "checkpoints").iterdir()) == "step-00000004"


def test_length_groups_are_a_permutation_and_the_same_for_all() -> None:
    rng = np.random.default_rng(0)
    ids, lengths = [f"i{at}" for at in range(1003)], rng.integers(20, 400, 1003)
    plan = LengthPlan(ids, 0, 16, lengths=lengths)
    orders = [plan.order(epoch) for epoch in range(3)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(1003))
    assert (orders[0] != orders[1]).any()
    spread = np.mean([np.ptp(lengths[order[at : at + 16]]) for order in orders for at in range(0, 992, 16)])
    plain = LengthPlan(ids, 0, 16).order(0)
    assert spread < 0.2 * np.mean([np.ptp(lengths[plain[at : at + 16]]) for at in range(0, 992, 16)])
    means = [lengths[orders[0][at : at + 16]].mean() for at in range(0, 992, 16)]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.4, "batches do not come sorted"
    shares = [LengthPlan(ids, 0, 16, 2, 2, process, lengths) for process in range(2)]
    for step, one, two in itertools.islice(
        zip(plan.steps(1, 70), shares[0].steps(1, 70), shares[1].steps(1, 70), strict=True), 70
    ):
        assert sorted(np.concatenate([*one.mine, *two.mine])) == sorted(step.rows)
    assert {int(row) for order in orders for row in order[992:]} > {int(row) for row in orders[0][992:]}


def test_examples_know_their_lengths_and_cuts(tiny: Path) -> None:
    vlm = load_vlm(str(tiny), size=SIDE)
    whole = examples(vlm, 8)
    batch = next(read_examples(vlm, whole, [np.arange(8)], workers=1))
    assert batch.inputs["attention_mask"].sum(dim=1).tolist() == whole.lengths.tolist()
    assert (batch.inputs["labels"] >= 0).sum(dim=1).tolist() == whole.learned.tolist()
    room = int(whole.lengths.max()) - 3
    cut = examples(vlm, 8, max_length=room)
    assert cut.n_cut == int((whole.lengths > room).sum()) > 0
    batch = next(read_examples(vlm, cut, [np.arange(8)], workers=0))
    assert batch.n_cut == cut.n_cut
    assert (batch.inputs["labels"] >= 0).sum(dim=1).tolist() == cut.learned.tolist()


def test_what_is_refused(tiny: Path, tmp_path: Path) -> None:
    for kind in ("DistributedType.FSDP", "DistributedType.DEEPSPEED"):
        with refused(CxrhfError, got=kind.partition(".")[2], fix="accelerate launch"):
            whole_weights(SimpleNamespace(distributed_type=kind))
    with refused(ConfigError, "--batch-size", fix="--accumulate"):
        trained(tiny, tmp_path, replace(BASE, batch_size=30, accumulate=30))
    broken = examples(load_vlm(str(tiny), size=SIDE), 4)

    class Torn:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, row: int) -> Any:
            raise CxrhfError("torn")

    with refused(CxrhfError, "row 3", "torn"):
        next(
            read_examples(load_vlm(str(tiny), size=SIDE), replace(broken, pictures=Torn()), [np.array([2])], workers=0)
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"female": 1.2}, "female"),
        ({"views": "side"}, "views"),
        ({"keep": "first"}, "keep"),
        ({"lora_rank": 0}, "lora_rank"),
        ({"model": " "}, "model"),
        ({"train_split": "validate"}, "validate"),
        ({"schedule": "cosin"}, "cosine"),
    ],
)
def test_wrong_settings(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FinetuneConfig("build", **change)
