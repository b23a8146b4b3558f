"""Items made ahead: same order, errors passed on, a thread that ends when the caller does."""

from __future__ import annotations

import threading

import pytest

from cxrhf.data.notes import read_ahead


def test_same_items_in_order():
    assert list(read_ahead(range(1000))) == list(range(1000))
    assert list(read_ahead([])) == []


def test_errors_are_passed_on():
    def broken():
        yield 1
        raise KeyError("gone")

    got = read_ahead(broken())
    assert next(got) == 1
    with pytest.raises(KeyError, match="gone"):
        next(got)


def test_a_caller_that_stops_stops_the_thread():
    before = threading.active_count()
    made = []

    def endless():
        while True:
            made.append(1)
            yield 1

    got = read_ahead(endless())
    next(got)
    got.close()
    assert threading.active_count() == before
    assert len(made) < 10
