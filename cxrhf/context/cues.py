"""Words of clinical English -> the expressions by which `negation` tells what a note denies.

Own lists, for lower-cased text; with one space between words but for ANY, STOP, GOES_ON and HEADING, which see the
text as it stands.
"""

from __future__ import annotations

import re

_BE = "is|are|was|were"
_SEEN = (
    "seen|present|identified|evident|visuali[sz]ed|noted|found|demonstrated|detected|appreciated|observed|suspected|"
    "apparent|shown|diagnosed|required|needed|placed|inserted|indicated"
)
_SHOWED = "shows|showed|reveals|revealed|demonstrates"
_CHANGE = (
    "changes?|increase|decrease|improvement|worsening|progression|reduction|difference|growth|expansion|resolution|"
    "clearing|re-?accumulation|recurrences?|complications?"
)

# A word that any rule needs: most mentions have none near, and nothing more is asked about them.
ANY = re.compile(
    r"\b(?:no|not|without|w/o|den(?:y|ies|ied|ying)|neg|negative|absen(?:t|ce)|lack(?:s|ed|ing)?|free|clear|r/o|"
    r"ruled?|rules|ruling|exclud(?:e|es|ed)|neither|nor|none|nothing|never|cannot|rather|unremarkable|normal|wnl|"
    r"fail(?:s|ed)?|nil)\b|n['\u2019]t\b|\(-\)|[:=?-]\s*n\b"
)

# Where a sentence or an item ends, looked for at MARKS. A dot ends none after one letter (q.d., J. Smith) or a title,
# nor inside a number.
MARKS = re.compile(r"[\n;!?|+\u2022*#>\u2013\u2014.)-]")
STOP = re.compile(
    r"\n[ \t\r]*\n|[;!?|+\u2022]|(?<!\S)[-*#>\u2013\u2014]+(?=[\s\w]|$)|(?<=\d)[.)](?=\s)|\.(?=\.)"
    r"|(?<!\b[a-z])(?<!\b(?:dr|mr|ms|st|vs|pt|hx|wt|rt|lt))(?<!\b(?:mrs|neg|pos|ext|abd))(?<!\b(?:temp|poss|prob))"
    r"(?<!\bapprox)\.(?=[\s\"')\]_]|$)|(?<=[a-z]{3})\.(?=[a-z]{2})"
)
DASHES = ("-", "\u2013", "\u2014", "?")  # stops that may lead to an answer: "effusion - none"
# A line that ends in one of these goes on in the next, however short it is.
GOES_ON = re.compile(r"(?:[,/]|\b(?:no|not|nor|or|and|of|for|with|without|denies|any|the|a|an|to|in|is|are|was))$")
HEADING = re.compile(r"[ \t]*(?:[^\s:.;,]{1,30}[ \t]+){0,3}?[^\s:.;,]{0,30}:")

# A colon ends a heading, unless a negation leads over it ("negative for: ").
COLON = re.compile(r":(?!\d)")
LED = re.compile(
    r"\b(no|not|without|den(?:y|ies|ied|ying)|for|of|out|r/o|excludes?|excluded|neg|negative|show|reveal|have) ?:"
)
FOLLOWING = re.compile(r"\b(?:any of )?(?:the )?(?:following|including)(?: \w+)? ?:")

# Detours that stay inside a clause, with what stands for them.
DETOURS = (
    (
        re.compile(
            rf"(?: (?:{_BE}))?(?: (?:{_SEEN}))? (?:to|that|which)(?: \w+)? "
            r"(?:suggest|indicate|represent|explain)s?\b"
        ),
        " of",
    ),
    (
        re.compile(
            r"\b(?:think|thought|believed?|feel|felt)(?: that)?(?: (?:this|it|s?he|there|these|patient|pt))?"
            r" (?:is|was|were|had|to be|to have)\b"
        ),
        "felt",
    ),
    (re.compile(rf"\b(nor|none of)(?: [\w-]+){{1,3}} (?:{_SHOWED}|demonstrated)\b"), r"\1"),
)

