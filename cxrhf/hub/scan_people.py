"""Text, names of columns and values -> ids and rows of single patients.

Ids are known by their form where a dataset's ids have one (MIMIC `p1xxxxxxx`, five groups of eight hexadecimal digits,
CheXpert, NIH, ReXGradient, PadChest, Indiana, DICOM), or by the name they stand under (`patient_id: ...`, `MRN ...`,
`patient 10012345`).
Rows are known by their columns: a table with a column of ids, or one with two of age, sex and race and no counts.
RESULT rows (n, n_patients) are numbers of many and pass. Ids that belong to the data behind an artefact are looked for
by `scan_known`, whatever they look like. Left alone: dates, versions, DOIs, PMIDs, hashes, UIDs of the DICOM standard.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from cxrhf.hub.artefact import Known
from cxrhf.hub.scan_words import Anchors, Hashes, look_up_hashes, offsets_of, segments, windows, words_of
from cxrhf.tables.columns import SYNONYMS, column_key

# Run and build folders -> the ids and texts of their patients; and those, found again in text that is to leave.
#
# A note is found by any eight words in a row that stand in it, a short text (four to seven words) where it stands
# alone on a line, in quotes or in a cell; marks, case and line breaks do not matter. An id is found as whole words,
# in any spelling of its dashes and slashes. Ids without a digit, of fewer than five characters, or plain numbers of
# fewer than seven digits are left to the names of columns (`scan_people`): in prose they are ordinary words and
# counts.
#
# Texts may be many: a hospital's notes are gigabytes. So the words of the artefact, which are few, are kept as
# numbers, and the known texts run past them block by block from their files: memory does not grow with the notes.

NOTE = "text of a clinical note or report"
ROW_OF_WORDS, FEWEST_WORDS = 8, 4
TEXT_COLUMNS = frozenset({"text", "indication", "comparison", "findings", "impression", "reference", "generated"})
_APART = b"\x1f"
_SHORTEST_ID, _SHORTEST_NUMBER, _MOST_WORDS = 5, 7, 8
_TOGETHER = 2_000  # texts that are joined to one block
# Where a short text stands alone: lines, quotes, cells, values.
_EDGES = b"\n\r\t|\"'`<>[]{}\x1f:"
_COUNTED = re.compile(
    rb"[\"']?(?:\w*size|n|n_\w+|num_\w+|\w*total\w*|\w*parameters|bytes|\w*steps?|seed|length)[\"']?\s*[:=]\s*$"
)


class StoredTexts(Sequence[str]):
    """Text columns of Parquet files, read when they are looked at."""

    def __init__(self, columns: Iterable[tuple[Path, str]]) -> None:
        self._columns = tuple(columns)

    def batches(self) -> Iterator[list[str]]:
        """All texts, many at a time."""
        for file, column in self._columns:
            for batch in _batches(file, [column]):
                yield [text for text in batch.column(0).to_pylist() if text]

    def __iter__(self) -> Iterator[str]:
        for batch in self.batches():
            yield from batch

    def __bool__(self) -> bool:  # without reading them all, as len would
        return bool(self._columns)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return list(self)[index]


def known_of(folders: Iterable[Path]) -> Known:
    """Ids of patients, studies, images and notes, and texts about them, of all tables in run and build folders."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids: set[str] = set()
    texts: list[tuple[Path, str]] = []
    for file in sorted({file for folder in folders for file in _tables(Path(folder))}):
        schema = pq.read_schema(file)
        named = [field.name for field in schema if is_id_column(field.name)]
        texts += [
            (file, field.name)
            for field in schema
            if field.name in TEXT_COLUMNS and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
        ]
        for batch in _batches(file, named) if named else ():
            for column in batch.columns:
                flat = column.flatten() if pa.types.is_nested(column.type) else column
                ids.update(str(value) for value in flat.unique().to_pylist() if value is not None)
    return Known(frozenset(ids), StoredTexts(texts))


def _tables(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder] if folder.suffix == ".parquet" else []
    return [file for file in folder.rglob("*.parquet") if not any(part.startswith(".") for part in file.parts[-3:])]


