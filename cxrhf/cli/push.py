"""`cxrhf push metric|model|dataset`: what was made here -> the Hub, after a look at every file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.errors import CxrhfError, did_you_mean
from cxrhf.hub.settings import PushDatasetConfig, PushMetricConfig, PushModelConfig

if TYPE_CHECKING:
    from cxrhf.hub.artefact import Artefact

SUBVERBS = {
    "metric": "evaluate modules -> Spaces that anyone can load with evaluate.load('USER/NAME'), without cxrhf",
    "model": "run with weights -> model repository with card, results and calibration",
    "dataset": "build -> Parquet and card; for credentialed data only the recipe",
}

HELP = f"""usage: cxrhf push WHAT ...

Publish on the Hugging Face Hub, or on the Hub that HF_ENDPOINT names. Every file is checked before anything is sent:
text of notes, images, patients' rows and ids, tokens and paths of this machine stop the push. A push is one commit: it
is complete, or nothing changes. Repeating a push sends nothing.

what:
{chr(10).join(f"  {verb:<8} {what}" for verb, what in SUBVERBS.items())}

examples:
  cxrhf push metric --all --to USER --dry-run                  list what would be sent
  cxrhf push metric weighted_auroc cad --to USER
  cxrhf push model runs/demo/network --to USER/demo-network    private, unless --public
  cxrhf push dataset runs/demo/data --to USER/twin --public
  cxrhf push dataset data/mimic --recipe --to USER/mimic-recipe

environment:
  HF_TOKEN         token with write access (or: hf auth login); never shown or stored
  HF_ENDPOINT      a Hub other than huggingface.co
  HF_HUB_OFFLINE   1: send nothing; --dry-run still works

cxrhf push WHAT --help lists the flags.
"""

METRIC = """Publish evaluate modules as Spaces.

Each Space contains all the code it needs, so that evaluate.load("USER/NAME") gives the numbers of this version without
cxrhf. The Space shows the card of the metric and a page to try it.

examples:
  cxrhf push metric --all --to USER --dry-run
  cxrhf push metric weighted_auroc --to USER"""

MODEL = """Publish a model with a card whose numbers come from its audit.

The repository contains weights as transformers, timm or peft load them, labels, calibration, and a card; every number
in the card is in results.json next to it. Audit the model first.

Private unless --public. Networks trained on credentialed data require --data-agreement-allows; models that can
reproduce words of notes or reports (adapters, vocabularies) also require --data-agreement-allows-words.

examples:
  cxrhf push model runs/demo/network --to USER/demo-network --dry-run
  cxrhf push model runs/mine --results runs/audit --to USER/my-network
  cxrhf push model runs/mimic-network --to USER/NAME --data-agreement-allows"""

DATASET = """Publish a build: Parquet shards and card, ready for load_dataset.

Open and synthetic data only. For credentialed data (MIMIC, CheXpert, ReXGradient) you can publish the recipe: settings,
ids and splits, from which others with their own access build the same dataset. Private unless --public.

examples:
  cxrhf push dataset runs/demo/data --to USER/twin --dry-run
  cxrhf push dataset data/nih --to USER/nih-linked --public
  cxrhf push dataset data/mimic --recipe --to USER/mimic-recipe"""


def main(args: Sequence[str]) -> int:
    """Publish one kind of thing."""
    if not args or args[0] in ("-h", "--help", "help"):
        print(HELP, end="", file=sys.stdout if args else sys.stderr)
        return 0 if args else 2
    what, *rest = args
    if what not in SUBVERBS:
        raise CxrhfError("cxrhf push", got=what, allowed="metric, model or dataset",
                         next_step=did_you_mean(what, SUBVERBS) or "cxrhf push --help")  # fmt: skip
    verb = {"metric": _metric, "model": _model, "dataset": _dataset}[what]
    if any(word in ("-h", "--help") for word in rest):
        return verb(rest)
    from cxrhf.tables.folders import temporary_folder

    usual = tempfile.tempdir
    with temporary_folder("publish") as work:
        tempfile.tempdir = str(work)  # whatever is written on the way is gone with it, also if this is killed
        try:
            return verb(rest)
        finally:
            tempfile.tempdir = usual


def _metric(args: Sequence[str]) -> int:
    from cxrhf.cli.flags import parse

    config = parse(PushMetricConfig, args, verb="push metric", about=METRIC)
    from cxrhf.hub.metric import choose_metrics, metric_artefact

    names = choose_metrics(config.names, config.all)
    owner = str(config.to)
    # All are made and checked before the first one leaves.
    artefacts = [metric_artefact(name, owner) for name in names]
    pairs = [(each, f"{owner}/{each.name}") for each in artefacts]
    return send_artefacts(pairs, private=config.private, dry_run=config.dry_run, as_json=config.json)


def _model(args: Sequence[str]) -> int:
    from cxrhf.cli.flags import parse

    config = parse(PushModelConfig, args, verb="push model", about=MODEL)
    from cxrhf.hub.model import model_artefact

    return send_artefacts(
        [(model_artefact(config), str(config.to))],
        private=not config.public,
        dry_run=config.dry_run,
        as_json=config.json,
    )


def _dataset(args: Sequence[str]) -> int:
    from cxrhf.cli.flags import parse

    config = parse(PushDatasetConfig, args, verb="push dataset", about=DATASET)
    from cxrhf.hub.dataset import dataset_artefact

    with tempfile.TemporaryDirectory() as work:
        made = dataset_artefact(Path(config.folder), str(config.to), recipe=config.recipe, work=Path(work))
        return send_artefacts(
            [(made, str(config.to))], private=not config.public, dry_run=config.dry_run, as_json=config.json
        )


def send_artefacts(
    pairs: Sequence[tuple[Artefact, str]], *, private: bool, dry_run: bool, as_json: bool = False
) -> int:
    """Look through everything, show it, and publish one after the other; what failed is said at the end."""
    from cxrhf.hub.connection import connect
    from cxrhf.hub.scan import check
    from cxrhf.hub.upload import as_mapping, listing, push

    hub = None if dry_run else connect()  # a missing token is said before gigabytes are looked through
    for artefact, _ in pairs:
        check(artefact)
    told = [as_mapping(artefact, repo, private=private) for artefact, repo in pairs]
    if not as_json:
        for artefact, repo in pairs:
            print("\n".join(listing(artefact, repo, private=private)), end="\n\n")
    if hub is None:
        print(_json(told) if as_json else "Dry run: all files were checked, nothing was sent.")
        return 0
    done: list[str] = []
    for (artefact, repo), about in zip(pairs, told, strict=True):
        try:
            result = push(hub, artefact, repo, private=private, said=_print_to_stderr)
        except BaseException:  # also Ctrl-C: what is there and what is not
            if len(pairs) > 1:
                left = [each for _, each in pairs if each not in done]
                _print_to_stderr(f"published: {', '.join(done) or 'none'}; not published: {', '.join(left)}")
            raise
        done.append(repo)
        about |= {each: getattr(result, each) for each in ("url", "changed", "commit", "sent", "removed")}
        if as_json:
            continue
        if result.changed:
            removed = f", {len(result.removed)} removed" if result.removed else ""
            print(f"{result.url}: published, {len(result.sent)} files sent{removed}, commit {result.commit[:12]}")
        else:
            print(f"{result.url}: nothing changed, nothing was sent")
    if as_json:
        print(_json(told))
    return 0


def _json(told: list[dict[str, Any]]) -> str:
    import json

    return json.dumps(told, indent=1)


def _print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
