"""The demo's hospital -> what simulated models with known flaws say of its films, and write about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cxrhf.config_demo import DemoConfig

if TYPE_CHECKING:
    import pyarrow as pa

# Kind of simulated model -> its name on the page.
MODELS = {"ideal": "image + context", "image_only": "image only", "miscalibrated": "overconfident"}
WRITER = "report model with planted flaws"


class Said(NamedTuple):
    """What models say of the films, and vectors of some of them."""

    predictions: pa.Table
    embeddings: pa.Table


def simulated_models(config: DemoConfig, build: Path) -> Said:
    """What the simulated models say of the films that the network did not learn from; vectors of the first of them.

    What is planted of the chart is left out: the demo learns it from the notes, as one does with real data.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from cxrhf.data.load import load_images
    from cxrhf.data.synthetic.embeddings import embeddings
    from cxrhf.data.synthetic.mimic_files import mimic_names
    from cxrhf.data.synthetic.models import predictions
    from cxrhf.data.synthetic.people import people

    made = people(config.n_patients, config.seed)
    images = load_images(build, columns=["image_id", "split", "dataset"])
    images = images.filter(pc.not_equal(images["split"], "train"))
    names = mimic_names(made, config.seed)
    dataset = images["dataset"][0].as_py()
    parts = []
    for split in pc.unique(images["split"]).to_pylist():
        there = images.filter(pc.equal(images["split"], split))["image_id"].to_pylist()
        ids = names.filter(names["image_id"].is_in(there))
        for kind, name in MODELS.items():
            table = predictions(made, model=kind, ids=ids, dataset=dataset, split=split)
            parts.append(_filled(table, model=name, pretest=None, mention=None))
    tested = images.filter(pc.equal(images["split"], "test"))["image_id"].to_pylist()
    vectors = embeddings(made, seed=config.seed, ids=names.filter(names["image_id"].is_in(tested)))
    return Said(pa.concat_tables(parts), _filled(vectors, model=next(iter(MODELS.values()))))


def simulated_writer(config: DemoConfig) -> pa.Table:
    """The simulated writer's reports of all patients: enough of them to show what it moved."""
    from cxrhf.data.synthetic.generations import generations
    from cxrhf.data.synthetic.people import people

    table = generations(people(config.n_patients, config.seed), kind="planted", seed=config.seed)
    return _filled(table, model=WRITER, strategy="simulated", dataset="synthetic")


def _filled(table: pa.Table, **values: Any) -> pa.Table:
    """The table with one value in all rows of some columns."""
    import pyarrow as pa

    for name, value in values.items():
        field = table.schema.field(name)
        same = pa.repeat(pa.scalar(value, field.type), table.num_rows)
        table = table.set_column(table.schema.get_field_index(name), field, same)
    return table
