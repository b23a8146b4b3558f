"""Drawn chest films: the same film gives the same bytes, every sign and device shows, a small network learns them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from cxrhf.errors import ConfigError
from cxrhf.findings import CHEXPERT
from cxrhf.metrics.ranking import auroc
from cxrhf.twin.films import VIEWS, Film, draw, enlarge, films
from cxrhf.twin.people import People, people, severity
from cxrhf.twin.signs import DEVICES, ORDER, side_of
from tests.refusals import refused
from tests.thinned import thinned

SIZE = 128
PLAIN = Film("PA", "M", 55, 3, 11, {})
FLAGS = (*DEVICES, "hazy")
LEARNT = ("edema", "pleural_effusion", "atelectasis")


def far(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> float:
    """Mean absolute difference of two films."""
    return float(np.abs(a.astype(float) - b).mean())


def test_every_finding_with_a_sign_has_one() -> None:
    assert {*ORDER, "no_finding", "support_devices"} == set(CHEXPERT)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [64, 97, 128, 256, 600])
def test_shape(view: str, size: int) -> None:
    film = replace(PLAIN, view=view, sex="F", severity={"edema": 0.4})
    picture = draw(film, size)
    assert picture.shape == (size, size)
    assert picture.dtype == np.uint8
    assert picture.std() > 35
    assert np.array_equal(picture, draw(film, size))


@pytest.mark.parametrize("view", ["PA", "AP", "LATERAL"])
def test_same_film_same_bytes(view: str) -> None:
    all_of_it: dict[str, Any] = dict.fromkeys(FLAGS, True)
    film = Film(view, "F", 71.5, 5, 6, dict.fromkeys(CHEXPERT, 0.6), **all_of_it)
    first = draw(film, SIZE)
    np.random.default_rng().random()
    assert np.array_equal(first, draw(replace(film, severity=dict(reversed(film.severity.items()))), SIZE))
    numbers = {finding: np.float64(0.6) for finding in CHEXPERT}
    assert np.array_equal(first, draw(replace(film, age=np.float64(71.5), severity=numbers), SIZE))
    assert not np.array_equal(first, draw(replace(film, seed=7), SIZE))
    assert not np.array_equal(first, draw(replace(film, patient_seed=7), SIZE))


def test_lateral_has_two_names() -> None:
    assert np.array_equal(draw(replace(PLAIN, view="LL"), SIZE), draw(replace(PLAIN, view="LATERAL"), SIZE))


@pytest.mark.parametrize("view", thinned(["PA", "AP", "LATERAL"], ["PA", "LATERAL"]))
@pytest.mark.parametrize("finding", ORDER)
def test_more_severity_is_more_to_see(view: str, finding: str) -> None:
    patient = 1 + ORDER.index(finding) + len(view)
    film = Film(view, "MF"[patient % 2], 30 + 3 * patient, patient, patient, {})
    none = draw(film, SIZE)
    assert np.array_equal(none, draw(replace(film, severity={finding: 0.0}), SIZE))
    seen = [far(none, draw(replace(film, severity={finding: s}), SIZE)) for s in (0.01, 0.15, 0.4, 0.7, 1.0)]
    assert seen[0] < 0.1 * seen[-1], "next to no severity is next to nothing to see"
    assert np.all(np.diff(seen) > 0), seen
    hazy = replace(film, hazy=True)
    faint = far(draw(hazy, SIZE), draw(replace(hazy, severity={finding: 1.0}), SIZE))
    assert 0 < faint < 0.8 * seen[-1], "a hazy film has less contrast"


def test_no_sign_of_their_own() -> None:
    named = {"no_finding": 1.0, "support_devices": 1.0}
    assert np.array_equal(draw(PLAIN, SIZE), draw(replace(PLAIN, severity=named), SIZE))


@pytest.mark.parametrize("view", ["PA", "AP", "LATERAL"])
def test_findings_differ(view: str) -> None:
    films = [draw(replace(PLAIN, view=view, severity={finding: 0.8}), SIZE) for finding in ORDER]
    # A broken rib is small: some hundred pixels of a whole film.
    least = [min(far(a, b) for j, b in enumerate(films) if j != i) for i, a in enumerate(films)]
    assert min(least) > 0.1


@pytest.mark.parametrize("view", ["PA", "AP", "LATERAL"])
@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_shows(view: str, flag: str) -> None:
    film = replace(PLAIN, view=view)
    worn: Mapping[str, Any] = {flag: True}
    changed = np.abs(draw(replace(film, **worn), SIZE).astype(int) - draw(film, SIZE)) > 8
    assert changed.sum() > 40


@pytest.mark.parametrize("finding", ["pneumothorax", "pleural_effusion"])
def test_drain_lies_on_the_side_of_the_finding(finding: str) -> None:
    for patient in range(8):
        film = replace(PLAIN, patient_seed=patient, severity={finding: 0.6})
        changed = np.abs(draw(replace(film, drain=True), SIZE).astype(int) - draw(film, SIZE)).sum(axis=0)
        left, right = changed[: SIZE // 2].sum(), changed[SIZE // 2 :].sum()
        assert (1 if right > left else -1) == side_of(patient, finding)


def test_films_of_a_patient_are_alike() -> None:
    def film(patient: int, seed: int) -> NDArray[np.uint8]:
        return draw(Film("PA", "F", 60, seed, patient, {}), 96)

    patients = range(12)
    first, second = [film(p, 1) for p in patients], [film(p, 2) for p in patients]
    own = np.mean([far(a, b) for a, b in zip(first, second, strict=True)])
    others = np.mean([far(first[p], second[q]) for p in patients for q in patients if p != q])
    assert own < 0.8 * others


@pytest.mark.parametrize("view", ["PA", "AP", "LATERAL"])
def test_age_sex_and_view_show(view: str) -> None:
    film = replace(PLAIN, view=view)
    assert far(draw(film, SIZE), draw(replace(film, sex="F"), SIZE)) > 2
    assert far(draw(replace(film, age=22), SIZE), draw(replace(film, age=85), SIZE)) > 2
    assert far(draw(film, SIZE), draw(replace(film, view="LL" if view == "PA" else "PA"), SIZE)) > 5


def test_the_heart_lies_left_and_lungs_are_dark() -> None:
    mean = np.mean([draw(replace(PLAIN, patient_seed=p), SIZE) for p in range(10)], axis=0)
    row = mean[int(0.62 * SIZE)]
    middle = SIZE // 2
    assert row[middle + 10 : middle + 20].mean() > row[middle - 20 : middle - 10].mean() + 15
    lung, belly, outside = mean[45:60, 25:40].mean(), mean[110:120, 30:100].mean(), mean[2:8, 2:20].mean()
    assert outside < 30
    assert 60 < lung < 140
    assert belly > 190


def test_enlarge() -> None:
    small = draw(PLAIN, 128)
    large = enlarge(small, 500, 400, seed=1)
    assert large.shape == (500, 400)
    assert large.dtype == np.uint8
    assert np.array_equal(large, enlarge(small, 500, 400, seed=1))
    assert not np.array_equal(large, enlarge(small, 500, 400, seed=2))
    assert abs(float(large.mean()) - float(small.mean())) < 1
    assert np.abs(np.diff(large.astype(int), axis=1)).mean() > 1.5, "grain of the large size"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"view": "OBLIQUE"}, "PA, AP, LATERAL, LL"),
        ({"sex": "female"}, "F or M"),
        ({"age": float("nan")}, "0 to 130"),
        ({"seed": -1}, ">= 0"),
        ({"severity": {"pleural_efusion": 0.5}}, "did you mean 'pleural_effusion'"),
        ({"severity": {"edema": 1.5}}, "0 to 1"),
        ({"severity": {"edema": float("nan")}}, "0 to 1"),
    ],
)
def test_what_cannot_be_drawn_is_said(wrong: dict[str, Any], said: str) -> None:
    with refused(ConfigError, said):
        replace(PLAIN, **wrong)


@pytest.mark.parametrize("size", [32, 9000])
def test_sizes_have_limits(size: int) -> None:
    with refused(ConfigError, "64 to 4096", got=str(size)):
        draw(PLAIN, size)


def test_quick_enough() -> None:
    # Loose on purpose (about 20 ms on an idle core): it fails when a step turns slow, not when the machine is busy.
    draw(PLAIN, 256)
    times = []
    for _ in range(5):
        start = time.process_time()
        draw(replace(PLAIN, severity={"edema": 0.5}), 256)
        times.append(time.process_time() - start)
    assert min(times) < 0.1


def held_out_scores(
    pictures: NDArray[np.uint8],
    truth: NDArray[np.int64],
    train: int,
    *,
    halve: bool = False,
    epochs: int = 10,
    rate: float = 8e-3,
    decay: float = 0.05,
) -> NDArray[np.float64]:
    """Logits of one tiny network, trained on the first `train` pictures, for the others: a column a label."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a net only waits for a second thread
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            x = torch.from_numpy(pictures).float()[:, None]
            x = (x - x[:train].mean(0)) / 40
            if halve:  # large signs need no fine pixels
                x = torch.nn.functional.avg_pool2d(x, 2)
            y = torch.from_numpy(truth).float()
            layers: list[Any] = []
            for inside, out, stride in ((1, 12, 1 if halve else 2), (12, 24, 1), (24, 32, 1)):
                layers += [torch.nn.Conv2d(inside, out, 3, stride, 1), torch.nn.BatchNorm2d(out), torch.nn.ReLU()]
                layers += [torch.nn.MaxPool2d(2)]
            last = torch.nn.Linear(512, truth.shape[1])
            net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Dropout(0.3), last)
            step = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
            batch_size = 20
            pace = torch.optim.lr_scheduler.OneCycleLR(step, rate, total_steps=epochs * -(-train // batch_size))
            for _ in range(epochs):
                for batch in torch.randperm(train).split(batch_size):
                    loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x[batch]), y[batch])
                    step.zero_grad()
                    loss.backward()
                    step.step()
                    pace.step()
            net.eval()
            with torch.no_grad():
                return np.asarray(net(x[train:]).numpy(), dtype=float)
    finally:
        torch.set_num_threads(threads)


