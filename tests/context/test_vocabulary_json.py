"""A saved vocabulary that is damaged or something else is refused, without a word of it in the message."""

from __future__ import annotations

import copy

import pytest

from cxrhf.context.families import vocabulary_from_json
from cxrhf.errors import RunError
from tests.refusals import refused

GOOD = {"style": "default", "recipe": "plain", "words": ["edema", "no"], "weights": [1.5, 1], "n_patients": [5, 9]}


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"style": "other"}, "its style"),
        ({"style": ["default"]}, "its style"),
        ({"recipe": "soup"}, "its recipe"),
        ({"recipe": None}, "its recipe"),
        ({"words": "edema"}, "three lists"),
        ({"weights": {"edema": 1}}, "three lists"),
        ({"words": ["edema"]}, "1 words, 2 weights and 2 numbers of patients"),
        ({"n_patients": []}, "2 words, 2 weights and 0 numbers of patients"),
        ({"words": ["edema", 3]}, "entry 2 of words"),
        ({"words": ["", "no"]}, "entry 1 of words"),
        ({"words": ["edema", "\ud800"]}, "entry 2 of words"),
        ({"words": ["no", "no"]}, "(word 2)"),
        ({"words": ["no", "edema"]}, "(word 2)"),
        ({"weights": [1.5, "1"]}, "entry 2 of weights"),
        ({"weights": [float("nan"), 1]}, "entry 1 of weights"),
        ({"weights": [1.5, float("inf")]}, "entry 2 of weights"),
        ({"weights": [0, 1]}, "entry 1 of weights"),
        ({"weights": [10**400, 1]}, "entry 1 of weights"),
        ({"weights": [True, 1]}, "entry 1 of weights"),
        ({"n_patients": [5, 9.5]}, "entry 2 of n_patients"),
        ({"n_patients": [5, None]}, "entry 2 of n_patients"),
        ({"n_patients": [5, 0]}, "entry 2 of n_patients"),
        ({"n_patients": [5, 10**30]}, "entry 2 of n_patients"),
        ({"extra": 1}, "its entries"),
    ],
)
def test_json_that_was_tampered_with(change, fact):
    assert vocabulary_from_json(copy.deepcopy(GOOD)).words == ("edema", "no")
    with refused(RunError, fact, fix="cxrhf context fit") as refusal:
        vocabulary_from_json({**GOOD, **change})
    assert "edema" not in str(refusal.error)


@pytest.mark.parametrize("saved", [None, [], "words", 3, {}, {"words": []}])
def test_json_that_is_something_else(saved):
    with refused(RunError, "its entries"):
        vocabulary_from_json(saved)
