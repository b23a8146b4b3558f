"""The command line: `cxrhf VERB ...`, one file per verb, nothing heavy imported before a verb is chosen."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cxrhf import __version__
from cxrhf.errors import CxrhfError, CxrhfWarning, did_you_mean

if TYPE_CHECKING:
    from cxrhf.models.predict import RunUpdate
    from cxrhf.models.report_run import FinetunedRun
    from cxrhf.models.train_run import TrainedRun


# Verb -> what it does; the file of the same name beside this one has `main(args) -> exit code`.
VERBS = {
    "doctor": "check that the raw files of a dataset are complete",
    "build": "raw files of a dataset -> Parquet with prior notes, attrition table, dataset card",
    "context": "prior notes of a build -> calibrated pre-test probabilities (fit, predict, explain)",
    "train": "images and labels of a build -> a network; several seeds, several GPUs",
    "predict": "trained network and images -> predictions",
    "embed": "trained network and images -> embeddings (penultimate layer)",
    "calibrate": "trained network -> calibrated probabilities",
    "probe": "frozen networks -> how well sex, race and view can be predicted from their embeddings",
    "zeroshot": "images and prompts -> predictions of a CLIP-style model",
    "finetune": "images and reports of a build -> LoRA adapter of a vision-language model",
    "generate": "report model and images, or existing reports -> a table of generated reports",
    "score": "generated reports -> scores that require an encoder: BERTScore, embeddings",
    "audit": "predictions or generated reports -> results with intervals on one page",
    "report": "write the page of a run again, or compare two runs (--diff)",
    "push": "publish metrics, a model or a dataset on the Hub, after checking every file",
    "selfcheck": "check that this installation recovers known answers; versions for a bug report",
    "completion": "print the shell completion script",
    "demo": "synthetic hospital -> dataset, predictions with known answers, audit",
}

OPTIONS = ("--help", "--version", "--debug")

HELP = f"""usage: cxrhf VERB ...

Honest evaluation of chest X-ray models: how much of the AUROC comes from the image, how much from context?

verbs:
{chr(10).join(f"  {verb:<10} {what}" for verb, what in VERBS.items())}

examples:
  cxrhf demo --quick                               the whole workflow in two minutes, without data
  cxrhf audit predictions.csv --out runs/mine      audit a file: wide, long or one finding
  cxrhf audit vendor.csv --patient PID --label truth --score ai_score
  cxrhf report runs/mine                           write the page again
  cxrhf report --diff runs/old runs/new            what changed between two runs
  cxrhf doctor mimic_cxr_context --root FOLDER     check the raw files
  cxrhf build mimic_cxr_context --root FOLDER      link images, prior notes and labels
  cxrhf context fit data/mimic --out runs/context  pre-test probabilities from notes
  cxrhf train data/twin --config quick             a small network in minutes, without a GPU
  cxrhf push metric --all --to USER --dry-run      what would be published on the Hub
  cxrhf selfcheck                                  check this installation

options:
  -h, --help     show this text; cxrhf VERB --help lists the flags of a verb
  --version      show the version
  --debug        show tracebacks of errors (or CXRHF_DEBUG=1)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 2 wrong input, 1 something unexpected or a check that failed, 130 interrupted.
    """

    args = list(sys.argv[1:] if argv is None else argv)
    debug = os.environ.get("CXRHF_DEBUG", "") not in ("", "0")
    if "--debug" in args:
        args.remove("--debug")
        debug = True
    usual, out = warnings.formatwarning, sys.stdout
    if not debug:
        warnings.formatwarning = _format_warning
    sys.stdout = SafeStream(out)
    clean = "\r\x1b[2K" if sys.stderr.isatty() else ""  # a line of progress may stand where the message goes
    try:
        return _dispatch(args)
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":  # a launcher stops all processes; one speaks
            print(f"{clean}{said_of(args)}", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        _wait_for_first()
        if is_users(error):
            # Cells and names of a file must not steer the terminal.
            safe = "".join(
                each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in str(error)
            )
            print(f"{clean}error: {safe}", file=sys.stderr)
            return 2
        if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("cxrhf"):
            what = f"{clean}error: the Python package {error.name} is not installed."
            print(f"{what} Run: pip install 'cxrhf[all]'", file=sys.stderr)
            return 2
        if isinstance(error, OSError) and error.strerror:  # no permission, no space left, a folder that went away
            where = f"{error.filename}: " if error.filename is not None else ""
            how = "Check the path, its permissions and free disk space."
            print(f"{clean}error: {where}{error.strerror}. {how}", file=sys.stderr)
            return 2
        said = " ".join(str(error).split())
        print(f"{clean}error: unexpected {type(error).__name__}: {said}", file=sys.stderr)
        print("Run the same command with --debug and report the traceback.", file=sys.stderr)
        return 1
    finally:
        sys.stdout, warnings.formatwarning = out, usual


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning that is meant for users, without the line of code that gave it."""
    if issubclass(category, CxrhfWarning):
        return f"warning: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _wait_for_first() -> None:
    """What is wrong is mostly wrong in every process that a launcher started; it stops the others once one has ended.

    So the first one speaks at once, and another only if it is still there after a while.
    """
    if "LOCAL_RANK" in os.environ and os.environ.get("RANK", "0") != "0":
        import time

        time.sleep(5)


