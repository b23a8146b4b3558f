"""A crowd that several tests of the twin's models look at, made once."""

from __future__ import annotations

import pytest

from cxrhf.data.synthetic.people import people
from cxrhf.data.synthetic.writing import default_ids


@pytest.fixture(scope="session")
def crowd():
    return people(20_000, seed=5)


@pytest.fixture(scope="session")
def ids(crowd):
    """One image a patient, so that rows are independent and textbook standard errors hold."""
    return default_ids(crowd).unique("patient_id", keep="first", maintain_order=True)
