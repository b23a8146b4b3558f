"""What went wrong -> one line: what happened and where, what was expected, what was found, what to do.

`raise TableError('predictions.csv, column "label", row 7', got="2", allowed="1, 0 or empty", next_step="fix the cell")`
reads `predictions.csv, column "label", row 7: expected 1, 0 or empty, got 2. Fix the cell.` The command line prints
errors as `error: ...` with exit code 2, never a traceback.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class CxrhfError(Exception):
    """An error that the user can fix. `what`, `got`, `allowed` and `next_step` stay fields; the message joins them."""

    def __init__(
        self, what: str, *, got: object = None, allowed: str | None = None, next_step: str | None = None
    ) -> None:
        self.what = what
        self.got = None if got is None else shorten(str(got))
        self.allowed = allowed
        self.next_step = next_step
        super().__init__(what)

    def __str__(self) -> str:
        parts = [f"expected {self.allowed}"] if self.allowed is not None else []
        parts += [f"got {self.got}"] if self.got is not None else []
        what = f"{self.what.removesuffix('.')}: {', '.join(parts)}" if parts else self.what
        steps = [] if self.next_step is None else [_sentence(self.next_step)]
        return " ".join([what if what.endswith((".", "?", "!")) else f"{what}.", *steps])

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the fields on the way out of a worker process."""
        return (_unpacked, (type(self), self.args), self.__dict__)


_COMMANDS = ("cxrhf ", "pip ", "accelerate ", "python ", "hf ")


def _sentence(step: str) -> str:
    """The next step as a sentence; without a full stop behind a command, which is copied with whatever follows it."""
    if step.startswith(_COMMANDS):
        return f"Run: {step}"
    step = f"Pass {step}" if step.startswith("--") else step
    step = step[0].upper() + step[1:] if re.match(r"[a-z]+(?![\w./=(])", step) else step
    return step if step.endswith((".", "?", "!")) or any(command in step for command in _COMMANDS) else f"{step}."


def _unpacked(kind: type[CxrhfError], args: tuple[Any, ...]) -> CxrhfError:
    return kind.__new__(kind, *args)


class TableError(CxrhfError, ValueError):
    """A table or file does not hold what its schema says; names file, column and row."""


class ConfigError(CxrhfError, ValueError):
    """A setting, flag or config file is wrong."""


class RunError(CxrhfError):
    """A run folder cannot be opened, read or written as asked."""


class SourceError(CxrhfError, ValueError):
    """A published dataset on the user's disk is incomplete, damaged or laid out otherwise; names file and line."""


class LeakageError(CxrhfError):
    """What must not be known would be known: a note after its image, a patient in two splits, a report in a note.

    `counts` says how often each happened; the ids are in a file on the user's disk, never in the message.
    """

    def __init__(self, what: str, *, counts: dict[str, int], next_step: str | None = None) -> None:
        self.counts = dict(counts)
        super().__init__(what, next_step=next_step)


def in_python(function: Callable[P, R]) -> Callable[P, R]:
    """A function of `cxrhf` for notebooks: its errors name arguments (`findings=...`) where a command's name flags."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except CxrhfError as error:
            for name in ("what", "got", "allowed", "next_step"):
                text = getattr(error, name)
                setattr(error, name, None if text is None else as_arguments(text))
            raise

    return wrapped


# A flag, with its value where that can be told from the sentence: COLUMN, 'a name', from:age,sex.
_FLAG = re.compile(
    r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)"
    r"(?:[ =]((?:[A-Z][A-Z_]*\b(?:=[A-Z]+)?(?:,\.\.\.)?)|'[^']*'|[\w./-]+[:,=/][\w.,:=/-]*[\w/]))?"
)
_SWITCHES = ("overwrite", "json", "may-show")
# In a command a flag is a flag.
_COMMAND = re.compile(r"(cxrhf [a-z]+ [^;(]*)")


def as_arguments(text: str) -> str:
    """A sentence of the command line in the words of a call; commands stay as they are.

    >>> as_arguments("Name it: --patient COLUMN, or leave --seed-column out; cxrhf audit a.csv --patient COLUMN")
    'Name it: patient="COLUMN", or leave seed_column=... out; cxrhf audit a.csv --patient COLUMN'
    """
    parts = _COMMAND.split(text)
    said = "".join(part if at % 2 else _FLAG.sub(_argument, part) for at, part in enumerate(parts))
    return re.sub(r" \([a-z_]+=\.\.\. in Python\)", "", said)


def _argument(flag: re.Match[str]) -> str:
    name, value = flag[1], flag[2]
    if value is None:
        return f"{name.replace('-', '_')}={'True' if name in _SWITCHES else '...'}"
    bare = value.strip("'")
    return f'{name.replace("-", "_")}="{bare}"'


class CxrhfWarning(UserWarning):
    """Something a reader of the numbers should know, that does not stop the work."""


def shorten(text: str, limit: int = 300) -> str:
    """Keep a message on a line: control characters are shown escaped, long text is cut."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def did_you_mean(name: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name closest to a misspelt or shortened one, as a question, or None when nothing is close.

    >>> did_you_mean("overvew", ["overview", "context"]), did_you_mean("mimic", ["chexpert", "mimic_cxr_context"])
    ("did you mean 'overview'?", "did you mean 'mimic_cxr_context'?")
    """
    choices = sorted({str(each) for each in known})
    by_key = {each.lower().replace("-", "_"): each for each in choices}
    given = name.lower().replace("-", "_")
    close = difflib.get_close_matches(given, list(by_key), n=1, cutoff=alike)
    if not close and len(given) > 2:  # "mimic" is no misspelling; one of two chexperts would be a guess
        begun = [key for key in by_key if key.startswith(given)]
        close = begun if len(begun) == 1 else []
    return f"did you mean {by_key[close[0]]!r}?" if close else None


def need_packages(what: str, packages: Sequence[str], extra: str, other: str = "") -> None:
    """An error that says how to get the packages that are not installed, before anything is read or hours are spent."""
    missing = [name for name in packages if not _installed(name)]
    if missing:
        raise CxrhfError(
            f"{what} {'needs' if what.startswith('--') else 'need'} Python packages that are not installed: "
            f"{', '.join(missing)}",
            next_step=f"pip install 'cxrhf[{extra}]'{other}",
        )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