def is_users(error: Exception) -> bool:
    """Whether the message of an error is written for users. Metrics have their own kind, loaded only with them."""
    checks = sys.modules.get("cxrhf.metrics.checks")
    return isinstance(error, CxrhfError) or (checks is not None and isinstance(error, checks.InputError))


def _dispatch(args: list[str]) -> int:
    if not args:
        print(HELP, end="", file=sys.stderr)
        return 2
    verb, *rest = args
    if verb in ("-h", "--help", "help"):
        if rest and not rest[0].startswith("-"):
            return _dispatch([rest[0], "--help"])
        print(HELP, end="")
        return 0
    if verb in ("--version", "-V", "version"):
        print(f"cxrhf {__version__}")
        return 0
    if verb not in VERBS:
        is_option = verb.startswith("-")
        raise CxrhfError(
            f"no {'option' if is_option else 'verb'} {verb!r}",
            allowed=", ".join(OPTIONS if is_option else VERBS),
            next_step=(did_you_mean(verb, OPTIONS) if is_option else None)
            or did_you_mean(verb.lstrip("-"), VERBS)
            or "cxrhf --help",
        )
    module = importlib.import_module(f"cxrhf.cli.{verb}")
    try:
        code: int = module.main(rest)
    except SystemExit as stop:  # tyro has printed its help or its error
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 2
    sys.stdout.flush()
    return code


# The words of a command that was interrupted -> how to go on with it.

# What they have done stays on the disk and is taken over by the same command. The others begin again: they are short,
# and what they write is there whole or not at all.
RESUMES = ("build", "context fit", "context predict", "train", "finetune", "generate", "score", "demo")


def said_of(args: Sequence[str]) -> str:
    """What to print after Ctrl-C.

    >>> said_of(["train", "data/twin"])
    'interrupted. To resume, run: cxrhf train data/twin'
    >>> said_of(["audit", "my file.csv"])
    "interrupted. To start again, run: cxrhf audit 'my file.csv'"
    """
    resumes = any(" ".join(args[: name.count(" ") + 1]) == name for name in RESUMES)
    # Under accelerate launch or torchrun the command that was typed is another one.
    typed = "the same command" if "LOCAL_RANK" in os.environ else shlex.join(["cxrhf", *args])
    return f"interrupted. To {'resume' if resumes else 'start again'}, run: {typed}"


# A standard output whose reader may leave (`cxrhf audit ... | head`), or cannot read every letter -> the work goes
# on.
#
# What a command makes is in a folder; to lose it because a line was not read would be absurd. Where the output is not
# UTF-8 (a file or pipe on Windows), letters that its encoding lacks are written in others.

# Signs of our own sentences, in ASCII; other letters, of names and files, are written as \\xe9 or \\u5b57.
_SIGNS = {"–": "-", "−": "-", "…": "...", "·": ".", "Δ": "delta ", "“": '"', "”": '"', "’": "'", "×": "x", "±": "+-"}
_SIGNS |= {"≥": ">=", "≤": "<=", "→": "->", "←": "<-", "\N{REPLACEMENT CHARACTER}": "?"}
_ASCII = str.maketrans(_SIGNS)


class SafeStream:
    """A stream that throws away what is written once its reader has left, and never fails over a letter."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding))
        except BrokenPipeError:
            self._leave()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# What a verb added to a run folder -> its last words on the terminal.


def print_outcome(done: RunUpdate | None, verb: str | None = None) -> int:
    """The last words of a verb, with the verb that comes next; none in a process that only helped."""
    if done is not None:
        following = None if verb is None else f"cxrhf {verb} {shlex.quote(str(done.path))}"
        print_summary(done.path, done.lines, done.notes, following)
    return 0


def print_summary(path: Path, lines: Sequence[str], notes: Sequence[str], following: str | None) -> None:
    """Print lines, notes, the next command, and the path."""
    from cxrhf.report.lines import printable

    print("\n".join(["", *map(printable, lines)]))
    for note in notes:
        print(printable(f"note: {note}"))
    if following is not None:
        print(f"next: {following}")
    print(path)


def where_curves_are(done: TrainedRun | FinetunedRun) -> list[str]:
    """Where the curves of a training are, and how to plot them; nothing where a tracker's command is shown already."""
    if done.curves is not None:
        return []
    files = [shlex.quote(str(path)) for path in sorted(done.path.glob("history-*.jsonl"))]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return [f"curves: {files[0]}{more}; train with --tracker tensorboard to plot them"] if files else []
