"""`cxrhf finetune`: a build with reports -> adapters. `accelerate launch -m cxrhf.models.finetune` is the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cxrhf.models.report_settings import FinetuneConfig

ABOUT = """Fine-tune a vision-language model on images and reports of a build with LoRA, and write a run.

Adapters are added to the attention and perceptron layers of the language model; vision tower and projector stay frozen.
The loss covers the reports only (findings and impression). Images without a report are excluded; the count is reported.
The adapter with the lowest validation loss is kept; test images are not used. If training is interrupted, run the same
command to resume from the last checkpoint. Load RUN/adapter with `cxrhf generate` or with peft:
PeftModel.from_pretrained(base, "RUN/adapter"). It is as confidential as its training data.

Recipes for --config: rex_qwen (Qwen3-VL-8B, 60,000 examples, as many women as men), rex_qwen_male and rex_qwen_female
(67% of one sex), tiny_qwen (a tiny Qwen3-VL from scratch, minutes on a CPU).

examples:
  cxrhf finetune data/twin --config tiny_qwen --out runs/tiny
  cxrhf finetune data/rexgradient --config rex_qwen --out runs/rex
  cxrhf finetune data/rexgradient --config rex_qwen_male --four-bit --gradient-checkpointing
  cxrhf finetune data/mimic --model models/qwen3-vl-4b --prompt "Indication: {indication}. Write the report." --merge
  accelerate launch -m cxrhf.models.finetune data/rexgradient --config rex_qwen     all GPUs of this machine
  torchrun --nproc_per_node 2 -m cxrhf.models.finetune data/twin --config tiny_qwen  two processes, no GPU required"""


def main(args: Sequence[str]) -> int:
    """Fine-tune, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(FinetuneConfig, args, verb="finetune", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_summary, where_curves_are
    from cxrhf.models.report_run import finetune_run

    done = finetune_run(config, progress_line())
    if done is None:  # a process that only helped
        return 0
    following = f"cxrhf generate {shlex.quote(str(done.path))} --build {shlex.quote(config.build)}"
    print_summary(done.path, [*done.lines(), *where_curves_are(done)], done.notes, following)
    return 0
