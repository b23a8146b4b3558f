"""One page with all audits of representations, of data that may be shown and of data that may not."""

from __future__ import annotations

from typing import Any

import pytest

from cxrhf.report import page_html
from tests.report import made_representations as made_up_rows
from tests.report.made import RECORD, Rows


@pytest.fixture(scope="module")
def rows() -> Rows:
    return made_up_rows.whole()


@pytest.fixture(scope="module")
def points() -> list[dict[str, Any]]:
    return made_up_rows.points(400)


@pytest.fixture(scope="module")
def shown(rows: Rows, points: list[dict[str, Any]]) -> str:
    return page_html(rows.rows, rows.curves, made_up_rows.SHOWN, points, made_up_rows.gallery("pneumothorax"))


@pytest.fixture(scope="module")
def closed(rows: Rows, points: list[dict[str, Any]]) -> str:
    return page_html(rows.rows, rows.curves, RECORD, points, made_up_rows.gallery("pneumothorax"))
