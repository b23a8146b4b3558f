"""Input that a verb needs late, or in its last part only, is refused before its first long step: a table over verbs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cxrhf import cli
from cxrhf.audits import sample
from cxrhf.data.build import build
from cxrhf.data.settings import BuildConfig

SMALL = "--config quick --size 32 --batch-size 16 --device cpu"
ROWS = "id,patient,truth,ai,sex\n" + "".join(
    f"i{at},p{at // 2},{(at // 2 + at // 7) % 2},0.{(at * 37) % 90 + 10},{'FM'[at % 4 // 2]}\n" for at in range(80)
)
REPORTS = "image,patient,generated,reference\n" + "".join(f"i{at},p{at},no effusion,an effusion\n" for at in range(6))
# What takes long: pictures that are read, networks that look or learn, notes, vectors, reports, and more resamples than
# it takes to see which differences there are.
LONG = (
    "cxrhf.models.data.open_squares", "cxrhf.models.step.look_at", "cxrhf.models.train.fit",
    "cxrhf.models.finetune.fit", "cxrhf.models.generate.write_reports", "cxrhf.data.load.load_notes",
    "cxrhf.encode.notes.load_model", "cxrhf.encode.bertscore.load_model",
)  # fmt: skip

BAD: list[tuple[str, str]] = [
    ("train twin --out rows.csv/deeper", "rows.csv is a file, not a run folder"),
    ("train twin --findings edma", "Did you mean 'edema'"),
    ("train twin --train-split trian", "Did you mean 'train'"),
    ("train twin --validate-split valid", "Did you mean 'validate'"),
    ("train twin --backbone densnet121 --weights random", "Did you mean 'densenet121'"),
    ("train twin --weights nowhere.safetensors", "got nowhere.safetensors"),
    ("train twin --config quick --drop-path 0.1 --backbone vgg11 --weights random", "got 0.1"),
    ("train twin --only sex=X", "F, M"),
    ("train twin --tasks findings,rase", "Did you mean 'race'"),
    ("predict two --splits tset", "Did you mean 'test'"),
    ("predict two --seeds 0,7", "--seeds 7"),
    ("predict two --build nowhere", "cxrhf build synthetic --out nowhere"),
    ("predict two --out one", "--overwrite"),
    ("predict lacking", "seed-1 has no model.safetensors"),
    ("predict spoiled", "predictions.parquet"),
    ("predict uncalibrated", "calibration.json"),
    ("embed lacking", "seed-1", "model.safetensors"),
    ("embed spoiled", "embeddings.parquet"),
    ("embed two --out one", "--overwrite"),
    ("calibrate two --method plat", "Did you mean 'platt'"),
    ("probe twin --architecture resnet10t --targets sex --backbones random,empty", "has no model.safetensors"),
    ("probe twin --architecture resnet10t --targets sex --backbones random,onne", "Did you mean 'one'"),
    ("probe twin --architecture resnt10t --targets sex --backbones one,random", "Did you mean 'resnet10t'"),
    ("probe twin --architecture resnet10t --targets findings --findings edma --backbones random", "'edema'?"),
    ("zeroshot twin --prompts nowhere.yaml", "nowhere.yaml cannot be read"),
    ("zeroshot twin --findings edma", "Did you mean 'edema'"),
    ("zeroshot twin --splits tset", "Did you mean 'test'"),
    ("zeroshot twin --out rows.csv/deeper", "not a run folder"),
    ("finetune twin --model tiny --validate-split valid", "Did you mean 'validate'"),
    ("finetune twin --model tiny --prompt {indicaton}", "Did you mean 'indication'"),
    ("finetune twin --model tiny --out rows.csv/deeper", "not a run folder"),
    ("generate tiny --build twin --strategies greedy,bem", "Did you mean 'beam'"),
    ("generate tiny --build twin --prompt {indicaton}", "Did you mean 'indication'"),
    ("generate tiny --build twin --split tset", "Did you mean 'test'"),
    ("generate tiny --build twin --adapter nowhere", "got nowhere"),
    ("score words --metrics bertscore,nowhere:f", "the plug-in nowhere:f cannot be imported"),
    ("score words --metrics bertscore --cache rows.csv/deeper", "the cache folder rows.csv/deeper"),
    ("score words --metrics bertscore --encoders ./rows.csv", "got a file"),
    ("score scored --metrics bertscore", "scores.parquet"),
    ("context fit twin --features words,encoder --encoders minilm,rows.csv", "encoder rows.csv"),
    ("context fit twin --features encoder --encoders minilm --cache rows.csv/deeper", "the cache folder"),
    ("context fit twin --features words --findings edma", "Did you mean 'edema'"),
    ("context fit twin --features words --out rows.csv/deeper", "not a run folder"),
    ("audit rows.csv --label truth --score ai --only overvew", "Did you mean 'overview'"),
    ("audit rows.csv --label truth --score ai --primary subgroups:sexx", "got subgroups:sexx"),
    ("audit rows.csv --label truth --score ai --shortcuts drain", "--attributes FILE"),
    ("audit rows.csv --label truth --score ai --attributes nowhere.csv", "nowhere.csv"),
    ("audit rows.csv --label truth --score ai --context one", "one has no predictions.parquet"),
    ("audit rows.csv --label truth --score ai --pretest from:agee", "Did you mean 'age'"),
    ("audit rows.csv --label truth --score ai --out rows.csv/deeper", "not a run folder"),
    ("push model one", "--to"),
    ("push model one --to a//b --dry-run", "--to"),
    ("build synthetic --split rato --out new", "Did you mean 'ratio'"),
    ("build nih_chestxray14 --root nowhere --out new", "nowhere is not a folder"),
    ("build synthetic --out rows.csv/deeper", "not a build folder"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build, runs with one and two networks, reports, a table; and copies of the runs with a fault in them."""
    folder = tmp_path_factory.mktemp("late")
    twin = folder / "twin"
    build(BuildConfig("synthetic", out=str(twin), n_patients=40, seed=5, size=32, configuration="images"))
    for name, seeds in (("one", "0"), ("two", "0-1")):
        line = f"train {twin} {SMALL} --findings edema --max-steps 1 --seeds {seeds} --out {folder / name}"
        assert cli.main(line.split()) == 0
    (folder / "rows.csv").write_text(ROWS)
    (folder / "reports.csv").write_text(REPORTS)
    assert cli.main(["generate", "--from", str(folder / "reports.csv"), "--out", str(folder / "words")]) == 0
    spoil: dict[str, tuple[str, Callable[[Path], Any]]] = {
        "empty": ("one", lambda run: (run / "models/seed-0/model.safetensors").unlink()),
        "lacking": ("two", lambda run: (run / "models/seed-1/model.safetensors").unlink()),
        "uncalibrated": ("two", lambda run: (run / "models/seed-1/calibration.json").write_text("{")),
        "spoiled": ("two", lambda run: [(run / f"{each}.parquet").write_bytes(b"PAR1 damaged") for each in
                                        ("predictions", "embeddings")]),
        "scored": ("words", lambda run: (run / "scores.parquet").write_bytes(b"PAR1 damaged")),
    }  # fmt: skip
    for name, (of, change) in spoil.items():
        change(Path(shutil.copytree(folder / of, folder / name)))
    return folder


@pytest.mark.parametrize(("line", "facts"), [(line, facts) for line, *facts in BAD])
def test_it_is_refused_before_the_first_long_step(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, facts: list[str]
) -> None:
    def began(name: str) -> Callable[..., None]:
        return lambda *_, **__: pytest.fail(f"{name} began")

    for name in LONG:
        monkeypatch.setattr(name, began(name))
    drawn = sample.draw
    monkeypatch.setattr(
        sample, "draw", lambda *given, **more: drawn(*given, **more) if more["n_resamples"] <= 10 else began("draw")()
    )
    monkeypatch.chdir(made)
    before = {path for path in made.rglob("*") if path.is_file()}
    capsys.readouterr()
    out = [] if "--out" in line or line.startswith(("calibrate", "score", "push")) else ["--out", "fresh"]
    if line.startswith(("predict", "embed")):
        out = []
    assert cli.main([*line.split(), *out]) == 2
    said = capsys.readouterr().err
    assert [fact for fact in facts if fact not in said] == [], said
    if not line.startswith("audit"):  # an audit that is refused keeps what it has read, and is not finished
        assert {path for path in made.rglob("*") if path.is_file()} <= before
    shutil.rmtree("fresh", ignore_errors=True)
