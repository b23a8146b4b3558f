"""Lines of progress: shares and speeds that agree with each other while blocks are under way."""

from __future__ import annotations

import pytest

from cxrhf.encode import processes as progress
from cxrhf.encode.processes import Clock


def test_speed_does_not_jump_when_a_block_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    said: list[str] = []
    clock = Clock("minilm", 100, 1000, said.append)
    for step in range(10):  # 10 notes a second; blocks of 50 notes
        now[0] += 4.0
        clock.advance(100.0)
        if step in (4, 9):
            clock.advance(0.0, notes=50)
    assert said[0] == "minilm: 10% of 100 notes, 2.5 notes/s, 36 s left"
    assert {line.split(", ")[1] for line in said} == {"2.5 notes/s"}
    assert said[-1] == "minilm: 100% of 100 notes, 2.5 notes/s, 0 s left"
