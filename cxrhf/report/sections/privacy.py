"""The parts of a page -> a sentence that says what of patients it holds."""

from __future__ import annotations

from collections.abc import Iterable

from cxrhf.report.blocks import Block, Gallery, Map, Words
from cxrhf.report.maps import LEAST
from cxrhf.report.numbers import listed


def privacy_words(blocks: Iterable[Block], some_words: bool, reports: bool = False, may_show: bool = False) -> str:
    """What the foot of the page says: true of this page, whatever is in it.

    `reports`: it is of generated reports; where they may be shown it has the text of the most frequent ones.
    """
    found = list(blocks)
    thumbnails = sum(block.n for block in found if isinstance(block, Gallery))
    maps = [block for block in found if isinstance(block, Map)]
    single = sum(block.n for block in maps if not block.one_at_a_time)
    words_shown = [block for block in found if isinstance(block, Words)]
    everything = reports and may_show
    lacks = [] if everything else ["no whole report"] if reports else ["no text"]
    lacks = lacks if thumbnails else ["no image", *lacks, "no id"]
    has = []
    if thumbnails:
        has.append(f"{thumbnails:,} thumbnails of images with their ids, for labelling sheets")
    if single:
        has.append(f"the positions of {single:,} patients in maps, with disease, sex, race and age band but no id")
    if any(block.one_at_a_time for block in maps):
        has.append(f"counts of patients in map cells, each of at least {LEAST}")
    if words_shown:
        few = "" if everything else ", each of at least five patients"
        has.append(f"single words of reports{few}")
    has += ["the most frequently generated reports"] if everything else []
    words = f"This page holds {listed(lacks) or 'nothing more'} of any patient"
    words += " (single words of notes, if at least five patients have them)" if some_words else ""
    words += f"; it holds {listed(has)}" if has else ""
    may = " Its data may be shown; anyone with the page has these too."
    may = may if thumbnails or single or everything else ""
    return f"{words}. It loads nothing from the network.{may}"
