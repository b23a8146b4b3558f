"""Small random models, made once; no test touches the user's cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cxrhf.encode import notes as reading
from tests.encode.tiny import save_tiny

KINDS = ("bert", "roberta", "mistral")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: save_tiny(kind, tmp_path_factory.mktemp("models") / kind) for kind in KINDS}


@pytest.fixture(scope="session")
def bert(tiny: dict[str, Path]) -> str:
    return str(tiny["bert"])


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # several tests run at once


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CXRHF_CACHE", str(tmp_path / "notes"))
    return tmp_path / "notes"


class Passes(list[Any]):
    """The batches that the model read: shape of each."""


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    seen = Passes()
    real: Callable[..., Any] = reading.forward

    def counted(model: Any, encoder: Any, ids: Any, *rest: Any) -> Any:
        seen.append(ids.shape)
        return real(model, encoder, ids, *rest)

    monkeypatch.setattr(reading, "forward", counted)
    return seen
