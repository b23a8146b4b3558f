"""The fixed stop list of the word metrics: English function words that say nothing about a chest.

Left out of the list on purpose, so that they stay words:
- negations (no, not, without, nor, never, none, neither, cannot): they carry the finding;
- places (left, right, above, below, over, under, between, behind, within, near, along): they carry the location;
- words that name a person's sex (male, woman, ...): a report that names the sex is a finding of the audit.
Single letters are in it: they are left over from "x-ray", "T-spine", list marks and measures ("2 x 3 cm").
"""

from __future__ import annotations

STOP_WORDS: frozenset[str] = frozenset(
    """
    a b c d e f g h i j k l m n o p q r s t u v w x y z
    an the this that these those such same other another each every either both all any some most more much many few
    less least own several enough
    and or but if then than so because since while whereas although though unless until whether as
    of in on at to for from by with into onto upon toward towards through during via per about against among
    amongst beside besides except
    he she it they we you me him her them us his hers its their theirs our ours your yours my mine
    himself herself itself themselves ourselves yourself myself who whom whose which what when where why how there here
    is are was were be been being am has have had having do does did doing done
    can could may might must shall should will would ought
    also again too very just only even still yet already once ever often however therefore thus hence otherwise
    rather quite almost else etc please
    """.split()  # noqa: SIM905 (prose is easier to read and to correct than 200 quoted strings)
)
