"""`cxrhf build`: raw files of a published dataset -> Parquet, dataset card, attrition table and flow picture."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.data.settings import BuildConfig

ABOUT = """Build a dataset: link images, labels and prior notes, resize images once, and count what every step excludes.

Raw files are only read. Load the folder with datasets.load_dataset("FOLDER"); it also streams. If a build is
interrupted, run the same command to resume. A build fails on leakage: a note not strictly before its image, a patient
in two splits, or a note that contains the image's own report.

Recipes (--config): context_paper, encoding_paper, imbalance_paper, slices_paper, words_paper.

examples:
  cxrhf build synthetic --out data/twin --n-patients 200
  cxrhf build mimic_cxr_context --root ~/physionet.org/files --out data/mimic --config context_paper
  cxrhf build chexpert --root ~/CheXpert-v1.0 ~/chexpert_demo --config encoding_paper
  cxrhf build nih_chestxray14 --root ~/nih --images-per-patient positive_first --finding pneumothorax
  cxrhf build covid_chestxray --root ~/covid-chestxray-dataset"""


def main(args: Sequence[str]) -> int:
    """Build, print the attrition, and end with the path of the folder."""
    from cxrhf.cli.flags import parse

    config = parse(BuildConfig, args, verb="build", about=ABOUT)
    from cxrhf.data.build import build

    done = build(config)
    print("\n".join(done.lines))
    for note in done.notes:
        print(f"note: {note}")
    print(f'load it: datasets.load_dataset("{done.folder}")')
    print(done.folder)
    return 0
