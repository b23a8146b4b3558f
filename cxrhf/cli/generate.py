"""`cxrhf generate`: a vision-language model and images, or reports from elsewhere -> GENERATION rows in a run."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.models.report_settings import GenerateConfig

ABOUT = """Generate reports for chest X-rays with several decoding strategies, next to the radiologists' reports, in a
run folder.

MODEL is a run of cxrhf finetune, the folder of a model or an adapter, or ORG/NAME on the Hugging Face Hub. By default
it reads one frontal image per patient of the test split, with equal numbers of women and men. Strategies: greedy, beam
(4), conservative (T 0.3, top-p 0.95), rich (T 0.7, top-p 0.95), top_k (50), top_p (0.9), or a YAML file with your own:

  warm: {do_sample: true, temperature: 1.2, top_p: 0.95, max_new_tokens: 512}

Each batch of reports is saved when it is done; if interrupted, run the same command to resume. The same seed gives the
same reports, whatever the batch size and the number of processes. Further calls add models and strategies to the run.
With --from, cxrhf reads existing reports, one row per report; columns are found by their usual names or by flags.
Nothing is sent anywhere.

examples:
  cxrhf generate runs/rex-qwen --build data/rex --out runs/words
  cxrhf generate Qwen/Qwen3-VL-8B-Instruct --build data/rex --strategies greedy,rich --out runs/words
  cxrhf generate runs/rex-qwen --build data/rex --strategies warm.yaml --n-images 500 --out runs/warm
  cxrhf generate --from reports.csv --generated hyp --reference ref --patient pid --sex gender --out runs/theirs
  cxrhf generate --from wide.csv --generated greedy=hyp_greedy,rich=hyp_rich --reference findings+impression
  accelerate launch -m cxrhf.models.generate runs/rex-qwen --build data/rex      all GPUs of this machine
  torchrun --nproc_per_node 2 -m cxrhf.models.generate runs/tiny --build data/twin   two processes, no GPU required"""


def main(args: Sequence[str]) -> int:
    """Write or read reports, and end with the path of the run."""
    from cxrhf.cli.flags import parse

    config = parse(GenerateConfig, args, verb="generate", about=ABOUT)
    from cxrhf.audits.run import progress_line
    from cxrhf.cli import print_outcome
    from cxrhf.models.report_run import generate_run

    return print_outcome(generate_run(config, progress_line()), "audit")
