"""The loop: it learns, it stops and goes on exactly, it says what is wrong."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cxrhf.errors import CxrhfError
from cxrhf.models import train as module
from cxrhf.models.backbone import last_layer, make_model
from cxrhf.models.data import Task, shuffled
from cxrhf.models.loop import checkpoints, read_checkpoint, read_history, resume_checkpoint
from cxrhf.models.processes import make_accelerator
from cxrhf.models.settings import TrainConfig
from cxrhf.models.step import accuracy, look_at, mean_auroc, validation_loss
from cxrhf.models.train import Material
from tests.models.tiny import config, material, trained
from tests.refusals import refused
from tests.thinned import thinned

AUGMENT = {"flip": 0.5, "rotation": 10.0, "scale": 0.1}


def logits(model: torch.nn.Module, what: Material) -> np.ndarray:
    assert what.validate is not None
    squares, target = what.validate
    return look_at(model, squares, len(target), make_accelerator(device="cpu"), batch_size=16).logits


@pytest.mark.parametrize("backbone", thinned(["test_resnet", "test_vit"], ["test_resnet"]))
def test_it_learns_what_is_there(tmp_path: Path, backbone: str) -> None:
    what, _ = material(180)
    done = trained(tmp_path, config(backbone=backbone, epochs=8, best_by="auroc", schedule="cosine", warmup=5), what)
    assert what.validate is not None
    assert mean_auroc(logits(done.model, what), what.validate[1]) > 0.9
    losses = [row["loss"] for row in read_history(tmp_path / "history.jsonl") if "loss" in row]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


@pytest.mark.slow
def test_dealt_labels_teach_nothing(tmp_path: Path) -> None:
    """One network leans one way or the other, for what is drawn here is plain to see; together they do not."""
    what, _ = material(180)
    assert what.validate is not None
    found = []
    for seed in range(6):
        dealt = [
            shuffled(goal, [str(k // 3) for k in range(len(goal))], seed) for goal in (what.targets, what.validate[1])
        ]
        wrong = Material(what.ids, what.squares, dealt[0], what.tasks, (what.validate[0], dealt[1]))
        done = trained(tmp_path / str(seed), config(epochs=2, seed=seed), wrong)
        found.append(mean_auroc(logits(done.model, what), what.validate[1]))
    assert abs(np.mean(found) - 0.5) < 0.2


@pytest.mark.slow
def test_several_tasks_share_the_network(tmp_path: Path) -> None:
    what, tasks = material(180, tasks=("findings", "sex"))
    assert [task.name for task in tasks] == ["findings", "sex"]
    done = trained(tmp_path, config(epochs=8), what)
    assert what.validate is not None
    seen, goal = logits(done.model, what), what.validate[1]
    assert mean_auroc(seen[:, 2:], goal[:, 2:]) > 0.9
    assert mean_auroc(seen[:, :2], goal[:, :2]) > 0.85


SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "everything": {
        **AUGMENT, "optimizer": "adamw", "weight_decay": 0.01, "schedule": "cosine", "warmup": 3, "accumulate": 3,
        "clip": 0.5, "class_weights": "balanced", "drop_rate": 0.2, "drop_path": 0.1, "backbone": "test_vit",
    },
    "plateau": {"schedule": "plateau", "patience": 0, "factor": 0.5, "optimizer": "sgd", "learning_rate": 0.5},
    "plateau of accuracy": {"schedule": "plateau", "plateau_by": "accuracy", "patience": 0, "factor": 0.5},
    "bf16": {"precision": "bf16"},
    "workers": {**AUGMENT, "workers": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", thinned(sorted(SETTINGS), ("everything",)))
def test_stopped_at_any_step_it_goes_on_exactly(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(epochs=3, save_every=4, **SETTINGS[name])
    what, _ = material(80)
    whole = trained(tmp_path / "whole", settings, what)
    stops = [7] if name == "workers" else [3, 7, 11]  # starting a worker takes longer than all steps
    step = module._Loop._step
    stop_at = [0]

    def stopping(self: object, now: module.Step, *rest: object) -> None:
        if now.number == stop_at[0]:
            raise RuntimeError("the machine is gone")
        step(self, now, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Loop, "_step", stopping)
    for each in stops:
        stop_at[0] = each
        with pytest.raises(RuntimeError):
            trained(tmp_path / "parts", settings, what)
    stop_at[0] = 0
    parts = trained(tmp_path / "parts", settings, what)
    assert (tmp_path / "whole/history.jsonl").read_bytes() == (tmp_path / "parts/history.jsonl").read_bytes()
    np.testing.assert_array_equal(logits(whole.model, what), logits(parts.model, what))
    assert whole.facts == parts.facts
    again = trained(tmp_path / "parts", settings, what)  # a finished one is left as it is
    assert again.facts == parts.facts


def test_ctrl_c_finishes_the_step_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(epochs=2, save_every=1000)
    what, _ = material(80)
    whole = trained(tmp_path / "whole", settings, what)
    step = module._Loop._step

    def interrupted(self: object, now: module.Step, *rest: object) -> None:
        step(self, now, *rest)  # type: ignore[arg-type]
        if now.number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(module._Loop, "_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "parts", settings, what)
    assert [path.name for path in checkpoints(tmp_path / "parts/checkpoints")] == ["step-00000003"]
    parts = trained(tmp_path / "parts", settings, what)
    np.testing.assert_array_equal(logits(whole.model, what), logits(parts.model, what))
    assert (tmp_path / "whole/history.jsonl").read_bytes() == (tmp_path / "parts/history.jsonl").read_bytes()


def test_a_damaged_checkpoint_costs_steps_not_the_training(tmp_path: Path) -> None:
    settings = config(epochs=2)
    what, _ = material(80)
    whole = trained(tmp_path / "whole", settings, what)
    trained(tmp_path / "parts", settings, what)
    for _ in range(2):  # a disk that does it once does it again
        newest = checkpoints(tmp_path / "parts/checkpoints")[0]
        (newest / "optimizer.safetensors").write_bytes(b"damaged")
        parts = trained(tmp_path / "parts", settings, what)
        assert any("step-00000010: optimizer.safetensors is damaged" in note for note in parts.notes)
    np.testing.assert_array_equal(logits(whole.model, what), logits(parts.model, what))
    assert (tmp_path / "whole/history.jsonl").read_bytes() == (tmp_path / "parts/history.jsonl").read_bytes()


def test_other_settings_do_not_go_on(tmp_path: Path) -> None:
    what, _ = material(48)
    trained(tmp_path, config(epochs=1), what)
    with refused(CxrhfError, "other settings", fix="--overwrite"):
        trained(tmp_path, config(epochs=1), what, key="other")


def test_drafts_of_a_killed_training_go_with_the_next(tmp_path: Path) -> None:
    draft = tmp_path / ".step-00000009.1.tmp"
    draft.mkdir()
    (draft / "model.safetensors").write_bytes(b"half")
    assert resume_checkpoint(tmp_path, "key", make_accelerator(device="cpu")) == (None, [])
    assert not draft.exists()


def test_a_loss_that_is_no_number_ends_it_and_leaves_good_checkpoints(tmp_path: Path) -> None:
    what, _ = material(80)
    settings = config(epochs=4, learning_rate=99.0, optimizer="sgd", save_every=1, backbone="test_vit")
    with refused(CxrhfError, "the loss at step", fix="--learning-rate"):
        trained(tmp_path, settings, what)
    for path in checkpoints(tmp_path / "checkpoints"):
        weights = read_checkpoint(path).tensors["model"].values()
        assert all(torch.isfinite(each).all() for each in weights if each.is_floating_point())


def test_a_frozen_network_learns_its_last_layer_only(tmp_path: Path) -> None:
    what, _ = material(80)
    settings = config(freeze=True, epochs=2)
    before = make_model("test_resnet", 2, channels=1, seed=0, size=32).state_dict()
    after = trained(tmp_path, settings, what).model
    last = {
        f"{name}.{part}"
        for name, each in after.named_modules()
        if each is last_layer(after)
        for part in ("weight", "bias")
    }
    for name, value in after.state_dict().items():
        assert torch.equal(value, before[name]) != (name in last), name  # batch statistics too


def test_best_is_kept_and_patience_ends(tmp_path: Path) -> None:
    what, _ = material(80)
    done = trained(tmp_path, config(epochs=30, learning_rate=0.05, early_stop=2), what)
    rows = [row for row in read_history(tmp_path / "history.jsonl") if "validate_loss" in row]
    best = min(rows, key=lambda row: row["validate_loss"])
    assert done.facts["best_step"] == best["step"]
    assert done.facts["best"] == best["validate_loss"]
    assert len(rows) == rows.index(best) + 3 < 30
    assert what.validate is not None
    seen = validation_loss(logits(done.model, what), what.validate[1], what.tasks)
    assert seen == pytest.approx(best["validate_loss"], rel=1e-6)


def test_where_no_auroc_is_defined_the_best_is_that_by_loss(tmp_path: Path) -> None:
    what, _ = material(80)
    assert what.validate is not None
    one_class = replace(what, validate=(what.validate[0], np.zeros_like(what.validate[1])))
    done = trained(tmp_path, config(epochs=2, best_by="auroc"), one_class)
    rows = [row for row in read_history(tmp_path / "history.jsonl") if "validate_loss" in row]
    assert [row["validate_auroc"] for row in rows] == [None, None]
    assert (done.facts["best_by"], done.facts["best"]) == ("loss", min(row["validate_loss"] for row in rows))
    assert any("both classes" in note and "loss" in note for note in done.notes)


def test_without_validation_the_last_weights_are_kept(tmp_path: Path) -> None:
    what, _ = material(48, validate=False)
    done = trained(tmp_path, config(epochs=2, max_steps=4), what)
    assert (done.facts["steps"], done.facts["best_step"]) == (4, None)
    newest = read_checkpoint(checkpoints(tmp_path / "checkpoints")[0])
    assert all(torch.equal(each, done.model.state_dict()[name]) for name, each in newest.tensors["model"].items())


def test_pieces_are_the_batch_where_batches_have_no_statistics(tmp_path: Path) -> None:
    what, _ = material(60)
    histories = []
    for pieces in (1, 3):
        folder = tmp_path / str(pieces)
        trained(folder, config(backbone="test_vit", accumulate=pieces, batch_size=20, epochs=1), what)
        histories.append([row["loss"] for row in read_history(folder / "history.jsonl") if "loss" in row])
    np.testing.assert_allclose(histories[0], histories[1], rtol=2e-5)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"schedule": "step", "step_every": 1, "factor": 0.1}, [1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4]),
        ({"schedule": "constant", "warmup": 3}, [1e-2 / 3, 2e-2 / 3, 1e-2, 1e-2, 1e-2, 1e-2]),
        ({"schedule": "cosine"}, [(1 + np.cos(np.pi * k / 6)) / 2 * 1e-2 for k in range(1, 7)]),
    ],
)
def test_learning_rates_as_written_down(tmp_path: Path, schedule: dict[str, object], expected: list[float]) -> None:
    what, _ = material(33)
    trained(tmp_path, config(epochs=3, learning_rate=1e-2, **schedule), what)
    rates = [row["learning_rate"] for row in read_history(tmp_path / "history.jsonl") if "loss" in row]
    np.testing.assert_allclose(rates, expected, atol=1e-12)


def epochs_of(path: Path) -> tuple[list[dict[str, float]], list[float]]:
    """The validation of every epoch, and the learning rate that it was trained with."""
    rows = read_history(path)
    rates = {row["epoch"]: row["learning_rate"] for row in rows if "loss" in row}
    return [row for row in rows if "validate_loss" in row], [rates[epoch] for epoch in sorted(rates)]


def settled_accuracy() -> Material:
    """Nobody has anything: soon every label is right at .5, and the loss goes on falling."""
    what, _ = material(80)
    assert what.validate is not None
    return replace(
        what,
        targets=np.zeros_like(what.targets),
        validate=(what.validate[0], np.zeros_like(what.validate[1])),
    )


def rates_of_torch(seen: list[dict[str, float]], settings: TrainConfig) -> list[float]:
    """Rates of ReduceLROnPlateau, which CONTEXT's code steps on validation accuracy."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=settings.learning_rate)
    peer = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=settings.factor, patience=settings.patience
    )
    rates = []
    for row in seen:
        rates.append(optimizer.param_groups[0]["lr"])
        peer.step(row["validate_accuracy"])
    return rates


