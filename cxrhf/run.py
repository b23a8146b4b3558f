"""A folder -> a run: its tables, and run.json that says what they were made from and with.

run.json is written when the run opens (finished: null) and again when it is done. It holds the config, the seed, the
fingerprints of the inputs, versions, commit, Python and platform; never the host's or user's name, nor a path outside
the working folder.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from cxrhf.errors import CxrhfError, RunError

if TYPE_CHECKING:
    import pyarrow as pa


FORMAT = 1
PACKAGES = ("cxrhf", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "polars", "jinja2", "torch", "timm",
            "accelerate", "transformers", "xgboost")  # fmt: skip
# Fields of run.json that are read again, and settings among them, with their kinds. All may be absent or null.
_KINDS: dict[str, Any] = {
    "format": int, "verb": str, "config": dict, "inputs": list, "versions": dict, "commit": str, "python": str,
    "platform": str, "started": str, "finished": str, "tables": dict, "earlier": dict, "reading": list, "notes": list,
    "fitted": dict, "may_show": bool, "shown_because": str, "generated": dict, "trained": dict, "model": str,
}  # fmt: skip
_SETTINGS: dict[str, Any] = {
    "build": str, "pictures": str, "source": str, "model": str, "out": str, "only": list, "correction": str,
}  # fmt: skip
# Besides the tables; then what a context run has, a run with image models, and one with models that write reports.
_PAGE_FILES = ("report.html", "diff.html", "results.json", "push.txt", "model_cards")
_CONTEXT = ("context.json", "families.parquet", "local/examples.csv", "local/examples.txt", "models/context", "search")
_IMAGING = ("models/seed-*", "checkpoints", "history-*.jsonl", "probes")
_WRITING = ("adapter", "merged", "base")


@dataclass(frozen=True, slots=True)
class Input:
    """What a run was made from: a file's name, sha256 and size."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Run:
    """An open run folder. `record` is what run.json holds."""

    path: Path
    record: dict[str, Any]

    def add(self, name: str, table: pa.Table) -> Path:
        """Check a table against its schema and write it; the file is there whole or not at all."""
        from cxrhf.schema import TABLES
        from cxrhf.tables.checks import check
        from cxrhf.tables.files import write_table

        if name not in TABLES:
            raise RunError("table of a run", got=name, allowed=", ".join(TABLES))
        checked = check(table, TABLES[name], source=f"{name}.parquet")
        self.record["tables"][name] = checked.num_rows
        return write_table(checked, self.path / f"{name}.parquet")

    def table(self, name: str) -> pa.Table:
        """Read a table of the run."""
        from cxrhf.schema import TABLES
        from cxrhf.tables.files import read_table

        path = self.path / f"{name}.parquet"
        if not path.is_file():
            there = sorted(each.stem for each in self.path.glob("*.parquet"))
            raise RunError(
                f"{self.path} has no {name}.parquet",
                got=f"tables {', '.join(there) or '(none)'}",
                next_step=f"cxrhf audit {'' if {'predictions', 'generations'} & set(there) else 'PREDICTIONS --out '}"
                + shlex.quote(str(self.path)),
            )
        return read_table(path, TABLES.get(name))

    def finish(self, page: Callable[[Run], object] | None = None, /, **more: Any) -> Path:
        """Write run.json with the time the run ended, and anything more worth keeping: the last thing a verb does.

        `page` writes what is made from the finished record; if it cannot, the run is not finished.
        """
        done = replace(self, record={**self.record, **more, "finished": _now()})
        if page is not None:
            page(done)
        self.record.update(done.record)
        return _write_record(self)


