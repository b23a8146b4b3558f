"""Settings -> `datasets` builders, a class a dataset: configurations, features, tables.

They run the same functions as `cxrhf build`; what is made on the way (streamed notes, chosen rows) is kept below the
cache folder and taken over by a later try. The cache key holds the settings, the content of the raw tables and the
version, so a changed source or rule builds anew. The classes stand in a module that can be imported by its name:
worker processes that are not forked (macOS, Windows, Python 3.14) find them by it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
from datasets.utils._filelock import FileLock
from filelock import Timeout

from cxrhf.data.build import fingerprints, plans
from cxrhf.data.card import TERMS, published_split
from cxrhf.data.folder import build_print, check_outside_source, remove, remove_build_drafts, version_of
from cxrhf.data.layout import one_walk
from cxrhf.data.notes import stored_schema, to_stored
from cxrhf.data.prepare import prepare
from cxrhf.data.settings import CONFIGURATIONS, DATASETS, WITH_NOTES, BuildConfig
from cxrhf.data.shards import features, fill_pictures
from cxrhf.data.twin import draw_films, with_twin
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning, did_you_mean
from cxrhf.findings import CHEXPERT, MIMIC, NIH
from cxrhf.schema import NOTE, image_schema
from cxrhf.tables.checks import quoted
from cxrhf.tables.files import write_atomically
from cxrhf.tables.folders import end_with_parent, forks_end_with_me

# A dataset's name -> its `datasets` builder class, and what the classes of `cxrhf.data.builders` are made of.
#
# `datasets` 4 and later load no scripts, but a builder class still works when it is called. This module does not
# import `datasets`, which takes a second.

# What a user sets on the builder itself, or not at all.
IGNORED_SETTINGS = ("dataset", "out", "configuration", "overwrite", "workers")
_FINDINGS: Mapping[str, tuple[str, ...]] = {
    "mimic_cxr_context": MIMIC,
    "synthetic": MIMIC,
    "chexpert": CHEXPERT,
    "chexpert_plus": CHEXPERT,
    "nih_chestxray14": (*NIH, "no_finding"),
    "rexgradient": (),
}


def settings(dataset: str, configuration: str, config: Any) -> BuildConfig:
    """The settings that a builder's configuration stands for."""
    given = {each.name: getattr(config, each.name) for each in fields(BuildConfig) if each.name not in IGNORED_SETTINGS}
    given["root"] = given["root"] or config.data_dir or ()  # data_dir: what users of `datasets` know
    return BuildConfig(dataset, configuration=configuration, **given)


def config_names(dataset: str) -> tuple[str, ...]:
    """The configurations of a dataset, the default one first."""
    return CONFIGURATIONS if dataset in WITH_NOTES else ("images",)


def findings_of(dataset: str) -> tuple[str, ...]:
    """The findings whose labels a dataset has."""
    if dataset == "covid_chestxray":
        from cxrhf.data.covid import FINDINGS

        return FINDINGS
    if dataset not in _FINDINGS:
        raise ConfigError(
            "the findings of this dataset are unknown",
            got=quoted(dataset),
            allowed=f"one of {', '.join(DATASETS)}",
            next_step=did_you_mean(dataset, DATASETS) or "add them to cxrhf/data/builders.py",
        )
    return _FINDINGS[dataset]


def builder_class(dataset: str) -> Any:
    """The builder class of a dataset: `builder_class("chexpert")(root="FOLDER", cache_dir="cache")`."""

    name = dataset.replace("-", "_")
    if name not in BUILDERS:
        raise ConfigError(
            "unknown dataset",
            got=quoted(dataset),
            allowed=f"one of {', '.join(BUILDERS)}",
            next_step=did_you_mean(name, BUILDERS),
        )
    return BUILDERS[name]


# The main part.

CxrConfig = make_dataclass(
    "CxrConfig",
    [
        (each.name, each.type, field(default=each.default))
        for each in fields(BuildConfig)
        if each.name not in IGNORED_SETTINGS
    ],
    bases=(datasets.BuilderConfig,),
)
CxrConfig.__module__ = __name__  # where a worker process finds it


