"""Numbers of one model's strategies -> the table of strategies: a row a number, grouped, a column a strategy."""

from __future__ import annotations

from cxrhf.report.blocks import CHANCE, Column, Entry, Grid
from cxrhf.report.book import EMPTY, MACRO, REPORTS, Book, Cell
from cxrhf.report.numbers import chance, known, number, percent
from cxrhf.report.sections.reports_rows import GROUPS, SIMILARITY, Metric, is_known, metric_of
from cxrhf.report.sections.reports_shelf import STRATEGIES, Pair, Writer


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
    return [metric_of(name) for name in dict.fromkeys(key[2] for key in keys) if not is_known(name)]


def _rows(model: Writer, metric: Metric, pair: Pair | None) -> list[list[Entry]]:
    of = pair if metric.pair else None
    books = (model.reference, *model.strategies)
    cells = [model.get(book, metric.name, of) for book in books]
    if all(cell is EMPTY for cell in cells):
        return []
    chances = [model.get(book, f"{metric.name}.chance", of) for book in books]
    name = Entry(metric.title, metric.points, hint=metric.about)
    made = [shown(cell, metric, by_chance) for cell, by_chance in zip(cells, chances, strict=True)]
    if metric.name.startswith(("wae_", "delta_")):
        made = [_tested(model, book, metric, of, e) for book, e in zip(books, made, strict=True)]
    return [[name, *made]]


def _tested(model: Writer, book: Book, metric: Metric, pair: Pair | None, entry: Entry) -> Entry:
    """The same cell with its null and the p values of both tests, where there are any."""
    cell, null, tied = (model.get(book, f"{metric.name}{end}", pair) for end in ("", ".null", ".association"))
    below = [entry.below] if entry.below else []
    if known(null.value):
        ends = f" ({number(null.low, 2)} to {number(null.high, 2)})" if known(null.low, null.high) else ""
        below.append(f"null {number(null.value, 2)}{ends}")
    tests = (("displaced", cell.p_value), ("associated", tied.p_value))
    below += [f"{name} p\u00a0{chance(p_value)}" for name, p_value in tests if known(p_value)]
    return entry._replace(below="\n".join(below))


def shown(cell: Cell, metric: Metric, by_chance: Cell = EMPTY) -> Entry:
    """A number as its kind is written, with its interval or what chance gives below."""
    if cell is EMPTY:
        return Entry("–")
    if not known(cell.value):
        return Entry("–", hint=cell.note)
    text = written(cell.value, metric.form)
    below = []
    if known(cell.low, cell.high):
        below.append(f"({written(cell.low, metric.form)} to {written(cell.high, metric.form)})")
    if known(by_chance.value):
        span = [number(end, 0) for end in (by_chance.low, by_chance.high) if known(end)]
        below.append(f"chance {number(by_chance.value, 1)}" + (f" ({' to '.join(span)})" if len(span) == 2 else ""))
        # With it stands the test that there are more than that.
        if known(cell.p_value):
            tail = f"p\u00a0{chance(cell.p_value)}"
            return Entry(text, "\n".join(below), tail=tail, strong=cell.p_value < CHANCE)
    return Entry(text, "\n".join(below))


def written(value: float, form: str) -> str:
    """A share in percent, a whole count, a mean with one decimal, or a number with three."""
    if form == "share":
        return percent(value, 1 if abs(value) >= 0.01 or value == 0 else 2)
    if form == "count":
        return f"{value:,.0f}" if float(value).is_integer() else number(value, 1)
    return number(value, 1 if form == "mean" else 3)


def size(book: Book) -> Cell:
    """The cell that knows how many reports and patients a strategy has: the largest."""
    return max(book.cells.values(), key=lambda cell: cell.n, default=EMPTY)


def reports_of(strategy: Book) -> int:
    """Reports of a strategy."""
    found = strategy.get(REPORTS, MACRO, "template_diversity")
    return found.n or size(strategy).n
