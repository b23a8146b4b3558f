"""Settings of `cxrhf demo`: how large the made-up hospital is, and how long its models learn."""

from __future__ import annotations

from dataclasses import dataclass, field

from cxrhf.config import within


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """A made-up hospital -> its dataset with prior notes, a small network, simulated models, and their audit."""

    out: str | None = field(
        default=None,
        metadata={
            "metavar": "RUN",
            "aliases": ("-o",),
            "help": "Run folder to write. Default: runs/demo or runs/demo-quick.",
        },
    )
    quick: bool = field(
        default=False,
        metadata={"help": "An eighth of the patients and no vision-language model: under two minutes."},
    )
    n_patients: int = field(default=1200, metadata={"help": "Synthetic patients, with about six images each."})
    size: int = field(default=128, metadata={"help": "Side of the synthetic images, in pixels."})
    seed: int = field(default=0, metadata={"help": "Seed of the patients and of the resampling."})
    steps: int = field(default=350, metadata={"help": "Training steps of the network; 0: no network, no torch."})
    report_steps: int = field(
        default=300,
        metadata={"help": "Training steps of the tiny report model; 0: no report model."},
    )
    n_resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of patients."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a run made from other inputs."})

    def __post_init__(self) -> None:
        within("n_patients", self.n_patients, 20, 1_000_000)
        within("steps", self.steps, 0, 1_000_000)
        within("report_steps", self.report_steps, 0, 1_000_000)
        within("size", self.size, 64, 512)
        within("n_resamples", self.n_resamples, 10, 1_000_000)
        within("seed", self.seed, 0, 2**63 - 1)