@pytest.mark.parametrize("watched", ["accuracy", None])
def test_a_plateau_of_accuracy_is_met_while_the_loss_still_falls(tmp_path: Path, watched: str | None) -> None:
    settings = config(
        epochs=8, schedule="plateau", plateau_by=watched, patience=2, factor=0.5, freeze=True, learning_rate=0.01
    )
    trained(tmp_path, settings, settled_accuracy())
    seen, rates = epochs_of(tmp_path / "history.jsonl")
    losses = [row["validate_loss"] for row in seen]
    assert losses == sorted(losses, reverse=True)
    if watched is None:
        assert set(rates) == {0.01}
        assert all("validate_accuracy" not in row for row in seen)
    else:
        assert rates == rates_of_torch(seen, settings)
        assert rates[-1] == 0.01 / 4


def test_rates_on_a_plateau_of_accuracy_are_those_of_torch(tmp_path: Path) -> None:
    what, _ = material(80)
    settings = config(epochs=12, schedule="plateau", plateau_by="accuracy", patience=1, factor=0.5, learning_rate=0.02)
    trained(tmp_path, settings, what)
    seen, rates = epochs_of(tmp_path / "history.jsonl")
    assert len({row["validate_accuracy"] for row in seen}) > 2
    assert rates == rates_of_torch(seen, settings)
    assert rates[-1] < 0.02


