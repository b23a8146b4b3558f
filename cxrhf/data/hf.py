"""A dataset's name -> what its `datasets` builder class is made of: configurations, features, tables.

`datasets` 4 and later load no scripts, but a builder class still works when it is called: the classes stand in
dataset_scripts/<name>/<name>.py and inherit from `builder_base()`. They run the same functions as `cxrhf build`;
what is made on the way (streamed notes, chosen rows) is kept below the cache folder and taken over by a later try. The
cache key holds the settings, the content of the raw tables and the code, so a changed source or rule builds anew.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import field, fields, make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cxrhf.config_build import CONFIGURATIONS, WITH_NOTES, BuildConfig
from cxrhf.data.build import fingerprints, plans
from cxrhf.data.fingerprint import build_print, code_print
from cxrhf.data.folder import outside
from cxrhf.data.prepare import prepare
from cxrhf.data.shards import features, fill
from cxrhf.data.twin import draw_films, with_twin
from cxrhf.errors import ConfigError, CxrhfWarning
from cxrhf.findings import CHEXPERT, MIMIC, NIH
from cxrhf.paths import builder_path
from cxrhf.schema import NOTE, image_schema
from cxrhf.tables.files import write_atomically

# What a user sets on the builder itself, or not at all.
_ASIDE = ("dataset", "out", "configuration", "overwrite", "workers")


def settings(dataset: str, configuration: str, config: Any) -> BuildConfig:
    """The settings that a builder's configuration stands for."""
    given = {each.name: getattr(config, each.name) for each in fields(BuildConfig) if each.name not in _ASIDE}
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
    known = {
        "nih_chestxray14": (*NIH, "no_finding"),
        "rexgradient": (),
        "chexpert": CHEXPERT,
        "chexpert_plus": CHEXPERT,
    }
    return known.get(dataset, MIMIC)


@lru_cache(maxsize=1)
def builder_base() -> Any:
    """The class that the builders inherit from; made on first use because `datasets` takes a second to import."""
    import datasets

    added = [
        (each.name, each.type, field(default=each.default)) for each in fields(BuildConfig) if each.name not in _ASIDE
    ]
    config_class = make_dataclass("CxrConfig", added, bases=(datasets.BuilderConfig,))

    class CxrBuilder(datasets.ArrowBasedBuilder):
        """Raw files -> tables of IMAGE or NOTE rows. `DATASET` names the dataset."""

        DATASET = ""
        BUILDER_CONFIG_CLASS = config_class

        def __init_subclass__(cls, **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.BUILDER_CONFIGS = [config_class(name=name) for name in config_names(cls.DATASET)]
            cls.DEFAULT_CONFIG_NAME = config_names(cls.DATASET)[0]

        def __init__(self, cache_dir: str | None = None, *, hash: str | None = None, **kwargs: Any) -> None:
            kwargs.setdefault("dataset_name", self.DATASET)
            root = kwargs.get("root") or kwargs.get("data_dir") or ()
            known = BuildConfig(self.DATASET, root=root, split_file=kwargs.get("split_file"))
            outside(Path(cache_dir or datasets.config.HF_DATASETS_CACHE).expanduser(), known.root, "cache_dir")
            super().__init__(cache_dir, hash=hash or self._print(known), **kwargs)

        def download_and_prepare(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
            """As in `datasets`, but never into the folder of the raw files."""
            if output_dir is not None:
                known = settings(self.DATASET, self.config.name, self.config)
                outside(Path(output_dir).expanduser(), known.root, "output_dir")
            super().download_and_prepare(output_dir, *args, **kwargs)

        def _print(self, known: BuildConfig) -> str:
            """The cache key: raw tables and code; `datasets` itself adds the settings that were given."""
            script = Path(sys.modules[type(self).__module__].__file__ or __file__)
            inputs = fingerprints(known) if known.root else []
            return build_print({"dataset": self.DATASET}, inputs, code_print(script))

        def _info(self) -> Any:
            schema = NOTE if self.config.name == "notes" else image_schema(findings_of(self.DATASET))
            return datasets.DatasetInfo(features=datasets.Features.from_dict(features(schema)))

        def _settings(self) -> BuildConfig:
            known = settings(self.DATASET, self.config.name, self.config)
            if self.DATASET == "synthetic" and not known.root:
                twin = f"twin-{build_print(known.content(), [], self.hash)}"  # other settings or code, another twin
                return with_twin(known, Path(self._cache_dir_root) / "cxrhf" / twin)
            if not known.root:
                raise ConfigError(
                    f"{self.DATASET}: no folder with raw files", next_step=f'{type(self).__name__}(root="FOLDER", ...)'
                )
            return known

        def _split_generators(self, dl_manager: Any) -> list[Any]:
            known = self._settings()
            key = build_print(known.content(), fingerprints(known), self.hash)
            work = Path(self._cache_dir_root) / "cxrhf" / key
            if not (work / "rows.json").is_file():
                made_up = self.DATASET == "synthetic" and not (self.config.root or self.config.data_dir)
                _prepared(known, work, key, made_up=made_up)
            made = json.loads((work / "rows.json").read_text())
            size = None if known.no_pixels else known.size
            return [
                datasets.SplitGenerator(
                    name=split, gen_kwargs={"rows": [str(work / each) for each in files], "size": size}
                )
                for split, files in made.items()
            ]

        def _generate_shards(self, rows: list[str], size: int | None) -> Iterator[str]:
            yield from rows

        def _generate_tables(self, rows: list[str], size: int | None) -> Iterator[tuple[Any, Any]]:
            for number, path in enumerate(rows):
                if self.config.name == "notes":
                    with pq.ParquetFile(path) as file:
                        for group in range(file.num_row_groups):
                            yield datasets.builder.Key(number, group), file.read_row_group(group)
                    continue
                table, bad = fill(pq.read_table(path), size=size, threads=1)
                if bad.num_rows:
                    kinds = sorted(set(bad.column("kind").to_pylist()))
                    said = f"{self.DATASET}: {bad.num_rows} pictures of {Path(path).name} left out ({', '.join(kinds)})"
                    warnings.warn(f"{said}; `cxrhf build` names them in its quarantine", CxrhfWarning, stacklevel=2)
                if table.num_rows:  # an empty table would end the reading of the whole set
                    yield datasets.builder.Key(number, 0), table

    return CxrBuilder


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


def builder_class(dataset: str) -> Any:
    """The builder class of a dataset: `builder_class("chexpert")(root="FOLDER", cache_dir="cache")`."""
    path = Path(builder_path(dataset)) / f"{dataset}.py"
    name = f"cxrhf_dataset_scripts_{dataset}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return next(
        each
        for each in vars(sys.modules[name]).values()
        if isinstance(each, type) and vars(each).get("DATASET") == dataset
    )
