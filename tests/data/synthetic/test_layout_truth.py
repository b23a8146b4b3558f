"""Every layout says what is true of its own findings, where devices lie, and its dirty labels keep that truth."""

from __future__ import annotations

import importlib
import json

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.data.attrition import Steps
from cxrhf.data.fields import apply_policy
from cxrhf.data.settings import BuildConfig
from cxrhf.schema import ATTRIBUTE
from cxrhf.tables.files import read_table
from cxrhf.twin.chexpert import write_chexpert, write_chexpert_plus
from cxrhf.twin.covid import covid_findings, covid_names, write_covid
from cxrhf.twin.laws import DEFAULT
from cxrhf.twin.mimic import write_mimic
from cxrhf.twin.models import ATTRIBUTES, default_ids, planted_findings
from cxrhf.twin.nih import nih_findings, nih_names, write_nih
from cxrhf.twin.people import people
from cxrhf.twin.rexgradient import write_rexgradient
from cxrhf.twin.truth import layout_truth

WRITERS = {
    "mimic": write_mimic,
    "chexpert": write_chexpert,
    "nih": write_nih,
    "rexgradient": write_rexgradient,
    "chexpert_plus": write_chexpert_plus,
    "covid": write_covid,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """layout -> folder, clean and dirty, without pictures; written once."""
    root, twin = tmp_path_factory.mktemp("layouts"), people(40, seed=7)
    for layout, write in WRITERS.items():
        write(twin, root / layout, seed=1, pixels=False)
        write(twin, root / f"{layout}_dirty", seed=1, pixels=False, dirty=True)
    return root


@pytest.mark.parametrize("layout", ["chexpert", "chexpert_plus"])
def test_dirty_labels_keep_the_truth_under_positive_only(written, layout):
    """Only true negatives are uncertain or blank."""
    folder = written / f"{layout}_dirty"
    reader = importlib.import_module(f"cxrhf.data.{layout}")
    source = reader.read(BuildConfig(layout, root=(str(folder),)), Steps(layout))
    planted = pl.read_parquet(folder / "planted.parquet").filter(pl.col("finding") != "no_finding")
    index = {"index": "image_id", "variable_name": "finding", "value_name": "label"}
    raw = planted.join(source.images.unpivot(source.findings, **index), on=["image_id", "finding"])
    for hidden in (raw.filter(pl.col("label") == -1), raw.filter(pl.col("label").is_null())):
        assert hidden.height > 20
        assert (hidden["y"] == 0).all()
    read_as = apply_policy(source.images, source.findings, "positive_only").unpivot(source.findings, **index)
    both = planted.join(read_as, on=["image_id", "finding"])
    assert both["label"].equals(both["y"], check_names=False)
    said = json.loads((folder / "truth.json").read_text())["labels"]
    assert (said["keeps_every_truth"], said["p_positive_given_uncertain"]) == ("positive_only", 0.0)


@pytest.mark.parametrize("layout", WRITERS)
def test_attributes_say_where_devices_are(written, layout):
    folder = written / layout
    table = pl.from_arrow(read_table(folder / "attributes.parquet", ATTRIBUTE))
    planted = pl.read_parquet(folder / "planted.parquet")
    assert set(table["image_id"]) == set(planted["image_id"])
    assert set(table["name"]) == set(ATTRIBUTES)
    assert not table.select("image_id", "name").is_duplicated().any()
    devices = ["drain", "ecg_wires", "pacemaker", "central_line", "et_tube"]
    there = table.filter(pl.col("name").is_in(devices)).group_by("image_id").agg((pl.col("value") == "1").any())
    label = planted.filter(pl.col("finding") == "support_devices").join(there, on="image_id")
    assert (label["value"] == (label["y"] == 1)).all()
    if layout == "nih":
        looked = pl.read_csv(folder / "drain_annotations.csv").with_columns(
            image_id=pl.col("Image Index").str.strip_suffix(".png"), name=pl.lit("drain")
        )
        both = looked.join(table, on=["image_id", "name"])
        assert both.height == looked.height
        assert (both["Drain"].cast(str) == both["value"]).all()


@pytest.mark.parametrize("layout", WRITERS)
def test_truth_names_every_finding_of_the_files(written, layout):
    folder = written / layout
    known = json.loads((folder / "truth.json").read_text())
    planted = pl.read_parquet(folder / "planted.parquet")
    assert set(known["findings"]) == set(planted["finding"])
    assert planted["shown"].is_finite().all()
    assert all(0 < each["image"]["prevalence"] < 1 for each in known["findings"].values())
    assert "upper bound" in known["remarks"]["text"]
    for section in ("shortcut", "slices", "subgroups"):
        assert section not in known or known[section]["finding"] in known["findings"]
    if layout == "nih":
        opacity = next(law for law in DEFAULT if law.finding == "lung_opacity")
        assert known["findings"]["infiltration"]["same_as"] == "lung_opacity"
        assert known["findings"]["infiltration"]["parameters"]["d0"] == opacity.d0
        assert known["findings"]["mass"]["part_of"] == "lung_lesion"
        assert known["findings"]["mass"]["image"]["att"] is None


@pytest.mark.parametrize("findings", ["nih", "covid", "twin"])
def test_truth_of_every_finding_is_that_of_the_planted(crowd, findings):
    """Prevalence, standard AUROC and mean pre-test probability, one image a patient."""
    if findings == "nih":
        planted, names = nih_findings(crowd, np.random.default_rng(0)), nih_names(crowd)
    elif findings == "covid":
        names = covid_names(crowd)
        planted = covid_findings(crowd, names)
    else:
        planted, names = planted_findings(crowd), default_ids(crowd)
    rows = names.unique("patient_id", keep="first", maintain_order=True)["image"].to_numpy()
    known = layout_truth(crowd.laws, planted)["findings"]
    for each in planted:
        y, image = each.y[rows], known[each.finding]["image"]
        error = 4 * np.sqrt(image["prevalence"] * (1 - image["prevalence"]) / len(y))
        assert y.mean() == pytest.approx(image["prevalence"], abs=error), each.finding
        assert each.pretest[rows].mean() == pytest.approx(image["prevalence"], abs=error), each.finding
        found = metrics.delong(y, each.shown[rows])
        if image["standard"] is not None:
            assert found.value == pytest.approx(image["standard"], abs=4 * found.se), each.finding
        else:
            assert each.finding == "no_finding"
            assert found.value > 0.6
