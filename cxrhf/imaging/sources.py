"""Backbones as a user names them -> new weights or folders of saved networks, each under a name of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cxrhf.config_models import ProbeConfig
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.imaging.predicting import saved_models
from cxrhf.tables.places import file_name

NEW = ("imagenet", "random")


@dataclass(frozen=True, slots=True)
class Source:
    """A backbone as it was asked for; `folder` is None for new weights."""

    name: str
    word: str
    folder: Path | None = None


def find_sources(config: ProbeConfig) -> list[Source]:
    """Each backbone with its name and folder; nothing is loaded yet."""
    sources = [_source(text) for text in config.backbones]
    for at, each in enumerate(sources):
        if (same := slug(each.name)) in [slug(other.name) for other in sources[:at]]:
            raise ConfigError(
                "--backbones: two have the same name",
                got=same,
                next_step=f"rename one, for example --backbones other={each.word}",
            )
    return sources


def _source(text: str) -> Source:
    name, equals, word = text.partition("=")
    if not equals or Path(text).exists():
        name, word = "", text
    elif not name.strip() or not word.strip():
        raise ConfigError("--backbones", got=text, allowed="NAME=SOURCE")
    name, word = name.strip(), word.strip()
    if name and not slug(name):
        raise ConfigError("--backbones", got=name, allowed="a name with a letter or digit")
    if word in NEW:
        return Source(name or word, word)
    folder = Path(word).expanduser()
    if not folder.is_dir():
        beside = [str(each) for each in folder.parent.glob("*") if each.is_dir()] if folder.parent.is_dir() else []
        raise ConfigError(
            "--backbones",
            got=word,
            allowed=f"{', '.join(NEW)}, a run of cxrhf train or a model folder",
            next_step=did_you_mean(word, [*NEW, *beside]) or "cxrhf train BUILD --out RUN",
        )
    from cxrhf.models.saved import read_about

    saved = saved_models(folder)[0]  # of a run, that of the first seed
    about = read_about(saved)
    own = str(about.get("name") or folder.name)
    if saved == folder and about.get("seed") is not None:
        own = f"{own}-seed-{about['seed']}"
    return Source(name or own, word, saved)


def slug(name: str) -> str:
    """A name that can be a folder.

    >>> slug("White only, seed 3")
    'white-only-seed-3'
    """
    return file_name(re.sub(r"[^\w.+-]+", "-", name.lower()).strip(".-"))
