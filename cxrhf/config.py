"""Settings of `cxrhf audit`, and what the settings of all verbs (config_*.py) share: checks, config files, run.json.

A config is a frozen dataclass; flags come from its fields, and `help` in a field's metadata is what `--help` shows. A
value out of range is a ConfigError when the config is made; an unknown key in a config file is an error with the
nearest known name. No heavy import: a config is made before work is.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cxrhf.config_generations import WORD_GROUPS, ReportFields
from cxrhf.config_representations import SHORTCUT_TESTS, SLICE_METHODS, SLICE_RECIPES
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import finding_name

if TYPE_CHECKING:
    from cxrhf.tables.columns import Columns

AUDITS = (
    "overview", "context", "matched", "reweighted", "imbalance", "subgroups", "encoding", "features", "slices",
    "shortcut", "compare", "reports", "decoding",
)  # fmt: skip
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
            "help": "One or more files of predictions or of generated reports, or a run folder.",
        }
    )
    out: str | None = field(
        default=None,
        metadata={"metavar": "RUN", "aliases": ("-o",), "help": "Run folder to write; runs/<file name> if not given."},
    )
    only: tuple[str, ...] = field(
        default=(), metadata={"metavar": "AUDIT,...", "help": f"Audits to run: {', '.join(AUDITS)}. All if not given."}
    )
    findings: tuple[str, ...] = field(
        default=(), metadata={"metavar": "FINDING,...", "help": "Findings to keep. All if not given."}
    )
    n_resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of patients."})
    seed: int = field(default=0, metadata={"help": "Seed of the resampling; the same seed gives the same numbers."})
    level: float = field(default=0.95, metadata={"help": "Level of the intervals."})
    correction: str = field(
        default="bonferroni",
        metadata={
            "metavar": "RULE",
            "help": f"How p values of differences are corrected for their number: {', '.join(CORRECTIONS)}.",
        },
    )
    baseline: str | None = field(
        default=None,
        metadata={"metavar": "MODEL", "help": "Model the others are compared with; the first if not given."},
    )
    notes: str | None = field(
        default=None,
        metadata={
            "metavar": "NOTES",
            "help": "Prior clinical notes: a folder made by cxrhf build, or a file with patient, time and text. Gives "
            "mentions, and the pre-test probability where there is none. Only notes from before the image count.",
        },
    )
    context: str | None = field(
        default=None,
        metadata={
            "metavar": "RUN",
            "help": "A run of cxrhf context fit or predict: its pre-test probabilities and mentions are joined by "
            "image id and finding.",
        },
    )
    mention_rule: str = field(
        default="words",
        metadata={
            "metavar": "RULE",
            "help": "What --notes takes for a mention: words (whole words), substring (paper), affirmed (words, not "
            "negated).",
        },
    )
    train_prevalence: tuple[str, ...] = field(
        default=(),
        metadata={
            "metavar": "FINDING=P,...",
            "help": "Share of positives in training, one number or one a finding; the evaluated set's if not given.",
        },
    )
    image: str | None = field(default=None, metadata=_COLUMN | {"help": "Image id."})
    study: str | None = field(default=None, metadata=_COLUMN | {"help": "Study id."})
    patient: str | None = field(
        default=None, metadata=_COLUMN | {"help": "Patient id: patients are what is resampled."}
    )
    finding: str | None = field(
        default=None, metadata=_COLUMN | {"help": "Finding (long files), or the finding's name (one-finding files)."}
    )
    label: str | None = field(default=None, metadata=_COLUMN | {"help": "Label: 1, 0, -1 (uncertain, masked), blank."})
    score: str | None = field(default=None, metadata=_COLUMN | {"help": "Probability or score of the model."})
    pretest: str | None = field(
        default=None,
        metadata=_COLUMN
        | {
            "help": "Probability of the finding before the image is seen: a column, or from:age,sex,view,prior_labels "
            "to fit a small context model to what the table has (labels of the patient's earlier images only)."
        },
    )
    time: str | None = field(
        default=None,
        metadata=_COLUMN | {"help": "When the image was taken: a date, or any number that rises with time."},
    )
    mention: str | None = field(
        default=None, metadata=_COLUMN | {"help": "Whether an earlier note mentions the finding."}
    )
    weight: str | None = field(default=None, metadata=_COLUMN | {"help": "Weight of the row."})
    sex: str | None = field(default=None, metadata=_COLUMN | {"help": "Sex."})
    age: str | None = field(default=None, metadata=_COLUMN | {"help": "Age in years."})
    race: str | None = field(default=None, metadata=_COLUMN | {"help": "Race or ethnicity."})
    view: str | None = field(default=None, metadata=_COLUMN | {"help": "View: AP, PA, lateral."})
    split: str | None = field(default=None, metadata=_COLUMN | {"help": "Train, validate, test."})
    model: str | None = field(default=None, metadata=_COLUMN | {"help": "Model, or the name of the one model."})
    seed_column: str | None = field(default=None, metadata=_COLUMN | {"help": "Training seed of the model."})
    dataset: str | None = field(default=None, metadata=_COLUMN | {"help": "Dataset, or the name of the one dataset."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a run that was made from other inputs."})
    json: bool = field(default=False, metadata={"help": "One JSON object on stdout, for a script; the rest on stderr."})

    def __post_init__(self) -> None:
        given = (self.predictions,) if isinstance(self.predictions, (str, Path)) else tuple(self.predictions)
        set_field(self, "predictions", tuple(str(each) for each in given))
        set_field(self, "only", listed(self.only))
        set_field(self, "findings", tuple(finding_name(each) for each in listed(self.findings)))
        set_field(self, "train_prevalence", listed(self.train_prevalence))
        set_field(self, "shortcuts", listed(self.shortcuts))
        set_field(self, "generated", listed(self.generated))
        set_field(self, "word_groups", tuple(each.replace(" ", "") for each in listed(self.word_groups)))
        methods = listed(self.slice_methods)
        set_field(self, "slice_methods", SLICE_METHODS if methods == ("all",) else tuple(dict.fromkeys(methods)))
        if not self.predictions:
            raise ConfigError("no predictions file was given", next_step="cxrhf audit predictions.csv --out runs/first")
        for name in self.only:
            one_of("only: no such audit", name, AUDITS)
        within("n_resamples", self.n_resamples, 10, 1_000_000)
        within("seed", self.seed, 0, 2**63 - 1)
        within("level", self.level, 0.5, 0.9999)
        one_of("correction: no such rule", self.correction, CORRECTIONS)
        one_of("mention_rule: no such rule", self.mention_rule, MENTION_RULES)
        for name in self.slice_methods:
            one_of("slice_methods: no such method", name, SLICE_METHODS)
        one_of("slice_recipe: no such recipe", self.slice_recipe, SLICE_RECIPES)
        one_of("shortcut_test: no such test", self.shortcut_test, SHORTCUT_TESTS)
        within("reduce", self.reduce, 1, 100_000)
        for name in self.word_groups:
            one_of("word_groups: no such group", name, WORD_GROUPS)
        within("p_star", self.p_star, 1e-9, 0.5)
        within("alpha", self.alpha, 1e-6, 100)
        self.training_prevalence("")  # says now what is wrong with it
        if self.pretest_sources() and self.context is not None:
            raise ConfigError(
                "two sources of the pre-test probability", got=f"--pretest {self.pretest} and --context {self.context}",
                next_step="give one of them",
            )  # fmt: skip

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
                    "train_prevalence is not a share", got=item, allowed="a number between 0 and 1, or edema=0.1,..."
                )
            if equals:
                named[finding_name(name)] = value
            else:
                everywhere = value
        return named.get(finding, everywhere)

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


def listed(values: tuple[str, ...] | str) -> tuple[str, ...]:
    """("a,b", "c") -> ("a", "b", "c"): a list may be given with commas or with spaces."""
    given = (values,) if isinstance(values, str) else values
    return tuple(part.strip() for each in given for part in str(each).split(",") if part.strip())


def within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{name} is out of range", got=value, allowed=f"{low:,} to {high:,}")


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    """A ConfigError with the nearest allowed word, unless the value is allowed."""
    if value not in allowed:
        raise ConfigError(what, got=value, allowed=", ".join(allowed), next_step=did_you_mean(value, allowed))


def from_mapping(kind: type[C], values: Mapping[str, Any], *, source: str = "config") -> C:
    """A config from a dictionary (a YAML file, a notebook); unknown keys and wrong types are errors."""
    checked = check_keys(kind, values, source=source)
    missing = [each.name for each in fields(kind) if each.default is MISSING and each.name not in checked]  # type: ignore[arg-type]
    if missing:
        raise ConfigError(f"{source}: {missing[0]!r} is missing", next_step=f"add it: {missing[0]}: ...")
    return kind(**checked)


def check_keys(kind: type, values: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The same values in the types of the config's fields."""
    hints = typing.get_type_hints(kind)
    known = [each.name for each in fields(kind)]
    out = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise ConfigError(
                f"{source}: unknown key {str(key)!r}",
                allowed=", ".join(known),
                next_step=did_you_mean(name, known) or "leave it out; or is it a setting or a recipe of another verb?",
            )
        out[name] = _typed(value, hints[name], f"{source}: {name}")
    return out