@lru_cache(maxsize=1)
def learnt() -> dict[str, float]:
    """Held-out AUROC for effusion, drain and sex of films made for it; patients are never shared."""
    n, train, size = 420, 280, 64
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 2, (n, 3))
    pictures = np.stack(
        [
            draw(
                Film(
                    view="PA" if rng.uniform() < 0.6 else "AP",
                    sex="MF"[sex],
                    age=float(rng.uniform(20, 90)),
                    seed=i,
                    patient_seed=1000 + i,
                    severity={"pleural_effusion": float(rng.uniform(0.5, 1)) * fluid},
                    drain=bool(drain),
                    ecg_wires=bool(rng.uniform() < 0.3),
                ),
                size,
            )
            for i, (fluid, drain, sex) in enumerate(truth)
        ]
    )
    score = held_out_scores(pictures, truth, train)
    return {name: auroc(truth[train:, i], score[:, i]) for i, name in enumerate(("fluid", "drain", "sex"))}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["fluid", "drain", "sex"])
def test_a_small_network_learns(what: str) -> None:
    assert learnt()[what] > 0.8


def twin_rows(twin: People, each: int, seed: int) -> NDArray[np.int64]:
    """Rows of frontal films, one a patient, `each` of them for every combination of the LEARNT labels, mixed."""
    frontal = twin.images.with_row_index("row").filter(pl.col("view") != "LATERAL")
    rows = frontal.unique("patient", keep="first", maintain_order=True)["row"].to_numpy()
    rows = np.random.default_rng(seed).permutation(rows)
    cell = labels_of(twin, rows) @ (2 ** np.arange(len(LEARNT)))
    return np.stack([rows[cell == which][:each] for which in range(2 ** len(LEARNT))]).T.ravel()


