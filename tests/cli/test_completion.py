"""`cxrhf completion`: scripts that real shells take, and that know what the command line knows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cxrhf import cli
from cxrhf.cli import completion
from cxrhf.cli.completion import Command, allowed_values, commands, recipes, script
from cxrhf.data.settings import DATASETS, BuildConfig
from cxrhf.errors import ConfigError
from cxrhf.models.report_settings import GenerateConfig
from cxrhf.models.settings import DEVICES, TrainConfig
from cxrhf.settings import AUDITS, SHELLS, AuditConfig, CompletionConfig
from tests.refusals import refused


@pytest.fixture(scope="module")
def known() -> list[Command]:
    return commands()


def completed(known: list[Command], folder: Path, *lines: list[str]) -> list[set[str]]:
    """What bash offers for each line; its last word is being typed."""
    (folder / "cxrhf.bash").write_text(script("bash", known))
    asked = ["source ./cxrhf.bash"]
    for line in lines:
        words = " ".join(map(shlex.quote, ["cxrhf", *line]))
        asked.append(f'COMP_WORDS=({words}); COMP_CWORD={len(line)}; _cxrhf; echo "${{COMPREPLY[*]}}"')
    command = ["bash", "--norc", "-c", "\n".join(asked)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.split("\n")[:-1]]


def test_bash_completes_verbs_flags_and_values(known, tmp_path) -> None:
    verbs, second, flag, one, comma, listed, after, data, shell = completed(
        known, tmp_path,
        [""], ["context", ""], ["audit", "x.csv", "--n-re"], ["audit", "x.csv", "--correction", ""],
        ["audit", "--only", "overview,co"], ["audit", "--only", "overview", "co"],
        ["audit", "x.csv", "--overwrite", "--corr"], ["build", "che"], ["help", "rep"],
    )  # fmt: skip
    assert set(cli.VERBS) <= verbs
    assert second == {"fit", "predict", "explain", "--help"}
    assert flag == {"--n-resamples"}
    assert one == {"bonferroni", "holm", "bh", "by", "max_t", "none"}
    assert comma == {"overview,context", "overview,compare"}
    assert listed == {"context", "compare"}
    assert after == {"--correction"}
    assert data == {"chexpert", "chexpert_plus"}
    assert shell == {"report"}


def test_bash_offers_recipes_and_files_after_config(known, tmp_path) -> None:
    (tmp_path / "mine.yaml").touch()
    recipe, equals, none, free = completed(
        known, tmp_path,
        ["train", "data", "--config", ""], ["audit", "--correction", "=", "bo"], ["nonsense", ""],
        ["audit", "x.csv", "--out", ""],
    )  # fmt: skip
    assert {"quick", "context_densenet", "mine.yaml"} <= recipe
    assert "context_paper" not in recipe  # of another verb
    assert equals == {"bonferroni"}
    assert none == free == set()  # the shell's own completion of files


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_take_the_script(shell, known, tmp_path) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / f"cxrhf.{shell}"
    path.write_text(script(shell, known))
    done = subprocess.run([found, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes(known, tmp_path) -> None:
    found = shutil.which("fish")
    if found is None:
        pytest.skip("no fish here")
    (tmp_path / "cxrhf.fish").write_text(script("fish", known))
    asked = "source cxrhf.fish; complete -C 'cxrhf audit x --only overview,co'; complete -C 'cxrhf context f'"
    done = subprocess.run([found, "--no-config", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["overview,compare", "overview,context", "fit"]


@pytest.mark.parametrize("words", [("audit",), ("context", "fit"), ("build",), ("finetune",)])
def test_flags_are_those_of_the_help(words, known, capsys) -> None:
    (command,) = [each for each in known if each.words == words]
    assert cli.main([*words, "--help"]) == 0
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", capsys.readouterr().out.partition("options")[2]))
    assert {name for flag in command.flags for name in flag.names if name.startswith("--")} <= told


def test_every_verb_is_there(known) -> None:
    assert {each.words[0] for each in known} == set(cli.VERBS)
    assert all(each.about for each in known)


def test_values_come_from_the_checks_themselves() -> None:
    audit = allowed_values(AuditConfig)
    assert audit["only"] == AUDITS
    assert "edema" in audit["findings"]
    assert audit["word_groups"] == ("sex", "age", "race")  # & is the shell's own
    assert "out" not in audit
    assert "train_prevalence" not in audit  # allowed in words, not one of some
    train = allowed_values(TrainConfig)
    assert train["device"] == DEVICES
    assert "only" not in train
    assert "seeds" not in train
    assert allowed_values(BuildConfig)["dataset"] == tuple(DATASETS)
    assert allowed_values(GenerateConfig)["device"] == DEVICES
    assert allowed_values(CompletionConfig) == {"shell": SHELLS}
    assert "quick" in recipes(TrainConfig)
    assert recipes(CompletionConfig) == ()


def test_the_verb_prints_a_script_and_tells_how_to_use_it(capsys) -> None:
    assert completion.main(["bash"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Completion of cxrhf for bash")
    assert out.endswith("complete -o bashdefault -o default -F _cxrhf cxrhf\n")
    with pytest.raises(SystemExit):
        completion.main(["--help"])
    assert 'eval "$(cxrhf completion bash)"' in capsys.readouterr().out
    with refused(ConfigError, "bash", "zsh", "fish", got="csh"):
        completion.main(["csh"])
