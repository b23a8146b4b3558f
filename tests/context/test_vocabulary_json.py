"""A saved vocabulary that is damaged or something else is refused, without a word of it in the message."""

from __future__ import annotations

import copy

import pytest

from cxrhf.context.vocabulary import vocabulary_from_json
from cxrhf.errors import RunError

GOOD = {"style": "default", "recipe": "plain", "words": ["edema", "no"], "weights": [1.5, 1], "n_patients": [5, 9]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"style": "other"}, "its style is not known"),
        ({"style": ["default"]}, "its style is not known"),
        ({"recipe": "soup"}, "its recipe is not known"),
        ({"recipe": None}, "its recipe is not known"),
        ({"words": "edema"}, "is not a list"),
        ({"weights": {"edema": 1}}, "is not a list"),
        ({"words": ["edema"]}, "1 words, 2 weights, 2 numbers of patients"),
        ({"n_patients": []}, "2 words, 2 weights, 0 numbers of patients"),
        ({"words": ["edema", 3]}, "entry 2 of words is wrong"),
        ({"words": ["", "no"]}, "entry 1 of words is wrong"),
        ({"words": ["edema", "\ud800"]}, "entry 2 of words is wrong"),
        ({"words": ["no", "no"]}, "word 2 does not follow"),
        ({"words": ["no", "edema"]}, "word 2 does not follow"),
        ({"weights": [1.5, "1"]}, "entry 2 of weights is wrong"),
        ({"weights": [float("nan"), 1]}, "entry 1 of weights is wrong"),
        ({"weights": [1.5, float("inf")]}, "entry 2 of weights is wrong"),
        ({"weights": [0, 1]}, "entry 1 of weights is wrong"),
        ({"weights": [10**400, 1]}, "entry 1 of weights is wrong"),
        ({"weights": [True, 1]}, "entry 1 of weights is wrong"),
        ({"n_patients": [5, 9.5]}, "entry 2 of n_patients is wrong"),
        ({"n_patients": [5, None]}, "entry 2 of n_patients is wrong"),
        ({"n_patients": [5, 0]}, "entry 2 of n_patients is wrong"),
        ({"n_patients": [5, 10**30]}, "entry 2 of n_patients is wrong"),
        ({"extra": 1}, "it has other entries"),
    ],
)
def test_json_that_was_tampered_with(change, message):
    assert vocabulary_from_json(copy.deepcopy(GOOD)).words == ("edema", "no")
    with pytest.raises(RunError, match=message) as caught:
        vocabulary_from_json({**GOOD, **change})
    assert "edema" not in str(caught.value)
    assert "cxrhf context fit" in str(caught.value)


@pytest.mark.parametrize("saved", [None, [], "words", 3, {}, {"words": []}])
def test_json_that_is_something_else(saved):
    with pytest.raises(RunError, match="it has other entries"):
        vocabulary_from_json(saved)
