"""Metrics of subgroups, as observed and with prevalence and age balanced: gaps first, every subgroup on demand."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import (
    CHANCE,
    LONG,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Section,
    Table,
    Text,
    count_entry,
    difference,
    entry,
    finding_name,
    name_entry,
    words_entry,
)
from cxrhf.report.book import Book, Cell, Key
from cxrhf.report.figures import OVERALL, REMAINS, Axis, Dot, DotRow, dots
from cxrhf.report.numbers import is_finite, join_names
from cxrhf.report.sections.view import View, corrected, interval_caption

METRICS = ("auroc", "tpr", "fpr", "j")
# The populations in which the races are balanced: suffix, title, caption of a table, what it is.
_KEPT = (
    "Subgroups other than races keep their own prevalence and ages, so their gaps can differ, even in sign, from the "
    "balanced gaps above. They are not tested."
)
_BY_RACE = (
    (
        "_balanced_by_race_and_disease",
        "Subgroups in the population of Glocker et al.: races balanced over three disease groups",
        "races balanced over disease groups",
        "This is the paper's population: one for all subgroups and for both of its findings. It has the images with "
        "labels of both. Each race is weighted to the same size, the same shares of Pleural Effusion (which overrides "
        "No Finding), No Finding and Other, and the same ages within each of them. One threshold is set in this "
        "population, unless it was chosen on other images. " + _KEPT,
    ),
    (
        "_balanced_by_race",
        "Subgroups in the population balanced by race, finding by finding",
        "races balanced",
        "This population is cxrhf's variant for any finding. Each race is weighted to the same size, the same "
        "prevalence of this finding and the same ages. One threshold is set in this population, unless it was chosen "
        "on other images. Other diseases of patients without the finding may still differ between the races. " + _KEPT,
    ),
)
_TITLES = {"auroc": "AUROC", "tpr": "Sensitivity (TPR)", "fpr": "False positive rate", "j": "Youden's J"}
_IN_WORDS = {"auroc": "AUROC", "tpr": "sensitivity", "fpr": "false positive rate"}
_AXES = {
    "auroc": Axis("AUROC within the group", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0),
    "tpr": Axis("at one threshold for all groups", 0.0, 1.0, floor=0.0, ceiling=1.0),
    "fpr": Axis("at one threshold for all groups", 0.0, 0.5, reference=0.2, floor=0.0, ceiling=1.0),
}
_WAYS = ((OVERALL, "", "as observed"), (REMAINS, "_balanced", "balanced"))
_BY_PREVALENCE = (
    ("prevalence", "Prevalence", "Average precision expected by chance"),
    ("average_precision", "Average precision", ""),
    ("precision", "PPV", "Precision at the single threshold"),
    ("npv", "NPV", "At the single threshold"),
    (
        "observed_minus_predicted",
        "Observed minus predicted",
        "Calibration in the large: share of positives minus mean score",
    ),
    (
        "expected_calibration_error",
        "Calibration error",
        "Expected calibration error, ten bins of equal width; no interval, because none covers in few rows",
    ),
    ("expected_ece", "If calibrated", "Calibration error that a calibrated model would show in a group of this size"),
)
_LEGEND = ((OVERALL, "as observed"), (REMAINS, "prevalence and age balanced between the groups"))


def grouping(part: str) -> str:
    """`sex=F & race=Black` -> `sex & race`."""
    return " & ".join(each.partition("=")[0] for each in part.split(" & "))


def group(part: str) -> str:
    """`sex=F & race=Black` -> `F & Black`."""
    return " & ".join(each.partition("=")[2] or each for each in part.split(" & "))


def subgroups(view: View) -> Section | None:
    """The section, or None without the audit."""
    book = view.book
    slices = [each for each in book.slices("subgroups") if "=" in each]
    if not slices:
        return None
    kinds = list(dict.fromkeys(grouping(each) for each in slices))
    simple, crossed = [k for k in kinds if " & " not in k], [k for k in kinds if " & " in k]
    gaps = gaps_of(book)
    blocks: list[Block] = []
    figure = _gap_figure(view, gaps, simple)
    blocks += [figure] if figure else []
    table = gap_table(book, gaps, simple, "Gaps: highest minus lowest subgroup", view.correction)
    if table:
        blocks.append(table if len(table.rows) <= LONG else Fold(f"{table.caption} ({len(table.rows)} rows)", [table]))
    for kind in simple:
        there = [each for each in slices if grouping(each) == kind]
        inside = [each for each in (_group_figure(view, there, kind), _group_table(view, there, kind)) if each]
        blocks.append(Fold(f"Every subgroup by {kind}: {join_names([group(each) for each in there])}", inside))
    for kind in crossed if view.first else ():
        there = [each for each in slices if grouping(each) == kind]
        table = gap_table(book, gaps, [kind], f"Gaps by {kind}", view.correction)
        tables = [each for each in (table, _group_table(view, there, kind)) if each]
        blocks.append(Fold(f"Intersections of {kind.replace(' & ', ' and ')}", tables))
    if crossed and not view.first:
        blocks.append(Text(f"Intersections ({join_names(crossed)}) of this model are in results.parquet.", "muted"))
    for population in _BY_RACE:
        blocks += _balanced_by_race(view, gaps, slices, [*simple, *(crossed if view.first else ())], *population)
    tables = [each for each in (_prevalence_table(view, slices, kind) for kind in simple) if each]
    if tables:
        blocks.append(Fold("Predictive values, average precision and calibration of every subgroup", tables))
    blocks.append(Text(_thresholds(view), "muted"))
    return Section(
        f"{view.ident}-subgroups", "Performance by subgroup", "Subgroups", _summary(view, gaps, simple), blocks
    )


Gaps = dict[tuple[str, str, str], tuple[str, str, Cell]]  # finding, grouping, metric -> highest, lowest, the gap


def gaps_of(book: Book) -> Gaps:
    """The gap of every finding, grouping and metric."""
    found: Gaps = {}
    for key in book.keys("subgroups"):
        _, finding, metric, slice, versus = key
        if versus:
            found.setdefault((finding, grouping(slice), metric), (group(slice), group(versus), book.cells[key]))
    return found


def _summary(view: View, gaps: Gaps, kinds: Sequence[str]) -> list[str]:
    """Which groupings have gaps beyond chance, before and after balancing."""
    words = []
    for kind in kinds:
        counts = []
        for end in ("", "_balanced"):
            cells = [gaps[f, kind, f"auroc{end}"][2] for f in view.book.findings if (f, kind, f"auroc{end}") in gaps]
            tested = [cell for cell in cells if is_finite(cell.p_value)]
            counts.append((sum(cell.p_value < CHANCE for cell in tested), len(tested)))
        (before, of_before), (after, of_after) = counts
        if of_before:
            rest = f" ({after} of {of_after} with prevalence and age balanced)" if of_after else ""
            words.append(f"by {kind} for {before} of {of_before} findings{rest}")
    return [f"{view.corrected.capitalize()}, AUROC gaps are significant {', '.join(words)}."] if words else []


def _gap_figure(view: View, gaps: Gaps, kinds: Sequence[str]) -> Figure | None:
    panels = []
    for metric in ("auroc", "tpr", "fpr"):
        rows = []
        for finding in view.book.everyone():
            lanes = []
            for kind in kinds:
                found = [(mark, name, gaps.get((finding, kind, metric + end))) for mark, end, name in _WAYS]
                both = [
                    Dot(mark, gap[2].mark, f"{kind}, {gap[0]} over {gap[1]}, {name}")
                    for mark, name, gap in found
                    if gap
                ]
                if any(is_finite(dot.mark.value) for dot in both):
                    lanes.append((kind, both))
            if lanes:
                rows.append(DotRow(finding_name(finding), lanes, "", finding_name(finding)))
        if rows:
            axis = Axis("highest minus lowest subgroup; 0 = equal", 0.0, 0.1, reference=0.0, step=0.05)
            title = f"Gap in {_IN_WORDS[metric]}"
            ident = f"{view.ident}-gap-{metric}"
            panels.append((title, dots(rows, axis, ident=ident, title=title, lane=17)))
    caption = f"{interval_caption(view.level)} A gap that disappears when balanced comes from prevalence and age."
    return Figure("Gaps between subgroups", panels, _LEGEND, caption, file="subgroups") if panels else None


def gap_table(book: Book, gaps: Gaps, kinds: Sequence[str], caption: str, correction: str) -> Table | None:
    """Highest minus lowest subgroup, as observed and balanced."""
    names = [f"{metric}{end}" for metric in METRICS[:3] for end in ("", "_balanced")]
    there = [name for name in names if any(key[2] == name and key[1] in kinds for key in gaps)]
    rows = []
    for finding in book.everyone():
        for kind in kinds:
            if not any((finding, kind, name) in gaps for name in there):
                continue
            rows.append([name_entry(finding), words_entry(kind), *(_gap(gaps, finding, kind, name) for name in there)])
    if not rows:
        return None
    columns = [Column("Finding"), Column("Groups", "Attribute that defines the subgroups", True)]
    columns += [
        Column(_TITLES[name.removesuffix("_balanced")] + (", balanced" if name.endswith("_balanced") else ""))
        for name in there
    ]
    about = (
        "Each cell shows the gap, its interval, the highest and lowest subgroup, and the p value "
        f"{corrected(correction, scope=True)}, which also allows for choosing the two extremes among all pairs."
    )
    return Table(caption, columns, rows, about=about)


def _gap(gaps: Gaps, finding: str, kind: str, metric: str) -> Entry:
    if (finding, kind, metric) not in gaps:
        return Entry("–")
    highest, lowest, cell = gaps[finding, kind, metric]
    made = difference(cell)
    return made._replace(below=f"{made.below}\n{highest} over {lowest}".strip()) if is_finite(cell.value) else made


def _group_figure(view: View, slices: Sequence[str], kind: str) -> Figure | None:
    panels = []
    for metric in ("auroc", "tpr", "fpr"):
        rows = []
        for finding in view.book.everyone():
            lanes = []
            for each in slices:
                both = [
                    Dot(mark, view.get("subgroups", finding, metric + end, slice=each).mark, f"{group(each)}, {name}")
                    for mark, end, name in _WAYS
                ]
                both = [dot for dot in both if is_finite(dot.mark.value)]
                if both:
                    lanes.append((group(each), both))
            if lanes:
                rows.append(DotRow(finding_name(finding), lanes, "", finding_name(finding)))
        if rows:
            title = f"{_TITLES[metric]} by {kind}"
            ident = f"{view.ident}-{metric}-{_slug(kind)}"
            about = "The numbers are in the table below the figure."
            panels.append((title, dots(rows, _AXES[metric], ident=ident, title=title, about=about, lane=17)))
    return Figure("", panels, _LEGEND, interval_caption(view.level)) if panels else None


def _slug(words: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in words)


def _group_table(view: View, slices: Sequence[str], kind: str) -> Table:
    names = [f"{metric}{end}" for metric in METRICS for end in ("", "_balanced")]
    rows = []
    for finding in view.book.everyone():
        for each in slices:
            cells = [view.get("subgroups", finding, name, slice=each) for name in names]
            if any(is_finite(cell.value) for cell in cells):
                first = next((cell for cell in cells if cell.n), cells[0])
                rows.append(
                    [
                        name_entry(finding),
                        words_entry(group(each)),
                        count_entry(first.n),
                        count_entry(first.n_pos),
                        *map(entry, cells),
                    ]
                )
    columns = [Column("Finding"), Column("Group", "", True), Column("Images"), Column("Positive")]
    columns += [
        Column(_TITLES[name.removesuffix("_balanced")] + (", balanced" if name.endswith("_balanced") else ""))
        for name in names
    ]
    return Table(f"Metrics by {kind}", columns, rows)


def _balanced_by_race(
    view: View,
    gaps: Gaps,
    slices: Sequence[str],
    kinds: Sequence[str],
    suffix: str,
    title: str,
    caption: str,
    about: str,
) -> list[Block]:
    """All groups in a population in which the races are balanced; nothing where there is none."""
    inside, names = [], [f"{metric}{suffix}" for metric in METRICS]
    for kind in kinds:
        rows = []
        for finding in view.book.everyone():
            for each in [each for each in slices if grouping(each) == kind]:
                cells = [view.get("subgroups", finding, name, slice=each) for name in names]
                if any(is_finite(cell.value) for cell in cells):
                    rows.append([name_entry(finding), words_entry(group(each)), *map(entry, cells)])
            gap = [gaps.get((finding, kind, name)) for name in names]
            if any(each and is_finite(each[2].value) for each in gap):
                ends = [_gap(gaps, finding, kind, name) for name in names]
                rows.append([name_entry(finding), words_entry("highest minus lowest"), *ends])
        if rows:
            columns = [Column("Finding"), Column("Group", "", True), *(Column(_TITLES[metric]) for metric in METRICS)]
            inside.append(Table(f"By {kind}, {caption}", columns, rows))
    return [Fold(title, [Text(about, "muted"), *inside])] if inside else []


def _prevalence_table(view: View, slices: Sequence[str], kind: str) -> Table | None:
    """What depends on how many of a group are ill."""
    rows = []
    for finding in view.book.findings:
        for each in [each for each in slices if grouping(each) == kind]:
            cells = [view.get("subgroups", finding, name, slice=each) for name, _, _ in _BY_PREVALENCE]
            if any(is_finite(cell.value) for cell in cells):
                rows.append([name_entry(finding), words_entry(group(each)), *map(entry, cells)])
    if not rows:
        return None
    titles = [Column(title, about) for _, title, about in _BY_PREVALENCE]
    columns = [Column("Finding"), Column("Group", "", True), *titles]
    about = (
        "These metrics depend on prevalence, so subgroups of different prevalence differ in them even if the model "
        "works equally well in each. Compare a calibration error with the one expected if calibrated: in few rows it "
        "is biased upwards by more than resampling shows, so it has no interval. Observed minus predicted has one."
    )
    return Table(f"Predictive values and calibration by {kind}", columns, rows, about=about)


def _thresholds(view: View) -> str:
    """Where the one threshold of these rates comes from."""
    keys: list[Key] = [key for key in view.book.keys("subgroups") if key[2].startswith("threshold")]
    how = {view.book.cells[key].method for key in keys}
    given = {key[1] for key in keys if key[2] == "threshold"}
    source = "the validation split" if any("validation" in each for each in how) else "these images"
    at = f"set to a false positive rate of 0.20 on {source}"
    if given:
        others = (
            f" or, for the other findings, {at}"
            if any(key[2] != "threshold" and key[1] not in given for key in keys)
            else ""
        )
        at = f"given by you{others}"
    return (
        f"Sensitivity, false positive rate and J use one threshold for all subgroups, {at}. Balanced: each subgroup is "
        f"weighted to the same prevalence and the same ages, so a gap that remains does not come from either."
    )
