"""Vectors of notes <-> a folder, by content and encoder, so that no note is encoded twice.

    <cache>/<key>/manifest.json      what the vectors were made with
    <cache>/<key>/<any name>.parquet hash of a text (16 bytes) and its vector, whole or not at all

The key names the model's weights, the windows, the pooling and the precision. Texts, note ids and patients are nowhere
in it; but vectors are derived from notes, so folders are made for their owner alone (0700). Every process writes shards
of its own names and never changes one, so any number of processes may read and write at once. Two that encode the same
note at the same time both write it, to no harm. Shards are never merged or removed: delete the folder to start anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.encode.processes import remark
from cxrhf.errors import CxrhfError, TableError
from cxrhf.tables.files import write_atomically

Integers = NDArray[np.int64]


Vectors = NDArray[np.float32]

FORMAT = 1
OFF = "off"
SHARD_SECONDS = 30.0  # what a killed job loses at most, beside the block it is at
SHARD_NOTES = 20_000
_MANIFEST = "manifest.json"
_STALE = 3600  # seconds; a shard is written in one
_ASIDE = 100  # folders of one key that are looked at


def cache_folder(cache: str | Path | None) -> Path | None:
    """The folder asked for, CXRHF_CACHE, or ~/.cache/cxrhf/notes; None for "off"."""
    chosen = cache if cache is not None else os.environ.get("CXRHF_CACHE") or Path("~/.cache/cxrhf/notes")
    return None if str(chosen) == OFF else Path(chosen).expanduser()


def check_cache(cache: str | Path | None) -> None:
    """Refuse a folder that was named and cannot be written to, before hours of vectors that it could not keep.

    The usual folder, which nobody named, may be missing: then vectors are not kept, which is said.
    """
    root = None if cache is None else cache_folder(cache)
    if root is None:
        return
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = root / f".{uuid.uuid4().hex}.tmp"
        draft.touch()
        draft.unlink()
    except OSError as error:
        raise _unusable(root, error) from None


def open_store(root: Path, key: Mapping[str, Any], about: Mapping[str, Any], dim: int) -> Store:
    """The folder of a key, made if it is not there.

    A folder of that name with another manifest, or one of another version, is left aside, said so, and a new one made.
    """
    name = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()[:20]
    wanted = {"format": FORMAT, "key": dict(key)}
    try:
        if not root.exists():
            root.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another process was faster
                root.mkdir(mode=0o700)
        for number in range(1, _ASIDE):
            folder = root / (name if number == 1 else f"{name}-{number}")
            if not folder.exists():
                _make(folder, wanted | {"about": dict(about)})
            held = _manifest(folder)
            if {each: held.get(each) for each in wanted} == wanted:
                _sweep(folder)
                return Store(folder, dim, writable=os.access(folder, os.W_OK | os.X_OK))
            if not (root / f"{name}-{number + 1}").exists():
                version = held.get("format")
                why = f"has format {version}, not {FORMAT}" if held else "has no readable manifest.json"
                why = why if not held or version != FORMAT else "was made with different settings"
                remark(f"cache: {folder.name} {why}; cxrhf ignores it and encodes the notes again")
    except OSError as error:
        raise _unusable(root, error) from None
    raise CxrhfError(f"{root} contains {_ASIDE} folders that cannot be used", next_step=f"delete {root}")


@dataclass(slots=True)
class Store:
    """Shards of a folder. `add` collects and writes now and then; `flush` writes what is left."""

    folder: Path
    dim: int
    writable: bool = True
    also: Path | None = None  # another folder whose shards are read
    _where: dict[bytes, tuple[Path, int]] = field(default_factory=dict)  # hash -> shard and row
    _seen: set[Path] = field(default_factory=set)
    _waiting: list[tuple[Sequence[bytes], Vectors]] = field(default_factory=list)
    _written: float = field(default_factory=time.monotonic)

    def refresh(self) -> None:
        """Look for shards that were not there before. One that cannot be read is named and left aside."""
        import pyarrow.parquet as pq

        folders = [self.folder] if self.also is None else [self.also, self.folder]
        for path in (path for folder in folders for path in sorted(folder.glob("*.parquet"))):
            if path in self._seen:
                continue
            self._seen.add(path)
            try:
                with pq.ParquetFile(path, page_checksum_verification=True) as file:
                    if not file.schema_arrow.equals(_schema(self.dim)):
                        raise ValueError("other columns")
                    digests = file.read(["digest"])["digest"].to_pylist()
            except (OSError, ValueError, pa.ArrowException) as error:
                _damaged(path, error)
                continue
            self._where |= {digest: (path, row) for row, digest in enumerate(digests)}

    def load(self, digests: Sequence[bytes], into: Vectors) -> NDArray[np.bool_]:
        """Write the vectors that are there into the rows of `into`; True where one was."""
        import pyarrow.parquet as pq

        found = np.zeros(len(digests), dtype=bool)
        by_shard: dict[Path, list[tuple[int, int]]] = {}
        for number, digest in enumerate(digests):
            if digest in self._where:
                shard, row = self._where[digest]
                by_shard.setdefault(shard, []).append((number, row))
        for shard, pairs in by_shard.items():
            to, rows = np.array(pairs, dtype=np.int64).T
            try:
                column = pq.read_table(shard, columns=["vector"], page_checksum_verification=True)
                values = column["vector"].combine_chunks().flatten().to_numpy().reshape(-1, self.dim)
                if not np.isfinite(values).all():
                    raise ValueError("values that are not finite")
                into[to] = values[rows]
            except (OSError, ValueError, IndexError, pa.ArrowException) as error:
                _damaged(shard, error)
                self._where = {key: place for key, place in self._where.items() if place[0] != shard}
                continue
            found[to] = True
        return found

    def add(self, digests: Sequence[bytes], vectors: Vectors) -> None:
        """Keep vectors; a shard is written every half minute, or when there are many."""
        if not self.writable:
            return
        self._waiting.append((digests, vectors))
        many = sum(len(each) for each, _ in self._waiting) >= SHARD_NOTES
        if many or time.monotonic() - self._written >= SHARD_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits as one shard; a CxrhfError if the folder cannot be written to."""
        import pyarrow.parquet as pq

        if self._waiting and self.writable:
            digests = [digest for each, _ in self._waiting for digest in each]
            values = np.concatenate([vectors for _, vectors in self._waiting]).reshape(-1)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values, pa.float32()), self.dim)
            table = pa.table([pa.array(digests, pa.binary(DIGEST)), vectors], schema=_schema(self.dim))
            self._waiting.clear()
            try:
                write_atomically(
                    self.folder / f"{uuid.uuid4().hex}.parquet",
                    lambda file: pq.write_table(
                        table, file, compression="none", use_dictionary=False, write_page_checksum=True
                    ),
                )
            except OSError as error:
                self.writable = False
                raise _unusable(self.folder, error) from None
        self._written = time.monotonic()


