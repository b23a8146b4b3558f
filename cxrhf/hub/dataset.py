"""A build folder -> the dataset repository that `load_dataset("user/name")` reads; of credentialed data the recipe.

Published are the image shards, notes, attributes, and a card, flow picture, attrition and build.json that are written
anew from what the checks found: an edited README.md stays where it is, and so do quarantine, source and caches. With
build.json in it, a download is again a folder that every verb of cxrhf reads. The synthetic twin takes its truth along.

Terms decide what goes:
- made up (proved, see dataset_twin): everything;
- NIH: free use with attribution, which the card gives. Attributes are left out: they come from a file of somebody
  else's annotations, whose terms nobody here knows;
- COVID-19 collection: the rows whose own licence allows it (dataset_licences);
- credentialed: the recipe (dataset_recipe), asked for with `recipe=True`; anything else is refused;
- everything else: refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cxrhf.data.card import Published, card, configs, counted_labels, published_split
from cxrhf.data.flow import flow
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.dataset_files import dataset_info
from cxrhf.hub.dataset_source import Build, clean_record, json_piece, opened, refuse_credentialed, refuse_unknown
from cxrhf.schema import ATTRITION, table_of, write_table

EVERYTHING = frozenset({"ids", "text", "pixels", "labels", "rows"})


def dataset_artefact(folder: Path, to: str, *, work: Path, recipe: bool = False) -> Artefact:
    """What of a build is published under the name `to`; files that are written anew lie in `work` until it is sent."""
    build = opened(folder)
    truth: list[Piece] = []
    if build.dataset == "synthetic":
        from cxrhf.hub.dataset_twin import truth_pieces

        truth = truth_pieces(build, work)
    refuse_unknown(build)
    if recipe:
        from cxrhf.hub.dataset_recipe import recipe_artefact

        return recipe_artefact(build, to, work)
    refuse_credentialed(build, to)
    build, said, notes = _shared(build, work)
    pieces = [*_about(build, to, said, truth, work), *build.tables.pieces(), *truth]
    name = to.rsplit("/", 1)[-1]
    return Artefact("dataset", name, tuple(pieces), may_hold=EVERYTHING, notes=tuple(notes))


def _shared(build: Build, work: Path) -> tuple[Build, list[str], list[str]]:
    """What the terms let go, paragraphs for the card, and notes for the user."""
    if build.dataset == "covid_chestxray":
        from cxrhf.hub.dataset_licences import shared_rows

        return shared_rows(build, work)
    if build.dataset == "nih_chestxray14" and build.tables.attributes is not None:
        left = f"{build.record['attributes']:,} attributes are excluded: they are third-party annotations with "
        left += "unknown terms"
        steps = [row for row in build.steps if row["step"] != "attributes"]
        return replace(build, tables=replace(build.tables, attributes=None), steps=steps), [], [left]
    return build, [], []


def _about(build: Build, repo: str, said: Sequence[str], truth: Sequence[Piece], work: Path) -> list[Piece]:
    """Card, build.json, flow picture and attrition."""
    record = clean_record(build) | {"planted": bool(truth)}
    findings = record["findings"]
    labels = counted_labels(build.tables.image_columns(findings), findings) if build.ids.num_rows and findings else None
    paragraphs = list(said)
    if build.config.no_pixels:
        paragraphs.append("Tables only: the images were not read, and the column `image` is empty.")
    if truth:
        paragraphs.append("`truth.json` holds the true population values of the audits' metrics, and `planted` the "
                          "ground truth of every image. Tests compare the results of an audit with them.")  # fmt: skip
    published = Published(repo, dataset_info(_files(build, record, truth)), paragraphs)
    text = card(build.dataset, record, build.steps, labels, published)
    steps = table_of(list(build.steps), ATTRITION, source="attrition")
    title = f"{build.dataset}: from the published files to this dataset"
    return [
        Piece("README.md", text.encode()),
        json_piece("build.json", record),
        Piece("flow.svg", flow(build.steps, title).encode(), drawn=True),
        Piece("attrition.parquet", write_table(steps, work / "attrition.parquet")),
    ]


def _files(
    build: Build, record: Mapping[str, object], truth: Sequence[Piece]
) -> dict[str, Mapping[str, Sequence[Path]]]:
    """The files of each configuration, by split."""
    planted = [piece.content for piece in truth if piece.path == "planted.parquet"]
    there: dict[str, Mapping[str, Sequence[Path]]] = {
        "images": {published_split(split): files for split, files in build.tables.images.items()},
        "notes": {"train": build.tables.notes},
        "attributes": {"train": [build.tables.attributes] if build.tables.attributes else []},
        "planted": {"train": [each for each in planted if isinstance(each, Path)]},
    }
    return {config: there[config] for config in configs(record)}
