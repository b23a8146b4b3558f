"""JSON files: an object, or an error that says which file and what to do."""

from __future__ import annotations

from pathlib import Path

from cxrhf.errors import RunError, TableError
from cxrhf.tables.files import finite, read_object
from tests.refusals import refused


def test_an_object_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with refused(RunError, "run.json", fix="make it"):
        read_object(path, next_step="make it")
    for content in (b"{", b"[]", b"", b"\xff", b"1"):
        path.write_bytes(content)
        with refused(TableError, "run.json is damaged"):
            read_object(path, next_step="make it", error=TableError)
    path.write_text('{"a": "ü"}', encoding="utf-8")
    assert read_object(path, next_step="make it") == {"a": "ü"}


def test_what_json_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"a": [NaN, -Infinity, 1e999, 1.5]}')
    assert read_object(path, next_step="make it") == {"a": [None, None, None, 1.5]}
    assert finite({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}
    deep = '{"a":' * 60 + "1" + "}" * 60
    for content in (
        deep,
        '{"a":' * 100_000,
        "[" * 100_000,
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"a": ' + "9" * 5000 + "}",
    ):
        path.write_text(content)
        with refused(RunError, "run.json is damaged"):
            read_object(path, next_step="make it")
    path.write_text('{"a": "\\ud83d\\ude00"}')
    assert read_object(path, next_step="make it") == {"a": "\N{GRINNING FACE}"}