def open_run(
    path: str | Path,
    *,
    verb: str,
    config: Mapping[str, Any],
    inputs: Sequence[Input] | None,
    overwrite: bool = False,
) -> Run:
    """Make a run folder, or open the one that was made from the same inputs.

    `inputs=None` means that the run's own tables are the input: what was recorded stays. A run made from other inputs,
    or a folder with other things in it, is left alone unless `overwrite`; even then only a run's own files are removed.
    """
    folder = Path(path)
    check_folder(folder, overwrite=overwrite or inputs is None)
    earlier = _read_record(folder, tolerant=overwrite)
    if inputs is None:
        from cxrhf.tables.predictions import find_predictions

        own = find_predictions(folder)
        kept = (earlier or {}).get("inputs") or ([] if own is None else [asdict(fingerprint(own))])
    else:
        kept = [asdict(each) for each in inputs]
        if not check_inputs(folder, inputs, overwrite=overwrite):
            clear_run(folder)
            earlier = None
    record = new_record(verb, config, kept)
    if earlier and isinstance(earlier.get("tables"), dict):
        record["tables"] = dict(earlier["tables"])
    if earlier and earlier.get("verb"):
        # A verb that adds to a run of another one (an audit of a training) must not make it forget how it was made.
        others = {**earlier.get("earlier", {}), earlier["verb"]: {k: v for k, v in earlier.items() if k != "earlier"}}
        others.pop(verb, None)
        record |= {"earlier": others} if others else {}
    run = Run(folder, record)
    folder.mkdir(parents=True, exist_ok=True)
    _write_record(run)
    return run


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse what cannot become a run folder; nothing is written."""
    from cxrhf.tables.folders import check_links, check_writable, is_empty

    check_writable(folder, "run folder")
    if not overwrite and folder.exists() and not (folder / "run.json").is_file() and not is_empty(folder):
        raise RunError(f"{folder} is not empty and is not a run folder", next_step=_next_step(folder))
    check_links(folder)


def check_inputs(folder: Path, inputs: Sequence[Input], *, overwrite: bool) -> bool:
    """Refuse a run made from other inputs, unless `overwrite`: then False. Nothing is written."""
    earlier = _read_record(folder, tolerant=overwrite)
    if earlier is None or _prints(earlier.get("inputs")) == _prints([asdict(each) for each in inputs]):
        return True
    if not overwrite:
        was = ", ".join(str(each.get("name")) for each in earlier.get("inputs", [])) or "unknown inputs"
        raise RunError(f"{folder} contains a run made from other inputs", got=was, next_step=_next_step(folder))
    return False


def _next_step(folder: Path) -> str:
    return f"choose another --out, or pass --overwrite to replace the contents of {folder}"


def new_record(verb: str, config: Mapping[str, Any], inputs: Sequence[Input | Mapping[str, Any]]) -> dict[str, Any]:
    """What run.json says when a run begins."""
    return {
        "format": FORMAT,
        "verb": verb,
        "config": public(dict(config)),
        "seed": config.get("seed"),
        "inputs": [asdict(each) if isinstance(each, Input) else dict(each) for each in inputs],
        "versions": versions(),
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "started": _now(),
        "finished": None,
        "tables": {},
    }


def read_run(path: str | Path) -> Run:
    """Open a run folder to read from it."""
    from cxrhf.tables.folders import describe_path, free_folder_name, suggest_folder

    folder = Path(path)
    record = _read_record(folder, tolerant=False) if folder.is_dir() else None
    if record is None:
        what = "has no run.json" if folder.is_dir() else "is not a folder"
        source = shlex.quote(str(folder)) if folder.is_file() else "PREDICTIONS"
        how = f"cxrhf audit {source} --out {free_folder_name(folder, 'runs/mine')}"
        raise RunError(
            f"{folder} {what}", got=describe_path(folder), next_step=suggest_folder(folder, "run.json") or how
        )
    return Run(folder, record)


def reopen_run(path: str | Path) -> Run:
    """Open a run to add to it: until `finish` it is not finished."""
    run = read_run(path)
    run.record["finished"] = None
    _write_record(run)
    return run


def is_finished(record: Mapping[str, Any]) -> bool:
    """Whether the last verb that wrote to the run came to its end."""
    return bool(record.get("finished", True))


def record_of(path: str | Path, verb: str) -> dict[str, Any]:
    """What run.json says of a verb that made the run or added to it; empty if it never did."""
    record = _read_record(Path(path), tolerant=False) or {}
    return record if record.get("verb") == verb else dict(record.get("earlier", {}).get(verb, {}))


def fingerprint(path: str | Path) -> Input:
    """Name, sha256 and size of a file."""
    file = Path(path)
    digest = hashlib.sha256()
    size = 0
    try:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise RunError(f"{file} cannot be read ({error.strerror or error})") from None
    return Input(public_path(str(file)), digest.hexdigest(), size)


def fingerprint_settings(name: str, **settings: object) -> Input:
    """The fingerprint of data made from settings and a seed."""
    text = json.dumps(settings, sort_keys=True)
    return Input(f"{name} {text}", hashlib.sha256(text.encode()).hexdigest(), 0)


def public_path(path: str) -> str:
    """A path as it may be shown to others: below the working folder, else the last part alone."""
    path = path.encode(errors="replace").decode()  # of a name that is no text the other bytes are kept
    given, here = Path(path).expanduser(), Path.cwd()
    full = given if given.is_absolute() else here / given
    try:
        shown = full.resolve().relative_to(here.resolve())
    except ValueError:
        return full.name
    owner = Path.home().name
    return full.name if owner in shown.parts[:-1] else PurePath(shown).as_posix()


def public(value: Any) -> Any:
    """Settings as they may be shown to others: every path as `public_path` has it."""
    if isinstance(value, dict):
        return {key: public(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [public(each) for each in value]
    if isinstance(value, str) and (Path(value).is_absolute() or value.startswith("~") or ".." in PurePath(value).parts):
        return public_path(value)
    return value


def _prints(inputs: Any) -> list[str]:
    return sorted(str(each.get("sha256")) for each in inputs or [] if isinstance(each, dict))


def clear_run(folder: Path) -> None:
    """Remove what runs write, and nothing else that lies in the folder."""
    from cxrhf.schema import TABLES
    from cxrhf.tables.folders import check_links

    check_links(folder)
    if earlier := _read_record(folder, tolerant=True):  # a stop from here on leaves no run that says it is whole
        _write_record(Run(folder, earlier | {"finished": None, "tables": {}}))
    made = [each for pattern in (*_IMAGING, *_WRITING) for each in folder.glob(pattern)]
    for path in (*(folder / f"{table}.parquet" for table in TABLES), *(folder / name for name in (*_PAGE_FILES, *_CONTEXT)),
                 *made):  # fmt: skip
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for table in (folder / "tables").glob("table_*.csv"):
        table.unlink()
    for ending in ("svg", "png"):
        for figure in (folder / "figures").glob(f"*.{ending}"):
            figure.unlink()


def read_record(folder: Path, error: type[CxrhfError] = RunError) -> dict[str, Any] | None:
    """What run.json holds, every field of its kind; None without one."""
    from cxrhf.tables.files import read_object

    path, again = folder / "run.json", "repeat the run with --overwrite"
    if not path.is_file():
        return None
    record = read_object(path, next_step=again, error=error)
    number = record.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise error(
            f"{folder} was written by a newer version of cxrhf (format {number}; this version reads up to {FORMAT})",
            next_step="pip install --upgrade cxrhf",
        )
    wrong = _wrong_field(record)
    if wrong is not None:
        raise error(f"{path} is damaged: {wrong} has the wrong type", next_step=again)
    return record


def _wrong_field(record: dict[str, Any], where: str = "") -> str | None:
    """The first field that is not of its kind; lists and mappings that are null become empty."""
    for name, kind in _KINDS.items():
        value = record.get(name)
        if value is None:
            if name in record and kind in (dict, list):
                record[name] = kind()
        elif not isinstance(value, kind):
            return f"{where}{name}"
    for name, kind in _SETTINGS.items():
        value = record.get("config", {}).get(name)
        if not isinstance(value, (kind, type(None))):
            return f"{where}config.{name}"
    for each in record.get("inputs", []):
        if not isinstance(each, dict) or not all(isinstance(each.get(key, ""), str) for key in ("name", "sha256")):
            return f"{where}inputs"
    for name in ("earlier", "generated"):
        if not all(isinstance(each, dict) for each in record.get(name, {}).values()):
            return f"{where}{name}"
    for model in record.get("generated", {}).values():
        strategies = model.setdefault("strategies", {})
        if not isinstance(strategies, dict) or not all(isinstance(each, dict) for each in strategies.values()):
            return f"{where}generated.strategies"
    inner = (_wrong_field(each, f"{where}earlier.{verb}.") for verb, each in record.get("earlier", {}).items())
    return next(filter(None, inner), None)


def _read_record(folder: Path, *, tolerant: bool) -> dict[str, Any] | None:
    """What run.json holds, None without one; `tolerant`: a damaged one, or one of a newer version, holds nothing."""
    try:
        return read_record(folder)
    except RunError:
        if tolerant:
            return {}
        raise


def _write_record(run: Run) -> Path:
    from cxrhf.tables.files import finite, write_atomically

    text = json.dumps(finite(run.record), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    return write_atomically(run.path / "run.json", lambda file: file.write(text.encode()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Of this package and of those that decide its numbers, where they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    from cxrhf import __version__

    found = {"cxrhf": __version__}
    for name in PACKAGES[1:]:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of these sources, with -dirty where they were changed; None outside a repository that tracks them."""
    here = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if not git("ls-files", "--error-unmatch", "__init__.py"):  # an environment inside somebody's own repository
        return None
    commit = git("rev-parse", "HEAD")
    return commit and commit + ("-dirty" if git("status", "--porcelain", "-uno", "--", ".") else "")


