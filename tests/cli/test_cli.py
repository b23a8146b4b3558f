"""The command line: help, wrong words, errors without tracebacks."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from cxrhf import __version__, cli
from cxrhf.errors import CxrhfError, TableError, did_you_mean, shorten

ROOT = Path(__file__).resolve().parents[2]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        for verb in cli.VERBS:
            assert f"  {verb}" in out
        assert "examples:" in out
        assert max(map(len, out.splitlines())) <= 110


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_helps_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([verb, "--help"], ["help", verb]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        assert f"usage: cxrhf {verb}" in out
        assert f"\n  cxrhf {verb}" in out
        assert "None" not in out


def test_help_keeps_its_paragraphs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the width of the terminal, one blank line between two; a verb's own flags before those it shares."""
    monkeypatch.setenv("COLUMNS", "90")
    assert cli.main(["audit", "--help"]) == 0
    out = capsys.readouterr().out.replace("\N{WORD JOINER}", "")
    prose = out.partition("examples:")[0]
    assert max(len(line) for line in prose.splitlines() if not line.startswith(" ")) <= 90
    assert "\n\n\n" not in prose
    assert "\n\nA column pretest (or pretest_<finding>)" in prose
    assert out.index("--out RUN") < out.index("--embeddings FILE")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"cxrhf {__version__}\n"


def test_no_verb_shows_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "verbs:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["audti"], ["'audti'", "doctor, build, context,", "'audit'?"]),
        (["zzz"], ["'zzz'", "cxrhf --help"]),
        (["--audit"], ["'--audit'", "'audit'?"]),
        (["--verson"], ["'--verson'", "'--version'?"]),
        (["audit"], ["PREDICTIONS", "cxrhf audit predictions.csv"]),
        (["audit", "nowhere.csv"], ["nowhere.csv"]),
        (["audit", "x.csv", "--level", "2"], ["level", "got 2.0"]),
        (["audit", "x.csv", "--only", "overveiw"], ["only", "'overview'?"]),
        (["audit", "x.csv", "--config", "nowhere"], ["--config", "nowhere", "quick"]),
        (["report", "nowhere"], ["nowhere"]),
        (["demo", "--n-patients", "0"], ["--n-patients", "got 0"]),
        (["build", "chexprt"], ["chexprt", "'chexpert'?"]),
        (["build", "chexpert"], ["--root"]),
        (["build", "chexpert", "--root", "nowhere"], ["nowhere"]),
        (["build", "chexpert", "--labels", "mask"], ["labels", "'masked'?"]),
        (["doctor", "chexpert"], ["--root"]),
        (["build", "chexpert", "--root", ".", "--out", "/dev/null/x"], ["/dev/null"]),
    ],
)
def test_errors_are_one_line(words: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    got = capsys.readouterr()
    assert got.err.startswith("error: ")
    assert not [each for each in facts if each not in got.err], got.err
    assert "Traceback" not in got.err
    assert got.err.count("\n") == 1
    assert got.out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["audit", "x.csv", "--n-resample", "5"], "--n-resamples"),
        (["audit", "x.csv", "--seed", "many"], "--seed"),
        (["report"], "RUN"),
    ],
)
def test_wrong_flags(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err


class Boom(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Boom("two\nlines"), 1, "error: unexpected Boom: two lines\n"),
        (TableError("what"), 2, "error: what.\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("not ours"), 1, "error: unexpected ValueError: not ours"),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    monkeypatch.delenv("CXRHF_DEBUG", raising=False)
    assert cli.main(["audit"]) == code
    assert said in capsys.readouterr().err
    if code == 1:
        with pytest.raises(type(error)):
            cli.main(["audit", "--debug"])
        monkeypatch.setenv("CXRHF_DEBUG", "1")
        with pytest.raises(type(error)):
            cli.main(["audit"])


def test_errors_of_metrics_are_the_users_too() -> None:
    from cxrhf.metrics.checks import InputError

    assert cli.is_users(InputError("p[3] is NaN"))
    assert not cli.is_users(ValueError("x"))


def test_the_module_runs_like_the_command() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CXRHF_DEBUG": ""}
    command = [sys.executable, "-m", "cxrhf"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, env=env, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"cxrhf {__version__}\n")
    done = subprocess.run(
        [*command, "audit", "no.csv"], capture_output=True, text=True, env=env, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no.csv ")


def test_messages() -> None:
    assert str(CxrhfError("what", got=3, allowed="1 or 2", next_step="do it")) == "what: expected 1 or 2, got 3. Do it."
    assert str(CxrhfError("what", next_step="did you mean 'x'?")) == "what. Did you mean 'x'?"
    assert issubclass(TableError, ValueError)
    there = TableError("what", next_step="cxrhf audit x")
    assert str(pickle.loads(pickle.dumps(there))) == str(there) == "what. Run: cxrhf audit x"  # from a worker
    assert did_you_mean("n-resample", ["n_resamples", "seed"]) == "did you mean 'n_resamples'?"
    assert did_you_mean("qqq", ["n_resamples"]) is None
    assert shorten("a\nb") == "a\\nb"
    assert len(shorten("x" * 1000)) == 300
