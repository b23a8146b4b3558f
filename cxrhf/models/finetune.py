"""Pictures and reports -> adapters of a vision-language model, by Accelerate and peft; stopped, it goes on exactly.

    cxrhf finetune BUILD --config rex_qwen
    accelerate launch -m cxrhf.models.finetune BUILD --config rex_qwen

are the same command. One process or several (DDP) see the same batches; the loss is the sum over the answers' tokens of
the whole batch divided by their number, so a long report counts by its length, whichever process has it. Order and
dropout follow from (seed, epoch or step): see seeding.py. Going on from a checkpoint gives the same adapters to the
last bit on the same machine. One and several processes differ where something is dropped at random (--lora-dropout).

Weights that are cut into parts (FSDP, DeepSpeed) are refused: the frozen model is meant to fit into each process, with
--four-bit where it must.
"""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cxrhf.errors import CxrhfError
from cxrhf.models.data import Step
from cxrhf.models.loop import (
    History,
    Loop,
    best_weights,
    planned_steps,
    restore_optimizer,
    resume_checkpoint,
    state_from_checkpoint,
)
from cxrhf.models.lora import Tensors, adapter_weights, set_adapter_weights, vision_tower
from cxrhf.models.processes import sum_over_processes
from cxrhf.models.report_settings import FinetuneConfig
from cxrhf.models.seeding import Progress, number
from cxrhf.models.step import learning_rate, set_rate
from cxrhf.models.vlm import Vlm
from cxrhf.models.vlm_data import IGNORED, AnswerBatch, Examples, LengthPlan, read_examples


@dataclass(frozen=True, slots=True)
class Finetuned:
    """A finished training: the adapters that were kept, and how it went."""

    tensors: Tensors
    notes: list[str]
    facts: dict[str, Any]


def fit(
    vlm: Vlm,
    train: Examples,
    validate: Examples | None,
    config: FinetuneConfig,
    *,
    accelerator: Any,
    folder: Path,
    history: Path,
    key: str,
    progress: Progress,
) -> Finetuned:
    """Train the adapters of `vlm.model` until the end, or from where an earlier call was stopped."""
    whole_weights(accelerator)
    plan = LengthPlan(
        train.ids, config.seed, config.batch_size, config.accumulate, accelerator.num_processes,
        accelerator.process_index, train.lengths if config.group_by_length else None,
    )  # fmt: skip
    steps = planned_steps(plan, config)
    model = vlm.model
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    found, notes = resume_checkpoint(folder, key, accelerator)
    state = state_from_checkpoint(found)
    if found is not None:
        set_adapter_weights(model, dict(found.tensors["model"]))
    learning = [each for each in model.parameters() if each.requires_grad]
    made = torch.optim.AdamW(learning, lr=config.learning_rate, weight_decay=config.weight_decay)
    wrapped, optimizer = accelerator.prepare(model, made)
    if found is not None:
        restore_optimizer(found, wrapped, optimizer, accelerator, folder)
        progress(f"resuming after step {state.step:,} of {steps:,}")
    log = History(history, state.history) if accelerator.is_main_process else None
    loop = _Loop(
        vlm=vlm, wrapped=wrapped, optimizer=optimizer, train=train, validate=validate, config=config, plan=plan,
        steps=steps, accelerator=accelerator, folder=folder, key=key, state=state, log=log,
    )  # fmt: skip
    loop.go(progress)
    tensors = best_weights(folder, state) if config.keep == "best" else None
    facts = {
        "steps": state.step, "epochs": math.ceil(state.step / plan.steps_per_epoch),
        "steps_per_epoch": plan.steps_per_epoch, "examples": len(train), "validated_on": len(validate or ()),
        "kept_step": state.step if tensors is None else state.best_step, "best_step": state.best_step,
        "best": state.best, "processes": accelerator.num_processes,
        "learned_parameters": sum(each.numel() for each in learning),
        "parameters": sum(each.numel() for each in model.parameters()),
    }  # fmt: skip
    kept = adapter_weights(model) if tensors is None else tensors
    return Finetuned(kept, notes, facts)


def whole_weights(accelerator: Any) -> None:
    """Launchers that cut weights into parts are refused."""
    kind = str(accelerator.distributed_type).rsplit(".", maxsplit=1)[-1]
    if kind in ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP"):
        raise CxrhfError(
            "training adapters requires the whole frozen model in each process", got=kind,
            next_step="accelerate launch --multi_gpu -m cxrhf.models.finetune ... (with --four-bit if memory runs out)",
        )  # fmt: skip