# Names of datasets -> under which terms they stand: credentialed, open or made up, or nobody knows.

Standing = Literal["credentialed", "open", "unknown"]
# What names of credentialed sources have in them, and names of open and made-up ones.
CREDENTIALED = ("mimic", "chexpert", "rexgradient", "padchest")
OPEN = ("nih", "nih_chestxray14", "covid_chestxray", "covid", "synthetic", "demo", "iu", "openi")


def plain_name(dataset: str) -> str:
    """As the lists above write it."""
    return str(dataset).strip().lower().replace("-", "_")


def credentialed(datasets: Iterable[str | None]) -> list[str]:
    """Those whose name says that they are credentialed.

    >>> credentialed(["MIMIC-CXR-JPG", "nih", None])
    ['mimic_cxr_jpg']
    """
    names = {plain_name(each) for each in datasets if each}
    return sorted(name for name in names if any(word in name for word in CREDENTIALED))


def standing(datasets: Iterable[str | None]) -> Standing:
    """The strictest of them: one credentialed name is enough, one unknown name too unless there is a credentialed one.

    >>> standing(["nih", "our hospital"]), standing(["synthetic"]), standing([])
    ('unknown', 'open', 'unknown')
    """
    names = {plain_name(each) for each in datasets if each}
    if credentialed(names):
        return "credentialed"
    return "open" if names and names <= set(OPEN) else "unknown"


