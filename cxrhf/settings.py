"""Settings of `cxrhf audit`, and what the settings of all verbs share: checks, config files, run.json.

A config is a frozen dataclass; flags come from its fields, and `help` in a field's metadata is what `--help` shows. A
value out of range is a ConfigError when the config is made; an unknown key in a config file is an error with the
nearest known name. No heavy import: a config is made before work is.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import reprlib
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cxrhf.errors import ConfigError, did_you_mean, shorten
from cxrhf.findings import finding_name

if TYPE_CHECKING:
    from cxrhf.tables.columns import Columns


# Settings of the audits of representations: encoding, features, slices, shortcut. They are flags of `cxrhf audit`.

# Slice discovery: the first is SLICES' own way, the others those of its Table 1.
SLICE_METHODS = (
    "mixture", "domino", "spotlight", "george", "planespot", "multiaccuracy", "failure_svm", "bias_clusters", "knn",
)  # fmt: skip
SLICE_RECIPES = ("default", "paper")
SHORTCUT_TESTS = ("bootstrap", "mann_whitney")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepresentationFields:
    """What lies beside the predictions, and how it is looked at."""

    embeddings: str | None = field(
        default=None,
        metadata={
            "group": "embedding, slice and shortcut",
            "metavar": "FILE",
            "help": "Image embeddings: a Parquet file (image_id, model, vector), or a run of cxrhf embed, probe or "
            "zeroshot. Default: those of the run folder. Adds encoding, features, slices.",
        },
    )
    attributes: str | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "help": "Attributes of each image (drains, wires): a file with image_id, name, value or one column per "
            "attribute, or a build. Default: those of the run folder. Adds shortcut, and describes slices.",
        },
    )
    annotations: tuple[str, ...] = field(
        default=(),
        metadata={"metavar": "CSV", "help": "Completed labelling sheets of an earlier audit (RUN/labelling)."},
    )
    probes: tuple[str, ...] = field(
        default=(), metadata={"metavar": "RUN", "help": "Runs of cxrhf probe; encoding shows their SPLIT results."}
    )
    pictures: str | None = field(
        default=None,
        metadata={
            "metavar": "BUILD",
            "help": "Build with the images, for thumbnails in the page; only for data that may be shown.",
        },
    )
    may_show: bool = field(
        default=False,
        metadata={
            "help": "Confirm that points and thumbnails of single patients may be shown in the page. Not needed for "
            "open and synthetic data; never possible for credentialed data."
        },
    )
    slice_methods: tuple[str, ...] = field(
        default=("mixture",),
        metadata={"metavar": "METHOD,...", "help": f"Slice discovery methods: {', '.join(SLICE_METHODS)}, or all."},
    )
    slice_recipe: str = field(
        default="default",
        metadata={
            "metavar": "RECIPE",
            "help": "default, or paper: full covariance, discovered and evaluated on all rows.",
        },
    )
    reduce: int = field(
        default=128,
        metadata={"help": "Reduce longer embeddings to this many sigmoid units of a layer fitted to the labels."},
    )
    shortcuts: tuple[str, ...] = field(
        default=(), metadata={"metavar": "NAME,...", "help": "Attributes to test as shortcuts. Default: all."}
    )
    shortcut_test: str = field(
        default="bootstrap",
        metadata={
            "metavar": "TEST",
            "help": "Test of gaps by sex: bootstrap (paired, over patients), or mann_whitney over runs (as SLICES; its "
            "type I error is 0.35).",
        },
    )


# Settings of the audits of generated reports: reports, decoding. They are flags of `cxrhf audit`.

# What groups are made of; crossings are named with &.
WORD_GROUPS = ("sex", "age", "race", "sex&age", "sex&race", "race&age")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFields(RepresentationFields):
    """Where the reports stand, and how their words are looked at."""

    generated: tuple[str, ...] = field(
        default=(),
        metadata={
            "group": "generated report",
            "metavar": "COLUMN",
            "help": "Generated reports: one column, or one per strategy (greedy=hyp_greedy,rich=hyp_rich).",
        },
    )
    reference: str | None = field(
        default=None, metadata={"metavar": "COLUMN", "help": "Reference reports, written by radiologists."}
    )
    strategy: str | None = field(
        default=None, metadata={"metavar": "COLUMN", "help": "Decoding strategy, or the name of the only one."}
    )
    baseline_strategy: str | None = field(
        default=None,
        metadata={
            "metavar": "NAME",
            "help": "Strategy that the others are compared with. Default: greedy, or the first.",
        },
    )
    word_groups: tuple[str, ...] = field(
        default=WORD_GROUPS,
        metadata={
            "metavar": "GROUP,...",
            "help": f"Groups whose words are compared: {', '.join(WORD_GROUPS)}; two groups with each other, each of "
            "more with all others.",
        },
    )
    p_star: float = field(default=0.05, metadata={"help": "Significance level of the word categories."})
    alpha: float = field(default=0.1, metadata={"help": "Smoothing of word counts."})
    weat_words: str | None = field(
        default=None,
        metadata={
            "metavar": "YAML",
            "help": "Word sets of WEAT: targets_first, targets_second, attributes_first, attributes_second (lists). "
            "Default: words of normal and of abnormal findings, and the words typical of each group in the references.",
        },
    )


# The main part.

AUDITS = (
    "overview", "context", "matched", "reweighted", "imbalance", "subgroups", "encoding", "features", "slices",
    "shortcut", "compare", "reports", "decoding",
)  # fmt: skip
UNCORRECTED_AUDITS = (
    "overview",
    "features",
    "slices",
    "reports",
    "decoding",
)  # without p values, or with a rule of their own
CORRECTIONS = ("bonferroni", "holm", "bh", "by", "max_t", "none")
MENTION_RULES = ("words", "substring", "affirmed")
_COLUMN: dict[str, Any] = {"metavar": "COLUMN"}
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class AuditConfig(ReportFields):
    """Predictions or generated reports -> results with intervals and one page."""

    predictions: tuple[str, ...] = field(
        metadata={
            "positional": True,
            "metavar": "PREDICTIONS",
            "help": "One or more files with predictions or generated reports, or a run folder.",
        }
    )
    out: str | None = field(
        default=None,
        metadata={"metavar": "RUN", "aliases": ("-o",), "help": "Run folder to write. Default: runs/<file name>."},
    )
    only: tuple[str, ...] = field(
        default=(), metadata={"metavar": "AUDIT,...", "help": f"Audits to run: {', '.join(AUDITS)}. Default: all."}
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to keep. Default: all."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Replace a run made from other inputs."})
    json: bool = field(
        default=False, metadata={"help": "Print one JSON object on stdout and everything else on stderr."}
    )
    image: str | None = field(default=None, metadata={"group": "column"} | _COLUMN | {"help": "Image id."})
    study: str | None = field(default=None, metadata=_COLUMN | {"help": "Study id."})
    patient: str | None = field(default=None, metadata=_COLUMN | {"help": "Patient id; the audit resamples patients."})
    finding: str | None = field(
        default=None,
        metadata=_COLUMN | {"help": "Finding (long files), or the name of the finding (files with one finding)."},
    )
    label: str | None = field(
        default=None, metadata=_COLUMN | {"help": "Label: 1, 0, -1 (uncertain, masked) or empty."}
    )
    score: str | None = field(default=None, metadata=_COLUMN | {"help": "Probability or score of the model."})
    model: str | None = field(default=None, metadata=_COLUMN | {"help": "Model, or the name of the only model."})
    seed_column: str | None = field(default=None, metadata=_COLUMN | {"help": "Training seed of the model."})
    split: str | None = field(default=None, metadata=_COLUMN | {"help": "Split: train, validate, test."})
    dataset: str | None = field(default=None, metadata=_COLUMN | {"help": "Dataset, or the name of the only dataset."})
    sex: str | None = field(default=None, metadata=_COLUMN | {"help": "Sex."})
    age: str | None = field(default=None, metadata=_COLUMN | {"help": "Age in years."})
    race: str | None = field(default=None, metadata=_COLUMN | {"help": "Race or ethnicity."})
    view: str | None = field(default=None, metadata=_COLUMN | {"help": "View: AP, PA, lateral."})
    time: str | None = field(
        default=None, metadata=_COLUMN | {"help": "Acquisition time: a date, or any number that increases with time."}
    )
    weight: str | None = field(default=None, metadata=_COLUMN | {"help": "Weight of the row."})
    pretest: str | None = field(
        default=None,
        metadata={"group": "context"}
        | _COLUMN
        | {
            "help": "Pre-test probability of the finding: a column, or from:age,sex,view,prior_labels to fit a small "
            "context model to columns of the table (only labels of the patient's earlier images)."
        },
    )
    notes: str | None = field(
        default=None,
        metadata={
            "metavar": "NOTES",
            "help": "Prior notes: a folder written by cxrhf build, or a file with patient, time and text. They supply "
            "mentions, and the pre-test probability if there is none. Only notes from before the image count.",
        },
    )
    context: str | None = field(
        default=None,
        metadata={
            "metavar": "RUN",
            "help": "Run of cxrhf context fit or predict; its pre-test probabilities and mentions are joined by image "
            "id and finding.",
        },
    )
    mention: str | None = field(default=None, metadata=_COLUMN | {"help": "Whether a prior note mentions the finding."})
    mention_rule: str = field(
        default="words",
        metadata={
            "metavar": "RULE",
            "help": "What counts as a mention in --notes: words (whole words), substring (paper), affirmed (whole "
            "words, not negated).",
        },
    )
    n_resamples: int = field(default=2000, metadata={"group": "statistics", "help": "Bootstrap resamples of patients."})
    seed: int = field(default=0, metadata={"help": "Seed of the resampling; the same seed gives the same numbers."})
    level: float = field(default=0.95, metadata={"help": "Confidence level of the intervals."})
    correction: str = field(
        default="bonferroni",
        metadata={"metavar": "RULE", "help": f"Correction for multiple tests: {', '.join(CORRECTIONS)}."},
    )
    primary: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "QUESTION,...",
            "help": "Primary comparisons, named before you see results: words joined by colons, such as shortcut, "
            "auroc_drop:edema or shortcut:drain:pneumothorax (audit, metric, finding, group, attribute, in any order). "
            "Their p values are corrected among themselves, separately from all exploratory ones. Default: what "
            "--shortcuts names.",
        },
    )
    baseline: str | None = field(
        default=None,
        metadata={"metavar": "MODEL", "help": "Model that the others are compared with. Default: the first."},
    )
    threshold: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "FINDING=T,...",
            "help": "Operating threshold, one number or one per finding: scores of at least this count as positive. "
            "Rates of subgroups are reported at it. Default: the threshold with a false positive rate of 0.20.",
        },
    )
    threshold_from: str = field(
        default="validation",
        metadata={
            "metavar": "ROWS",
            "help": "Rows that set the threshold shared by subgroups and strata: validation (if there are any, as in "
            "deployment), or sample, the evaluated rows (as CONTEXT).",
        },
    )
    train_prevalence: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "FINDING=P,...",
            "help": "Share of positives in training, one number or one per finding: used in IPW weights, and as the "
            "reference of the Brier skill outside strata. Default: that of the evaluated set.",
        },
    )

    def __post_init__(self) -> None:
        given = (self.predictions,) if isinstance(self.predictions, (str, Path)) else tuple(self.predictions)
        set_field(self, "predictions", tuple(str(each) for each in given))
        set_field(self, "only", split_list(self.only))
        set_field(self, "findings", tuple(finding_name(each) for each in split_list(self.findings)))
        set_field(self, "train_prevalence", split_list(self.train_prevalence))
        set_field(self, "shortcuts", split_list(self.shortcuts))
        questions = (":".join(word.strip() for word in each.split(":")) for each in split_list(self.primary))
        set_field(self, "primary", tuple(dict.fromkeys(questions)))
        set_field(self, "threshold", split_list(self.threshold))
        set_field(self, "generated", split_list(self.generated))
        set_field(self, "word_groups", tuple(each.replace(" ", "") for each in split_list(self.word_groups)))
        methods = split_list(self.slice_methods)
        set_field(self, "slice_methods", SLICE_METHODS if methods == ("all",) else tuple(dict.fromkeys(methods)))
        if not self.predictions:
            raise ConfigError("PREDICTIONS is missing", next_step="cxrhf audit predictions.csv --out runs/first")
        for name in self.only:
            check_one_of("only", name, AUDITS)
        check_range("n_resamples", self.n_resamples, 10, 1_000_000)
        check_range("seed", self.seed, 0, 2**63 - 1)
        check_range("level", self.level, 0.5, 0.9999)
        check_one_of("correction", self.correction, CORRECTIONS)
        check_one_of("threshold_from", self.threshold_from, ("validation", "sample"))
        for question in self.primary:
            self._check_question(question)
        check_one_of("mention_rule", self.mention_rule, MENTION_RULES)
        for name in self.slice_methods:
            check_one_of("slice_methods", name, SLICE_METHODS)
        check_one_of("slice_recipe", self.slice_recipe, SLICE_RECIPES)
        check_one_of("shortcut_test", self.shortcut_test, SHORTCUT_TESTS)
        check_range("reduce", self.reduce, 1, 100_000)
        for name in self.word_groups:
            check_one_of("word_groups", name, WORD_GROUPS)
        check_range("p_star", self.p_star, 1e-9, 0.5)
        check_range("alpha", self.alpha, 1e-6, 100)
        self.training_prevalence("")  # says now what is wrong with it
        self.thresholds()
        if self.pretest_sources() and self.context is not None:
            raise ConfigError(
                "two sources of the pre-test probability", got=f"--pretest {self.pretest} and --context {self.context}",
                next_step="pass one of them",
            )  # fmt: skip

    def _check_question(self, question: str) -> None:
        """What is wrong with a question of `primary`, as far as it can be said before the audits run."""
        words = question.split(":")
        if not all(words):
            raise ConfigError("primary", got=question, allowed="words joined by colons: auroc_drop:edema")
        for audit in (word for word in words if word in AUDITS):
            if audit in UNCORRECTED_AUDITS:
                corrected = [name for name in AUDITS if name not in UNCORRECTED_AUDITS]
                raise ConfigError(f"primary: {audit} has no p values, or corrects them by another rule", got=question,
                                  allowed=either(corrected))  # fmt: skip
            if self.only and audit not in self.only:
                raise ConfigError(f"primary: {audit} is not in --only", got=question, allowed=either(self.only),
                                  next_step=f"add {audit} to --only")  # fmt: skip

    def training_prevalence(self, finding: str) -> float | None:
        """The given training prevalence of a finding; None = use the evaluated set's."""
        everywhere, named = None, dict[str, float]()
        for item in self.train_prevalence:
            name, equals, text = item.rpartition("=")
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not 0 < value < 1:
                raise ConfigError(
                    "train_prevalence", got=item, allowed="a number between 0 and 1, or one per finding: edema=0.1,..."
                )
            if equals:
                named[finding_name(name)] = value
            else:
                everywhere = value
        return named.get(finding, everywhere)

    def thresholds(self) -> dict[str, float]:
        """The given threshold of each finding; that of "" is for all the others."""
        found = dict[str, float]()
        for item in self.threshold:
            name, equals, text = item.rpartition("=")
            value = _number(text)
            if value is None:
                raise ConfigError(
                    "threshold", got=item, allowed="a number such as 0.5, or one per finding: edema=0.3,..."
                )
            found[finding_name(name) if equals else ""] = float(value)
        return found

    def columns(self) -> Columns:
        """The columns named by the user, as `load_predictions(columns=...)` takes them."""
        from cxrhf.tables.columns import Columns

        named = {each.name: getattr(self, each.name, None) for each in fields(Columns) if each.name != "seed"}
        if self.pretest_sources():
            named["pretest"] = None
        return Columns(**named, seed=self.seed_column)

    def pretest_sources(self) -> tuple[str, ...]:
        """What the pre-test probability is to be fitted to; () where it is a column."""
        from cxrhf.tables.columns import pretest_sources

        return (pretest_sources(self.pretest) if self.pretest else None) or ()


