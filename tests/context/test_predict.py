"""Models and builds of others: what ids can tell, and what the models may not ask of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cxrhf.context.material import Candidate
from cxrhf.context.predict import check_same_images, join_context, open_encoders
from cxrhf.context.store import Bundle, StoredModel
from cxrhf.encode import download
from cxrhf.errors import CxrhfError, TableError
from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import check
from tests.refusals import refused


def rows(images: str, patients: str, dataset: str | None = "one") -> pa.Table:
    name = pa.array([dataset] * len(images), pa.string())
    return pa.table({"image_id": list(images), "patient_id": list(patients), "dataset": name})


def test_the_same_images_and_new_ones_raise_no_doubt():
    assert check_same_images(rows("abz", "pqr"), rows("aabb", "ppqq")) == []
    assert check_same_images(rows("abz", "pqr", None), rows("ab", "pq", None)) == []
    assert check_same_images(rows("ab", "xy", "two"), rows("ab", "pq")) == []  # other people with like image ids


def test_an_image_of_the_fit_with_another_patient_is_refused():
    with refused(TableError, "1 images of the fit", fix="cxrhf context fit"):
        check_same_images(rows("abz", "pxr"), rows("ab", "pq"))


def test_the_same_ids_under_another_name_are_told():
    said = check_same_images(rows("abz", "pqr", "two"), rows("ab", "pq"))
    assert len(said) == 1
    assert "2 images" in said[0]
    assert "have seen their labels" in said[0]


def reads_with(encoder: str, **settings: Any) -> Bundle:
    """Models of somebody else, who chose an encoder and its settings."""
    model = StoredModel("edema", "theirs", "encoder", Candidate("LinearSVC", {}), None, None)  # type: ignore[arg-type]
    about = {"settings": {"encoder": encoder, **settings}, "identity": {"dim": 32}}
    return Bundle({"edema": model}, {}, {"theirs": about}, {}, {})


def opened(bundle: Bundle, **allowed: bool) -> Any:
    return open_encoders(bundle, ["edema"], device="cpu", **{"allow_bin": False, "fetch": False, **allowed})


@pytest.mark.parametrize("name", ["someone/encoder", "pubmedbert"])
def test_an_encoder_that_a_run_names_is_fetched_with_consent_only(name, tmp_path, monkeypatch):
    asked: list[Any] = []
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(download, "kept_folder", lambda _: None)
    monkeypatch.setattr("cxrhf.encode.encoder.hub_folder", lambda place, **_: asked.append(place) or tmp_path)
    with pytest.raises(CxrhfError, match=rf"{name}.*not on this machine.*--fetch"):
        opened(reads_with(name))
    assert not asked
    with pytest.raises(CxrhfError, match=r"no config.json"):  # what was fetched is empty here
        opened(reads_with(name), fetch=True)
    assert asked


def test_bin_weights_are_read_only_if_the_user_says_so(tmp_path):
    import torch
    from safetensors.torch import load_file

    from tests.encode.tiny import save_tiny

    folder = Path(save_tiny("bert", tmp_path / "bert"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    theirs = reads_with(str(folder), allow_bin=True, batch_tokens=10_000_000)
    with pytest.raises(CxrhfError, match=r"only \.bin weights.*--allow-bin"):
        opened(theirs)
    found = opened(theirs, allow_bin=True)["theirs"]
    assert found.allow_bin
    assert found.batch_tokens == 8192


def test_encoders_that_no_finding_needs_are_left_alone():
    assert open_encoders(reads_with("someone/encoder"), ["fracture"], device="cpu", allow_bin=False, fetch=False) == {}


def test_a_context_run_takes_the_place_of_what_the_predictions_have() -> None:
    """Gaps of a column were filled from the run: strata of two sources."""

    def rows(model: str, **columns: object) -> pa.Table:
        ids = {"image_id": list("abc"), "patient_id": list("xyz"), "model": [model] * 3, "finding": ["edema"] * 3}
        return check(pa.table({**ids, "label": pa.array([0, 1, 0], pa.int8()), **columns}), PREDICTION)

    ours = rows("net", prob=[0.1, 0.2, 0.3], pretest=[0.9, None, 0.8], mention=[True, False, True])
    joined = join_context(ours, rows("context", prob=[0.4, 0.5, None], split=["train", "train", "test"]))
    assert joined.about["train_prevalence"] == {"edema": 0.5}  # equation 1 weighs by it
    assert joined.table["pretest"].to_pylist() == [0.4, 0.5, None]
    assert joined.table["mention"].to_pylist() == [True, False, True]  # the run has none
    assert any("their own pretest in 2 rows" in note for note in joined.notes)
