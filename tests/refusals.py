"""A call that must be refused -> its error, checked by kind and by the facts it names, never by its wording.

with refused(TableError, "label", "row 17", got="maybe"):
    load_predictions(path)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cxrhf.errors import CxrhfError


class Refusal:
    """What `refused` hands out; `error` is there once the block has ended."""

    error: CxrhfError


@contextmanager
def refused(kind: type[CxrhfError], *facts: str, got: str | None = None, fix: str | None = None) -> Iterator[Refusal]:
    """Expect an error of this kind that names `facts` (a file, a column, a row, a flag, a choice).

    `got` stands in what it found, `fix` in what it says to do.
    """
    refusal = Refusal()
    try:
        yield refusal
    except kind as error:
        refusal.error = error
    else:
        raise AssertionError(f"no {kind.__name__}")
    check_refusal(refusal.error, *facts, got=got, fix=fix)


def check_refusal(error: CxrhfError, *facts: str, got: str | None = None, fix: str | None = None) -> None:
    fields = (error.what, error.got, error.allowed, error.next_step)
    for fact in facts:
        assert any(fact in (field or "") for field in fields), f"{fact!r} is in no field of {fields}"
    assert got is None or got in (error.got or ""), error.got
    assert fix is None or fix in (error.next_step or ""), error.next_step
