"""Embeddings, attributes and images of a run's predictions -> what the audits of representations need.

Also writes labelling sheets and reads them back, decides which data of single patients a page may show, and makes the
thumbnails that it may.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.material import Material
from cxrhf.errors import ConfigError, TableError
from cxrhf.findings import snake_case
from cxrhf.run import OPEN, credentialed, plain_name
from cxrhf.schema import ATTRIBUTE, EMBEDDING, GALLERY, IMAGE, RESULT, TABLES
from cxrhf.settings import AuditConfig
from cxrhf.tables import cells
from cxrhf.tables.checks import check, table_of
from cxrhf.tables.files import open_raw, read_table, write_atomically
from cxrhf.tables.folders import file_name

if TYPE_CHECKING:
    from cxrhf.audits.plan import AuditOutput
    from cxrhf.run import Run


# An audit's flags, folders and predictions -> what lies beside them; what was found there -> files of the run.

AUDITS = ("encoding", "features", "slices", "shortcut")


@dataclass(frozen=True, slots=True)
class Representations:
    """Tables beside the predictions, the build with their pictures, what may be shown, and what must be said."""

    material: Material
    build: Path | None
    terms: Terms
    notes: list[str]


def load_representations(
    config: AuditConfig, sources: Sequence[Path], predictions: pa.Table | None, generations: pa.Table | None = None
) -> Representations:
    """What lies beside the predictions: in the folders among `sources`, and where flags say."""
    from cxrhf.data.load import build_record

    folders = [each for each in sources if each.is_dir()]
    audited = [each for each in (predictions, generations) if each is not None]
    notes, datasets = list[str](), [name for each in audited for name in each["dataset"].unique().to_pylist()]
    if predictions is None:  # vectors of images and drains say nothing of reports
        return Representations(Material(), None, terms(datasets, None, config.may_show), notes)
    # Vectors are large: where nobody asks for what is made of them they are not read.
    named = (config.embeddings, config.attributes, config.pictures, *config.annotations, *config.probes)
    if config.only and not any(each in config.only for each in AUDITS) and not any(named):
        return Representations(Material(), None, terms(datasets, None, config.may_show), notes)
    material = read_material(config, folders, predictions, notes)
    build = build_of(config, folders)
    record = None if build is None else build_record(build)
    return Representations(material, build, terms(datasets, record, config.may_show), notes)


def write_representations(
    run: Run, looked: Representations, output: AuditOutput, config: AuditConfig, progress: Callable[[str], None]
) -> list[str]:
    """Slices, maps, labelling sheets and thumbnails of an open run; what must be said of them."""

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


def add_probe_results(results: pa.Table, run: Path) -> pa.Table:
    """Results with those that `cxrhf probe` left in this same run: an audit must not make it forget them."""
    own = split_rows(run, named=False)
    return pa.concat_tables([results, table_of(own, RESULT, source="probes")]) if own else results


# Flags of an audit and the folders it reads -> Material: vectors, attributes, characteristics, probes.
#
# What a flag names wins; else what lies in the run folders themselves is taken, and for attributes the build that a
# run was trained on, where it still lies there.

_PEOPLE = ("image_id", "study_id", "patient_id", "dataset", "split", "view", "study_time", "age", "sex", "race")


def read_material(config: AuditConfig, folders: Sequence[Path], predictions: pa.Table, notes: list[str]) -> Material:
    """Everything that lies beside these predictions; empty where nothing does."""
    images = predictions["image_id"].unique()
    embeddings = _embeddings(config.embeddings, folders, notes)
    attributes = _attributes(config, folders, images, notes)
    if config.annotations:
        sheets = [read_sheet(Path(each), images.to_pylist()) for each in config.annotations]
        attributes, changed = merge_attributes(attributes, sheets)
        filled = sum(len(each) for each in sheets)
        notes.append(
            f"annotations: {filled:,} values of {', '.join(sorted({n for s in sheets for n in s['name'].to_pylist()}))}"
            + (f"; {changed:,} of them replace earlier ones" if changed else "")
        )
    probes = [Path(each) for each in config.probes]
    return Material(
        embeddings=embeddings,
        attributes=attributes,
        characteristics=_joined_table([each for each in folders if not _is_probe(each)], "characteristics"),
        images=_people(folders, config.embeddings),
        probes=[row for each in [*folders, *probes] for row in split_rows(each, named=each in probes)],
    )


def build_of(config: AuditConfig, folders: Sequence[Path]) -> Path | None:
    """The build with the pictures: the one that is named, else the one a run was trained on or embedded from."""
    from cxrhf.run import record_of

    if config.pictures is not None:
        return Path(config.pictures)
    for folder in folders:
        if not (folder / "run.json").is_file():
            continue
        for verb in ("audit", "embed", "train", "predict", "probe", "zeroshot"):
            settings = record_of(folder, verb).get("config", {})
            named = settings.get("pictures" if verb == "audit" else "build")
            if named and (Path(named) / "build.json").is_file():
                return Path(named)
    return None


def _embeddings(named: str | None, folders: Sequence[Path], notes: list[str]) -> pa.Table | None:
    if named is None:
        return _joined_table(folders, "embeddings")
    path = Path(named)
    table = read_table(path / "embeddings.parquet" if path.is_dir() else path, None)
    if "model" not in table.column_names:
        table = table.append_column("model", pa.repeat(pa.scalar("vectors"), len(table)))
        notes.append(f"{path.name}: no column model, so the embeddings are named 'vectors'")
    known = [name for name in table.column_names if name in EMBEDDING.names]
    left = [name for name in table.column_names if name not in known]
    if left:
        notes.append(f"{path.name}: unused columns: {', '.join(left[:8])}")
        table = table.select(known)
    return check(table, EMBEDDING, source=path.name)


def _attributes(config: AuditConfig, folders: Sequence[Path], images: pa.Array, notes: list[str]) -> pa.Table | None:
    if config.attributes is None:
        found = _joined_table(folders, "attributes")
        build = build_of(config, folders)
        if found is None and build is not None and (build / "attributes.parquet").is_file():
            found = _of_images(read_table(build / "attributes.parquet", ATTRIBUTE), images)
            found = found if found.num_rows else None
        return found
    path = Path(config.attributes)
    if path.is_dir():
        path = path / "attributes.parquet"
    if path.suffix in (".parquet", ".pq"):
        table = read_table(path, ATTRIBUTE)
    else:
        from cxrhf.data.fields import attribute_table

        table, said = attribute_table(path, images.to_pylist())
        notes.append(said)
    kept = _of_images(table, images)
    if not kept.num_rows:
        raise TableError(
            f"{path.name}: none of its images is in the predictions",
            next_step="use the image ids of the predictions",
        )  # fmt: skip
    return kept


def _of_images(table: pa.Table, images: pa.Array) -> pa.Table:
    return table.filter(pc.is_in(table["image_id"], value_set=images))


def _is_probe(folder: Path) -> bool:
    """Whether its characteristics are what new layers read from a frozen network, not what the network says itself."""
    from cxrhf.run import record_of

    return (folder / "run.json").is_file() and bool(record_of(folder, "probe")) and not record_of(folder, "train")


def _joined_table(folders: Iterable[Path], name: str) -> pa.Table | None:
    """A table of the run folders together; None where none has it."""
    paths = [folder / f"{name}.parquet" for folder in folders]
    tables = [read_table(path, TABLES[name]) for path in paths if path.is_file()]
    return pa.concat_tables(tables) if tables else None


def _people(folders: Sequence[Path], named: str | None) -> pa.Table | None:
    """Who is in the pictures that have vectors, without the pictures."""
    import pyarrow.parquet as pq

    more = [Path(named)] if named is not None and Path(named).is_dir() else []
    tables = []
    for folder in dict.fromkeys([*folders, *more]):
        path = folder / "images.parquet"
        if path.is_file():
            there = [name for name in _PEOPLE if name in pq.read_schema(path).names]
            table = pq.read_table(path, columns=there)
            tables.append(pa.table({name: table[name].cast(IMAGE.field(name).type) for name in there}))
    return pa.concat_tables(tables, promote_options="default") if tables else None


def split_rows(folder: Path, *, named: bool) -> list[dict[str, Any]]:
    """RESULT rows of `cxrhf probe` in a run folder."""
    path = folder / "results.parquet"
    if not path.is_file():
        if named:
            raise TableError(f"{folder} has no results of cxrhf probe", next_step=f"cxrhf probe BUILD --out {folder}")
        return []
    table = read_table(path, RESULT)
    found: list[dict[str, Any]] = table.filter(pc.equal(table["audit"], "split")).to_pylist()
    if named and not found:
        raise TableError(f"{folder} has no results of cxrhf probe", next_step="pass a run of cxrhf probe")
    return found


# RESULT rows of `slices` and SLICE -> the worst and the best slice of every model, finding, method and class.

ROLES = ("worst", "best")


class ExtremeSlice(NamedTuple):
    """One slice; `model` as SLICE names it, `role` is worst or best."""

    model: str
    finding: str
    slice: str
    role: str


def worst_and_best_slices(results: pa.Table, slices: pa.Table) -> list[ExtremeSlice]:
    """In the order of the rows. SLICE has no column for the dataset: of several, `model on dataset` is its model."""
    known = set(slices["model"].unique().to_pylist())
    chosen = pc.and_(
        pc.equal(results["audit"], "slices"), pc.is_in(results["metric"], value_set=pa.array(ROLES, pa.string()))
    )
    found = []
    for row in results.filter(chosen).to_pylist():
        there = f"{row['model']} on {row['dataset']}"
        found.append(
            ExtremeSlice(there if there in known else row["model"], row["finding"], row["slice"], row["metric"])
        )
    return found


# Best and worst slices -> labelling sheets to fill in; a filled sheet -> ATTRIBUTE rows.
#
# A sheet holds up to 100 images of the worst and of the best slice of a class, half of them from either half of the
# patients, so that what is annotated can be confirmed. It does not say which image is of which slice, and the order
# is drawn: who knows the slice sees what he expects. The user names the empty column after what he looks for
# (ecg_wires) and writes 1, 0 or nothing.

FOLDER = "labelling"
IMAGES_PER_SHEET_SLICE = 50  # images of a slice and half
EMPTY = "rename_me"  # the column to fill in
_SHEET_COLUMNS = ("image_id", "model", "finding", "label", "slice", "role", "half")


def write_sheets(folder: Path, results: pa.Table, slices: pa.Table, seed: int) -> list[Path]:
    """A sheet for each model, finding and class that has a worst and a best slice.

    Blank sheets of an earlier audit go; one that somebody wrote into stays as it is.
    """
    target = folder / FOLDER
    for old in target.glob("*.csv"):
        if is_blank(old):
            old.unlink()
    groups: dict[tuple[str, str, str], set[str]] = {}
    for end in worst_and_best_slices(results, slices):
        groups.setdefault((end.model, end.finding, end.slice.rpartition(":")[0]), set()).add(end.slice)
    written = []
    for (model, finding, head), names in groups.items():
        rows = slices.filter(
            pc.and_(
                pc.and_(pc.equal(slices["model"], model), pc.equal(slices["finding"], finding)),
                pc.is_in(slices["slice"], value_set=pa.array(sorted(names))),
            )
        )
        images = _draw_images(rows, seed)
        name = file_name(re.sub(r"[^\w.+-]+", "-", f"{model}-{finding}-{head}").strip(".-"))
        label = "1" if head.endswith("positive") else "0"
        lines = [[image, finding, label, ""] for image in images]
        text = _text([["image_id", "finding", "label", EMPTY], *lines])
        path = target / f"{name}.csv"
        if not path.exists():
            target.mkdir(exist_ok=True)
            _write(path, text)
        written.append(path)
    return written


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def is_blank(path: Path) -> bool:
    """Whether a sheet is as it was written: nobody's work is in it."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text("utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return bool(rows) and rows[0][-1:] == [EMPTY] and all(row[-1:] == [""] for row in rows[1:])


