"""Numbers of strategies -> plain sentences: how many different reports, what is lost, what is added."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.book import Book
from cxrhf.report.numbers import known, listed, number, percent, short
from cxrhf.report.sections.reports_shelf import Pair, Writer, highest
from cxrhf.report.sections.reports_table import reports_of
from cxrhf.report.sections.reports_words import Chosen, words_of
from cxrhf.report.words import Sentence

# The likeness that is named in sentences: the first that is there.
_ALIKE = (("bertscore_f1", "BERTScore F1"), ("rougeL", "ROUGE-L"), ("rouge1", "ROUGE-1"), ("bleu", "BLEU"))


def lead(models: Sequence[Writer]) -> list[str]:
    """The least and the most varied strategy of each model, or the least of more than two; the worst model first."""
    said = []
    for model in sorted(models, key=_least_varied):
        ends = highest(model, "template_diversity", -1)[:1]
        ends += highest(model, "template_diversity")[-1:] if len(models) <= 2 else []
        chosen = list({book.strategy: book for book in ends or model.strategies[:1]}.values())
        whose = model.model or "the model"
        for book in chosen:
            words = " ".join(part for part in (_written(model, book), _moved(model, book, first_pair(model))) if part)
            how = "As given," if book.strategy == "as given" else f"With {book.strategy} decoding,"
            said += [f"{how} {whose} {words}"] if words else []
    return said + (_elsewhere(models[0]) if models else [])


def _least_varied(model: Writer) -> float:
    values = [model.get(book, "template_diversity").value for book in model.strategies]
    return min(filter(known, values), default=1.0)


def _elsewhere(model: Writer) -> list[str]:
    """The grouping beyond the first of which a strategy loses most words; crossings are too many to search."""
    found = [
        (cell.value, book, pair)
        for pair in model.pairs[1:]
        for book in model.strategies
        if " & " not in pair.group and known((cell := model.get(book, "erasure", pair)).value) and cell.value
    ]
    if not found:
        return []
    lost, book, pair = max(found, key=lambda each: each[0])
    total = model.get(book, "n_associated", pair).value
    of = f" of {total:,.0f}" if known(total) else ""
    how = "" if book.strategy == "as given" else f" with {book.strategy} decoding"
    whose = f"Among other groups, the largest loss is of words associated with {pair.people}"
    return [f"{whose}: {lost:,.0f}{of} erased{how}."]


def first_pair(model: Writer) -> Pair | None:
    """The pair of groups that sentences are of: the sexes where they were compared."""
    return next(iter(model.pairs), None)


def sentences(model: Writer, found: Sequence[Chosen], may_show: bool) -> list[Sentence]:
    """What is said of each strategy, with words that were lost and added, and its most frequent report if it may be."""
    out = []
    for book in model.strategies:
        pair = first_pair(model)
        parts = [_written(model, book), _moved(model, book, pair)]
        if pair is not None:
            for title, categories in (
                ("Erased", ("omitted", "neutralised")),
                ("New", ("new",)),
                ("Flipped", ("flip",)),
            ):
                names = words_of(found, model, book.strategy, pair, categories)
                parts.append(f"{title}: {listed(names, 7)}." if names else "")
        top = model.get(book, "top_template")
        if may_show and known(top.value) and top.note:
            parts.append(f"The most frequent report, for {percent(top.value)} of the images: “{short(top.note, 240)}”")
        words = " ".join(part for part in parts if part)
        if words:
            out.append(Sentence(book.strategy, words, *_tag(model, book)))
    return out


def _written(model: Writer, book: Book) -> str:
    """`writes 3 different reports for 400 images (0.8%; ...). ROUGE-L is 0.291, the highest of the 6 strategies.`"""
    kinds, diversity = (model.get(book, name).value for name in ("n_templates", "template_diversity"))
    n, theirs = reports_of(book), model.get(model.reference, "template_diversity").value
    beside = f", against {percent(theirs)} in the references" if known(theirs) else ""
    parts = []
    if known(kinds) and n:
        noun = f"{kinds:,.0f} different reports" if kinds != 1 else "the same report"
        parts.append(f"writes {noun} for {n:,} images ({percent(kinds / n)}{beside}).")
    else:
        share = f"{percent(diversity)} of them different{beside}" if known(diversity) else ""
        parts.append(f"writes {n:,} reports{f', {share}' if share else ''}.")
    alike = next(((name, title) for name, title in _ALIKE if known(model.get(book, name).value)), None)
    if alike:
        name, title = alike
        best, place = highest(model, name), ""
        several = sum(known(model.get(each, name).value) for each in model.strategies)
        if several > 1 and any(each is book for each in best):
            place = f", the highest of the {several} strategies" if len(best) == 1 else ", among the highest"
        parts.append(f"{title} is {number(model.get(book, name).value)}{place}.")
    return " ".join(parts)


def _moved(model: Writer, book: Book, pair: Pair | None) -> str:
    """What became of the words that go with a group."""
    if pair is None:
        return ""
    total, lost = (model.get(book, name, pair).value for name in ("n_associated", "erasure"))
    omitted, neutral = (model.get(book, name, pair).value for name in ("omitted", "neutralised"))
    new, flip = (model.get(book, name, pair).value for name in ("new", "flip"))
    if not known(lost):
        note = model.get(book, "erasure", pair).note
        return f"Changes in words associated with {pair.people} are undefined: {note}." if note else ""
    if known(total) and not total:
        said = f"In the references, no word is significantly associated with {pair.people}, so no loss can be shown"
        if known(mass := model.get(book, "omitted_mass").value) and mass:
            said += f" ({percent(mass)} of all reference words are written less than half as often)"
    else:
        of = f"Of the {total:,.0f} words associated" if known(total) and total != 1 else "Of the words associated"
        ways = []
        if lost and known(omitted, neutral):
            ways += [f"{omitted:,.0f} rarely or never written"] if omitted else []
            ways += [f"{neutral:,.0f} no longer associated with a group"] if neutral else []
        ways += _by_chance(model, book, pair, ("erasure",))
        inside = f" ({'; '.join(ways)})" if ways else ""
        count, verb = f"{lost:,.0f}" if lost else "none", "is" if lost in (0, 1) else "are"
        said = f"{of} with {pair.people} in the references, {count} {verb} erased{inside}"
    if known(new, flip):
        by_chance = _by_chance(model, book, pair, ("new", "flip"))
        beside = f" ({by_chance[0]})" if by_chance else ""
        noun = "association is" if new == 1 else "associations are"
        added = f"{new:,.0f} {noun} new and {flip:,.0f} flipped{beside}"
        said += f"; {added if new or flip else 'no new or flipped association was found'}"
    return f"{said}."


def _by_chance(model: Writer, book: Book, pair: Pair, names: Sequence[str]) -> list[str]:
    value = sum(model.get(book, f"{name}.chance", pair).value for name in names)
    return [f"{number(value, 1)} expected by chance"] if known(value) else []


def _tag(model: Writer, book: Book) -> tuple[str, str]:
    """A tag where fewer than half as many reports differ as among the references."""
    own, theirs = (model.get(each, "template_diversity").value for each in (book, model.reference))
    collapsed = known(own, theirs) and own < 0.5 * theirs
    return ("few templates", "strong") if collapsed else ("", "plain")