def _damaged(path: Path, error: Exception) -> None:
    said = f"{path.parent.name}/{path.name} is damaged ({type(error).__name__})"
    remark(f"cache: {said}; cxrhf ignores it and encodes its notes again")


def _schema(dim: int) -> pa.Schema:
    vector = pa.list_(pa.field("element", pa.float32(), nullable=True), dim)
    return pa.schema([("digest", pa.binary(DIGEST)), ("vector", vector)])


def _make(folder: Path, manifest: Mapping[str, Any]) -> None:
    """The folder with its manifest appears at once, or is already there: another process was faster."""
    draft = folder.parent / f".{folder.name}.{uuid.uuid4().hex}"
    draft.mkdir(mode=0o700)
    (draft / _MANIFEST).write_text(json.dumps(dict(manifest), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    try:
        draft.rename(folder)
    except OSError:
        (draft / _MANIFEST).unlink()
        draft.rmdir()
        if not folder.is_dir():
            raise


def _sweep(folder: Path) -> None:
    """Remove what killed processes left: drafts that nobody has written to for an hour."""
    drafts = [*folder.glob(".*.tmp"), *folder.parent.glob(f".{folder.name}.*")]
    with contextlib.suppress(OSError):  # another process was faster, or the folder is read only
        for each in drafts:
            if time.time() - each.stat().st_mtime > _STALE:
                shutil.rmtree(each) if each.is_dir() else each.unlink()


def _manifest(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        held = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return held if isinstance(held, dict) else {}
    return {}


def _unusable(folder: Path, error: OSError) -> CxrhfError:
    return CxrhfError(
        f"the cache folder {folder} cannot be written to ({error.strerror or type(error).__name__})",
        next_step="name another with --cache FOLDER or CXRHF_CACHE=FOLDER, or set CXRHF_CACHE=off",
    )


# Pairs of texts -> scores of each pair, every distinct pair once, kept by content for the next run.
#
# The cache is the one of cache.py: a hash of both texts and a few numbers, in a folder that names what they were made
# with. Texts are nowhere in it. Scores that are not finite are not kept.

Scores = NDArray[np.float32]
# Pairs (reference, generated) -> some of their numbers with their scores, until all are done.
Compute = Callable[[list[tuple[str, str]]], Iterable[tuple[Sequence[int], Scores]]]


def score_pairs(
    references: Sequence[str],
    generated: Sequence[str],
    compute: Compute,
    *,
    n_scores: int,
    key: Mapping[str, Any] | None,
    about: Mapping[str, Any],
    cache: str | Path | None = None,
) -> Scores:
    """One row of scores a pair, in the order of the pairs. `compute` hears only of pairs that are not in the cache.

    `key` holds all that a score depends on beside the two texts; None means that scores are not kept.
    """
    digests, at, pair = _distinct(references, generated)
    found = np.full((len(digests), n_scores), np.nan, dtype=np.float32)
    there = np.zeros(len(digests), dtype=bool)
    store = open_kept(cache, key, about, n_scores) if key is not None else None
    if store is not None and digests:
        store.refresh()
        there = store.load(digests, found)
    missing = np.flatnonzero(~there)
    if len(missing):
        with _keep_scores(store):
            for numbers, scores in compute([(references[row], generated[row]) for row in at[missing].tolist()]):
                which = missing[np.asarray(numbers, dtype=np.int64)]
                found[which] = scores
                sure = np.isfinite(scores).all(axis=1)
                if store is not None and sure.any():
                    with best_effort():
                        store.add([digests[each] for each in which[sure]], np.ascontiguousarray(scores[sure]))
    return found[pair]


def _distinct(references: Sequence[str], generated: Sequence[str]) -> tuple[list[bytes], Integers, Integers]:
    """Hash of each distinct pair, a row that holds it, and the pair of each row."""
    seen: dict[bytes, int] = {}
    at: list[int] = []
    pair = np.empty(len(references), dtype=np.int64)
    for row, (reference, made) in enumerate(zip(references, generated, strict=True)):
        first = reference.encode()
        # The length keeps ("a b", "c") and ("a", "b c") apart.
        joined = len(first).to_bytes(8, "little") + first + made.encode()
        digest = hashlib.blake2b(joined, digest_size=DIGEST, person=b"cxrhf pair").digest()
        if digest not in seen:
            seen[digest] = len(at)
            at.append(row)
        pair[row] = seen[digest]
    return list(seen), np.array(at, dtype=np.int64), pair


def open_kept(cache: str | Path | None, key: Mapping[str, Any], about: Mapping[str, Any], width: int) -> Store | None:
    """The folder of a key for rows of `width` numbers, or None without a cache; what is wrong with it is only said."""
    root = cache_folder(cache)
    if root is None:
        return None
    try:
        store = open_store(root, key, about, width)
    except CxrhfError as error:
        remark(f"{error} Scores are computed without a cache.")
        return None
    if not store.writable:
        remark(f"the cache folder {store.folder} is read-only: new scores are not cached")
    return store


@contextlib.contextmanager
def _keep_scores(store: Store | None) -> Iterator[None]:
    """What was scored is written, also when the work ends early."""
    try:
        yield
    finally:
        if store is not None:
            with best_effort():
                store.flush()


@contextlib.contextmanager
def best_effort() -> Iterator[None]:
    """A full disk ends the keeping, not the scoring."""
    try:
        yield
    except CxrhfError as error:
        remark(f"{error} The scoring continues; scores are not cached.")


# Texts, or sets of texts, -> distinct contents by their hash. Texts stay where they are and are made one at a time.

Texts: TypeAlias = "pa.ChunkedArray | pa.Array | Sequence[str]"

DIGEST = 16  # bytes: that any two of a million notes share a hash has a chance of 1 in 10^26
_JOINT = " "  # between the notes of a set that are read as one text


class Distinct(NamedTuple):
    """The distinct contents of n texts."""

    digests: list[bytes]  # of each content, in the order they are met
    at: Integers  # a text that holds each content
    letters: Integers  # characters of each content
    content: Integers  # of each text; -1 = no text


def as_array(texts: Texts) -> pa.ChunkedArray:
    """Texts as one Arrow column."""
    if isinstance(texts, pa.ChunkedArray):
        found = texts
    elif isinstance(texts, pa.Array):
        found = pa.chunked_array([texts])
    else:
        try:
            found = pa.chunked_array([pa.array(list(texts), pa.large_string())])
        except (pa.ArrowException, UnicodeError) as error:
            said = f"the texts cannot be read as Unicode ({type(error).__name__})"
            raise TableError(said, next_step="save the notes as UTF-8") from None
    if pa.types.is_null(found.type):
        return found.cast(pa.large_string())
    if pa.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        raise TableError("the texts", got=found.type, allowed="strings")
    return found


def reader(texts: pa.ChunkedArray) -> Callable[[int], str]:
    """Number of a text -> the text; '' where it is null."""
    ends = np.cumsum([len(chunk) for chunk in texts.chunks], dtype=np.int64)
    starts = ends - np.array([len(chunk) for chunk in texts.chunks], dtype=np.int64)

    def read(number: int) -> str:
        chunk = int(np.searchsorted(ends, number, side="right"))
        return texts.chunk(chunk)[number - int(starts[chunk])].as_py() or ""

    return read


def join_texts(read: Callable[[int], str], sets: sparse.csr_array) -> Callable[[int], str]:
    """Number of a set -> its texts as one, in the order of the columns; those without a word leave no trace."""

    def text(number: int) -> str:
        notes = np.sort(sets.indices[sets.indptr[number] : sets.indptr[number + 1]])
        return _JOINT.join(text for text in map(read, notes.tolist()) if text.strip())

    return text


def distinct_contents(read: Callable[[int], str], n: int) -> Distinct:
    """Hash n texts. Texts of white space only are no texts."""
    digests: list[bytes] = []
    at: list[int] = []
    letters: list[int] = []
    seen: dict[bytes, int] = {}
    content = np.full(n, -1, dtype=np.int64)
    for number in range(n):
        text = read(number)
        if not text or text.isspace():
            continue
        digest = hashlib.blake2b(text.encode(), digest_size=DIGEST).digest()
        which = seen.get(digest)
        if which is None:
            which = seen[digest] = len(digests)
            digests.append(digest)
            at.append(number)
            letters.append(len(text))
        content[number] = which
    return Distinct(digests, np.array(at, dtype=np.int64), np.array(letters, dtype=np.int64), content)


def to_members(sets: sparse.csr_array) -> sparse.csr_array:
    """A copy of the sets with 1 for every member and nothing else stored."""
    made = sets.astype(np.float64).tocsr(copy=True)
    made.sum_duplicates()
    made.eliminate_zeros()
    made.data[:] = 1.0
    return made
