"""The loopback Hub, for all tests of what is published."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hub.loopback import LoopbackHub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A fresh, empty Hub; clients of this process are told that it has no Xet, and forget the token of this machine."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with LoopbackHub() as running:
        yield running
