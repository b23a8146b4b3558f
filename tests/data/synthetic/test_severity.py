"""What a picture shows becomes a severity: ranks kept, negatives nearly normal; and sheets of such films."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.errors import ConfigError
from cxrhf.twin.films import contact_sheet, example_rows, main
from cxrhf.twin.laws import DEFAULT, changed, severity_of
from cxrhf.twin.people import people, severity


def test_severity_rises_with_what_the_picture_shows(town):
    shown = severity(town)
    assert shown.shape == town.s.shape
    assert shown.min() >= 0
    assert shown.max() <= 1
    drain = town.images["drain"].to_numpy()
    for at, name in enumerate(town.findings):
        if name == "support_devices":
            continue
        s = town.s[:, at] - 1.5 * drain * (name == "pneumothorax")
        order = np.argsort(s)
        assert (np.diff(shown[order, at])[np.diff(s[order]) > 1e-9] > 0).all()
        assert town.y[:, at][shown[:, at] > 0.5].mean() > town.y[:, at].mean()


def test_negatives_look_nearly_normal(town):
    shown, names = severity(town), [law.finding for law in DEFAULT]
    for name in names:
        at = town.findings.index(name)
        negative, positive = (shown[town.y[:, at] == label, at] for label in (0, 1))
        assert np.median(negative) < 0.05, name
        assert np.quantile(negative, 0.9) < 0.2, name
        assert np.quantile(negative, 0.95) < 0.3, name
        assert (positive > 0.5).mean() > 6 * (negative > 0.5).mean(), name
    columns = [town.findings.index(name) for name in names]
    worst, healthy = shown[:, columns].max(axis=1), town.y[:, town.findings.index("no_finding")] == 1
    assert (worst[healthy] > 0.5).mean() < 0.25
    assert (worst[~healthy] > 0.5).mean() > 0.5
    atelectasis = town.findings.index("atelectasis")
    typical = (town.y[:, atelectasis] == 1) & ~town.images["hazy"].to_numpy()
    assert np.median(shown[typical, atelectasis]) == pytest.approx(0.65, abs=0.03)


@pytest.mark.parametrize("law", [*DEFAULT, *changed("edema", g=4.0, d0=9.0)[4:5]], ids=lambda law: law.finding)
def test_severity_keeps_every_rank(law):
    (mean, spread), (positive, spread_positive) = law.classes
    shown = severity_of(
        law, np.linspace(mean - 6 * spread, max(mean + 6 * spread, positive + 6 * spread_positive), 2001)
    )
    assert 0 < shown[0] < shown[-1] < 1
    assert (np.diff(shown) > 0).all()


def test_classes_are_those_of_the_twin(town):
    drain, hazy = (town.images[name].to_numpy() for name in ("drain", "hazy"))
    for law in DEFAULT:
        at = town.findings.index(law.finding)
        s = town.s[:, at] - 1.5 * drain * (law.finding == "pneumothorax")
        for label, (mean, spread) in enumerate(law.classes):
            rows = (town.y[:, at] == label) & ~(hazy & (law.finding == "atelectasis"))
            assert s[rows].mean() == pytest.approx(mean, abs=0.15), law.finding
            assert s[rows].std() == pytest.approx(spread, abs=0.12), law.finding


@pytest.mark.slow
def test_contact_sheet(tmp_path):
    small = people(40, seed=2)
    sheet = contact_sheet(small, [0, 3, 5], 64, 2, ["a", "b", "c"])
    assert sheet.dtype == np.uint8
    assert sheet.shape == (2 * (64 + 14) + 4, 2 * (64 + 4) + 4)
    assert np.array_equal(sheet, contact_sheet(small, [0, 3, 5], 64, 2, ["a", "b", "c"]))
    assert not np.array_equal(sheet, contact_sheet(small, [0, 3, 5], 64, 2))
    with pytest.raises(ConfigError, match="caption"):
        contact_sheet(small, [0, 1], 64, 2, ["a"])
    with pytest.raises(ConfigError):
        contact_sheet(small, [])
    for name in ("one.png", "two.png"):
        main([str(tmp_path / name), "--patients", "60", "--size", "64"])
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_example_rows_are_what_they_say(town):
    rows = example_rows(town)
    assert len(rows) == 24
    for law in DEFAULT:
        row = rows[law.finding.replace("_", " ")]
        positive = {name for name, label in zip(town.findings, town.y[row], strict=True) if label}
        assert positive == {law.finding}
    for caption in ("normal woman, PA", "normal man, PA", "normal, portable AP", "normal, lateral"):
        assert town.y[rows[caption], town.findings.index("no_finding")] == 1
    assert town.images["drain"][rows["drain"]]
    assert town.images["hazy"][rows["hazy, atelectasis"]]