def set_field(config: object, name: str, value: object) -> None:
    object.__setattr__(config, name, value)  # frozen for everybody else


def split_list(values: tuple[str, ...] | str) -> tuple[str, ...]:
    """("a,b", "c") -> ("a", "b", "c"): a list may be given with commas or with spaces."""
    given = (values,) if isinstance(values, str) else values
    return tuple(part.strip() for each in given for part in str(each).split(",") if part.strip())


def check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} is out of range", got=value, allowed=f"{low:,} to {high:,}")


def check_one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """A ConfigError with the nearest allowed word, unless the value of this setting is allowed."""
    if value not in (words := tuple(allowed)):
        raise ConfigError(name, got=value, allowed=either(words), next_step=did_you_mean(value, words))


def either(words: Sequence[str]) -> str:
    """
    >>> either(["crop", "squash"]), either(["a", "b", "c"])
    ('crop or squash', 'a, b or c')
    """
    return " or ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def from_mapping(kind: type[C], values: Mapping[str, Any], *, source: str = "config") -> C:
    """A config from a dictionary (a YAML file, a notebook); unknown keys and wrong types are errors."""
    checked = check_keys(kind, values, source=source)
    missing = [each.name for each in fields(kind) if each.default is MISSING and each.name not in checked]  # type: ignore[arg-type]
    if missing:
        raise ConfigError(f"{source}: {missing[0]!r} is missing", next_step=f"add {missing[0]}: ...")
    return kind(**checked)


