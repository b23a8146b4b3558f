"""`python -m cxrhf.twin LAYOUT OUT` -> the files of a made-up dataset below OUT."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from cxrhf.errors import CxrhfError
from cxrhf.twin import LAYOUTS, write

_EXAMPLES = """examples:
  python -m cxrhf.twin mimic twin                       300 patients with images, notes and reports
  python -m cxrhf.twin mimic twin --patients 2000 --no-pixels
  python -m cxrhf.twin mimic twin --dirty               with the defects of real copies: defects.json
  python -m cxrhf.twin mimic big --share 0.1 --no-pixels --no-reports --notes full
                                                                  a tenth of MIMIC, notes as long as MIMIC's
  python -m cxrhf.twin chexpert twin-chexpert --patients 100
  python -m cxrhf.twin mimic twin --patients 5000 --no-pixels --no-reports --models
                                                                  tables for the audits, without any training

output, in addition to the layout's own files:
  planted.parquet     image_id, study_id, patient_id, finding, y, context, pretest, shown: the truth for every image
  attributes.parquet  image_id, name, value: drains, wires, haze and other devices in every image
  truth.json          population values that audits and models should come close to
  defects.json        with --dirty: which ids have which defect
  models/             with --models: predictions.parquet, embeddings.parquet, generations.parquet, attributes.parquet
                      of simulated models, with the layout's ids and the twin's names of findings; models_truth.json
                      holds what an audit of each should find

then, for mimic:
  cxrhf build mimic_cxr_context --root twin
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 with a message."""
    parser = argparse.ArgumentParser(
        prog="python -m cxrhf.twin",
        description="Write synthetic patients in the layout of a published dataset. None of the patients is real.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("layout", metavar="LAYOUT", help=f"one of {', '.join(LAYOUTS)}")
    parser.add_argument("out", metavar="OUT", help="folder to write; must be empty or new")
    parser.add_argument("--patients", type=int, default=300, metavar="N", help="patients with images (300)")
    parser.add_argument("--share", type=float, metavar="X", help="instead of --patients: MIMIC's size times X (max. 1)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another seed gives other patients (0)")
    parser.add_argument("--dirty", action="store_true", help="plant the defects of real copies")
    parser.add_argument("--no-pixels", action="store_true", help="tables and texts only")
    parser.add_argument("--size", type=int, default=256, metavar="PIXELS", help="side of the images (256)")
    parser.add_argument("--models", action="store_true", help="also write tables of simulated models to OUT/models")
    parser.add_argument("--notes", choices=("short", "full"), help="mimic: length of the notes (short)")
    parser.add_argument("--no-reports", action="store_true", help="mimic: without the radiology reports")
    given = parser.parse_args(arguments)
    options: dict[str, Any] = {}
    if given.notes:
        options["note_length"] = given.notes
    if given.no_reports:
        options["reports"] = False
    if options and given.layout not in ("mimic", "mimic_cxr_context", "synthetic"):
        parser.error(f"--notes and --no-reports are for mimic, not {given.layout}")
    try:
        if given.share is not None:
            from cxrhf.twin.people import MIMIC_SIZE

            sizes = MIMIC_SIZE.scaled(given.share)
        else:
            sizes = None
        made = write(
            given.layout,
            given.out,
            n_patients=given.patients,
            seed=given.seed,
            sizes=sizes,
            dirty=given.dirty,
            pixels=not given.no_pixels,
            size=given.size,
            models=given.models,
            **options,
        )
    except CxrhfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    counted = f"{made.images.height:,} images of {made.images.get_column('patient').n_unique():,} patients"
    print(f"{given.out}: {counted}, {int(made.admissions.get_column('noted').sum()):,} notes; see truth.json")
    if given.models:
        print(f"{given.out}/models: tables of simulated models; see models_truth.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