# After a comma or "and", the beginning of another statement; not where an "or" shows that the list goes on.
_OTHER_CLAUSE = (
    "the|there|he|she|it|they|we|this|these|his|her|patient|pt|a|an|now|is|are|was|also|again|some|mild|mildly|minimal|"
    "moderate|small|trace|tiny|slight|stable|unchanged|persistent|persisting|known|residual|improving|improved|"
    "worsening|worsened|resolving|chronic|old|prior|previous|positive"
)
# What ends the reach of a negation on its way to the mention.
END = re.compile(
    r"\b(?:but|however|except(?:ing)?|although|though|yet|whereas|while|despite|nevertheless|still|only|instead|then|"
    r"until|because|since|given|after|before|besides|apart from|aside from|other than|in spite of|"
    r"in (?:the )?setting of|s/p|status post|prior to|which|who|where|when|if|so|therefore|"
    r"likely|probabl[ey]|possibl[ey]|presumed|presumably|"
    rf"{_SHOWED}|developed|remains?|remained|presents|presented|presenting|admitted|treated|received|underwent|"
    r"started|suggests|suggested|represents|indicates|confirmed|knew|allerg(?:y|ies)|candidate|positive for)\b"
    r"|(?<!not )\b(?:found|showing|revealing|demonstrating|due to|secondary to)\b"
    r"|(?<!free )(?<!away )\bfrom\b|(?<!the )\bfollowing\b|\bon(?: the| her| his)?(?: \w+)?$"
    r"|(?<!consistent )(?<!compatible )(?<!associated )(?<!diagnosed )(?<!not )\bwith\b"
    r"|(?<!nor )(?<!neither )(?<!not )\b(?:is|are|was|were|will|would|should|may|might|could)\b"
    r"|(?<!never )(?<!not )(?<!ever )(?<!to )(?<!nor )(?<!she )(?<!\bhe )(?<!they )\b(?:has|had|have)\b(?! been)"
    # a remedy for it: "no lasix for edema"; not "no evidence for edema"
    r"|\b(?!(?:evidence|neg|negative|concern|concerning|suspicion|suspicious|out|remarkable|unremarkable|need|signs?|"
    r"indication|criteria|findings|specific|worrisome|work-?up)\b)[\w.]+ for(?: (?:her|his|the|known|acute|chronic))*$"
    rf"|\b(?:{_SEEN})(?=,| and\b| in\b| on\b)"
    rf"|(?:,| and)(?: and)? (?:{_OTHER_CLAUSE})\b(?!.*\b(?:or|nor)\b)"
    # looks like a negation and is none
    rf"|\b(?:no|not|without)(?: [\w-]+){{0,3}} (?:{_CHANGE})(?: in| of| to| from)?\b"
    r"|\b(?:not only|not just|not necessarily|no longer|no more|no doubt|no question|no contraindications? to)\b"
    r"|\bwithout (?:difficult(?:y|ies)|incident|issues?|events?|problems?|trouble)\b"
    r"|\b(?:cannot|not|no evidence to|unable to|difficult to|hard to|impossible to|without)(?: \w+){0,2}"
    r" (?:r/o|rule[sd]?[ -]out|ruling out|exclud(?:e|ed|ing))\b"
)
# Negations of what comes after them.
BEFORE = re.compile(
    r"\b(?:no|without|w/o|den(?:y|ies|ied|ying)|neg(?:ative|\.)?(?: \w+)? for|absence of|absent|"
    r"lack(?:s|ed|ing)?(?: of)?|(?:free|clear) (?:of|from)|r/o|rules?[ -]out|ruling out|ruled out for|excludes?|"
    r"neither|nor|none of|rather than|unremarkable for|nothing (?:of|suggestive|concerning|consistent)|"
    r"fail(?:s|ed)? to (?:show|reveal|demonstrate|identify|find))(?!\w)"
    r"|\(-\)"
    r"|(?<!was )(?<!were )(?<!been )\b(?:ruled out|excluded)\b(?!,| and\b| by\b| on\b| via\b)"
    # "not" and a verb of finding reach as far as "no"; "not" alone only the next words: "did not tolerate chest tube"
    r"|\b(?:not|never)(?: \w+){0,2}? (?:have|had|having|has|show|showed|shown|showing|reveal|demonstrate|see|suggest|"
    r"suggestive|develop|developed|represent|identify|visuali[sz]e|find|indicate|indicative|consistent|compatible|"
    r"concerning|suspicious|remarkable|evidence|due|secondary|appear|diagnosed|experience|report|endorse|detect|need|"
    r"require|place|insert|implant|any)\b"
    r"|\b(?:not|never)(?: (?:a|an|any|in|with|been|be|of|yet|to|acute|acutely|overt|frank|decompensated|active|grossly|"
    r"currently|really|truly|clear|clearly|definite|definitely|obvious|obviously|significant|felt|thought))*$"
)
CLOSED = re.compile(r"\([^()]*\)")
# "No fever, pneumonia was treated": after a comma, with a verb of its own, a mention begins a clause of its own.
LAST_ITEM = re.compile(r",(?!.*\b(?:or|nor|and)\b)[^,]*$")
OWN_CLAUSE = re.compile(
    rf"^(?: \w+){{0,2}} (?:{_BE}|has|had|have|remains?|remained|felt|thought|treated|improved|worsened|persists?|"
    rf"persisted)\b(?! (?:not )?(?:{_SEEN}))"
)

