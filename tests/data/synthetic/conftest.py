"""Crowds that several files of tests look at, made once."""

from __future__ import annotations

import pytest

from cxrhf.twin.models import default_ids
from cxrhf.twin.people import people


@pytest.fixture(scope="session")
def crowd():
    """Of the tests of simulated models."""
    return people(20_000, seed=5)


@pytest.fixture(scope="session")
def town():
    """Of the tests of people, what their pictures show and what their reports say."""
    return people(20_000, seed=3)


@pytest.fixture(scope="session")
def ids(crowd):
    """One image a patient, so that rows are independent and textbook standard errors hold."""
    return default_ids(crowd).unique("patient_id", keep="first", maintain_order=True)
