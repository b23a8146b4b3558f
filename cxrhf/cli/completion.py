"""`cxrhf completion`: a shell -> the script that completes verbs, flags, recipes and known values in it."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_selfcheck import CompletionConfig

ABOUT = """Print a script with which your shell completes cxrhf: verbs, flags, values that are known (audits, datasets,
findings, devices), recipes after --config, files elsewhere. It is made from this version; an upgrade makes another.

Put the line into the file that your shell reads at its start, then open a new one:
  bash   ~/.bashrc                      eval "$(cxrhf completion bash)"
  zsh    ~/.zshrc                       eval "$(cxrhf completion zsh)"
  fish   ~/.config/fish/config.fish     cxrhf completion fish | source

examples:
  cxrhf completion bash
  cxrhf completion fish | source"""


def main(args: Sequence[str]) -> int:
    """Print the script."""
    from cxrhf.cli.flags import parse

    config = parse(CompletionConfig, args, verb="completion", about=ABOUT)
    from cxrhf.cli.completion_scripts import script
    from cxrhf.cli.completion_words import commands

    print(script(config.shell, commands()), end="")
    return 0
