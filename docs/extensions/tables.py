"""The schemas of cxrhf -> a section for each file of a run with its columns: `{tables}` in a page."""

from __future__ import annotations

import pyarrow as pa
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cxrhf import schema

# What a row is; the files stand in this order.
ROWS = {
    "predictions": "The spine: one row an image, model, seed and finding.",
    "results": "One row a reported number.",
    "images": "One row an image. A column for each finding follows, with the raw label: 1, 0, -1 (uncertain), null.",
    "notes": "Each note once.",
    "attributes": "What lies in a picture: one row an image and name (drain, ecg_wires, ...).",
    "characteristics": "What a network says of sex=F, race=black, view=AP: as predictions.",
    "embeddings": "One vector an image and model; without a finding it is of the penultimate layer.",
    "generations": "One row an image, model and way of decoding.",
    "scores": "What an encoder says of a report.",
    "report_vectors": "A vector a report; of references the strategy is `reference`.",
    "curves": "Points of curves.",
    "words": "Words of reports by group.",
    "slices": "Which image lies in which slice: rows of patients, they stay with the data.",
    "points": "Places in maps of vectors: rows of patients, they stay with the data.",
    "gallery": "Thumbnails, only of data that may be shown.",
    "attrition": "What every step of a build left.",
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
