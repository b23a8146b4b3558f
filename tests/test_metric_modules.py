"""Every folder of metrics/: loads, documents itself, equals the core to the last bit, refuses bad input."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import cxrhf
from cxrhf import metrics as core
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.estimates import labels_of, reweight_labels
from cxrhf.metrics.words_measured import two_groups
from tests.metric_cases import CASES, NUMBERS, TEXTS, case, loaded, same, subprocess_environment
from tests.metric_process import forms, inputs

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "metrics").glob("*/*.py") if path.stem == path.parent.name)
NAMES = [folder.name for folder in FOLDERS]

HEADINGS = (
    "# Metric card",
    "## What it measures",
    "## Formula",
    "## Range and direction",
    "## How to use",
    "## Examples",
    "## Output",
    "## When it is undefined",
    "## Values from the papers",
    "## Limits and known misuse",
    "## Citation",
)


def test_all_ten_are_here() -> None:
    assert set(NAMES) == set(CASES)
    assert len(NAMES) == 10


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_folder_is_complete(folder: Path) -> None:
    for file in (f"{folder.name}.py", "README.md", "app.py", "requirements.txt"):
        assert (folder / file).is_file(), f"{folder.name}/{file} is missing"
    card = (folder / "README.md").read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    said = yaml.safe_load(front)
    assert said["sdk"] == "gradio"
    assert said["app_file"] == "app.py"
    assert {"evaluate", "metric"} <= set(said["tags"])
    assert said["title"]
    places = [body.find(heading) for heading in HEADINGS]
    assert -1 not in places, f"{folder.name}: no {HEADINGS[places.index(-1)]!r}"
    assert places == sorted(places)


@pytest.mark.parametrize("name", NAMES)
def test_loads_and_describes_itself(name: str) -> None:
    module = loaded(name)
    assert module.name == name
    assert module.module_type == "metric"
    for text in (module.description, module.citation, module.inputs_description):
        assert len(text) > 50
    assert module.inputs_description in module.compute.__doc__
    assert module.inputs_description in module.add_batch.__doc__
    assert module.features[0]["predictions"].dtype == ("string" if name in TEXTS else "float64")


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_the_docstring(name: str) -> None:
    outcome = doctest.testmod(sys.modules[type(loaded(name)).__module__])
    assert outcome.failed == 0
    assert len(re.findall(r">>> .*\.compute\(", type(loaded(name)).__doc__ or "")) >= 2


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_examples_of_the_card(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```(?:python|py)\n(.*?)```", card, re.DOTALL) if ">>>" in block]
    assert "\n".join(blocks).count(".compute(") >= 2
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"{folder.name} block {number}", None, 0)
        runner = doctest.DocTestRunner(verbose=False)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        names = test.globs
        assert runner.summarize(verbose=False).failed == 0, "".join(said)


# Equality with the core, to the last bit.


def expected(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one label from the plain functions of cxrhf.metrics, without the shells' own machinery."""
    y, p = data.get("references"), data["predictions"]
    weight, clusters = data.get("sample_weight"), data.get("clusters")

    def ends(metric: str, value: float, used: Any, **option: Any) -> tuple[float, float]:
        draws = core.draw(clusters, y=y, n_resamples=200, seed=3)
        pretest = {"pretest": data["context"]} if metric == "matched_auroc" else {}
        given = {} if metric == "matched_auroc" else {"weight": used}
        replicates = core.bootstrap(metric, y, p, draws=draws, **given, **pretest, **option)
        found = core.interval(value, replicates, units=core.count_units(y, clusters, used), metric=metric)
        return found.low, found.high

    if name == "weighted_auroc":
        used = weight * core.att_weights(y, data["context"])
        value = core.auroc(y, p, used)
        low, high = ends("auroc", value, used)
        return {
            name: value,
            f"{name}_ci_low": low,
            f"{name}_ci_high": high,
            f"{name}_unweighted": core.auroc(y, p, weight),
            f"{name}_effective_positives": core.effective_sample_size(used, y).positive,
        }
    if name == "balanced_brier":
        value = core.balanced_brier(y, p, weight)
        low, high = ends(name, value, weight)
        return {
            name: value,
            f"{name}_ci_low": low,
            f"{name}_ci_high": high,
            f"{name}_positive": core.brier_positive(y, p, weight),
            f"{name}_negative": core.brier_negative(y, p, weight),
            f"{name}_plain": core.brier(y, p, weight),
        }
    if name == "brier_skill_score":
        value = core.brier_skill_score(y, p, weight)
        low, high = ends(name, value, weight)
        return {name: value, f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_brier": core.brier(y, p, weight)}
    if name == "adaptive_calibration_error":
        value = core.adaptive_calibration_error(y, p, weight)
        low, high = ends(name, value, weight)
        null = core.expected_ace(p, weight, n_simulations=100, seed=3)
        return {name: value, f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_expected": null}
    if name == "sensitivity_at_specificity":
        point = core.sensitivity_at_specificity(y, p, weight=weight)
        low, high = ends(name, point.sensitivity, weight)
        return {
            name: point.sensitivity,
            f"{name}_ci_low": low,
            f"{name}_ci_high": high,
            f"{name}_threshold": point.threshold,
            f"{name}_specificity": point.specificity,
        }
    if name == "matched_auroc":
        value = core.matched_auroc(y, p, data["context"])
        low, high = ends(name, value, core.match_weights(y, data["context"]))
        pairs = core.match_pairs(y, data["context"])
        about = core.pair_summary(pairs, y, data["context"], clusters)
        return {
            name: value,
            f"{name}_ci_low": low,
            f"{name}_ci_high": high,
            f"{name}_pairs": about.n_pairs,
            f"{name}_mean_difference": about.mean_difference,
            f"{name}_same_patient": about.same_patient_share,
        }
    if name == "subgroup_rates":
        groups = data["groups"]
        found = core.measure_subgroups(y, p, groups, weight=weight, clusters=clusters, n_resamples=200, seed=3)
        return {name: found["groups"], f"{name}_gaps": found["gaps"], f"{name}_threshold": found["threshold"]}
    if name == "lexical_diversity":
        return expected_diversity(p)
    texts = core.corpora(y, p, data["groups"], clusters)
    moved = core.cad_corpora(texts)
    if name == "cad":
        about = core.summary(moved)
        return {
            "cad_categories": about["either"],
            "cad_paper": about["paper"],
            "cad_omitted_mass": about["omitted_mass"],
            "cad_delta_dir": about["delta_dir"],
        }
    drawn = core.bootstrap_words(texts, n_resamples=200, seed=3).interval("wae_prediction")
    return {
        "wae": core.wae(moved),
        "wae_ci_low": drawn.low,
        "wae_ci_high": drawn.high,
        "wae_null": float(core.split_half(texts, n_resamples=200, seed=3)["wae_prediction"].mean()),
        "wae_delta": core.delta_wae(moved),
        "wae_p_value": core.swap_corpora(texts, n_resamples=200, seed=3).p_value["wae_prediction"],
    }


def expected_diversity(texts: Any) -> dict[str, Any]:
    found = core.lexical_diversity(texts)
    keys = ("template_diversity", "type_token_ratio", "self_bleu", "n_tokens", "n_types")
    return {f"lexical_diversity_{key}": getattr(found, key) for key in keys}


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_core(name: str) -> None:
    data = case(name)
    out = loaded(name).compute(**data, n_resamples=200, seed=3)
    for key, value in expected(name, data).items():
        assert same(out[key], value), f"{key}: {out[key]!r} is not {value!r}"


@pytest.mark.parametrize("name", NUMBERS)
def test_several_labels_are_each_label(name: str) -> None:
    """Each column alone, without the rows whose label is missing, gives what the list of labels says."""
    wide = case(name, labels=3)
    out = loaded(name).compute(**wide)
    for k in range(3):
        at = ~np.isnan(wide["references"][:, k])
        one = {key: (value[at, k] if value.ndim == 2 else value[at]) for key, value in wide.items()}
        alone = loaded(name).compute(**one)
        if name == "subgroup_rates":
            assert same(out["subgroup_rates_per_label"][k]["groups"], alone["subgroup_rates"])
            continue
        keys = [key for key in alone if f"{key}_per_label" in out]
        assert name in keys
        for key in keys:
            assert same(out[f"{key}_per_label"][k], alone[key]), key
    if name != "subgroup_rates":
        assert same(out[name], float(np.mean(out[f"{name}_per_label"])))


@pytest.mark.parametrize("name", NUMBERS)
def test_the_mean_over_labels_has_an_interval(name: str) -> None:
    wide = case(name, labels=3)
    out = loaded(name).compute(**wide, n_resamples=200, label_names=["edema", "mass", "nodule"])
    if name == "subgroup_rates":
        assert set(out["subgroup_rates_per_label"]) == {"edema", "mass", "nodule"}
        return
    assert out[f"{name}_ci_low"] < out[name] < out[f"{name}_ci_high"]
    each = out[f"{name}_per_label"]
    assert list(each) == ["edema", "mass", "nodule"]
    for label, value in each.items():
        assert out[f"{name}_per_label_ci_low"][label] <= value <= out[f"{name}_per_label_ci_high"][label]


# The ways to hand rows over.


@pytest.mark.parametrize(("name", "labels"), [*((name, 1) for name in NAMES), *((name, 3) for name in NUMBERS)])
def test_batches_equal_one_call(name: str, labels: int) -> None:
    data = case(name, labels=labels)
    n = len(data["predictions"])
    whole = loaded(name).compute(**data, seed=1)
    module = loaded(name)
    for start, stop in ((0, 1), (1, 60), (60, n)):
        module.add_batch(**{key: value[start:stop] for key, value in data.items()})
    assert len(module) == n
    assert same(module.compute(seed=1), whole)
    assert len(module) == 0
    for i in range(n):
        row = {key: value[i] for key, value in data.items()}
        module.add(prediction=row.pop("predictions"), reference=row.pop("references"), **row)
    assert same(module.compute(seed=1), whole)
    module.add_batch(**{key: value[:50] for key, value in data.items()})
    assert same(module.compute(**{key: value[50:] for key, value in data.items()}, seed=1), whole)


@pytest.mark.parametrize("name", NAMES)
def test_lists_arrays_and_tables(name: str) -> None:
    import pandas
    import torch

    data = case(name)
    whole = loaded(name).compute(**data)
    assert same(loaded(name).compute(**{key: value.tolist() for key, value in data.items()}), whole)
    assert same(loaded(name).compute(**{key: pandas.Series(value) for key, value in data.items()}), whole)
    if name in TEXTS:
        return
    tensors = {
        key: value if value.dtype.kind in "OU" else torch.tensor(value, requires_grad=value.dtype.kind == "f")
        for key, value in data.items()
    }
    assert same(loaded(name).compute(**tensors), whole)


@pytest.mark.parametrize("name", NAMES)
def test_optional_inputs_are_optional(name: str) -> None:
    module = loaded(name)
    data = case(name)
    bare = {key: value for key, value in data.items() if key in module.required}
    least = module.compute(**bare)
    assert name in least or name == "lexical_diversity"
    for extra in module.optional:
        out = module.compute(**bare, **{extra: data[extra]})
        module.add_batch(**bare, **{extra: data[extra]})
        assert same(module.compute(), out)
    again = module.compute(**bare, **dict.fromkeys(module.optional))
    assert same(again, least)


def test_combine() -> None:
    import evaluate

    chosen = ["weighted_auroc", "balanced_brier", "subgroup_rates", "matched_auroc"]
    data = case("weighted_auroc") | case("matched_auroc") | case("subgroup_rates")
    plain = {key: data[key] for key in ("predictions", "references", "groups", "context")}
    both = evaluate.combine([cxrhf.metric_path(name) for name in chosen])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        whole = both.compute(**plain)
    assert any("balanced_brier ignores groups" in str(each.message) for each in said)
    assert {"weighted_auroc", "balanced_brier", "subgroup_rates", "matched_auroc"} <= set(whole)
    for start, stop in ((0, 60), (60, 120), (120, len(data["predictions"]))):
        both.add_batch(**{key: value[start:stop] for key, value in plain.items()})
    assert same(both.compute(), whole)
    least = evaluate.combine([cxrhf.metric_path(name) for name in chosen[:2]])
    for i in range(len(data["predictions"])):
        least.add(prediction=data["predictions"][i], reference=data["references"][i])
    assert same(
        least.compute(),
        {k: v for c in chosen[:2] for k, v in loaded(c).compute(**dict(list(plain.items())[:2])).items()},
    )


# What cannot be computed.


def bad(name: str) -> list[tuple[dict[str, Any], str]]:
    """Inputs that must be refused, and what the message must say."""
    data = case(name)
    n = len(data["predictions"])
    out: list[tuple[dict[str, Any], str]] = [
        ({"predictions": data["predictions"][:-1]}, "rows|shape"),
        ({"predictions": None}, "requires predictions"),
        ({"n_resample": 5}, "got 'n_resample'.*Did you mean 'n_resamples'"),
        ({"n_resamples": -1}, "n_resamples: expected .*got -1"),
        ({"clusters": [None, *range(n - 1)]}, r"clusters\[0\]: .*got None"),
    ]
    if name in TEXTS:
        return [
            *out,
            ({"predictions": ["clear", 7, *["clear"] * (n - 2)]}, r"predictions\[1\]: expected str, got 7 \(int\)"),
            ({"predictions": "clear lungs"}, "expected a list of str"),
        ]
    labels, scores = data["references"].tolist(), data["predictions"].tolist()
    return [
        *out,
        ({"references": [2.0, *labels[1:]]}, r"references\[0\]: expected 0, 1 or null, got 2.0"),
        ({"references": ["yes", *labels[1:]]}, r"references\[0\]: expected a number, got .*yes"),
        ({"predictions": [float("nan"), *scores[1:]]}, r"predictions\[0\]: .*got nan"),
        ({"predictions": "0.5"}, "predictions: .*got '0.5'"),
        ({"predictions": [[0.1, 0.2], [0.1]] + [[0.1]] * (n - 2)}, "predictions: expected the same number of labels"),
        ({"level": 95}, "level: expected a number between 0 and 1, got 95"),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_refused_in_plain_words(name: str) -> None:
    for change, said in bad(name):
        module = loaded(name)
        with pytest.raises(InputError, match=re.compile(said, re.DOTALL)):
            module.compute(**(case(name) | {"n_resamples": 2} | change))
        assert len(module) == 0
        if not {"n_resample", "n_resamples", "level"} & set(change):
            with pytest.raises(InputError, match=re.compile(said, re.DOTALL)):
                module.add_batch(**(case(name) | change))


@pytest.mark.parametrize("name", sorted({"balanced_brier", "brier_skill_score", "adaptive_calibration_error"}))
def test_logits_are_no_probabilities(name: str) -> None:
    with pytest.raises(InputError, match=r"predictions\[1\]: expected a probability from 0 to 1, got 2.5"):
        loaded(name).add_batch(predictions=[0.2, 2.5], references=[0, 1])


def test_one_row_at_a_time_with_missing_labels() -> None:
    module = loaded("weighted_auroc")
    for p, y in ((0.1, 0), (0.9, 1), (0.5, None), (0.3, float("nan")), (0.2, 0)):
        module.add(prediction=p, reference=y)
    assert len(module) == 5
    assert module.compute() == {"weighted_auroc": 1.0}
    with pytest.raises(InputError, match="requires references, got predictions"):
        module.add(prediction=0.5)


def test_a_mistake_costs_no_rows() -> None:
    module = loaded("weighted_auroc")
    module.add_batch(predictions=[0.1, 0.9], references=[0, 1])
    with pytest.raises(InputError, match="weighting"):
        module.compute(weightin="att")
    with pytest.raises(InputError, match=r"sample_weight: .*batches"):
        module.add_batch(predictions=[0.3], references=[0], sample_weight=[1])
    with pytest.raises(InputError, match="expected rows of shape"):
        module.add_batch(predictions=[[0.3, 0.1]], references=[[0, 1]])
    module.add_batch(predictions=[0.3], references=[0])
    assert module.compute() == {"weighted_auroc": 1.0}
    with pytest.raises(InputError, match="no rows"):
        module.compute()


def test_nothing_is_written_to_the_cache(tmp_path: Path) -> None:
    """Patients' reports and scores stay in memory."""
    import evaluate

    module = evaluate.load(cxrhf.metric_path("cad"), cache_dir=str(tmp_path))
    data = case("cad")
    module.add_batch(**{key: value[:50] for key, value in data.items()})
    module.compute(**{key: value[50:] for key, value in data.items()})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", NUMBERS)
def test_undefined_says_why(name: str) -> None:
    data = case(name) | {"references": np.zeros(len(case(name)["predictions"]))}
    out = loaded(name).compute(**data, n_resamples=20)
    if name == "subgroup_rates":
        assert all("no positives" in each["note"] for each in out[name].values())
    elif name == "adaptive_calibration_error":
        assert out[name] > 0  # labels of one class are no obstacle to it
    else:
        assert np.isnan(out[name])
        assert np.isnan(out[f"{name}_ci_low"])
        assert "no positives among" in out[f"{name}_note"]


def test_context_of_many_labels_may_be_one_column() -> None:
    wide = case("weighted_auroc", labels=3)
    one = wide | {"context": wide["context"][:, 0]}
    each = wide | {"context": np.repeat(wide["context"][:, :1], 3, axis=1)}
    assert same(loaded("weighted_auroc").compute(**one), loaded("weighted_auroc").compute(**each))
    rows = reweight_labels(labels_of(wide["references"], wide["predictions"], None, wide["context"]), "ipw")
    assert rows.weight is not None
    assert rows.weight.shape == wide["references"].shape


def test_plus_one_is_the_rule_of_its_name_for_every_label() -> None:
    """The first label has more than 400 negatives, the second fewer."""
    rng = np.random.default_rng(0)
    y = (rng.random((700, 2)) < [0.2, 0.6]).astype(float)
    p = y + rng.normal(size=y.shape)
    weight = np.ones(700)
    out = loaded("sensitivity_at_specificity").compute(predictions=p, references=y, rule="interp")
    for k in range(2):
        expected = core.sensitivity_at_specificity(y[:, k], p[:, k], rule="plus_one").sensitivity
        assert out["sensitivity_at_specificity_plus_one_per_label"][k] == expected
    weight[y[:, 0] == 0] = np.arange((y[:, 0] == 0).sum()) < 50  # rows without weight are no rows
    few = loaded("sensitivity_at_specificity").compute(predictions=p[:, 0], references=y[:, 0], sample_weight=weight)
    assert few["sensitivity_at_specificity_expected_specificity"] == 1 - 3 / 51


def test_a_group_without_words_is_undefined() -> None:
    data = case("cad")
    silent = np.where(data["groups"] == "F", "", data["predictions"]).astype(object)
    for name in ("cad", "wae"):
        for rule in ({"rule": "paper"}, {}) if name == "cad" else ({},):
            out = loaded(name).compute(**(data | {"predictions": silent}), **rule)
            assert np.isnan(out[name])
            assert out[f"{name}_note"] == "undefined: no words in the generated reports of F"


def test_more_than_two_groups() -> None:
    data = case("cad")
    groups = np.where(np.arange(len(data["groups"])) % 3 == 0, "X", data["groups"]).astype(object)
    with pytest.raises(InputError, match=r"groups: expected 2, got 3 \(F, M, X\).*pair="):
        loaded("cad").compute(**(data | {"groups": groups}))
    out = loaded("cad").compute(**(data | {"groups": groups}), group="X")
    assert out["cad_groups"] == ["X", "not X"]
    assert loaded("wae").compute(**(data | {"groups": groups}), pair=("M", "F"))["wae_groups"] == ["M", "F"]
    with pytest.raises(InputError, match="pair and group"):
        two_groups(data["references"], data["predictions"], groups, pair=("F", "M"), group="X")


# Several processes, a wheel, and copies without cxrhf.


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    """Each process adds its own rows; the first one computes. The rows then come in another order."""
    command = [sys.executable, "-m", "tests.metric_process", str(tmp_path)]
    environment = subprocess_environment(tmp_path)
    processes = [
        subprocess.Popen(
            [*command, str(rank)], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    found = json.loads(said[0][0])
    for name in NAMES:
        for form in forms(name):
            data = inputs(name, form, loaded(name).required)
            halves = {key: np.concatenate([value[0::2], value[1::2]]) for key, value in data.items()}
            here = json.loads(json.dumps(loaded(name).compute(**halves, n_resamples=50)))
            assert same(found[f"{name}, {form}"], here), (name, form)


WITHOUT_TRANSFORMERS = (ROOT / "tests" / "without_transformers.py").read_text(encoding="utf-8")
WITHOUT_NETWORK = """
import socket, sys
def refuse(*arguments, **options):
    raise OSError("this test has no network")
socket.socket.connect = socket.create_connection = refuse
"""
# Import of cxrhf fails as if it had never been installed.
WITHOUT_CXRHF = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "cxrhf":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
try:
    import cxrhf
except ModuleNotFoundError:
    pass
else:
    sys.exit("cxrhf could be imported")
"""
COMPUTE = """
import json, sys, warnings
from pathlib import Path
import evaluate
cases = json.loads(Path(sys.argv[1]).read_text())
found = {}
for name, (path, data) in cases.items():
    found[name] = evaluate.load(path).compute(**data, n_resamples=int(sys.argv[2]), seed=2)
print(json.dumps(found))
"""


def computed(script: str, cases: dict[str, Any], home: Path, *, path: str, n_resamples: int = 50) -> dict[str, Any]:
    """Results of modules in a process of its own, in a folder of its own."""
    file = home / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRANSFORMERS + script + COMPUTE, str(file), str(n_resamples)],
        cwd=home,
        env=subprocess_environment(home, path=path),
        text=True,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return out


def listed(name: str) -> dict[str, Any]:
    return {key: value.tolist() for key, value in case(name).items()}


def here(name: str, n_resamples: int = 50) -> dict[str, Any]:
    """What the repository's own module gives, as it looks after JSON (floats survive it to the last bit)."""
    found = loaded(name).compute(**listed(name), n_resamples=n_resamples, seed=2)
    out: dict[str, Any] = json.loads(json.dumps(found))
    return out


@pytest.mark.slow  # tests/hub/test_push_metrics.py has the same of what was published
@pytest.mark.parametrize("part", [0, 1])
def test_staged_copies_agree_without_cxrhf(part: int, tmp_path: Path) -> None:
    from cxrhf.hub.metric import stage

    chosen = NAMES[part::2]
    cases = {}
    for name in chosen:
        # One of them under another name, which evaluate then looks for.
        place = tmp_path / (name if name != "cad" else "displacement_copy")
        stage(ROOT / "metrics" / name, place)
        said = "".join(path.read_text(encoding="utf-8") for path in place.glob("*.py"))
        assert not re.search(r"^\s*(>>> )?(from|import) cxrhf", said, re.MULTILINE)
        cases[name] = (str(place), listed(name))
    found = computed(WITHOUT_CXRHF + WITHOUT_NETWORK, cases, tmp_path, path="")
    for name in chosen:
        assert same(found[name], here(name)), name


@pytest.mark.slow
def test_wheel_carries_the_modules(tmp_path: Path) -> None:
    """From the wheel, unpacked as pip would, without network, in another folder. No intervals: those compile long."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if "__pycache__" in name]
        packed.extractall(site)
    shipped = site / "cxrhf" / "shipped"
    assert sorted(path.name for path in (shipped / "metrics").iterdir() if path.is_dir()) == NAMES
    assert (shipped / "dataset_scripts" / "README.md").is_file()
    where = "import cxrhf, pathlib\nassert 'site' in pathlib.Path(cxrhf.__file__).parts, cxrhf.__file__\n"
    where += "assert cxrhf.metric_path('cad').startswith(str(pathlib.Path(cxrhf.__file__).parent))\n"
    chosen = ("weighted_auroc", "cad")
    cases = {name: (str(shipped / "metrics" / name), listed(name)) for name in chosen}
    found = computed(WITHOUT_NETWORK + where, cases, tmp_path, path=str(site), n_resamples=0)
    for name in chosen:
        assert same(found[name], here(name, n_resamples=0)), name


def test_unknown_metric_is_named() -> None:
    from cxrhf.errors import CxrhfError

    with pytest.raises(CxrhfError, match=r"weighted_auc.*[Dd]id you mean 'weighted_auroc'"):
        cxrhf.metric_path("weighted_auc")


@pytest.mark.slow
def test_shells_cost_little() -> None:
    """20,770 rows x 13 labels: `compute` takes at most three times the bare function, timed in turns."""
    from benchmarks.modules import TARGET, run

    slow = [row["name"] for row in run() if row["ratio"] > TARGET]
    if slow:  # a busy machine may stall one of the two; it will not do so twice for the same module
        again = {row["name"] for row in run() if row["ratio"] > TARGET}
        assert not again & set(slow)
