"""Places of patients -> one map as a picture that stands still, and how its axes are named."""

from __future__ import annotations

from markupsafe import Markup

from cxrhf.report.blocks import finding_name
from cxrhf.report.book import MACRO
from cxrhf.report.figures import Group, Square, cloud
from cxrhf.report.maps import STEPS, Attribute, Grid, Places, Spread, distribution
from cxrhf.report.numbers import known, percent, short
from cxrhf.report.sections.view import View

_TITLES = {"t-sne": "t-SNE", "logits": "Outputs (logits)"}


def map_title(name: str) -> str:
    """`pca 1-2` -> `PCA, modes 1 and 2`."""
    if name.startswith("pca "):
        return f"PCA, modes {name[4:].replace('-', ' and ')}"
    return _TITLES.get(name, name)


def axes_of(view: View, name: str) -> tuple[str, str]:
    """What runs across and up."""
    if name.startswith("pca "):
        modes = (*name[4:].split("-"), "", "")[:2]
        return _mode(view, modes[0]), _mode(view, modes[1])
    if name == "logits":
        keys = dict.fromkeys(key[2] for key in view.book.keys("features") if key[2].startswith("ks.logit_"))
        found = [f"output for {finding_name(key.removeprefix('ks.logit_'))}" for key in keys]
        if len(found) == 2:
            return found[0], found[1]
    title = map_title(name)
    return f"{title} 1", f"{title} 2"


def _mode(view: View, mode: str) -> str:
    share = view.get("features", MACRO, f"explained_variance.pca_{mode}").value
    return f"mode {mode} ({percent(share, 0)} of the variance)" if known(share) else f"mode {mode}"


def still(view: View, found: Places, which: int, colour: int, ident: str, most: int) -> Markup:
    """One map coloured by one attribute: dots of at most so many patients, or cells."""
    spread, attribute = found.spreads[which], found.attributes[colour]
    across, up = axes_of(view, spread.name)
    title = f"{map_title(spread.name)}, by {attribute.name}"
    grid = found.coarse[which] if found.coarse else None
    groups = _dotted(spread, attribute, most) if grid is None else _counted(grid, attribute, colour)
    squares = () if grid is None else _squares(grid, colour)
    what = "Patients" if grid is None else "Numbers of patients in cells"
    about = f"{what} by {attribute.name} ({', '.join(attribute.values)}), and how each is distributed along both axes."
    cell, axes = 1 / grid.side if grid else 0.0, (short(across, 34), short(up, 34))
    return cloud(groups, squares, cell, axes=axes, ident=ident, title=title, about=about)


def _dotted(spread: Spread, attribute: Attribute, most: int) -> list[Group]:
    """Groups of single patients; distributions are of all, dots of the first so many."""
    out = []
    for code, (kind, name) in enumerate(zip(attribute.kinds, attribute.values, strict=True)):
        there = [k for k, own in enumerate(attribute.codes) if own == code and spread.x[k] >= 0]
        where = [(spread.x[k] / STEPS, spread.y[k] / STEPS) for k in there]
        shown = [place for k, place in zip(there, where, strict=True) if k < most]
        out.append(
            Group(kind, name, shown, distribution((x, 1) for x, _ in where), distribution((y, 1) for _, y in where))
        )
    return out


def _counted(grid: Grid, attribute: Attribute, colour: int) -> list[Group]:
    """Groups as counts in cells: their distributions alone."""
    out = []
    for code, (kind, name) in enumerate(zip(attribute.kinds, attribute.values, strict=True)):
        counts = [row[code] for row in grid.counts[colour]]
        pairs = list(zip(grid.cells, counts, strict=True))
        across = distribution([(((cell % grid.side) + 0.5) / grid.side, count) for cell, count in pairs], grid.side)
        up = distribution([(((cell // grid.side) + 0.5) / grid.side, count) for cell, count in pairs], grid.side)
        out.append(Group(kind, name, (), across, up))
    return out


def _squares(grid: Grid, colour: int) -> list[Square]:
    most = max(grid.totals, default=1)
    out = []
    for cell, total, row in zip(grid.cells, grid.totals, grid.counts[colour], strict=True):
        x, y = ((cell % grid.side) + 0.5) / grid.side, ((cell // grid.side) + 0.5) / grid.side
        size = 0.25 + 0.7 * (total / most) ** 0.5
        out.append(Square(x, y, size, [count / total for count in row]))
    return out
