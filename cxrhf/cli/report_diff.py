"""`cxrhf report --diff`: two run folders -> what changed between them: lines, one JSON object, and diff.html."""

from __future__ import annotations

from pathlib import Path


def difference(first: str, second: str, *, out: str | None = None, as_json: bool = False) -> int:
    """Compare, print, write the page into `out` (the second run if not given), and end with its path."""
    import json

    from cxrhf.report.diff_page import compare_runs, write_diff
    from cxrhf.report.diff_words import as_mapping, diff_lines

    both = compare_runs(first, second)
    page = write_diff(both, Path(out) if out else Path(second))
    if as_json:
        print(json.dumps(as_mapping(both) | {"page": str(page)}, allow_nan=False, indent=1))
    else:
        print("\n".join([*diff_lines(both), "", str(page)]))
    return 0
