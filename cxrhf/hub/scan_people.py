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
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cxrhf.hub.scan_secrets import Found, begin
from cxrhf.tables.columns import SYNONYMS, column_key

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
    _Form((b"p1",), re.compile(begin(b"p1") + rb"\d{7}" + _OVER)),
    _Form((b"s5",), re.compile(begin(b"s5") + rb"\d{7}" + _OVER)),
    _Form((b"-",), re.compile(rb"-(?<=(?<![0-9a-f-])[0-9a-f]{8}-)[0-9a-f]{8}(?:-[0-9a-f]{8}){3}(?![0-9a-f-])")),
    _Form((b"-DS-", b"-RR-", b"-AR-"), re.compile(rb"-(?<=(?<![A-Za-z0-9])1\d{7}-)(?:DS|RR|AR)-\d+" + _OVER)),
    _Form((b"patient",), re.compile(begin(b"patient") + rb"\d{5,6}" + _OVER)),
    _Form((b"_",), re.compile(rb"_(?<=(?<![A-Za-z0-9])0\d{7}_)\d{3}" + _OVER)),
    _Form((b"_",), re.compile(rb"_(?<=(?<![A-Za-z0-9])\d{8}_)\d{3}\.(?:png|jpe?g|dcm)")),
    _Form((b"_",), re.compile(rb"_(?<=\d{20}_)\d\d-\d{3}-\d{3}" + _OVER)),
    _Form((b"GRDN",), re.compile(rb"GRDN[A-Z0-9]{8,}" + _OVER)),
    _Form((b"CXR",), re.compile(begin(b"CXR") + rb"\d+_(?:\d+_)?IM-\d{4}")),
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


_key = functools.lru_cache(10_000)(column_key)  # rows of JSON have the same names again and again


def is_id_column(name: str) -> bool:
    """Whether a column of this name holds ids of single patients, studies, images or notes."""
    return _key(name) in ID_COLUMNS


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
            elif _key(str(name)) in _WEAK_COLUMNS and _holds_ids(held, 4):
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