def check_keys(kind: type, values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The same values in the types of the config's fields."""
    hints = typing.get_type_hints(kind)
    known = [each.name for each in fields(kind)]
    out = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in known:
            close = did_you_mean(name, known)
            raise ConfigError(
                f"{source}: unknown key {str(key)[:60]!r}",
                # Of forty settings the names help nobody; the help explains them.
                allowed=None if close or len(known) > 12 else either(known),
                next_step=close or _where_settings_are(kind, known),
            )
        out[name] = to_field_type(value, hints[name], f"{source}: {name}")
    return out


def _where_settings_are(kind: type, known: list[str]) -> str:
    """What to do where a config file or a call has a setting that its verb does not have."""
    words = re.findall("[A-Z][a-z]+", kind.__name__)
    verb = " ".join(words[:-1]).lower() if words[-1:] == ["Config"] else ""
    if not verb:
        return "remove it"
    own = [name for name, keys in _recipe_keys().items() if keys <= set(known)]
    recipes = f"; recipes of cxrhf {verb}: {', '.join(own)}" if own else ""
    return f"remove it; cxrhf {verb} --help lists all settings{recipes}"


def _recipe_keys() -> dict[str, set[str]]:
    """The recipes that are shipped, and which settings they give."""
    shipped = sorted((Path(__file__).parent / "configs").glob("*.yaml"))
    return {path.stem: {key.replace("-", "_") for key in load_mapping(str(path))} for path in shipped}


def to_field_type(value: Any, hint: Any, where: str) -> Any:
    """A value of a flag, a YAML file or a notebook in the type of its field; a ConfigError if it cannot be that.

    YAML reads 1e-3 as text, and numpy has numbers of its own: what `float` reads is a number.
    """
    options = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
    if value is None and type(None) in options:
        return None
    wanted = next(each for each in options if each is not type(None))
    value = _plain_value(value)
    if typing.get_origin(wanted) is tuple:
        given = value if isinstance(value, (list, tuple)) else (value,)
        return tuple(_text(each, where, "a list of names") for each in given)
    if wanted is str:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise ConfigError(where, got=_short_repr(value), allowed="text", next_step=f'write "{value}"')
        return _text(value, where, "text")
    number = None if wanted is bool or isinstance(value, bool) else _number(value)
    if wanted is float and number is not None:
        return float(number)
    if wanted is int and number is not None and number == number // 1:
        return int(number)
    if wanted is bool and isinstance(value, bool):
        return value
    words = {int: "a whole number", float: "a finite number", bool: "true or false"}
    raise ConfigError(where, got=_short_repr(value), allowed=words[wanted])


def _plain_value(value: Any) -> Any:
    """numpy's and pandas' scalars and columns as Python's own, paths as text; everything else as it is."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") and hasattr(value, "dtype") else value


def _number(value: Any) -> int | float | None:
    """What reads as a number; whole ones stay exact. None for infinity, NaN and everything else."""
    if not isinstance(value, (int, float, str)):
        return None
    for read in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            number: int | float = read(value) if isinstance(value, str) else value
            return number if math.isfinite(number) else None
    return None


def _text(value: Any, where: str, allowed: str) -> str:
    """One word or name of a setting: not empty, and what files and tables can hold."""
    value = _plain_value(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigError(where, got=_short_repr(value), allowed=allowed)
    text = str(value)
    if not text.replace(",", " ").strip():
        raise ConfigError(f"{where} is empty", next_step="give a value, or omit it")
    if "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise ConfigError(f"{where} has invalid characters", got=_short_repr(text), allowed=allowed)
    return text


def _short_repr(value: object) -> str:
    """A wrong value for a message: short, however deep or large it is."""
    return reprlib.repr(value)


def load_mapping(name: str) -> dict[str, Any]:
    """The settings of a recipe (cxrhf/configs/<name>.yaml) or of a YAML file."""
    shipped = Path(__file__).parent / "configs"
    path = next((each for each in (Path(name), shipped / f"{name}.yaml") if each.is_file()), None)
    if path is None:
        recipes = sorted(each.stem for each in shipped.glob("*.yaml"))
        raise ConfigError(
            "--config",
            got=name,
            allowed=f"a YAML file or a recipe ({', '.join(recipes)})",
            next_step=did_you_mean(name, recipes) or "check the path, or name a recipe",
        )
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name} has no settings", got=type(values).__name__, allowed="lines of `key: value`")
    return values


def read_yaml(path: Path) -> Any:
    """What a YAML file holds; a ConfigError where it cannot be read as YAML."""
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise ConfigError(f"{path.name} is nested too deeply") from None
    # yaml's own errors, and those of the values it makes: a date that is none, a number that is too long.
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ConfigError(f"{path.name} is not valid YAML ({shorten(' '.join(str(error).split()))})") from None


def to_mapping(config: Any) -> dict[str, Any]:
    """A config as plain values, for run.json."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}


# Settings of `cxrhf report`: which run is written again, or which two are compared.


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """A run -> its page and its models' cards, written again; cards -> the same cards; two runs -> what changed."""

    run: tuple[str, ...] = field(
        metadata={
            "positional": True,
            "metavar": "RUN",
            "help": "Run folder of cxrhf audit; or the folder of a model card, or of several, to write them again. "
            "With --diff: two run folders.",
        }
    )
    diff: bool = field(default=False, metadata={"help": "Compare two runs: print the changes and write diff.html."})
    out: str | None = field(
        default=None,
        metadata={
            "metavar": "DIR",
            "aliases": ("-o",),
            "help": "With --diff: folder of diff.html. Default: the second run.",
        },
    )
    json: bool = field(default=False, metadata={"help": "With --diff: print one JSON object instead of lines."})
    cards: str | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": "Folder of the model cards, with one folder per model. Default: RUN/model_cards.",
        },
    )

    def __post_init__(self) -> None:
        given = (self.run,) if isinstance(self.run, (str, Path)) else tuple(self.run)
        set_field(self, "run", tuple(str(each) for each in given))
        if len(self.run) != 1 + self.diff:
            raise ConfigError(
                "RUN", got=" ".join(self.run) or "none", allowed="two run folders" if self.diff else "one run folder",
                next_step="cxrhf report --diff RUN1 RUN2" if self.diff or len(self.run) > 1 else "cxrhf report RUN",
            )  # fmt: skip
        if not self.diff and (self.out or self.json):
            raise ConfigError("--out and --json require --diff", next_step="cxrhf report --diff RUN1 RUN2")
        if self.diff and self.cards:
            raise ConfigError("--diff writes no cards", next_step=f"cxrhf report {self.run[1]} --cards {self.cards}")


