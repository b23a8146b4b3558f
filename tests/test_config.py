"""Configs: checked when made, exact about their keys, light to import."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cxrhf.audits import plan as audits
from cxrhf.audits.reports import AUDITS as OF_REPORTS
from cxrhf.cli.demo import DemoConfig, resolve_config
from cxrhf.errors import ConfigError
from cxrhf.settings import AUDITS, AuditConfig, ReportConfig, from_mapping, load_mapping, to_mapping
from tests.refusals import refused

CONFIGS = (AuditConfig, DemoConfig, ReportConfig)


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_field_has_help(kind: type) -> None:
    assert kind.__doc__
    for field in dataclasses.fields(kind):
        assert field.metadata["help"].endswith("."), field.name


def test_defaults_of_an_audit() -> None:
    config = AuditConfig(predictions=("a.csv",))
    assert (config.n_resamples, config.seed, config.level, config.only) == (2000, 0, 0.95, ())
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_lists_with_commas_or_spaces() -> None:
    config = AuditConfig(predictions="a.csv", only=("overview,matched",), findings=("Effusion, Mass", "edema"))  # type: ignore[arg-type]
    assert config.predictions == ("a.csv",)
    assert config.only == ("overview", "matched")
    assert config.findings == ("pleural_effusion", "mass", "edema")
    assert AuditConfig(predictions=(Path("x") / "a.csv",)).predictions == ("x/a.csv",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"predictions": ()}, ["PREDICTIONS"]),
        ({"only": ("overveiw",)}, ["only", "'overview'"]),
        ({"n_resamples": 0}, ["n_resamples", "10 to 1,000,000"]),
        ({"seed": -1}, ["seed"]),
        ({"level": 95.0}, ["level"]),
        ({"level": float("nan")}, ["level"]),
        ({"pretest": "from:age,sx"}, ["sx"]),
        ({"correction": "bonferoni"}, ["correction", "'bonferroni'"]),
        ({"train_prevalence": ("edema=2",)}, ["train_prevalence", "edema=2"]),
        ({"train_prevalence": ("edema=x",)}, ["edema=x"]),
    ],
)
def test_bad_audits(changes: dict[str, object], facts: list[str]) -> None:
    with refused(ConfigError, *facts):
        AuditConfig(**{"predictions": ("a.csv",), **changes})  # type: ignore[arg-type]


def test_training_prevalence() -> None:
    config = AuditConfig(predictions=("a.csv",), train_prevalence=("0.2,Effusion=0.1",))
    assert config.training_prevalence("pleural_effusion") == 0.1
    assert config.training_prevalence("mass") == 0.2
    assert AuditConfig(predictions=("a.csv",)).training_prevalence("mass") is None


def test_columns() -> None:
    columns = AuditConfig(predictions=("a.csv",), patient="PID", seed_column="fold", seed=7).columns()
    assert (columns.patient, columns.seed, columns.label) == ("PID", "fold", None)


def test_the_demo() -> None:
    assert resolve_config(DemoConfig()).out == "runs/demo"
    quick = resolve_config(DemoConfig(quick=True))
    assert (quick.out, quick.n_patients, quick.report_steps) == ("runs/demo-quick", 150, 0)
    with refused(ConfigError, "n_patients"):
        DemoConfig(n_patients=1)


def test_reports_and_their_flags() -> None:
    for settings, fix in (
        ({"run": ("a", "b")}, "cxrhf report --diff RUN1 RUN2"),
        ({"run": ("a",), "diff": True}, "cxrhf report --diff RUN1 RUN2"),
        ({"run": ("a",), "json": True}, "--diff"),
        ({"run": ("a", "b"), "diff": True, "cards": "c"}, "cxrhf report b --cards c"),
    ):
        with refused(ConfigError, fix=fix):
            ReportConfig(**settings)  # type: ignore[arg-type]


def test_from_mapping() -> None:
    config = from_mapping(AuditConfig, {"predictions": ["a.csv"], "n-resamples": 50, "level": 0.9, "only": "overview"})
    assert (config.n_resamples, config.level, config.only) == (50, 0.9, ("overview",))
    assert from_mapping(AuditConfig, to_mapping(config)) == config
    assert from_mapping(AuditConfig, {"predictions": "a.csv", "out": None}).out is None
    with refused(ConfigError, "mine.yaml", "'n_resample'", fix="'n_resamples'"):
        from_mapping(AuditConfig, {"predictions": "a.csv", "n_resample": 5}, source="mine.yaml")
    with refused(ConfigError, "predictions"):
        from_mapping(AuditConfig, {})
    for key, value in (("seed", "x"), ("seed", 1.5), ("seed", True), ("overwrite", 1), ("out", 3), ("level", "high")):
        with refused(ConfigError, key, got=str(value)):
            from_mapping(AuditConfig, {"predictions": "a.csv", key: value})


def test_load_mapping(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("predictions: [a.csv]\nseed: 4\n")
    assert from_mapping(AuditConfig, load_mapping(str(path))).seed == 4
    for content, got in (("a: [", None), ("- 1\n", "list"), ("", "NoneType")):
        path.write_text(content)
        with refused(ConfigError, "c.yaml", got=got):
            load_mapping(str(path))
    path.write_bytes(b"a: \xe9\xff\n")
    with refused(ConfigError, "c.yaml", "YAML"):
        load_mapping(str(path))
    with refused(ConfigError, "--config", "quick", got="nowhere"):
        load_mapping("nowhere")


def test_audits_are_those_that_exist() -> None:
    assert (*audits.AUDITS, *OF_REPORTS) == AUDITS
