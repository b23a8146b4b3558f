"""`cxrhf generate`: a vision-language model and images, or reports from elsewhere -> GENERATION rows in a run."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_generate import GenerateConfig

ABOUT = """Reports of chest X-rays in several ways of decoding, beside the radiologists' own, in a run folder.

MODEL is a run of cxrhf finetune, the folder of a model or an adapter, or ORG/NAME of the Hugging Face Hub. It writes
about one frontal image of each patient of the test split, as many women as men. Strategies: greedy, beam (4),
conservative (T .3, top-p .95), rich (T .7, top-p .95), top_k (50), top_p (.9), or a YAML file with your own:

  warm: {do_sample: true, temperature: 1.2, top_p: 0.95, max_new_tokens: 512}

Every report is on the disk as soon as its batch is done: after a kill the same command goes on. The seed gives the
same reports whatever the batch size and the number of processes. Other calls add models and strategies to the run.
With --from, reports that others generated are read: one row a report, columns found by their usual names or named.
Nothing is sent anywhere.

examples:
  cxrhf generate runs/rex-qwen --build data/rex --out runs/words
  cxrhf generate Qwen/Qwen3-VL-8B-Instruct --build data/rex --strategies greedy,rich --out runs/words
  cxrhf generate runs/rex-qwen --build data/rex --strategies warm.yaml --n-images 500 --out runs/warm
  cxrhf generate --from reports.csv --generated hyp --reference ref --patient pid --sex gender --out runs/theirs
  cxrhf generate --from wide.csv --generated greedy=hyp_greedy,rich=hyp_rich --reference findings+impression
  accelerate launch -m cxrhf.models.generate runs/rex-qwen --build data/rex      all GPUs of the machine
  torchrun --nproc_per_node 2 -m cxrhf.models.generate runs/tiny --build data/twin   two processes, also without GPUs"""


def main(args: Sequence[str]) -> int:
    """Write or read reports, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(GenerateConfig, args, verb="generate", about=ABOUT)
    from cxrhf.auditing import progress_line
    from cxrhf.cli.written import told
    from cxrhf.writing.generating import generate_run

    return told(generate_run(config, progress_line()), "audit")