# Settings of `cxrhf selfcheck` and `cxrhf completion`.

# What is checked, in the order it runs. Two processes share it: what needs no kernels of the bootstrap comes second, so
# that they are there, and are not compiled twice, when the rest begins.
GROUPS = (
    "metrics", "patients", "slices", "words", "notes", "hospital", "encoding", "context", "calibration", "subgroups",
    "compare", "shortcut",
)  # fmt: skip
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True)
class SelfcheckConfig:
    """The installed package -> whether its audits find what was planted, and what is installed."""

    only: tuple[str, ...] = field(
        default=(), metadata={"metavar": "GROUP,...", "help": f"Groups of checks: {', '.join(GROUPS)}. Default: all."}
    )
    json: bool = field(default=False, metadata={"help": "Print one JSON object instead of lines."})

    def __post_init__(self) -> None:
        set_field(self, "only", split_list(self.only))
        for name in self.only:
            check_one_of("only", name, GROUPS)


@dataclass(frozen=True, slots=True)
class CompletionConfig:
    """A shell -> the script that completes cxrhf's verbs and flags in it."""

    shell: str = field(metadata={"positional": True, "metavar": "|".join(SHELLS), "help": "Your shell."})

    def __post_init__(self) -> None:
        check_one_of("SHELL", self.shell, SHELLS)