def answer_loss(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The sum of the losses of all tokens that have a label, each predicted from the tokens before it."""
    labels = inputs["labels"]
    rest = {name: each for name, each in inputs.items() if name != "labels"}
    first = int((labels != IGNORED).any(dim=0).nonzero()[0])
    if _keeps_logits(model):
        # Words are scored only where an answer stands, not for every token of the picture.
        rest["logits_to_keep"] = torch.arange(first - 1, labels.shape[1] - 1, device=labels.device)
        logits = model(**rest, use_cache=False).logits
    else:
        logits = model(**rest, use_cache=False).logits[:, first - 1 : -1]
    wanted = labels[:, first:]
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def _keeps_logits(model: Any) -> bool:
    bare = getattr(model, "module", model)
    bare = bare.get_base_model() if hasattr(bare, "get_base_model") else bare
    return "logits_to_keep" in inspect.signature(type(bare).forward).parameters


@dataclass(kw_only=True)
class _Loop(Loop):
    config: FinetuneConfig
    vlm: Vlm
    train: Examples
    validate: Examples | None
    tokens: int = 0
    began: float = field(default_factory=time.monotonic)

    learned = "adapters"
    remedy = "use a lower --learning-rate, --warmup 100 or --precision float32"

    def _batches(self) -> Generator[AnswerBatch, None, None]:
        asks = (rows for step in self.plan.steps(self.state.step + 1, self.steps) for rows in step.mine)
        return read_examples(self.vlm, self.train, asks, workers=self._workers())

    def _workers(self) -> int:
        """Threads that decode pictures: as asked, else a few; the model has the other cores."""
        return min(4, torch.get_num_threads()) if self.config.workers is None else self.config.workers

    def _learning(self) -> None:
        """Learning mode for what learns; the frozen vision tower stays as it is when it looks."""
        if not self.wrapped.training:
            self.wrapped.train()
            tower = vision_tower(self.vlm.model.get_base_model())
            if tower is not None:
                tower.eval()

    def _step(self, step: Step, batches: Iterator[AnswerBatch]) -> None:
        config, accelerator = self.config, self.accelerator
        learned = int(self.train.learned[step.rows].sum())
        rate = learning_rate(config, step.number, self.steps, step.epoch)
        set_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=accelerator.device)
        for piece in range(len(step.mine)):
            inputs = {name: each.to(accelerator.device) for name, each in next(batches).inputs.items()}
            if config.lora_dropout:
                torch.manual_seed(number(config.seed, "drop", step.number, piece, self.plan.process) % 2**63)
            last = piece == len(step.mine) - 1
            with nullcontext() if last else accelerator.no_sync(self.wrapped):
                loss = answer_loss(self.wrapped, inputs) / learned
                # Gradients are averaged over processes; this makes them the gradient of the sum.
                accelerator.backward(loss * accelerator.num_processes)
            total += loss.detach()
        if config.clip is not None:
            accelerator.clip_grad_norm_(self.wrapped.parameters(), config.clip)
        self.optimizer.step()
        self.tokens += int(self.train.lengths[step.rows].sum())
        self.losses.append((step, rate, total))

    def _told(self, step: Step) -> str:
        return f"{super()._told(step)}, {self.tokens / max(time.monotonic() - self.began, 1e-9):,.0f} tokens/s"

    def _validates(self, step: Step) -> bool:
        every = self.config.validate_every or self.plan.steps_per_epoch
        return step.number == self.steps or step.number % every == 0

    def _validate(self, step: Step, progress: Progress) -> None:
        """The loss on validation reports; the adapters with the lowest one are set aside."""
        if self.validate is None:
            return
        loss = self._validation_loss(self.validate)
        self._measured(step, loss=loss)
        best = self._keep_if_best(step.number, loss)
        progress(f"step {step.number:,}: validation loss {loss:.4f} (perplexity {math.exp(min(loss, 50)):.2f})"
                 + (", the best so far" if best else ""))  # fmt: skip

    def _validation_loss(self, examples: Examples) -> float:
        """Every row once over all processes, rows of like lengths together."""
        order = np.argsort(examples.lengths, kind="stable")
        pieces = self.config.accumulate * self.accelerator.num_processes
        size = max(1, self.config.batch_size // pieces)
        mine = [order[at : at + size] for at in range(0, len(order), size)]
        mine = mine[self.plan.process :: self.plan.processes]
        total = torch.zeros((), dtype=torch.float64, device="cpu")
        self.wrapped.eval()
        with torch.no_grad(), self.accelerator.autocast():
            for batch in read_examples(self.vlm, examples, mine, workers=self._workers()):
                inputs = {name: each.to(self.accelerator.device) for name, each in batch.inputs.items()}
                # Not the wrapped model: processes may have different numbers of batches.
                total += answer_loss(self.vlm.model, inputs).double().cpu()
        return float(sum_over_processes(self.accelerator, total.float().to(self.accelerator.device))) / int(
            examples.learned.sum()
        )

    def _weights(self) -> Tensors:
        return adapter_weights(self.vlm.model)


if __name__ == "__main__":
    from cxrhf.cli import main

    sys.exit(main(["finetune", *sys.argv[1:]]))
