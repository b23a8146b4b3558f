"""Numbers of one model's strategies -> the table of strategies: a row a number, grouped, a column a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cxrhf.report.blocks import CHANCE, Column, Entry, Grid
from cxrhf.report.book import DECODING, EMPTY, MACRO, REPORTS, Book, Cell, spellings
from cxrhf.report.figures.ink import Line
from cxrhf.report.numbers import format_number, format_p_value, format_percent, is_finite
from cxrhf.report.sections.view import Rows


def strategy_table(model: Writer, pair: Pair | None, level: str) -> Grid:
    """The table; of the associations those of one pair of groups."""
    books = [model.reference, *model.strategies]
    groups = []
    for title, metrics in GROUPS:
        wanted = [*metrics, *_others(model)] if metrics is SIMILARITY else list(metrics)
        rows = [row for metric in wanted if not metric.pair or pair for row in _rows(model, metric, pair)]
        if rows:
            groups.append((title if not metrics[0].pair or not pair else f"{title}: {pair.name}", rows))
    columns = [Column("", ""), Column("Reference", "The reference reports")]
    columns += [Column(book.strategy, STRATEGIES.get(book.strategy, "")) for book in books[1:]]
    about = (
        f"Below each number: {level} intervals (patient-level bootstrap). Below counts of words: the count expected by "
        "chance, its middle 95% and the p value for no more than chance, with group labels shuffled between "
        "patients. Displaced: p for no displacement, with reference and generated report exchanged within patients. "
        "Associated: p for no association, with groups exchanged between patients. A dash means undefined or not "
        "measured; point at it to read why."
    )
    name = f": {model.model}" if model.model else ""
    return Grid(f"Strategies side by side{name}", columns, groups, about)


def _others(model: Writer) -> list[Metric]:
    """Scores of the whole sample that this page has no words for: from plug-ins, or of a second encoder."""
    keys = [key for each in model.strategies for key in each.keys(REPORTS) if key[3] == "all" and not key[4]]
    return [metric_of(name) for name in dict.fromkeys(key[2] for key in keys) if not is_known_metric(name)]


def _rows(model: Writer, metric: Metric, pair: Pair | None) -> list[list[Entry]]:
    of = pair if metric.pair else None
    books = (model.reference, *model.strategies)
    cells = [model.get(book, metric.name, of) for book in books]
    if all(cell is EMPTY for cell in cells):
        return []
    chances = [model.get(book, f"{metric.name}.chance", of) for book in books]
    name = Entry(metric.title, metric.points, hint=metric.about)
    made = [report_entry(cell, metric, by_chance) for cell, by_chance in zip(cells, chances, strict=True)]
    if metric.name.startswith(("wae_", "delta_")):
        made = [_with_tests(model, book, metric, of, e) for book, e in zip(books, made, strict=True)]
    return [[name, *made]]


def _with_tests(model: Writer, book: Book, metric: Metric, pair: Pair | None, entry: Entry) -> Entry:
    """The same cell with its null and the p values of both tests, where there are any."""
    cell, null, tied = (model.get(book, f"{metric.name}{end}", pair) for end in ("", ".null", ".association"))
    below = [entry.below] if entry.below else []
    if is_finite(null.value):
        ends = (
            f" ({format_number(null.low, 2)} to {format_number(null.high, 2)})"
            if is_finite(null.low, null.high)
            else ""
        )
        below.append(f"null {format_number(null.value, 2)}{ends}")
    tests = (("displaced", cell.p_value), ("associated", tied.p_value))
    below += [f"{name} p\u00a0{format_p_value(p_value)}" for name, p_value in tests if is_finite(p_value)]
    return entry._replace(below="\n".join(below))


def report_entry(cell: Cell, metric: Metric, by_chance: Cell = EMPTY) -> Entry:
    """A number as its kind is written, with its interval or what chance gives below."""
    if cell is EMPTY:
        return Entry("–")
    if not is_finite(cell.value):
        return Entry("–", hint=cell.note)
    text = format_value(cell.value, metric.form)
    below = []
    if is_finite(cell.low, cell.high):
        below.append(f"({format_value(cell.low, metric.form)} to {format_value(cell.high, metric.form)})")
    if is_finite(by_chance.value):
        span = [format_number(end, 0) for end in (by_chance.low, by_chance.high) if is_finite(end)]
        below.append(
            f"chance {format_number(by_chance.value, 1)}" + (f" ({' to '.join(span)})" if len(span) == 2 else "")
        )
        # With it stands the test that there are more than that.
        if is_finite(cell.p_value):
            tail = f"p\u00a0{format_p_value(cell.p_value)}"
            return Entry(text, "\n".join(below), tail=tail, strong=cell.p_value < CHANCE)
    return Entry(text, "\n".join(below))


def format_value(value: float, form: str) -> str:
    """A share in percent, a whole count, a mean with one decimal, or a number with three."""
    if form == "share":
        return format_percent(value, 1 if abs(value) >= 0.01 or value == 0 else 2)
    if form == "count":
        return f"{value:,.0f}" if float(value).is_integer() else format_number(value, 1)
    return format_number(value, 1 if form == "mean" else 3)


def largest_cell(book: Book) -> Cell:
    """The cell that knows how many reports and patients a strategy has: the largest."""
    return max(book.cells.values(), key=lambda cell: cell.n, default=EMPTY)


def reports_of(strategy: Book) -> int:
    """Reports of a strategy."""
    found = strategy.get(REPORTS, MACRO, "template_diversity")
    return found.n or largest_cell(strategy).n


# Names of the numbers that the audits of reports give -> how a table calls them, and which way they point.


class Metric(NamedTuple):
    """A row of the table: its name in RESULT, its title, which way it points, what it means.

    `form`: share (in percent), count (whole), mean (one decimal), number. `pair`: it is of two groups.
    """

    name: str
    title: str
    points: str
    about: str
    form: str = "number"
    pair: bool = False


_ALIKE = "higher = more like the reference"
_VARIED = "higher = more varied"
_NONE = "no direction"
SIMILARITY = (
    Metric(
        "bertscore_f1", "BERTScore F1", _ALIKE, "Tokens matched by their embeddings, precision and recall combined."
    ),
    Metric("bertscore_precision", "BERTScore precision", _ALIKE, "Share of generated tokens that find a match."),
    Metric("bertscore_recall", "BERTScore recall", _ALIKE, "Share of reference tokens that find a match."),
    Metric("rouge1", "ROUGE-1", _ALIKE, "Words in both reports (F1), mean over reports."),
    Metric("rougeL", "ROUGE-L", _ALIKE, "Longest common subsequence of words (F1), mean over reports."),
    Metric("bleu", "BLEU, mean over reports", _ALIKE, "Runs of one to four words that the reference also has."),
    Metric("corpus_bleu", "BLEU of the corpus", _ALIKE, "The same, counted over all reports together."),
    Metric("ratescore", "RaTEScore", _ALIKE, "Medical entities matched by their embeddings."),
)
DIVERSITY = (
    Metric("template_diversity", "Template diversity", _VARIED, "Distinct reports as a share of all: 100% = no two "
                                                                "alike.",
           "share"),
    Metric("n_templates", "Different reports", _VARIED, "Number of distinct texts.", "count"),
    Metric("top_template", "Most frequent report", "higher = less varied",
           "Share of images that receive the most frequent text.", "share"),
    Metric("type_token_ratio", "Type-token ratio", _VARIED, "Distinct words per token; falls as a corpus grows, so "
           "compare it only between corpora of one size.", "share"),
    Metric("self_bleu_diversity", "1 − self-BLEU", _VARIED, "How little the reports overlap with each other.", "share"),
    Metric("semantic_diversity", "Semantic diversity", _VARIED, "1 minus the mean cosine between the embeddings of two "
           "reports.", "share"),
    Metric("words_per_report", "Words per report", _NONE, "Mean length.", "mean"),
    Metric("n_empty", "Empty reports", "fewer is better", "Reports without any word; they are included in every "
                                                          "other metric.",
           "count"),
)  # fmt: skip
VOCABULARY = (
    Metric("vocabulary", "Different words", _VARIED, "Distinct words without stop words.", "count"),
    Metric("vocabulary_kept", "… kept", "of the references' words", "Words of the references that are also generated.",
           "count"),
    Metric("vocabulary_lost", "… lost", "of the references' words", "Words of the references that are never generated.",
           "count"),
    Metric("vocabulary_new", "… new", "in no reference", "Words that no reference has.", "count"),
    Metric("lost_mass", "Reference tokens lost", "higher = more is never written", "Share of reference tokens whose "
           "word is never generated.", "share"),
    Metric("new_mass", "Generated tokens that are new", "higher = more new words", "Share of generated tokens "
           "whose word is in no reference.", "share"),
    Metric("omitted_mass", "Omitted reference mass", "higher = more is omitted", "Share of reference tokens "
           "of words generated at less than half the rate.", "share"),
)  # fmt: skip
_FEWER = "higher = more is lost"
_OWN = "higher = more is added"
WORDS = (
    Metric("n_associated", "Words associated with a group in the references", "can be lost", "Their association is "
           "significant after correction; only these words can be erased or preserved.", "count", True),
    Metric("erasure", "Erased", _FEWER, "Omitted and neutralised words together. By chance: the mean count with group "
           "labels shuffled between patients.", "count", True),
    Metric("omitted", "… omitted", _FEWER, "Generated at less than half the rate of the references, and no longer "
           "associated.", "count", True),
    Metric("neutralised", "… neutralised", _FEWER, "Written, but no longer more often for one group.", "count", True),
    Metric("erasure.paper", "Erased, published rule", _FEWER, "The rule as published: displaced beyond 1.96 without "
           "correction. It cannot detect a word that is never generated, and counts chance as erasure.", "count", True),
    Metric("erasure.exact", "Erased, exact rule", _FEWER, "An exact test of the references, which also detects words "
           "that only one group has.", "count", True),
    Metric("new", "New associations", _OWN, "Neutral in the references, associated in the generated reports.", "count",
           True),
    Metric("new.paper", "New, published rule", _OWN, "The same by the rule as published, without correction.", "count",
           True),
    Metric("flip", "Flipped", _OWN, "Associated with one group in the references and with the other in the generated "
           "reports.", "count", True),
    Metric("flip.paper", "Flipped, published rule", _OWN, "The same by the rule as published, without correction.",
           "count", True),
    Metric("amplified", "Amplified", "higher = stronger than in the references", "Displaced further to the same side.",
           "count", True),
    Metric("weakened", "Weakened", _FEWER, "Displaced towards neutral, or lost without a significant association in "
                                           "the references.",
           "count", True),
    Metric("preserved", "Preserved", "higher = more is kept", "Associated in both, on the same side, not displaced.",
           "count", True),
    Metric("preserved.paper", "Preserved, published rule", "displaced words only", "The published rule counts a word "
           "as preserved if it is displaced and stays on its side.", "count", True),
)  # fmt: skip
_WAE = (
    "0 for identical text, about 1 for faithful text by another author, and low again if all reports collapse to one "
    "template. Compare it with its null (the references split into two halves) and the omitted mass."
)
FAIRNESS = (
    Metric("wae_prediction", "WAE, generated weights", _NONE, f"Mean squared displacement of words, weighted by how "
           f"often they are generated. {_WAE}", "number", True),
    Metric("wae_reference", "WAE, reference weights", _NONE, f"The same, weighted by how often words occur in the "
           f"references. {_WAE}", "number", True),
    Metric("delta_wae_prediction", "ΔWAE, generated weights", "0 = both groups alike", "WAE over words of the first "
           "group minus WAE over words of the second.", "number", True),
    Metric("delta_wae_reference", "ΔWAE, reference weights", "0 = both groups alike", "The same with reference "
           "weights.", "number", True),
    Metric("weat", "WEAT", "0 = no association", "Association of word sets by word embeddings.", "number", True),
    Metric("weat_effect_size", "WEAT effect size", "0 = no association", "The same in standard deviations.", "number",
           True),
    Metric("delta_dir", "ΔDIR", "0 = lengths as in the references", "Tokens written for the second group over those "
           "for the first (male to female), generated minus reference.", "number", True),
)  # fmt: skip
GROUPS = (
    ("Similarity to the references", SIMILARITY),
    ("Diversity and collapse", DIVERSITY),
    ("Vocabulary", VOCABULARY),
    ("Words associated with a group", WORDS),
    ("Displacement and fairness", FAIRNESS),
)
_METRICS_BY_NAME = {metric.name: metric for _, metrics in GROUPS for metric in metrics}


def metric_of(name: str) -> Metric:
    """A metric by its name; one that we do not know keeps its name (scores that somebody brought)."""
    found = _METRICS_BY_NAME.get(name) or _METRICS_BY_NAME.get(name.partition(".")[0])
    if found is None:
        return Metric(name, name, "", "")
    if found.name != name:
        return found._replace(name=name, title=f"{found.title} ({name.partition('.')[2]})")
    return found


def is_known_metric(name: str) -> bool:
    """Whether this page has words for exactly this metric."""
    return name in _METRICS_BY_NAME


# Books of the audits of generated reports -> the models of a dataset, and their strategies side by side.

REFERENCE = "reference"
# What the usual strategies do, for whoever reads their names; others keep the name they were given.
STRATEGIES = {
    "greedy": "the most probable token each time",
    "beam": "the most probable of several texts built in parallel (beam search)",
    "conservative": "sampled at a low temperature",
    "rich": "sampled at a medium temperature",
    "top_k": "sampled from a fixed number of the most probable tokens",
    "top_p": "sampled from the most probable tokens that together reach a given share (nucleus)",
    "as given": "reports given in the table",
}
_SEXES = {"f": "women", "female": "women", "w": "women", "m": "men", "male": "men"}


class Pair(NamedTuple):
    """Two groups whose words are compared, as rows name them; the first is positive."""

    group: str
    versus: str

    @property
    def name(self) -> str:
        """`Sex: F and M`; `Age: 60-80 and all others`."""
        head, _, value = self.group.partition("=")
        if " & " in self.group or not value:
            return f"{self.group} and all others" if self.rest else f"{self.group} and {self.versus}"
        other = "all others" if self.rest else self.versus.partition("=")[2] or self.versus
        return f"{head.capitalize()}: {value} and {other}"

    @property
    def rest(self) -> bool:
        """Whether the second group is everybody else."""
        return self.versus.startswith("not ") or "=not " in self.versus

    @property
    def people(self) -> str:
        """`women or men`; `patients with age 60-80 or all others`."""
        if self.rest:
            return f"{people(self.group)} or with all others"
        first, second = people(self.group), people(self.versus)
        return f"{first} or {second}"

    @property
    def signs(self) -> tuple[str, str]:
        """Short names of both sides, for heads of columns."""
        return short_group(self.group), "others" if self.rest else short_group(self.versus)


def people(group: str) -> str:
    """`sex=F` -> `women`; `age=60-80` -> `patients with age 60-80`."""
    head, _, value = group.partition("=")
    if head == "sex" and value.lower() in _SEXES:
        return _SEXES[value.lower()]
    return f"patients with {group.replace('=', ' ')}"


def short_group(group: str) -> str:
    """`sex=F` -> `F`; `sex=F & age=60-80` -> `F, 60-80`."""
    return ", ".join(part.partition("=")[2] or part for part in group.split(" & "))


@dataclass(frozen=True, slots=True)
class Writer:
    """The reports of one model: a book for each strategy in the order of the rows, and one of the references."""

    dataset: str
    model: str
    strategies: Sequence[Book]
    reference: Book
    lines: Mapping[tuple[str, str, str], Line]  # strategy, kind, slice
    words: Rows  # WORD rows of this model

    def get(self, strategy: Book, metric: str, pair: Pair | None = None) -> Cell:
        """A number of the whole sample, or of a pair of groups."""
        if pair is not None:
            return strategy.get(REPORTS, MACRO, metric, pair.versus, pair.group)
        return strategy.get(REPORTS, MACRO, metric)

    def has(self, metric: str, pair: Pair | None = None) -> bool:
        """Whether any strategy, or the references, have this number."""
        return any(self.get(each, metric, pair) is not EMPTY for each in (*self.strategies, self.reference))

    @property
    def pairs(self) -> list[Pair]:
        """Pairs of groups whose words were compared, that of the sexes first."""
        keys = (key for each in self.strategies for key in each.keys(REPORTS) if key[2] in ("n_associated", "erasure"))
        found = list(dict.fromkeys(Pair(key[3], key[4]) for key in keys if key[4]))
        return sorted(found, key=lambda pair: (" & " in pair.group, not pair.group.startswith("sex=")))

    @property
    def groups(self) -> list[str]:
        """Groups with numbers of their own."""
        found = (part for each in self.strategies for part in each.slices(REPORTS))
        return list(dict.fromkeys(found))

    def differences(self) -> list[tuple[str, str, str, str]]:
        """Metric, slice, versus and baseline of the numbers that are compared between strategies.

        `versus` is what RESULT has there: the baseline strategy, as `strategy=greedy`.
        """
        keys = (key for each in self.strategies for key in each.keys(DECODING))
        return list(dict.fromkeys((key[2], key[3], key[4], key[4].removeprefix("strategy=")) for key in keys))


def writers(books: Sequence[Book], curves: Rows, words: Rows) -> list[Writer]:
    """One for each dataset and model, in the order of the rows."""
    out = list[Writer]()
    for dataset, model in dict.fromkeys((book.dataset, book.model) for book in books):
        own = [book for book in books if (book.dataset, book.model) == (dataset, model)]
        strategies = [book for book in own if book.strategy not in (REFERENCE, "")]
        if not strategies:
            continue
        # References are nobody's: their rows may have the model's name or none.
        there = [book for book in books if book.dataset == dataset and book.strategy == REFERENCE]
        named = [book for book in there if book.model in (model, "")]
        reference = next(iter([*named, *there]), Book(dataset, model, strategy=REFERENCE))
        names = spellings(strategies[0])
        mine = [row for row in words if (row["model"] or "") in names]
        out.append(Writer(dataset, model, strategies, reference, _lines(curves, names), mine))
    return out


def _lines(curves: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[tuple[str, str, str], Line]:
    """CURVE rows of a model's strategies -> lines by strategy, kind and slice."""
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in curves:
        strategy = row.get("strategy")
        if strategy and (row["model"] or "") in names and row["x"] is not None and row["y"] is not None:
            points.setdefault((strategy, row["kind"], row["slice"]), []).append((float(row["x"]), float(row["y"])))
    return {key: Line(*(list(column) for column in zip(*sorted(each), strict=True))) for key, each in points.items()}


def emergent(model: Writer, strategy: Book, pair: Pair, end: str = "") -> float:
    """New and flipped associations together."""
    return sum(model.get(strategy, f"{name}{end}", pair).value for name in ("new", "flip"))


def extreme_strategies(model: Writer, metric: str, sign: int = 1) -> list[Book]:
    """Strategies with the highest (or, by `sign` -1, lowest) value of a metric; several where they tie."""
    values = {each.strategy: sign * model.get(each, metric).value for each in model.strategies}
    there = [value for value in values.values() if is_finite(value)]
    return [each for each in model.strategies if there and values[each.strategy] == max(there)]