def _batches(file: Path, columns: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    yield from pq.ParquetFile(file).iter_batches(columns=columns, batch_size=_TOGETHER)


# --- what is looked for --------------------------------------------------------------------------------------------


class Watch(NamedTuple):
    """What of the known is in an artefact: hashes of rows of words of known texts, and of ids by number of words."""

    texts: Hashes
    ids: dict[int, Hashes]


def traces(data: bytes) -> Hashes:
    """What a text could share with a known one: hashes of eight words in a row, and of short texts that stand alone."""
    return np.unique(_rows_of_words(data, _EDGES))


def watch_for(known: Known, seen: Hashes) -> Watch:
    """The known ids, and those of the traces `seen` in an artefact that are traces of a known text too."""
    return Watch(_shared_hashes(known.texts, seen), _id_hashes(known.ids))


def known_in(data: bytes, watch: Watch, texts: bool = True, ids: bool = True) -> Iterator[Found]:
    """Words of known texts, and known ids, in a text."""
    texts, ids = texts and len(watch.texts) > 0, ids and len(watch.ids) > 0
    if not texts and not ids:
        return
    words = words_of(data)
    if texts:
        why = f"{ROW_OF_WORDS} words in a row, or a whole short text, are in a note or report of the source data"
        rows = np.flatnonzero(_among(watch.texts, windows(words.hash, ROW_OF_WORDS)))
        for first, last in _neighbour_runs(rows):
            yield Found(int(words.start[first]), int(words.end[last + ROW_OF_WORDS - 1]), NOTE, why)
        starts, count = segments(words, offsets_of(data, _EDGES))
        for length in range(FEWEST_WORDS, ROW_OF_WORDS):
            alone = starts[count == length]
            for at in alone[_among(watch.texts, windows(words.hash, length)[alone])]:
                yield Found(int(words.start[at]), int(words.end[at + length - 1]), NOTE, why)
    for length, hashes in watch.ids.items() if ids else ():
        for at in np.flatnonzero(_among(hashes, windows(words.hash, length))):
            start, end = int(words.start[at]), int(words.end[at + length - 1])
            if not _is_number(data, start, end):
                yield Found(start, end, ID, "it is an id of the source data")


def _is_number(data: bytes, start: int, end: int) -> bool:
    """Digits that are part of a decimal number, or stand under the name of a count: an id only by chance."""
    if not data[start:end].isdigit():
        return False
    before, after = data[max(0, start - 60) : start], data[end : end + 2]
    decimal = re.search(rb"\d[.,]$|^[.]$|(?<!\w)[.]$|[eE][+-]?$", before) or re.match(rb"[.]\d", after)
    return bool(decimal or _COUNTED.search(before))


def _neighbour_runs(places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and last of every row of neighbours."""
    if len(places):
        for run in np.split(places, np.flatnonzero(np.diff(places) > ROW_OF_WORDS) + 1):
            yield int(run[0]), int(run[-1])


def _among(known: Hashes, wanted: Hashes) -> NDArray[np.bool_]:
    return look_up_hashes(known, wanted)[0]


def _rows_of_words(data: bytes, edges: bytes) -> Hashes:
    """Hashes of eight words in a row, and of the texts of four to seven words that stand alone between edges."""
    words = words_of(data)
    first, count = segments(words, offsets_of(data, edges))
    alone = [windows(words.hash, length)[first[count == length]] for length in range(FEWEST_WORDS, ROW_OF_WORDS)]
    return np.concatenate([windows(words.hash, ROW_OF_WORDS), *alone])


def _shared_hashes(texts: Sequence[str], seen: Hashes) -> Hashes:
    """The hashes of `seen` that known texts have too. A table of bits answers for most words of the texts."""
    if not len(seen):
        return seen
    bits = max(16, min(26, int(np.ceil(np.log2(len(seen)))) + 5))
    table = np.zeros(1 << bits, np.bool_)
    shift = np.uint64(64 - bits)
    table[seen >> shift] = True
    found = [np.empty(0, np.uint64)]
    for block in _text_blocks(texts):
        hashes = _rows_of_words(block, _APART)
        hashes = hashes[table[hashes >> shift]]
        found.append(hashes[_among(seen, hashes)])
    return np.unique(np.concatenate(found))


def _text_blocks(texts: Sequence[str]) -> Iterator[bytes]:
    """The texts, many at a time, with the byte 0x1f after each."""
    cut = (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))
    for batch in texts.batches() if isinstance(texts, StoredTexts) else cut:
        yield b"".join(text.encode("utf-8", "replace") + _APART for text in batch)


def _id_hashes(ids: Iterable[str]) -> dict[int, Hashes]:
    """Number of words -> sorted hashes of the ids with so many that no text has by chance."""
    telling = [each for each in ids if _tells(each)]
    if not telling:
        return {}
    data = b"".join(each.encode("utf-8", "replace") + _APART for each in telling)
    words = words_of(data)
    first, count = segments(words, offsets_of(data, _APART))
    return {
        int(length): np.unique(windows(words.hash, int(length))[first[count == length]])
        for length in np.unique(count)
        if length <= _MOST_WORDS
    }


def _tells(each: str) -> bool:
    if each.isdigit():
        return len(each) >= _SHORTEST_NUMBER
    return len(each) >= _SHORTEST_ID and any(letter.isdigit() for letter in each)


# Text -> the tokens, keys and passwords in it, by their forms, and this computer's own token, compared exactly.
#
# A pattern runs only where one of its fixed letters stands in the text; all of those are looked for in one pass.
# Hashes (sha256, git) have no such forms and pass. What looks like a place to fill in (`<token>`, `hf_xxx`,
# `$HF_TOKEN`, `os.environ[...]`) is no secret. A message shows the form (`hf_...`), never a character of the secret.

_SHORTEST_TOKEN = 8


class Found(NamedTuple):
    """Something in a text: its first byte, the byte after it, what it is, and why it may not leave."""

    start: int
    end: int
    what: str
    why: str


class _SecretForm(NamedTuple):
    what: str
    anchors: tuple[bytes, ...]  # one of them is in every match
    pattern: re.Pattern[bytes]
    folded: bool = False  # matched against the text in lower case: many times faster than ignoring case


def _form(what: str, anchors: str, pattern: bytes, folded: bool = False) -> _SecretForm:
    return _SecretForm(what, tuple(anchors.encode().split()), re.compile(pattern), folded)


_END = rb"(?![A-Za-z0-9])"


def begin_word(letters: bytes) -> bytes:
    """Letters with which a word begins. The letters come first in the pattern: they are found by memory search."""
    return letters + rb"(?<![A-Za-z0-9]" + letters + rb")"


_SECRET_FORMS = (
    _form("a Hugging Face token (hf_...)", "hf_", begin_word(b"hf_") + rb"[A-Za-z0-9]{16,}" + _END),
    _form("a Hugging Face token (api_org_...)", "api_org_", begin_word(b"api_org_") + rb"[A-Za-z0-9]{16,}" + _END),
    *(
        _form("a GitHub token", f"gh{kind}_", begin_word(b"gh" + kind.encode() + b"_") + rb"[A-Za-z0-9]{30,}")
        for kind in "pousr"
    ),
    _form("a GitHub token", "github_pat_", rb"github_pat_[A-Za-z0-9_]{20,}"),
    *(
        _form("a GitLab token", kind, begin_word(kind.encode()) + rb"[A-Za-z0-9_-]{16,}")
        for kind in ("glpat-", "gldt-")
    ),
    _form("a Slack token", "xox", begin_word(b"xox") + rb"[abeprs]-[A-Za-z0-9-]{10,}"),
    _form("a Slack token", "xapp-", begin_word(b"xapp-") + rb"[A-Za-z0-9-]{10,}"),
    _form("a Slack web hook", "hooks.slack.com", rb"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}"),
    _form("an API key (sk-...)", "sk-", begin_word(b"sk-") + rb"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"),
    *(
        _form(
            "a Stripe key",
            f"k_{kind}_",
            rb"k_" + kind.encode() + rb"_(?<=[srp]k_" + kind.encode() + rb"_)[A-Za-z0-9]{16,}",
        )
        for kind in ("live", "test")
    ),
    *(_form("an AWS key", kind, begin_word(kind.encode()) + rb"[A-Z0-9]{16}" + _END) for kind in ("AKIA", "ASIA")),
    _form("a Google key", "AIza", begin_word(b"AIza") + rb"[A-Za-z0-9_-]{35}"),
    _form("a Google token", "ya29.", rb"ya29\.[A-Za-z0-9_-]{20,}"),
    _form("a Google service account", "service_account", rb"service_account\"(?<=[:\s]\"service_account\")"),
    _form("an Azure key", "AccountKey=", rb"AccountKey=[A-Za-z0-9+/]{40,}={0,2}"),
    _form("an Azure signature", "sig=", rb"sig=(?<=[?&]sig=)[A-Za-z0-9%+/]{30,}"),
    _form("a PyPI token", "pypi-AgE", rb"pypi-AgE[A-Za-z0-9_-]{30,}"),
    _form("an npm token", "npm_", begin_word(b"npm_") + rb"[A-Za-z0-9]{30,}" + _END),
    _form("a Databricks token", "dapi", begin_word(b"dapi") + rb"[0-9a-f]{32}" + _END),
    _form("a DigitalOcean token", "dop_v1_", rb"dop_v1_[0-9a-f]{32,}"),
    _form("a SendGrid key", "SG.", rb"SG\.(?<![A-Za-z0-9]SG\.)[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _form("a Replicate token", "r8_", begin_word(b"r8_") + rb"[A-Za-z0-9]{30,}" + _END),
    _form(
        "a JSON web token", "eyJ", begin_word(b"eyJ") + rb"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    ),
    _form("a private key", "PRIVATE", rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    _form("a private key", "PuTTY-User-Key-File", rb"PuTTY-User-Key-File-\d"),
    _form("a private key", "AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _form("an SSH key", "ssh-", rb"ssh-(?:rsa|dss|ed25519) AAAA[A-Za-z0-9+/]{20,}"),
    _form("an SSH key", "ecdsa-sha2", rb"ecdsa-sha2-nistp\d+ AAAA[A-Za-z0-9+/]{20,}"),
    _form(
        "a login in a netrc line", "machine", rb"machine\s{1,9}\S+\s{1,9}login\s{1,9}\S+\s{1,9}password\s{1,9}\S+", True
    ),
    _form("a Kaggle key", '"key"', rb"\"key\"\s{0,3}:\s{0,3}\"[0-9a-f]{32}\""),
)
# Forms whose last group is the secret: it must look like one.
_NAMED_SECRETS = (
    _form(
        "a password", "password passwd passphrase pwd",
        rb"(?<![a-z])(?:password|passwd|passphrase|pwd)[\"']?\s*(?:[:=]|\bis\b)\s*(?P<quote>[\"']?)"
        rb"(?P<secret>[^\s\"',;)}\]]{6,})", True,
    ),
    _form("a password", "--pass", rb"--(?:http-)?pass(?:word|wd)?[ =](?P<quote>[\"']?)(?P<secret>[^\s\"']{4,})", True),
    _form(
        "a login of PhysioNet", "physionet",
        rb"--user(?:name)?[ =](?P<quote>[\"']?)(?P<secret>[^\s\"'<$-][^\s\"']{2,})(?=[^\n]{0,200}physionet)", True,
    ),
    _form(
        "a secret", "key secret token",
        rb"(?:api|access|auth|account|client|app|aws|secret|private|hf|hub|wandb|bearer|refresh|session|encryption)"
        rb"[_-]?(?:access[_-]?)?(?:key|token|secret)[\"']?\s*[:=]\s*(?P<quote>[\"']?)(?P<secret>[a-z0-9_+/.~=-]{16,})",
        True,
    ),
    _form(
        "a secret", "authorization bearer x-api-key",
        rb"(?:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+|\bbearer\s+|x-api-key[\"']?\s*[:=]\s*[\"']?)"
        rb"(?P<quote>)(?P<secret>[a-z0-9_+/.~=-]{12,})", True,
    ),
    _form(
        "a login in an address", "://",
        rb"://(?P<quote>)(?<=[a-z0-9]://)[^\s:@/\"'<>{}$]{1,64}:(?P<secret>[^\s@/\"'<>{}$]{3,128})@[\w.-]+", True,
    ),
)  # fmt: skip
_PLACEHOLDER = re.compile(
    rb"^[<$%{(\[]|^\*+$|^x+$|^\.+$|xxx|\.\.\.|\*\*\*|^(?:your|my|the|some|example|placeholder|changeme|redacted|hidden)"
    rb"[_-]?|^(?:none|null|true|false|str|string|optional|required|bytes|secret|password|token|key|value)\b"
    rb"|environ|getenv|getpass|get_token|^(?:self|args|config|settings|options)\.",
    re.IGNORECASE,
)


_ANCHORS = Anchors(anchor for form in _SECRET_FORMS if not form.folded for anchor in form.anchors)
_FOLDED_ANCHORS = Anchors(
    anchor for form in (*_SECRET_FORMS, *_NAMED_SECRETS) if form.folded for anchor in form.anchors
)


def secrets(data: bytes, bare: bool = False) -> Iterator[Found]:
    """Every secret in a text, by its form; `bare`: in bytes that are no text, where short forms occur by chance."""
    folded = b"" if bare else data.lower()
    there = _ANCHORS.present(data) | _FOLDED_ANCHORS.present(folded)
    for form in _SECRET_FORMS:
        for match in _matches(form, data, folded, there):
            if not _same_letter(match[0]):
                yield _secret_found(form, match.span())
    for form in () if bare else _NAMED_SECRETS:
        for match in _matches(form, data, folded, there):
            secret, quoted = data[slice(*match.span("secret"))], bool(match["quote"])
            if not _PLACEHOLDER.search(secret) and _looks_secret(form, secret, quoted):
                yield _secret_found(form, match.span("secret"))
    for token in own_tokens():
        at = data.find(token)
        if at >= 0:
            yield Found(at, at + len(token), "the token you are logged in with", _WHY)


_WHY = "anyone who reads it can act as its owner"


def _secret_found(form: _SecretForm, span: tuple[int, int]) -> Found:
    return Found(*span, form.what, _WHY)


def _matches(form: _SecretForm, data: bytes, folded: bytes, there: frozenset[bytes]) -> Iterator[re.Match[bytes]]:
    if not there.isdisjoint(form.anchors):
        yield from form.pattern.finditer(folded if form.folded else data)


def _same_letter(secret: bytes) -> bool:
    """hf_xxxxxxxx: a place to fill in."""
    body = secret.rsplit(b"_", 1)[-1].rsplit(b"-", 1)[-1]
    return len(set(body.lower())) <= 1 and body[:1].lower() in (b"x", b".", b"*", b"0")


def _looks_secret(form: _SecretForm, secret: bytes, quoted: bool) -> bool:
    """A value that a person or a machine made up: letters and digits, or a word in quotes; not a name in code."""
    digit, letter = re.search(rb"\d", secret), re.search(rb"[A-Za-z]", secret)
    if form.what in {"a login in an address", "a login of PhysioNet"}:
        return True
    if not quoted and re.fullmatch(rb"[a-z_]+\d?[a-z_]*(?:\(.*)?", secret):  # a name or a call in code
        return form.what == "a password" and b"_" not in secret and b"(" not in secret and bool(digit)
    if form.what == "a password":
        sign = re.search(rb"[^\w.()\[\]-]", secret)
        return bool(quoted or (digit and letter) or sign or secret.isdigit())
    # Long names in code have underscores and no digits; hashes of files are named otherwise.
    return bool(digit and letter and len(set(secret)) >= 8)


def own_tokens() -> tuple[bytes, ...]:
    """The tokens that this computer would log in with; looked for, never shown or kept anywhere else."""
    found = {os.environ.get(name) for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")}
    try:
        from huggingface_hub import get_token

        found.add(get_token())
    except ImportError:
        pass
    return tuple(sorted(token.strip().encode() for token in found if token and len(token.strip()) >= _SHORTEST_TOKEN))


# The main part.

ID, ROWS = "an id of a patient, study or image", "rows of individual patients"
_ID_WHY = "it identifies one person"
# Names that columns of ids go by, compared without case, spaces and signs.
ID_COLUMNS = frozenset(
    column_key(name)
    for name in (
        *(set(SYNONYMS["patient"]) - {"patient", "subject", "pid"}),
        *(set(SYNONYMS["study"]) - {"study", "exam"}),
        "image_id", "dicom_id", "sop_instance_uid", "series_instance_uid", "image_index", "img_id", "patient_ids",
        "subject_ids", "study_ids", "image_ids", "dicom_ids", "note_ids", "prior_note_ids", "hadm_id", "hadm_ids",
        "stay_id", "icustay_id", "transfer_id", "encounter_id", "visit_id", "admission_id", "note_id", "report_id",
        "deid_patient_id", "anon_patient_id", "patientid", "pt_id", "medical_record_number", "accession_no", "empi",
        "ssn", "patient_name", "date_of_birth", "dob", "birth_date", "patient_number", "patient_no",
    )
)  # fmt: skip
_WEAK_COLUMNS = frozenset({"patient", "subject", "pid", "study"})  # ids only when their values look like ids
_PEOPLE_COLUMNS = {
    **{column_key(name): role for role in ("age", "sex", "race") for name in SYNONYMS[role]},
    "dateofdeath": "age",
}
_COUNT_COLUMNS = frozenset({"n", "npatients", "nimages", "count", "counts", "npos", "total", "support", "value"})


class _Form(NamedTuple):
    anchors: tuple[bytes, ...]  # one of them is in every match
    # Begins with a sign or letter that is quick to find; what stands before it is looked at from there.
    pattern: re.Pattern[bytes]


_OVER = rb"(?![A-Za-z0-9])"


_FORMS = (
    _Form((b"p1",), re.compile(begin_word(b"p1") + rb"\d{7}" + _OVER)),
    _Form((b"s5",), re.compile(begin_word(b"s5") + rb"\d{7}" + _OVER)),
    _Form((b"-",), re.compile(rb"-(?<=(?<![0-9a-f-])[0-9a-f]{8}-)[0-9a-f]{8}(?:-[0-9a-f]{8}){3}(?![0-9a-f-])")),
    _Form((b"-DS-", b"-RR-", b"-AR-"), re.compile(rb"-(?<=(?<![A-Za-z0-9])1\d{7}-)(?:DS|RR|AR)-\d+" + _OVER)),
    _Form((b"patient",), re.compile(begin_word(b"patient") + rb"\d{5,6}" + _OVER)),
    _Form((b"_",), re.compile(rb"_(?<=(?<![A-Za-z0-9])0\d{7}_)\d{3}" + _OVER)),
    _Form((b"_",), re.compile(rb"_(?<=(?<![A-Za-z0-9])\d{8}_)\d{3}\.(?:png|jpe?g|dcm)")),
    _Form((b"_",), re.compile(rb"_(?<=\d{20}_)\d\d-\d{3}-\d{3}" + _OVER)),
    _Form((b"GRDN",), re.compile(rb"GRDN[A-Z0-9]{8,}" + _OVER)),
    _Form((b"CXR",), re.compile(begin_word(b"CXR") + rb"\d+_(?:\d+_)?IM-\d{4}")),
    _Form((b"1.2.", b"1.3."), re.compile(rb"1\.(?<![\d.]1\.)[23](?!\.840\.10008)(?:\.\d+){4,}")),
    _Form((b"2.25.",), re.compile(rb"2\.25\.(?<![\d.]2\.25\.)\d{16,}")),
)
# `patient_id: 10012345`, `"MRN": "12-3456"`, `Accession no. 123456`. A value has four digits at the least: `image_id=3`
# is a place in a list. One pattern a name: each is found by its first letters.
_ID_ENDING = rb"[ _-]?(?:id|uid|number|no|identifier)s?"
_NAMED = tuple(
    (
        name,
        re.compile(
            name
            + rb"(?<![a-z0-9]"
            + name
            + rb")"
            + ending
            + rb"\b[\"'`*]{0,4}\.?(?:\s{0,3}[:=#]\s{0,3}|\sis\s|\s{1,3})"
            rb"[\"'`*\[({]{0,4}(?P<value>[a-z0-9][a-z0-9._/-]{3,})"
        ),
    )
    for ending, names in (
        (_ID_ENDING, b"patient subject study image dicom hadm stay icustay encounter admission note report person pt"),
        (_ID_ENDING, b"study_instance sop_instance series_instance deid_patient record"),
        (rb"", b"mrn ssn"),
        (rb"(?:" + _ID_ENDING + rb")?", b"accession"),
    )
    for name in names.split()
)
# `patient 10012345`, `Subject #123456`: a noun and a number that counts nothing. MIMIC's patients have eight digits:
# such a number alone on its line or in quotes is taken for one.
_NOUN = re.compile(rb"\b(?:patient|subject|study|pt)\b[ #:=]{1,3}(?P<value>\d{6,})\b(?![,.]\d)")
_ALONE = re.compile(rb"(?m)(?:^[ \t>*#-]*|[\"'`])(?P<value>1\d{7})(?:[ \t]*\r?$|[\"'`])")
_BIRTH = re.compile(
    rb"\b(?:dob|date of birth|birth ?date|born on)\b\W{0,5}(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|[a-z]+ \d{1,2},? \d{4})"
)


def ids(data: bytes, *, prose: bool = True) -> Iterator[Found]:
    """Ids in a text, by their form or by the name they stand under; `prose`: not the numbers of a table."""
    for form in _FORMS:
        if any(anchor in data for anchor in form.anchors):
            for match in form.pattern.finditer(data):
                yield Found(*match.span(), ID, _ID_WHY)
    folded = data.lower()
    for name, pattern in _NAMED:
        if name in folded:
            for match in pattern.finditer(folded):
                if _has_digits(match["value"], 4):
                    yield Found(*match.span("value"), ID, _ID_WHY)
    for pattern in (_NOUN, _ALONE) if prose else ():
        for match in pattern.finditer(folded):
            yield Found(*match.span("value"), ID, _ID_WHY)
    if b"birth" in folded or b"dob" in folded or b"born" in folded:
        for match in _BIRTH.finditer(folded):
            yield Found(*match.span(), "a date of birth", _ID_WHY)


def _has_digits(value: bytes, least: int) -> bool:
    return sum(48 <= byte <= 57 for byte in value) >= least


_column_key = functools.lru_cache(10_000)(column_key)  # rows of JSON have the same names again and again


def is_id_column(name: str) -> bool:
    """Whether a column of this name holds ids of single patients, studies, images or notes."""
    return _column_key(name) in ID_COLUMNS


def why_rows(columns: Sequence[str]) -> str | None:
    """Why a table with these columns has rows of single patients, or None."""
    named = [name for name in columns if is_id_column(name)]
    if named:
        return f'column "{named[0]}" identifies individual patients, studies, images or notes'
    keys = {column_key(name) for name in columns}
    people = {_PEOPLE_COLUMNS[key] for key in keys if key in _PEOPLE_COLUMNS}
    if len(people) > 1 and not keys & _COUNT_COLUMNS:
        return f"its rows have {' and '.join(sorted(people))} but no count, so they are individual people"
    return None


def rows_in(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Rows of patients in what JSON or YAML hold: (where, why)."""
    if isinstance(value, Mapping):
        for name, held in value.items():
            here = f"{where}.{name}" if where else f"{name}"
            if is_id_column(str(name)) and _holds_ids(held):
                yield here, f'"{name}" identifies individual patients, studies, images or notes'
            elif _column_key(str(name)) in _WEAK_COLUMNS and _holds_ids(held, 4):
                yield here, f'the values of "{name}" look like ids'
            elif isinstance(held, dict | list):
                yield from rows_in(held, here)
        columns = {str(name): held for name, held in value.items() if isinstance(held, list) and len(held) > 1}
        why = why_rows(list(columns)) if columns else None
        if why and not any(is_id_column(name) for name in columns):
            yield where or "top", why
    elif isinstance(value, list):
        rows = [row for row in value if isinstance(row, Mapping)]
        if len(rows) > 1 and (why := _why_people(rows)):
            yield where or "top", why
        elif table := _why_grid(value):
            yield where or "top", table
        for at, held in enumerate(value):
            if isinstance(held, Mapping | list):
                yield from rows_in(held, f"{where}[{at}]")


def _why_people(rows: list[Mapping[Any, Any]]) -> str | None:
    """Objects in a list that have no ids, but are people."""
    columns = [str(name) for name, held in rows[0].items() if isinstance(held, str | int | float)]
    why = why_rows(columns)
    return why if why and not any(is_id_column(name) for name in columns) else None


def _why_grid(value: list[Any]) -> str | None:
    """A list of lists whose first line is a header, as a CSV file in JSON."""
    if len(value) < 2 or not isinstance(value[0], list) or not isinstance(value[1], list):
        return None
    header = value[0]
    if not header or not all(isinstance(name, str) for name in header) or len(header) != len(value[1]):
        return None
    return why_rows(header)


def _holds_ids(held: Any, digits: int = 1) -> bool:
    """Whether a value, or a list of them, looks like ids rather than a description, a type or the name of a column."""
    if isinstance(held, list):
        return any(_holds_ids(each, digits) for each in held[:100])
    if isinstance(held, bool) or held is None:
        return False
    if isinstance(held, int):
        return len(str(abs(held))) >= digits
    if isinstance(held, float):
        return held.is_integer()
    text = str(held)
    return isinstance(held, str) and " " not in text.strip() and len(text) <= 80 and _has_digits(text.encode(), digits)


# --- tables written as text ----------------------------------------------------------------------------------------

_HEADER_WORD = re.compile(
    rb"patient|subject|dicom|hadm|image[ _]?i|study[ _]?i|note[ _]?id|mrn|accession|empi\b|ssn\b|birth|dob\b|stay_id"
)
_CODE = re.compile(rb"[()\[\]{}=]")
_LONGEST_LINE = 5_000


def tables_in(data: bytes) -> Iterator[Found]:
    """Tables in a text (CSV, tabs, Markdown) with a column of ids and a row under it that has some."""
    done = 0
    for match in _HEADER_WORD.finditer(data.lower()):
        if match.start() < done:
            continue
        first = data.rfind(b"\n", max(0, match.start() - _LONGEST_LINE), match.start()) + 1
        end = data.find(b"\n", match.start(), match.start() + _LONGEST_LINE)
        if end < 0 or match.start() - first >= _LONGEST_LINE:  # no line follows, or no person wrote this one
            continue
        done = end
        line = data[first:end]
        sign = next((mark for mark in (b"\t", b"|", b",", b";") if mark in line), None)
        header = _cells(line, sign) if sign and not _CODE.search(line) else []
        named = [place for place, name in enumerate(header) if is_id_column(name)]
        if not sign or not named or not all(header):
            continue
        for row in data[end + 1 : end + 1 + 3 * _LONGEST_LINE].split(b"\n")[:3]:
            cells = _cells(row, sign)
            if len(cells) == len(header) and any(_holds_ids(cells[place]) for place in named):
                yield Found(first, end, ROWS, f'column "{header[named[0]]}" identifies individual patients')
                break


def _cells(line: bytes, sign: bytes) -> list[str]:
    text = line.decode("utf-8", "replace").strip()
    text = text.strip("|") if sign == b"|" else text
    return [cell.strip().strip("\"'`*") for cell in text.split(sign.decode())]
