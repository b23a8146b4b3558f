"""Texts of notes -> the same texts cleaned by a named recipe, as encoders and word counts read them.

plain: lower case, nothing else. Negations, punctuation and white space stay.

oberst: what the public code of "Revisiting Performance Claims" does, in its order:
1. every character of Python's `string.punctuation` is deleted, not replaced: "x-ray" becomes "xray", "___" nothing;
2. what white space separates are words; English stop words among them are dropped, capitals mattering, and the rest is
   joined by single spaces: "no effusion" becomes "effusion", but "No effusion" keeps its "No";
3. the header string is deleted wherever it stands. The paper names none ("replacement of repetitive words"). It is what
   steps 1 and 2 leave of the first lines of every discharge note of MIMIC-IV, with the space behind it: names, numbers
   and dates are ___ there. Sex, service and all that follows stay;
4. the character U+0095, a bullet of old Windows texts, is deleted; spaces around it stay;
5. lower case.

The stop words are those of the public code, NLTK's 179 for English: no, nor and not go, without, never and none stay.
Lower case is Python's `str.lower`, Unicode included. 10,000 notes of 10 kB on one core: plain .2 s, oberst 2 s; Arrow
deletes the punctuation, Python does the rest, which was faster than expressions for hundreds of words.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from itertools import filterfalse

import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.config import one_of
from cxrhf.config_context import RECIPES

# Texts cleaned at a time: of all that lies between a text and its cleaned form only so much is ever in memory.
BATCH = 500
HEADER = "Name Unit No Admission Date Discharge Date Date Birth "
BULLET = "\x95"
# NLTK's English list as of 2024, which the public code takes; it is a download there.
STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he him his
    himself she she's her hers herself it it's its itself they them their theirs themselves what which who whom this
    that that'll these those am is are was were be been being have has had having do does did doing a an the and but
    if or because as until while of at by for with about against between into through during before after above
    below to from up down in out on off over under again further then once here there when where why how all any
    both each few more most other some such no nor not only own same so than too very s t can will just don don't
    should should've now d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn
    hasn't haven haven't isn isn't ma mightn mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't wasn
    wasn't weren weren't won won't wouldn wouldn't
    """.split()  # noqa: SIM905 (prose is easier to read and to correct than quoted strings)
)
_PUNCTUATION = f"[{re.escape(string.punctuation)}]+"


def clean(texts: pa.ChunkedArray | pa.Array, recipe: str) -> pa.ChunkedArray:
    """One cleaned text for each text, in order; a missing text becomes an empty one.

    >>> clean(pa.array(["No pneumothorax; no effusion.", None]), "oberst").to_pylist()
    ['no pneumothorax effusion', '']
    """
    one_of("recipe", recipe, RECIPES)
    cleaned = lowered if recipe == "plain" else _without_stop_words()
    return pa.chunked_array([cleaned(batch) for batch in batches(texts)], type=pa.string())


def batches(texts: pa.ChunkedArray | pa.Array, size: int = BATCH) -> Iterator[pa.Array]:
    """A few texts at a time, as one array of strings without nulls."""
    for start in range(0, len(texts), size):
        batch = texts.slice(start, size)
        whole = batch.combine_chunks() if isinstance(batch, pa.ChunkedArray) else batch
        yield whole.cast(pa.string()).fill_null("")


def lowered(texts: pa.Array) -> pa.Array:
    """Lower case as Python has it; Arrow's differs for a few letters (a capital sigma at a word's end, a dotted I)."""
    if pc.all(pc.string_is_ascii(texts)).as_py():
        return pc.ascii_lower(texts)
    return pa.array([text.lower() for text in texts.to_pylist()], pa.string())


def _without_stop_words() -> Callable[[pa.Array], pa.Array]:
    def rest(text: str) -> str:
        kept = " ".join(filterfalse(STOP_WORDS.__contains__, text.split()))
        return kept.replace(HEADER, "").replace(BULLET, "").lower()

    def cleaned(texts: pa.Array) -> pa.Array:
        bare = pc.replace_substring_regex(texts, pattern=_PUNCTUATION, replacement="")
        return pa.array([rest(text) for text in bare.to_pylist()], pa.string())

    return cleaned
