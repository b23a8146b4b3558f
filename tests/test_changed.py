"""Which tests a change asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.changed import QUICK, RULES, choose


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "tests/test_schema.py": "",
        "tests/test_findings.py": "",
        "tests/test_config.py": "",
        RULES: "",
        "tests/metrics/test_ranking.py": "",
        "tests/metrics/test_language.py": "from cxrhf.metrics.language import WORDS\n",
        "tests/cli/test_cli.py": "",
        "tests/cli/test_audit.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "tests"),
    [
        (["cxrhf/schema.py"], ["tests/test_schema.py", RULES]),
        (["cxrhf/metrics/ranking.py"], ["tests/metrics/test_ranking.py", RULES]),
        (["cxrhf/metrics/language.py"], ["tests/metrics/test_language.py", RULES]),
        (["cxrhf/metrics/unheard_of.py"], [RULES]),
        (["cxrhf/cli/__init__.py"], ["tests/cli/test_cli.py", RULES]),
        (["cxrhf/cli/audit.py"], ["tests/cli/test_audit.py", RULES]),
        (["cxrhf/__init__.py"], [RULES]),
        (["tests/cli/test_audit.py", "cxrhf/cli/audit.py"], ["tests/cli/test_audit.py", RULES]),
        (["tests/test_gone.py", "README.md"], list(QUICK)),
        ([], list(QUICK)),
    ],
)
def test_choice(project: Path, paths: list[str], tests: list[str]) -> None:
    assert choose(paths, project) == tests


def test_here() -> None:
    assert choose(["cxrhf/tables/predictions.py"]) == ["tests/tables/test_predictions.py", RULES]
