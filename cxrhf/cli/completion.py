"""`cxrhf completion`: a shell -> the script that completes verbs, flags, recipes and known values in it."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.config_selfcheck import CompletionConfig

ABOUT = """Print a script that completes cxrhf in your shell: verbs, flags, known values (audits, datasets, findings,
devices), recipes after --config, and files. The script matches this version of cxrhf.

Add the line to your shell's startup file, then open a new shell:
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