# Negations of what comes before them, over the rest of its list (`gap`) if GAP_STOP is not in it.
_GAP = r"(?P<gap>(?:[ ,/()]+[\w'-]+){0,8}?)"
GAP_STOP = re.compile(
    rf"\b(?:{_BE}|be|been|not|no|nor|cannot|can|could|may|might|has|have|had|to|without|with|but|however|although|"
    r"though|except|which|that|who|did|does|do|due|after|since|while|because|showed?|shows|likely|possibly|probably)\b"
)
AFTER = re.compile(
    rf"^{_GAP}(?:,? (?:which|that))?,? \(?(?:(?:{_BE}|has been|have been|had been) )?(?:"
    r"(?:(?:now|also|then|subsequently|later|since|effectively|definitively|already) )*(?:ruled out|excluded)"
    r"|(?:not|never) (?:(?:been|be|currently|definitely|readily|grossly|otherwise|felt to be|thought to be) )*"
    rf"(?:{_SEEN})(?! (?:on|in) (?:the |her |his )?(?:prior|previous|earlier|last|past)| before| previously)"
    r"|(?:did|do|does|has|have|had) not (?:develop|occur|appear)(?:ed|red)?"
    r"|absent|(?:(?<=is )|(?<=are )|(?<=was )|(?<=were )|(?<=been ))negative)\b"
)
ANSWER = re.compile(
    r"^[\w ]{0,20} ?(?:[:=?-]|\.\.+) ?(?:none|no|nil|absent|neg(?:ative)?|denie[sd]|not (?:seen|present)|n)(?=$|[.,;)])"
    r"|^ ?\(-\)|^-free\b"
)

# What negates the name of a part.
NORMAL_BEFORE = re.compile(r"(?<!not )(?<!than )\b(?:normal|unremarkable)(?: [\w/-]+){0,5}$")
NORMAL_AFTER = re.compile(
    rf"^{_GAP},? ?(?:(?:{_BE}|appears?|remains?|looks?|measures?|has|have) )?(?:(?:to be|in|on|of|size|contour|shape|"
    r"and|stable|configuration|grossly|within|at|near|a|the|top|otherwise|also|all|both|again|still|now|overall|"
    r"relatively|essentially|upper limits?)[ ,]+)*"
    r"(?:normal|unremarkable|wnl|not (?:\w+ly )?(?:enlarged|widened|increased|abnormal))\b"
)
LARGE = re.compile(
    r"\b(?:enlarged|enlargement|increased|large|larger|greater|prominent|widened|wide|borderline|abnormal)\b"
)
OWN_VERB = re.compile(rf"^(?: \w+)? (?:{_BE}|appears?|remains?)\b")
