"""The demo's generated reports: a tiny vision-language model learns to write them, beside a simulated writer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.config_demo import DemoConfig

if TYPE_CHECKING:
    from cxrhf.auditing_reports import ReadReports
    from cxrhf.cli.demo_steps import Steps

NAME = "report model"
LONGEST = 128  # tokens of a report; the made-up references have at most 60
TOGETHER = 64  # reports at a time: so small a model mostly waits for the next token


def reports(config: DemoConfig, data: Path, out: Path, steps: Steps) -> ReadReports | None:
    """Reports by six strategies and by the simulated writer; None where the packages are not there."""
    import pyarrow as pa

    from cxrhf.auditing_reports import ReadReports
    from cxrhf.audits.reports.written import Tables
    from cxrhf.cli.demo_simulated import simulated_writer
    from cxrhf.config import load_mapping
    from cxrhf.config_finetune import FinetuneConfig
    from cxrhf.config_generate import GenerateConfig
    from cxrhf.config_score import ScoreConfig
    from cxrhf.errors import CxrhfError
    from cxrhf.run import read_run
    from cxrhf.writing.finetuning import check_vlm_packages, finetune_run
    from cxrhf.writing.generating import generate_run
    from cxrhf.writing.scoring import score_run

    try:
        check_vlm_packages()
    except CxrhfError as error:
        steps.say([f"No reports are generated: {error}"])
        return None
    recipe = load_mapping("tiny_qwen") | {"max_steps": config.report_steps, "seed": config.seed, "name": NAME}
    learned = finetune_run(
        FinetuneConfig(str(data), out=str(out / "model"), overwrite=config.overwrite, **recipe), steps.show
    )
    assert learned is not None
    steps.say(learned.lines())
    generate = GenerateConfig(str(out / "model"), build=str(data), model=NAME, out=str(out / "reports"),
                              max_new_tokens=LONGEST, batch_size=TOGETHER, seed=config.seed,
                              overwrite=config.overwrite)  # fmt: skip
    written = generate_run(generate, steps.show)
    score_run(ScoreConfig(str(out / "reports")), steps.show)
    assert written is not None
    steps.say(written.lines)
    run = read_run(out / "reports")
    made = pa.concat_tables([run.table("generations"), simulated_writer(config)])
    return ReadReports(Tables(made, run.table("scores"), run.table("report_vectors")), [], list(written.notes))
