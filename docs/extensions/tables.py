"""The schemas of cxrhf -> a section for each file of a run with its columns: `{tables}` in a page."""

from __future__ import annotations

import pyarrow as pa
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cxrhf import schema

# What a row is, in the order of the page.
ROWS = {
    "predictions": "One row for each image, model, seed and finding. All other stages read or add to this table.",
    "results": "One row for each reported number.",
    "images": "One row for each image. Columns of raw labels follow, one for each finding: 1, 0, -1 (uncertain), null.",
    "notes": "Each note once.",
    "attributes": "What an image shows besides findings: one row for each image and name (drain, ecg_wires, ...).",
    "characteristics": "Predictions of sex=F, race=black, view=AP and so on, as in predictions.",
    "embeddings": "One embedding for each image and model; without a finding it is from the penultimate layer.",
    "generations": "One row for each image, model and decoding strategy.",
    "scores": "Scores of a report by an encoder.",
    "report_vectors": "An embedding of each report; for references the strategy is `reference`.",
    "curves": "Points of curves.",
    "words": "Words of reports by group.",
    "slices": "The slice of each image: rows of patients, they stay with the data.",
    "points": "Positions in maps of embeddings: rows of patients, they stay with the data.",
    "gallery": "Thumbnails, only of data that may be shown.",
    "attrition": "What every step of a build kept.",
}


class Tables(SphinxDirective):
    """`{tables}` in a page."""

    def run(self) -> list[nodes.Node]:
        """A section for each file."""
        self.env.note_dependency(str(schema.__file__))
        if different := set(schema.TABLES) ^ set(ROWS):
            raise self.error(f"docs/extensions/tables.py and schema.TABLES differ in: {', '.join(sorted(different))}")
        return [_section(name, about, schema.TABLES[name]) for name, about in ROWS.items()]


def _section(name: str, about: str, columns: pa.Schema) -> nodes.section:
    made = nodes.section(ids=[nodes.make_id(name)], names=[name])
    made += nodes.title(text=f"{name}.parquet")
    made += nodes.paragraph(text=f"{(columns.metadata or {}).get(b'table', b'').decode()}. {about}")
    listed = nodes.bullet_list(classes=["columns"])
    for column in columns:
        word = nodes.literal(text=column.name)
        line = nodes.paragraph("", "", word if column.nullable else nodes.strong("", "", word))
        rules = {key.decode(): value.decode() for key, value in (column.metadata or {}).items()}
        said = [str(column.type)]
        said += [rules["range"].replace(" ", " to ")] if "range" in rules else []
        said += ["one of " + rules["values"].replace(" ", ", ")] if "values" in rules else []
        line += nodes.Text(": " + ", ".join(said))
        listed += nodes.list_item("", line)
    made += listed
    return made


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("tables", Tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