def _typed(value: Any, hint: Any, where: str) -> Any:
    options = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
    if value is None and type(None) in options:
        return None
    wanted = next(each for each in options if each is not type(None))
    if typing.get_origin(wanted) is tuple:
        return tuple(str(each) for each in value) if isinstance(value, (list, tuple)) else (str(value),)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
        return value
    raise ConfigError(f"{where} has the wrong type", got=repr(value), allowed=wanted.__name__)


def load_mapping(name: str) -> dict[str, Any]:
    """The settings of a recipe (cxrhf/configs/<name>.yaml) or of a YAML file."""
    import yaml  # type: ignore[import-untyped]

    shipped = Path(__file__).parent / "configs"
    path = next((each for each in (Path(name), shipped / f"{name}.yaml") if each.is_file()), None)
    if path is None:
        recipes = sorted(each.stem for each in shipped.glob("*.yaml"))
        raise ConfigError(
            f"no config {name!r}",
            allowed=f"a YAML file, or a recipe ({', '.join(recipes)})",
            next_step=did_you_mean(name, recipes) or "name a recipe, or check the path",
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name} is not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name} holds no settings", got=type(values).__name__, allowed="lines of `key: value`")
    return values


def to_mapping(config: Any) -> dict[str, Any]:
    """A config as plain values, for run.json."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