# cxrhf.json beside the weights of a network or adapter -> the first field that is not of the kind that cxrhf writes.
#
# Weights and what lies beside them may come from anybody: whoever reads the record checks it here first.

_NUMBERS = ("steps", "epochs", "best_step", "kept_step")
_WEIGHTS_FIELDS: dict[str, Any] = {
    "format": int, "backbone": str, "outputs": list, "look": dict, "sha256": str, "versions": dict, "name": str,
    "seed": int, "key": str, "tasks": list, "start": str, "trained": dict, "images": int, "dataset": str | None,
    "credentialed": bool | None, "settings": dict, "base": dict, "prompt": str | None, "size": int, "examples": dict,
}  # fmt: skip


def wrong_field(about: Mapping[str, Any]) -> str | None:
    """The name of the first field of another kind, None where all are right; any may be absent.

    >>> wrong_field({"seed": 3, "images": "many"}), wrong_field({"seed": 3})
    ('images', None)
    """
    for name, kind in _WEIGHTS_FIELDS.items():
        if name in about and not _is_of_kind(about[name], kind):
            return name
    if not all(isinstance(each, str) for each in about.get("outputs", [])):
        return "outputs"
    if not 0 <= about.get("seed", 0) < 2**63:
        return "seed"
    if not isinstance(about.get("settings", {}).get("labels"), str | None):
        return "settings"
    trained = about.get("trained", {})
    if not all(_is_of_kind(trained[name], int | None) for name in _NUMBERS if name in trained):
        return "trained"
    if not all(isinstance(each, str | None) for name, each in about.get("base", {}).items()):
        return "base"
    return None if all(_is_of_kind(each, int) for each in about.get("examples", {}).values()) else "examples"


def _is_of_kind(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and (not isinstance(value, bool) or (kind is not int and kind != int | None))
