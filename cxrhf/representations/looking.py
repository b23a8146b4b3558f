"""An audit's flags, folders and predictions -> what lies beside them; what was found there -> files of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cxrhf.audits.material import Material
from cxrhf.config import AuditConfig
from cxrhf.representations.material import build_of, read_material, split_rows
from cxrhf.representations.terms import Terms, terms
from cxrhf.schema import RESULT, table_of

if TYPE_CHECKING:
    from cxrhf.audits import AuditOutput
    from cxrhf.run import Run

AUDITS = ("encoding", "features", "slices", "shortcut")


@dataclass(frozen=True, slots=True)
class Looked:
    """Tables beside the predictions, the build with their pictures, what may be shown, and what must be said."""

    material: Material
    build: Path | None
    terms: Terms
    notes: list[str]


def look_beside(
    config: AuditConfig, sources: Sequence[Path], predictions: pa.Table | None, generations: pa.Table | None = None
) -> Looked:
    """What lies beside the predictions: in the folders among `sources`, and where flags say."""
    from cxrhf.data.load import build_record

    folders = [each for each in sources if each.is_dir()]
    audited = [each for each in (predictions, generations) if each is not None]
    notes, datasets = list[str](), [name for each in audited for name in each["dataset"].unique().to_pylist()]
    if predictions is None:  # vectors of images and drains say nothing of reports
        return Looked(Material(), None, terms(datasets, None, config.may_show), notes)
    # Vectors are large: where nobody asks for what is made of them they are not read.
    named = (config.embeddings, config.attributes, config.pictures, *config.annotations, *config.probes)
    if config.only and not any(each in config.only for each in AUDITS) and not any(named):
        return Looked(Material(), None, terms(datasets, None, config.may_show), notes)
    material = read_material(config, folders, predictions, notes)
    build = build_of(config, folders)
    record = None if build is None else build_record(build)
    return Looked(material, build, terms(datasets, record, config.may_show), notes)


def write_beside(
    run: Run, looked: Looked, output: AuditOutput, config: AuditConfig, progress: Callable[[str], None]
) -> list[str]:
    """Slices, maps, labelling sheets and thumbnails of an open run; what must be said of them."""
    from cxrhf.representations.gallery import gallery
    from cxrhf.representations.sheets import FOLDER, write_sheets

    notes: list[str] = []
    for name in ("points", "slices", "gallery"):  # those of an earlier audit
        (run.path / f"{name}.parquet").unlink(missing_ok=True)
        run.record["tables"].pop(name, None)
    # The run then holds what its audits need, wherever it came from, and can be audited again on its own.
    for name in ("embeddings", "attributes", "characteristics", "images"):
        table = getattr(looked.material, name)
        if table is not None and (name == "attributes" or not (run.path / f"{name}.parquet").is_file()):
            run.add(name, table)
    if output.points is not None:
        run.add("points", output.points)
    run.record["may_show"] = looked.terms.may_show
    run.record["shown_because"] = looked.terms.why
    if output.slices is None:
        return notes
    run.add("slices", output.slices)
    sheets = write_sheets(run.path, output.results, output.slices, config.seed)
    if sheets:
        notes.append(
            f"{len(sheets)} labelling sheets are in {FOLDER}/. Name the empty column after the attribute, write 1 or "
            "0, and run: cxrhf audit RUN --annotations SHEET"
        )
    if looked.terms.may_show and looked.build is not None and (looked.build / "images").is_dir():
        made = gallery(output.results, output.slices, looked.build, progress, notes)
        if made is not None:
            run.add("gallery", made)
    return notes


def with_probes(results: pa.Table, run: Path) -> pa.Table:
    """Results with those that `cxrhf probe` left in this same run: an audit must not make it forget them."""
    own = split_rows(run, named=False)
    return pa.concat_tables([results, table_of(own, RESULT, source="probes")]) if own else results