def labels_of(twin: People, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return twin.y[rows][:, [twin.findings.index(name) for name in LEARNT]]


def read_twin(seed: int) -> dict[str, float]:
    """Held-out AUROC of a tiny network trained on films as the twin draws them: its people, its severities."""
    twin, train = people(9000, seed=seed), 370
    rows = twin_rows(twin, 60, seed)
    pictures = np.stack([pixels for _, pixels in films(twin, 64, rows=rows.tolist())])
    truth = labels_of(twin, rows)
    score = held_out_scores(pictures, truth, train, halve=True, epochs=16, rate=3e-3, decay=1.0)
    return {name: auroc(truth[train:, i], score[:, i]) for i, name in enumerate(LEARNT)}


@pytest.mark.slow
def test_a_small_network_learns_from_the_twin() -> None:
    # S itself reaches .80 to .97. Over seeds 0 to 5 the least was .64 for edema and .62 for the mean of the three.
    found = read_twin(0)
    assert found["edema"] > 0.6, found
    assert np.mean(list(found.values())) > 0.58, found


def test_haze_does_not_tell_the_label() -> None:
    twin = people(9000, seed=0)
    y = twin.y[:, twin.findings.index("atelectasis")]
    hazy = twin.images["hazy"].to_numpy()
    assert auroc(y, hazy.astype(float)) == pytest.approx(0.5, abs=0.01)
    shown = severity(twin)[:, twin.findings.index("atelectasis")]
    assert np.median(shown[(y == 1) & hazy]) < 0.3
    assert np.median(shown[(y == 1) & ~hazy]) > 0.6
    assert np.median(shown[(y == 0) & hazy]) == pytest.approx(np.median(shown[(y == 0) & ~hazy]), abs=0.01)