def test_a_killed_training_keeps_the_state_of_its_plateau(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at the last step before the rate falls: what was waited for is not waited for again."""
    settings = config(epochs=6, schedule="plateau", plateau_by="accuracy", patience=2, factor=0.5, freeze=True)
    what = settled_accuracy()
    trained(tmp_path / "whole", settings, what)
    _, rates = epochs_of(tmp_path / "whole/history.jsonl")
    fall = next(at for at, rate in enumerate(rates) if rate < settings.learning_rate)
    stop_at = [fall * 5]  # steps an epoch
    step = module._Loop._step

    def killed(self: object, now: module.Step, *rest: object) -> None:
        if now.number == stop_at[0]:
            raise RuntimeError("the machine is gone")
        step(self, now, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module._Loop, "_step", killed)
    with pytest.raises(RuntimeError):
        trained(tmp_path / "parts", settings, what)
    held = read_checkpoint(checkpoints(tmp_path / "parts/checkpoints")[0]).state
    assert (held["since"], held["falls"], held["plateau"]) == (2, 0, -1.0)
    stop_at[0] = 0
    trained(tmp_path / "parts", settings, what)
    assert epochs_of(tmp_path / "parts/history.jsonl")[1] == rates
    assert (tmp_path / "whole/history.jsonl").read_bytes() == (tmp_path / "parts/history.jsonl").read_bytes()


def test_accuracy_is_that_of_known_labels_and_of_classes() -> None:
    tasks = [Task("findings", "labels", ("edema", "fracture")), Task("view", "classes", ("AP", "PA"))]
    logits = np.array([[2.0, -1.0, 3.0, 1.0], [-2.0, 0.5, 0.0, 1.0], [1.0, 1.0, 5.0, 9.0]])
    target = np.array([[1, 0, 1, 0], [1, -1, 0, 1], [-1, 0, -1, -1]], dtype=np.int8)
    # right: edema 1 of 2, fracture 1 of 2, view 2 of 2
    assert accuracy(logits, target, tasks) == 4 / 6
    assert np.isnan(accuracy(logits, np.full_like(target, -1), tasks))


def test_history_has_every_step_and_validation(tmp_path: Path) -> None:
    what, _ = material(80)
    trained(tmp_path, config(epochs=4, validate_every=2), what)
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 21))
    assert [row["epoch"] for row in rows if "validate_loss" in row] == [2, 4]
    assert {tuple(row) for row in rows} == {
        ("step", "epoch", "loss", "learning_rate"), ("step", "epoch", "validate_loss", "validate_auroc"),
    }  # fmt: skip


def test_the_seed_decides(tmp_path: Path) -> None:
    what, _ = material(48)
    text = []
    for at, seed in enumerate((0, 0, 1)):
        torch.manual_seed(at)  # whatever was drawn before plays no part
        trained(tmp_path / str(at), config(epochs=1, seed=seed, **AUGMENT), what)
        text.append((tmp_path / str(at) / "history.jsonl").read_text())
    assert text[0] == text[1] != text[2]


def test_settings_are_checked() -> None:
    for changes, fact in (
        ({"schedule": "cosin"}, "did you mean 'cosine'"), ({"batch_size": 0}, "batch_size"),
        ({"tasks": ("sexx",)}, "did you mean 'sex'"), ({"seeds": "3-1"}, "3-1"),
        ({"channels": 2}, "1 or 3"), ({"only": ("sex",)}, "sex"),
        ({"plateau_by": "accuracyy"}, "did you mean 'accuracy'"),
    ):  # fmt: skip
        with refused(CxrhfError, fact):
            TrainConfig("b", **changes)  # type: ignore[arg-type]
