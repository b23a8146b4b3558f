"""Names on the command line and YAML files -> ways of decoding, every setting of each written out.

The six of WORDS: greedy, beam (4), conservative (T = .3, top-p .95), rich (T = .7, top-p .95), top_k (50, T = 1),
top_p (.9, T = 1), all with at most 512 new tokens. A YAML file holds one more or several:

    warm:                                 # or one strategy alone, with a line `name: warm`
      do_sample: true
      temperature: 1.2
      top_p: 0.95

What a setting does not name has the default below, never what a model brings in its generation_config.json: Qwen's
says top-k 20 and temperature .7, and "greedy" would not be greedy. The penalties look at the report's own tokens and
not at the prompt, so that they do not depend on how a prompt was padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.settings import check_range, from_mapping, read_yaml, split_list

MAX_NEW_TOKENS = 512
# Settings that change nothing unless words are drawn.
_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
_OF_BEAMS = ("length_penalty", "early_stopping")
_YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way of decoding. `top_k` 0, `top_p` 1, `min_p` 0, `no_repeat_ngram_size` 0: not used."""

    name: str
    do_sample: bool = False
    num_beams: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    length_penalty: float = 1.0
    early_stopping: bool = False
    max_new_tokens: int = MAX_NEW_TOKENS

    def __post_init__(self) -> None:
        where = f"strategy {self.name!r}"
        if not self.name.strip() or self.name != self.name.strip() or "," in self.name or not self.name.isprintable():
            raise ConfigError("name of a strategy", got=repr(self.name), allowed="printable text without a comma")
        if self.name in ("all", "reference"):
            raise ConfigError(f"{where}: this name is reserved", next_step="choose another name")
        for name, low, high in (
            ("num_beams", 1, 64), ("temperature", 1e-3, 100), ("top_k", 0, 1_000_000), ("top_p", 1e-6, 1),
            ("min_p", 0, 1), ("repetition_penalty", 1e-3, 100), ("no_repeat_ngram_size", 0, 1000),
            ("length_penalty", -100, 100), ("max_new_tokens", 1, 1_000_000),
        ):  # fmt: skip
            check_range(f"{where}: {name}", getattr(self, name), low, high)
        if self.do_sample and self.num_beams > 1:
            raise ConfigError(where, got="both", allowed="either do_sample or num_beams > 1")
        idle = (() if self.do_sample else _OF_SAMPLING) + (() if self.num_beams > 1 else _OF_BEAMS)
        for each in fields(self):
            if each.name in idle and getattr(self, each.name) != each.default:
                needs = "do_sample: true" if each.name in _OF_SAMPLING else "num_beams: 2 or more"
                raise ConfigError(f"{where}: {each.name} has no effect without {needs}", next_step=f"add `{needs}`")

    def settings(self) -> dict[str, Any]:
        """Everything that decides about the words; the name does not."""
        return {key: value for key, value in asdict(self).items() if key != "name"}

    def said(self) -> str:
        """What it does, for people.

        >>> BUILT_IN["rich"].said(), BUILT_IN["beam"].said()
        ('draws, T 0.7, top-p 0.95', '4 beams')
        """
        kind = "draws" if self.do_sample else f"{self.num_beams} beams" if self.num_beams > 1 else "the likeliest token"
        words = {"temperature": "T", "top_k": "top-k", "top_p": "top-p", "min_p": "min-p"}
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        own = ("name", "do_sample", "num_beams")
        parts = [f"{words.get(key, key)} {value:g}" for key, value in given.items() if key not in own]
        if self.do_sample and "temperature" not in given:
            parts.insert(0, "T 1")
        return ", ".join([kind, *parts])


BUILT_IN: dict[str, Strategy] = {
    each.name: each
    for each in (
        Strategy("greedy"),
        Strategy("beam", num_beams=4),
        Strategy("conservative", do_sample=True, temperature=0.3, top_p=0.95),
        Strategy("rich", do_sample=True, temperature=0.7, top_p=0.95),
        Strategy("top_k", do_sample=True, top_k=50),
        Strategy("top_p", do_sample=True, top_p=0.9),
    )
}


def find_strategies(words: Iterable[str] | str, *, max_new_tokens: int | None = None) -> list[Strategy]:
    """Strategies as a user names them: `all`, names, YAML files, in that order, each once.

    `max_new_tokens` replaces that of the built-in ones; files say their own.
    """
    given = split_list(words if isinstance(words, str) else tuple(words))
    if not given:
        raise ConfigError("--strategies", got="nothing", allowed=f"all, {', '.join(BUILT_IN)} or a YAML file")
    found: dict[str, Strategy] = {}
    for word in given:
        for each in _strategies_of_word(word, max_new_tokens):
            if found.setdefault(each.name, each) != each:
                raise ConfigError(
                    f'two strategies with different settings have the name "{each.name}"', next_step="rename one"
                )
    return list(found.values())


def _strategies_of_word(word: str, max_new_tokens: int | None) -> list[Strategy]:
    if word.lower().endswith(_YAML):
        return read_strategies(word)
    names = list(BUILT_IN) if word == "all" else [word]
    if names[0] not in BUILT_IN:
        known = ["all", *BUILT_IN]
        raise ConfigError(
            "--strategies",
            got=word,
            allowed=f"{', '.join(known)} or a YAML file",
            next_step=did_you_mean(word, known) or "cxrhf generate --help",
        )
    chosen = [BUILT_IN[name] for name in names]
    if max_new_tokens is None:
        return chosen
    return [Strategy(**{**asdict(each), "max_new_tokens": max_new_tokens}) for each in chosen]


def read_strategies(path: str | Path) -> list[Strategy]:
    """The strategies of a YAML file; an unknown key or a wrong type is an error with the nearest known name."""
    file = Path(path)
    if not file.is_file():
        beside = [each.name for each in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
        raise ConfigError(f"{file} does not exist", next_step=did_you_mean(file.name, beside) or "check the path")
    values = read_yaml(file)
    if isinstance(values, dict) and "name" not in values and values:
        if not all(isinstance(each, dict) for each in values.values()):
            raise ConfigError(f"{file.name}: a strategy has no name", next_step="add a line `name: mine`")
        rows = [{"name": name, **each} for name, each in values.items()]
    else:
        rows = [values] if isinstance(values, dict) else values
    if not isinstance(rows, list) or not rows or not all(isinstance(each, dict) for each in rows):
        raise ConfigError(f"{file.name} holds no strategies", allowed="`key: value` lines or a list of them")
    made = [_make_strategy(row, file.name) for row in rows]
    for each in made:
        same = [other.name for other in made].count(each.name) > 1
        shipped = BUILT_IN.get(each.name)
        if same or (
            shipped is not None and shipped.settings() != {**each.settings(), "max_new_tokens": MAX_NEW_TOKENS}
        ):
            whose = "used twice in the file" if same else "the name of a built-in strategy with other settings"
            raise ConfigError(f'{file.name}: "{each.name}" is {whose}', next_step="rename it")
    return made


def _make_strategy(row: Mapping[str, Any], source: str) -> Strategy:
    name = row.get("name")
    return from_mapping(Strategy, {**row, "name": str(name)} if name is not None else row, source=source)
