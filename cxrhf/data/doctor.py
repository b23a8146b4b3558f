"""Folders with a dataset's raw files -> what is there, what is missing, where it normally lies and comes from.

Tables are read, notes only begun, and a few pictures looked for, so that an answer takes seconds.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cxrhf.data import layout
from cxrhf.data.attrition import Steps
from cxrhf.data.layout import RequiredFile
from cxrhf.data.prepare import READERS
from cxrhf.data.raw import check_start, columns_of
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import CxrhfError

_LOOKS = 200
Verdict = Literal["ok", "MISSING", "WRONG", "absent", "note"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. MISSING and WRONG stop a build, absent (optional) ones and notes do not."""

    verdict: Verdict
    what: str
    said: str

    def line(self) -> str:
        """As it is printed."""
        return f"{self.verdict:<8} {self.what:<12} {self.said}"


def examine(dataset: str, roots: Sequence[str]) -> list[Check]:
    """Everything a build would stumble over, the missing files first."""
    if dataset == "synthetic" and not roots:
        return [Check("ok", "nothing", "the synthetic twin requires no files")]
    layout.check_roots(roots)
    with layout.one_walk():
        checks = [_file(dataset, each, roots) for each in layout.LAYOUTS[dataset]]
        checks += [Check("note", "copies", said) for said in layout.several(roots, dataset)]
        if not any(each.verdict in ("MISSING", "WRONG") for each in checks):
            checks += list(_tables(dataset, roots))
    return checks


def ready(dataset: str, roots: Sequence[str], checks: Sequence[Check]) -> str:
    """The command that builds the set from what is there: another split, or no pixels, where those are missing."""
    typed = [shlex.quote(str(root)) for root in roots]
    words = ["cxrhf build", dataset, *(["--root", *typed] if roots else []), "--out", f"data/{dataset}"]
    lists = [each for each in checks if each.what in ("train_list", "test_list") and each.verdict == "absent"]
    blind = any(each.what == "images" and each.said.startswith("0 of") for each in checks)
    return " ".join([*words, *(["--split", "ratio"] if lists else []), *(["--no-pixels"] if blind else [])])


def _file(dataset: str, wanted: RequiredFile, roots: Sequence[str]) -> Check:
    found = layout.find(roots, dataset, wanted.key)
    if found is None:
        if wanted.optional:
            lies = f"usually {wanted.lies}, from {wanted.project}"
            return Check("absent", wanted.key, f"optional, adds {wanted.use}; {lies}")
        return Check("MISSING", wanted.key, f"{layout.missing(roots, dataset, wanted.key)}, from {wanted.project}")
    if wanted.folder or not wanted.columns:
        return Check("ok", wanted.key, str(found))
    try:
        columns_of(found, wanted.columns)
        if wanted.key == "discharge":  # too large to be read here: its beginning must do
            check_start(found)
    except CxrhfError as error:
        return Check("WRONG", wanted.key, str(error))
    return Check("ok", wanted.key, str(found))


def _tables(dataset: str, roots: Sequence[str]) -> Iterator[Check]:
    """The tables read and joined as a build would, and whether pictures lie where they name them."""
    steps = Steps(dataset)
    config = BuildConfig(dataset, root=tuple(roots), configuration="images", split="none")
    try:
        if dataset in ("mimic_cxr_context", "synthetic"):
            from cxrhf.data import mimic

            images = mimic.read(config, steps, reports=False).source.images
            yield _reports(mimic.report_folder(config, images))
        else:
            images = importlib.import_module(f"cxrhf.data.{READERS[dataset]}").read(config, steps).images
    except CxrhfError as error:
        yield Check("WRONG", "tables", str(error))
        return
    yield Check("ok", "tables", f"{images.height:,} images of {images.get_column('patient_id').n_unique():,} patients")
    paths = images.get_column("path").drop_nulls()
    some = paths.gather_every(max(1, paths.len() // _LOOKS)).head(_LOOKS).to_list()
    there = sum(Path(each).is_file() for each in some)
    said = f"{there} of {len(some)} sampled image files exist"
    if there == len(some) > 0:
        yield Check("ok", "images", said)
    else:
        lost = next((each for each in some if not Path(each).is_file()), "the tables give no paths")
        remedy = "a build excludes such images, or pass --no-pixels"
        yield Check("absent", "images", f"{said}; missing: {lost}; {remedy}")
    yield from _differences(steps.rows)


def _reports(folder: Path | None) -> Check:
    if folder is not None:
        return Check("ok", "reports", str(folder))
    adds = "sections of the reports, and the check that no note contains its image's own report"
    lies = "unpacked from mimic-cxr/2.0.0/mimic-cxr-reports.zip, from PhysioNet: mimic-cxr"
    return Check("absent", "reports", f"optional, adds {adds}; {lies}")


def _differences(rows: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    for row in rows:
        for name in ("images", "studies", "patients", "admissions"):
            here, public = row[name], row[f"expected_{name}"]
            if here is not None and public is not None and here != public:
                said = f"{here:,} {name} in {row['step']}; the published release has {public:,}"
                yield Check("note", "counts", said + ". Is this a part of it, or another version?")