def _draw_images(rows: pa.Table, seed: int) -> list[str]:
    """Up to EACH images of each slice and half, in an order that tells nothing."""
    rng = np.random.default_rng([seed, 211])
    columns = (rows[name].to_pylist() for name in ("slice", "half", "image_id"))
    by: dict[tuple[str, str], list[str]] = {}
    for slice_name, half, image in sorted(zip(*columns, strict=True)):
        by.setdefault((slice_name, half or ""), []).append(image)
    chosen = [image for images in by.values() for image in rng.permutation(images)[:IMAGES_PER_SHEET_SLICE].tolist()]
    return [str(each) for each in rng.permutation(sorted(set(chosen)))]


def _text(rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def read_sheet(path: Path, image_ids: Iterable[str]) -> pa.Table:
    """ATTRIBUTE rows of a filled sheet. A bad cell is an error with its line; nothing of the sheet is taken then.

    Every column that is not one of the sheet's own is an attribute: 1, 0, yes, no or blank.
    """
    raw = open_raw(path)
    names = {snake_case(name): at for at, name in reversed(list(enumerate(raw.columns)))}
    if "image_id" not in names:
        raise TableError(
            f'{raw.name}: no column "image_id"', got=f"columns {', '.join(raw.columns)}",
            next_step="keep this column of the labelling sheet",
        )  # fmt: skip
    asked = {name: at for name, at in names.items() if name not in _SHEET_COLUMNS and name}
    places = [names["image_id"], *asked.values()]
    columns = dict(zip(places, raw.load(dict.fromkeys(places, "text")), strict=True))
    where = cells.Where(raw.name, raw.columns[names["image_id"]], raw.place)
    ids = cells.identifiers(columns[names["image_id"]], where)
    _check_images(ids, set(image_ids), where)
    tables = []
    for name, at in asked.items():
        flags = cells.flags(columns[at], cells.Where(raw.name, raw.columns[at], raw.place))
        if flags.null_count == len(flags):
            continue
        if name == EMPTY:
            raise TableError(
                f'{raw.name}: column "{EMPTY}" is filled but not named',
                next_step="name it after the attribute, for example ecg_wires",
            )
        _check_once(ids, flags, cells.Where(raw.name, raw.columns[at], raw.place))
        value = pc.if_else(flags, "1", "0")
        rows = pa.table({"image_id": ids, "name": pa.repeat(pa.scalar(name), len(ids)), "value": value})
        tables.append(rows.filter(pc.is_valid(value)))
    if not tables:
        raise TableError(
            f"{raw.name}: no annotations",
            got=f"columns {', '.join(raw.columns)}, all blank" if asked else "only the columns of the sheet",
            next_step="write 1 or 0 into a column named after the attribute, for example ecg_wires",
        )
    # The same image may stand in a sheet twice, as long as both say the same.
    whole = pa.concat_tables(tables).group_by(["image_id", "name", "value"], use_threads=False).aggregate([])
    return check(whole, ATTRIBUTE, source=raw.name)


def _check_images(ids: pa.Array, known: set[str], where: cells.Where) -> None:
    for row, image in enumerate(ids.to_pylist()):
        if image not in known:  # the id itself stays out of messages: logs travel further than data
            allowed = "an image id of the sheet"
            raise where.error(row, "this image is not in the predictions", None, allowed, "correct or remove the row")


def _check_once(ids: pa.Array, flags: pa.Array, where: cells.Where) -> None:
    seen: dict[str, bool] = {}
    for row, (image, flag) in enumerate(zip(ids.to_pylist(), flags.to_pylist(), strict=True)):
        if flag is not None and seen.setdefault(image, flag) != flag:
            raise where.error(
                row, "an earlier row has another value for this image", int(flag), "one value for each image"
            )


def merge_attributes(earlier: pa.Table | None, sheets: Sequence[pa.Table]) -> tuple[pa.Table, int]:
    """Attributes with those of sheets, of which the last holds; and how many values a sheet changed."""
    found: dict[tuple[str, str], str | None] = {}
    changed = 0
    for place, table in enumerate([*([earlier] if earlier is not None else []), *sheets]):
        columns = (table[name].to_pylist() for name in ("image_id", "name", "value"))
        for image, name, value in zip(*columns, strict=True):
            if place and found.get((image, name), value) not in (None, value):
                changed += 1
            found[image, name] = value
    rows = {"image_id": [key[0] for key in found], "name": [key[1] for key in found], "value": list(found.values())}
    return check(pa.table({name: pa.array(each, pa.string()) for name, each in rows.items()}), ATTRIBUTE), changed


# Datasets of the predictions, a build, the user's word -> whether single patients of them may stand in a page.
#
# Open datasets and made-up ones may; credentialed ones never, whatever the user says; of all others the user must say
# it.


class Terms(NamedTuple):
    """Whether points and pictures of single patients may be shown, and why."""

    may_show: bool
    why: str


def terms(datasets: Iterable[str | None], build: Mapping[str, Any] | None, asked: bool) -> Terms:
    """The terms of these datasets; `build` is what build.json says, `asked` the user's --may-show."""
    names = {plain_name(each) for each in datasets if each}
    closed = credentialed(names)
    if build is not None and build.get("credentialed") and str(build.get("dataset")) not in closed:
        closed.append(str(build.get("dataset")))
    # The twin is made up and says so, in whatever layout it was written.
    if build is not None and build.get("dataset") == "synthetic":
        return Terms(True, "synthetic data")
    if closed:
        if asked:
            raise ConfigError(
                "may_show: credentialed data cannot be shown for single patients",
                got=", ".join(closed), next_step="omit --may-show; maps then show counts",
            )  # fmt: skip
        return Terms(False, f"{', '.join(closed)}: credentialed data")
    if build is not None and build.get("credentialed") is False:
        return Terms(True, f"{build.get('dataset')}: an open dataset")
    if names and names <= set(OPEN):
        return Terms(True, f"{', '.join(sorted(names))}: open or synthetic data")
    if asked:
        return Terms(True, "the user passed --may-show")
    return Terms(False, "--may-show was not passed")


# Best and worst slices and a build's pictures -> GALLERY rows: thumbnails for the page, of data that may be shown.

SIDE = 96  # of a thumbnail
IMAGES_PER_SLICE = 12  # of a slice
MOST = 720  # of a page: half a megabyte for every 200
QUALITY = 72


def gallery(
    results: pa.Table, slices: pa.Table, build: Path, progress: Callable[[str], None], notes: list[str]
) -> pa.Table | None:
    """Thumbnails of the images that belong most to the worst and to the best slice of each class.

    Those of the patients to confirm on come first: the slice was not made for them.
    """
    rows = _thumbnail_rows(results, slices)
    if not rows:
        return None
    if importlib.util.find_spec("PIL") is None:
        notes.append("no thumbnails: pillow is not installed (pip install 'cxrhf[data]')")
        return None
    from cxrhf.data.shards import open_shards

    pixels = open_shards(build / "images")
    place = {image: at for at, image in enumerate(pixels.table["image_id"].to_pylist())}
    there = [row for row in rows if row["image_id"] in place]
    if not there:
        notes.append(f"no thumbnails: none of the images is in {build.name}")
        return None
    licences = _licences(build)
    shown = [row for row in there if licences is None or licences.get(row["image_id"], "").upper().startswith("CC")]
    if len(shown) < len(there):
        notes.append(f"{len(there) - len(shown)} thumbnails are excluded: no licence states that they may be shown")
    if len(shown) > MOST:
        notes.append(f"{len(shown) - MOST} thumbnails are excluded: the page shows at most {MOST}")
    made: dict[str, bytes] = {}
    out: list[dict[str, Any]] = []
    for k, row in enumerate(shown[:MOST]):
        if k % 100 == 0:
            progress(f"thumbnails: {k} of {min(len(shown), MOST)}")
        image = row["image_id"]
        if image not in made:
            made[image] = thumbnail(pixels[place[image]])
        out.append(row | {"thumbnail": made[image]})
    return table_of(out, GALLERY, source="gallery") if out else None


def _thumbnail_rows(results: pa.Table, slices: pa.Table) -> list[dict[str, Any]]:
    """image_id, model, finding, slice, role of every thumbnail, slice by slice."""
    members: dict[tuple[str, str, str], list[tuple[bool, float, str]]] = {}
    for row in slices.to_pylist():
        key = (row["model"], row["finding"], row["slice"])
        members.setdefault(key, []).append((row["half"] != "confirm", -(row["weight"] or 0.0), row["image_id"]))
    return [
        {"image_id": image, **end._asdict()}
        for end in worst_and_best_slices(results, slices)
        for _, _, image in sorted(members.get((end.model, end.finding, end.slice), []))[:IMAGES_PER_SLICE]
    ]


def thumbnail(picture: np.ndarray) -> bytes:
    """Grey levels -> a small JPEG on black, its longer side SIDE."""
    from PIL import Image

    image = Image.fromarray(np.asarray(picture, dtype=np.uint8))
    image.thumbnail((SIDE, SIDE))
    square = Image.new("L", (SIDE, SIDE))
    square.paste(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    out = io.BytesIO()
    square.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def _licences(build: Path) -> dict[str, str] | None:
    """The licence of each image where a source has one a row; None where it has not."""
    from cxrhf.schema import ATTRIBUTE
    from cxrhf.tables.files import read_table

    path = build / "attributes.parquet"
    if not path.is_file():
        return None
    table = read_table(path, ATTRIBUTE)
    rows = table.filter(pc.equal(table["name"], "licence"))
    if not rows.num_rows:
        return None
    return {
        image: value or "" for image, value in zip(rows["image_id"].to_pylist(), rows["value"].to_pylist(), strict=True)
    }