class CxrBuilder(datasets.ArrowBasedBuilder):
    """Raw files -> tables of IMAGE or NOTE rows. `DATASET` names the dataset; settings are those of `cxrhf build`."""

    DATASET = ""
    BUILDER_CONFIG_CLASS = CxrConfig

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.VERSION = datasets.Version(f"{version_of(cls.DATASET)}.0")
        cls.BUILDER_CONFIGS = [CxrConfig(name=name, version=cls.VERSION) for name in config_names(cls.DATASET)]
        cls.DEFAULT_CONFIG_NAME = config_names(cls.DATASET)[0]

    def __init__(self, cache_dir: str | None = None, *, hash: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("dataset_name", self.DATASET)
        root = kwargs.get("root") or kwargs.get("data_dir") or ()
        known = BuildConfig(self.DATASET, root=root, split_file=kwargs.get("split_file"))
        check_outside_source(Path(cache_dir or datasets.config.HF_DATASETS_CACHE).expanduser(), known.root, "cache_dir")
        with one_walk():
            inputs = fingerprints(known) if known.root else []
        # `datasets` itself adds the settings that were given.
        own = build_print({"dataset": self.DATASET}, inputs, version_of(self.DATASET))
        self._started_by = 0
        self._made_up = self.DATASET == "synthetic" and not known.root
        guard_pushes()
        super().__init__(cache_dir, hash=hash or own, **kwargs)

    def download_and_prepare(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        """As in `datasets`, but never into the folder of the raw files; workers end with this process."""
        if output_dir is not None:
            known = settings(self.DATASET, self.config.name, self.config)
            check_outside_source(Path(output_dir).expanduser(), known.root, "output_dir")
        else:
            _sweep_incomplete(Path(self._cache_dir_root) / self.dataset_name)
        self._started_by = os.getpid()
        with forks_end_with_me():
            super().download_and_prepare(output_dir, *args, **kwargs)

    def _download_and_prepare(self, dl_manager: Any, verification_mode: Any, **kwargs: Any) -> None:
        for left in Path(self._output_dir).glob("*"):  # `datasets` would go on in the draft of a killed one
            remove(left)
        super()._download_and_prepare(dl_manager, verification_mode, **kwargs)

    def _info(self) -> Any:
        schema = NOTE if self.config.name == "notes" else image_schema(findings_of(self.DATASET))
        terms = TERMS[self.DATASET]
        return datasets.DatasetInfo(
            description=f"{terms.name}. {terms.said}",
            license=licence(self.DATASET, made_up=self._made_up),
            homepage=terms.link,
            citation=terms.cite,
            features=datasets.Features.from_dict(features(stored_schema(schema))),
        )

    def _settings(self) -> BuildConfig:
        known = settings(self.DATASET, self.config.name, self.config)
        if not known.root and not self._made_up:
            raise ConfigError(
                f"{self.DATASET}: no folder with the published files is given",
                next_step=f'pass root: {type(self).__name__}(root="FOLDER", ...)',
            )
        return known

    def _split_generators(self, dl_manager: Any) -> list[Any]:
        known, place = self._settings(), Path(self._cache_dir_root) / "cxrhf"
        place.mkdir(parents=True, exist_ok=True)
        if self._made_up:
            twin = place / f"twin-{build_print(known.content(), [], self.hash)}"  # other settings, another twin
            with FileLock(f"{twin}.lock"):  # one writer; like `datasets`, the others wait and take over what it made
                known = with_twin(known, twin)
        with one_walk():
            key = build_print(known.content(), fingerprints(known), self.hash)
            work = place / key
            with FileLock(f"{work}.lock"):
                if not (work / "rows.json").is_file():
                    remove_build_drafts(work)
                    _prepared(known, work, key, made_up=self._made_up)
        made = json.loads((work / "rows.json").read_text())
        size = None if known.no_pixels else known.size
        return [
            datasets.SplitGenerator(
                name=published_split(split), gen_kwargs={"rows": [str(work / each) for each in files], "size": size}
            )
            for split, files in made.items()
        ]

    def _generate_shards(self, rows: list[str], size: int | None) -> Iterator[str]:
        yield from rows

    def _generate_tables(self, rows: list[str], size: int | None) -> Iterator[tuple[Any, Any]]:
        if self._started_by:
            end_with_parent(self._started_by)
        for number, path in enumerate(rows):
            if self.config.name == "notes":
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        yield datasets.builder.Key(number, group), to_stored(file.read_row_group(group))
                continue
            table, bad = fill_pictures(pq.read_table(path), size=size, threads=1)
            if bad.num_rows:
                kinds = sorted(set(bad.column("kind").to_pylist()))
                said = f"{self.DATASET}: excluded {bad.num_rows} images of {Path(path).name} ({', '.join(kinds)})"
                warnings.warn(f"{said}; `cxrhf build` lists them in quarantine.parquet", CxrhfWarning, stacklevel=2)
            if table.num_rows:  # an empty table would end the reading of the whole set
                yield datasets.builder.Key(number, 0), to_stored(table)


def _prepared(known: BuildConfig, work: Path, key: str, *, made_up: bool) -> None:
    """Choose, link, split and check; leave the rows of each shard in a file of its own, and at last a list of them."""
    prepared = prepare(known, work / "work", work / "notes", key)
    if made_up:
        draw_films(known, prepared.images)
    made: dict[str, list[str]] = {}
    if known.configuration == "notes":
        made["train"] = [str(path.relative_to(work)) for path in sorted((work / "notes").glob("*.parquet"))]
    for plan in plans(prepared, pixels=not known.no_pixels):
        for number, name in enumerate(plan.names):
            target = work / "rows" / name
            shard = plan.shard(number)
            write_atomically(target, lambda file, shard=shard: pq.write_table(shard, file))  # type: ignore[misc]
            made.setdefault(plan.split, []).append(str(target.relative_to(work)))
    text = json.dumps(made)
    write_atomically(work / "rows.json", lambda file: file.write(text.encode()))
    shutil.rmtree(work / "work", ignore_errors=True)  # streamed notes: `notes` has those that are linked


def _sweep_incomplete(place: Path) -> None:
    """Remove what killed builders left below the cache of a dataset: tables with ids, texts and pictures."""
    for draft in place.glob("*/*/*.incomplete"):
        # Held by `datasets` as long as a builder writes there.
        lock = FileLock(f"{str(draft).removesuffix('.incomplete')}_builder.lock", blocking=False)
        with contextlib.suppress(Timeout), lock:
            shutil.rmtree(draft, ignore_errors=True)


class MimicCxrContext(CxrBuilder):
    """Images, labels and prior discharge notes of MIMIC-CXR-JPG, MIMIC-IV and MIMIC-IV-Note."""

    DATASET = "mimic_cxr_context"


class Chexpert(CxrBuilder):
    """Images and labels of CheXpert, with race and ethnicity where the demographic file is there."""

    DATASET = "chexpert"


class ChexpertPlus(CxrBuilder):
    """Images, report sections, labels and demographics of CheXpert Plus."""

    DATASET = "chexpert_plus"


class CovidChestxray(CxrBuilder):
    """COVID-19 image data collection: an open set with images, days and clinical notes."""

    DATASET = "covid_chestxray"


class NihChestxray14(CxrBuilder):
    """Images and labels of NIH ChestX-ray14, with chest drain annotations where they are there."""

    DATASET = "nih_chestxray14"


class Rexgradient(CxrBuilder):
    """Images and report sections of ReXGradient-160K, with sex, age and view."""

    DATASET = "rexgradient"


class Synthetic(CxrBuilder):
    """A made-up MIMIC with drawn films, notes that predict labels and known answers."""

    DATASET = "synthetic"


BUILDERS = {each.DATASET: each for each in CxrBuilder.__subclasses__()}


# A dataset of a builder -> `push_to_hub` refuses it where `cxrhf push` would.
#
# `datasets` has no place for such a rule, so `push_to_hub` of its four classes is wrapped, in processes that made one
# of our builders. What goes by the rule is `info.license`, which `datasets` carries through map, filter, select,
# slices, formats, shuffles, splits into parts, concatenation and save_to_disk.
#
# Known gaps: `to_parquet`, `to_pandas` and the like, whose result has no info; a build folder or a saved dataset that
# is loaded in a process that made no builder; `save_to_disk` and `to_parquet` with an hf:// address.

REFUSED = "Not for the Hub: push_to_hub is refused, `cxrhf push dataset BUILD --recipe` publishes what may be shared."
UNCHECKED = "push_to_hub checks no terms: `cxrhf push dataset BUILD` publishes what they allow."


def licence(dataset: str, *, made_up: bool) -> str:
    """The terms of a dataset as `info.license` says them. `made_up`: the builder itself invented the raw files."""
    if made_up:
        return TERMS[dataset].licence
    # Raw files that somebody gave to `synthetic` may be real: nothing here proves that they are not.
    rule = REFUSED if TERMS[dataset].credentialed or dataset == "synthetic" else UNCHECKED
    return f"{TERMS[dataset].said} {rule}"


def guard_pushes() -> None:
    """Have every `push_to_hub` of `datasets` look at the licence first; again it changes nothing."""
    import datasets

    for kind in (datasets.Dataset, datasets.DatasetDict, datasets.IterableDataset, datasets.IterableDatasetDict):
        if not hasattr(kind.push_to_hub, "looks_at_licence"):
            kind.push_to_hub = _check_before_push(kind.push_to_hub)
    if not hasattr(datasets.Dataset.to_iterable_dataset, "keeps_licence"):
        datasets.Dataset.to_iterable_dataset = _keep_licence(datasets.Dataset.to_iterable_dataset)


def _keep_licence(make: Callable[..., Any]) -> Callable[..., Any]:
    """The one way to another dataset on which `datasets` drops all of the info but the features."""

    @functools.wraps(make)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = make(self, *args, **kwargs)
        made.info.license = made.info.license or self.info.license
        return made

    keeping.keeps_licence = True  # type: ignore[attr-defined]
    return keeping


def _check_before_push(push: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(push)
    def looking(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_push(self)
        return push(self, *args, **kwargs)

    looking.looks_at_licence = True  # type: ignore[attr-defined]
    return looking


def check_push(data: Any) -> None:
    """Refuse a dataset, or a dictionary of them, that holds credentialed data; warn where terms are not checked."""
    parts = data.values() if isinstance(data, dict) else [data]
    said = " ".join(str(part.info.license or "") for part in parts)
    if REFUSED in said:
        raise CxrhfError(
            "this dataset holds, or may hold, credentialed data, which push_to_hub would publish; nothing was sent",
            next_step="if your agreement lets you share ids, publish the recipe (settings, ids and splits): "
            "cxrhf build DATASET --root FOLDER --out BUILD, then cxrhf push dataset BUILD --to USER/NAME "
            "--recipe --dry-run",
        )
    if UNCHECKED in said:
        warnings.warn(
            "push_to_hub publishes every row and does not check the terms; cxrhf push dataset publishes only what they "
            "allow",
            CxrhfWarning,
            stacklevel=3,
        )
