"""Fixed inputs -> rows, cards and pages, compared with those kept here: `make golden`, two minutes.

Rows (RESULT, CURVE, WORD, SLICE) must be equal: the same rows with the same text and counts, and numbers within a
relative 1e-9 (processors round the last digits differently). Pages and cards must be equal block for block: the text
under each heading is kept as a digest. A change that is meant to alter a number or a sentence says so in its commit and
renews only that: `make golden RENEW=audit/results`, or `RENEW=all`. The inputs in `inputs/` are simulated models,
embeddings, annotations and reports of `python -m cxrhf.twin mimic OUT --models --seed 3`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl

KEPT = Path(__file__).parent
INPUTS = KEPT / "inputs"
TOLERANCE = 1e-9
TABLES = ("results", "curves", "words", "slices")
VARIES = ("Provenance",)  # times, versions, checksums
TIMED = pl.col("metric") == "seconds"

CASES = {
    "demo": [
        "demo", "--n-patients", "100", "--size", "64", "--steps", "0", "--report-steps", "0", "--n-resamples", "20",
    ],
    "audit": [
        "audit", str(INPUTS / "predictions.csv.gz"), "--embeddings", str(INPUTS / "embeddings.parquet"),
        "--attributes", str(INPUTS / "attributes.csv.gz"), "--shortcuts", "drain", "--n-resamples", "50",
    ],
    "reports": ["audit", str(INPUTS / "reports.csv.gz"), "--n-resamples", "50"],
}  # fmt: skip


class _Blocks(HTMLParser):
    """What stands under each heading of a page, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: dict[str, list[str]] = {}
        self._heading: list[str] = ["", "", "", "", "", ""]
        self._level = self._skipped = 0
        self._at = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._skipped += 1
        elif len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self._level = int(tag[1])
            self._heading[self._level - 1 :] = [""] * (7 - self._level)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._skipped -= 1
        elif self._level and tag == f"h{self._level}":
            self._level = 0
            self._at = " > ".join(part for part in self._heading[1:] if part)

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if not text or self._skipped:
            return
        if self._level:
            self._heading[self._level - 1] += text
        else:
            self.blocks.setdefault(self._at, []).append(text)


def page_blocks(path: Path) -> dict[str, str]:
    parser = _Blocks()
    parser.feed(path.read_text(encoding="utf-8"))
    return _digests(parser.blocks)


def card_blocks(path: Path) -> dict[str, str]:
    blocks: dict[str, list[str]] = {}
    at = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        at = line if line.startswith("#") else at
        blocks.setdefault(at, []).append(line)
    return _digests(blocks)


def _digests(blocks: dict[str, list[str]]) -> dict[str, str]:
    kept = {name: lines for name, lines in blocks.items() if not any(word in name for word in VARIES)}
    return {name: hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12] for name, lines in kept.items()}


def different_rows(kept: pl.DataFrame, now: pl.DataFrame) -> Iterator[str]:
    """What differs between two tables, the order of rows aside."""
    if missing := [name for name in kept.columns if name not in now.columns]:
        yield f"columns are missing: {', '.join(missing)}"
        return
    numbers = [name for name, kind in kept.schema.items() if kind.is_float()]
    texts = [name for name in kept.columns if name not in numbers]
    both = []
    for table in (kept, now.select(kept.columns)):
        counted: Counter[tuple[object, ...]] = Counter()
        rows = {}
        for row in table.iter_rows(named=True):
            key = tuple(row[name] for name in texts)
            counted[key] += 1
            rows[(*key, counted[key])] = [np.nan if row[name] is None else row[name] for name in numbers]
        both.append(rows)
    old, new = both
    for title, keys in (("gone", old.keys() - new.keys()), ("new", new.keys() - old.keys())):
        if keys:
            yield f"{len(keys):,} rows are {title}, such as {_short(min(keys, key=repr), texts)}"
    changed = [
        key
        for key in old.keys() & new.keys()
        if not np.allclose(old[key], new[key], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    ]
    if changed:
        key = min(changed, key=repr)
        yield f"{len(changed):,} rows have other numbers, such as {_short(key, texts)}: {old[key]} became {new[key]}"


def _short(key: tuple[object, ...], names: list[str]) -> str:
    named = zip(names, key, strict=False)
    return ", ".join(f"{name}={str(value)[:60]}" for name, value in named if value is not None and name != "note")


def made(case: str, folder: Path) -> tuple[dict[str, pl.DataFrame], dict[str, dict[str, str]]]:
    """Run one case from nothing -> its tables, and the blocks of its pages and cards."""
    run = folder / case
    command = [sys.executable, "-m", "cxrhf", *CASES[case], "--out", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    tables, pages = {}, {}
    for place in [run, *sorted(path.parent for path in run.glob("*/results.parquet"))]:
        name = "/".join([case, *place.relative_to(run).parts])
        for table in TABLES:
            if (place / f"{table}.parquet").is_file():
                rows = pl.read_parquet(place / f"{table}.parquet")
                tables[f"{name}/{table}"] = rows.filter(~TIMED) if table == "results" else rows
        pages[f"{name}/page"] = page_blocks(place / "report.html")
    for card in sorted(run.glob("model_cards/*/README.md")):
        pages[f"{case}/card/{card.parent.name}"] = card_blocks(card)
    return tables, pages


def _file(name: str) -> Path:
    return KEPT / "kept" / f"{name.replace('/', '-')}.parquet"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--renew", default="", metavar="NAMES", help="comma-separated beginnings of names, or all")
    parser.add_argument("--only", default=",".join(CASES), metavar="CASES", help="comma-separated cases")
    given = parser.parse_args()
    wanted = tuple(given.renew.split(",")) if given.renew else ()
    kept_pages = KEPT / "kept" / "pages.json"
    pages = json.loads(kept_pages.read_text()) if kept_pages.is_file() else {}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in given.only.split(","):
            tables, blocks = made(case, Path(folder))
            found: dict[str, list[str]] = {}
            for name, table in tables.items():
                kept = _file(name)
                found[name] = list(different_rows(pl.read_parquet(kept), table)) if kept.is_file() else ["not kept yet"]
            for name, now in blocks.items():
                before = pages.get(name, {})
                moved = [block for block in {**before, **now} if before.get(block) != now.get(block)]
                found[name] = [f"{len(moved)} of {len(now)} blocks differ: {'; '.join(moved)[:400]}"] if moved else []
            known = {name for name in (*pages, *_names()) if name.split("/")[0] == case}
            found |= {name: ["is made no more"] for name in known - found.keys()}
            for name, differences in sorted(found.items()):
                renewed = bool(differences) and ("all" in wanted or name.startswith(wanted or ("\0",)))
                for line in differences:
                    print(f"{'renewed' if renewed else 'DIFFERS'}  {name}: {line}")
                if not differences:
                    print(f"equal    {name}")
                failed += bool(differences) and not renewed
                if renewed and name in tables:
                    _file(name).parent.mkdir(exist_ok=True)
                    tables[name].write_parquet(_file(name), compression="zstd", compression_level=19, statistics=False)
                elif renewed and name in blocks:
                    pages[name] = blocks[name]
                elif renewed:
                    pages.pop(name, None)
                    _file(name).unlink(missing_ok=True)
            if wanted:
                kept_pages.write_text(json.dumps(pages, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return min(failed, 1)


def _names() -> list[str]:
    return [path.stem.replace("-", "/") for path in (KEPT / "kept").glob("*.parquet")]


if __name__ == "__main__":
    sys.exit(main())
