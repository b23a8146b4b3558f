"""`cxrhf push metric|model|dataset`: what was made here -> the Hub, after a look at every file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.config_push import PushDatasetConfig, PushMetricConfig, PushModelConfig
from cxrhf.errors import CxrhfError, did_you_mean

if TYPE_CHECKING:
    from cxrhf.hub.artefact import Artefact

SUBVERBS = {
    "metric": "evaluate modules -> Spaces: evaluate.load('USER/NAME') works for everybody, without cxrhf",
    "model": "a run with weights -> a model repository with card, results and calibration",
    "dataset": "a build -> Parquet and card; of credentialed data only the recipe",
}

HELP = f"""usage: cxrhf push WHAT ...

Publish on the Hugging Face Hub, or on the one that HF_ENDPOINT names. Every file is looked through before anything
leaves: text of notes, pictures, patients' rows and ids, tokens and paths of this machine stop the push. One commit
holds all of it, or nothing changes; the same push again sends nothing.

what:
{chr(10).join(f"  {verb:<8} {what}" for verb, what in SUBVERBS.items())}

examples:
  cxrhf push metric --all --to USER --dry-run                  what would be sent, with sizes
  cxrhf push metric weighted_auroc cad --to USER
  cxrhf push model runs/demo/network --to USER/demo-network    private, unless --public
  cxrhf push dataset runs/demo/data --to USER/twin --public
  cxrhf push dataset data/mimic --recipe --to USER/mimic-recipe

environment:
  HF_TOKEN         a token with write access (or: hf auth login); it is never shown and never stored
  HF_ENDPOINT      another Hub than huggingface.co
  HF_HUB_OFFLINE   1: nothing may be sent; --dry-run still works

cxrhf push WHAT --help has the flags.
"""

METRIC = """Publish evaluate modules as Spaces.

Each is staged as a copy that carries all it needs, so that evaluate.load("USER/NAME") gives this version's numbers
where cxrhf is not installed; the Space shows the metric's card and a page to try it on.

examples:
  cxrhf push metric --all --to USER --dry-run
  cxrhf push metric weighted_auroc --to USER"""

MODEL = """Publish a model with a card that one can rely on.

Weights as transformers, timm or peft load them, labels, calibration, and a card that is written from the audit's
results: every number in it stands in results.json beside it. Audit the model first.

Private unless --public. Networks from credentialed data need --data-agreement-allows; what can give back words of notes
or reports (adapters, vocabularies) is refused without --data-agreement-allows-words.

examples:
  cxrhf push model runs/demo/network --to USER/demo-network --dry-run
  cxrhf push model runs/mine --results runs/audit --to USER/my-network
  cxrhf push model runs/mimic-network --to USER/NAME --data-agreement-allows"""

DATASET = """Publish a build: Parquet shards and card, as load_dataset reads them.

Open and made-up data only. Of credentialed data (MIMIC, CheXpert, ReXGradient) the recipe may go: settings, ids and
splits, from which others with their own access build the same. Private unless --public.

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
        raise CxrhfError(f"cxrhf push {what}: no such thing to push", allowed=", ".join(SUBVERBS),
                         next_step=did_you_mean(what, SUBVERBS) or "cxrhf push --help")  # fmt: skip
    verb = {"metric": _metric, "model": _model, "dataset": _dataset}[what]
    if any(word in ("-h", "--help") for word in rest):
        return verb(rest)
    from cxrhf.tables.temporary import temporary_folder

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
    from cxrhf.hub.metric import chosen, metric_artefact

    names = chosen(config.names, config.all)
    owner = str(config.to)
    # All are made and checked before the first one leaves.
    artefacts = [metric_artefact(name, owner) for name in names]
    pairs = [(each, f"{owner}/{each.name}") for each in artefacts]
    return send(pairs, private=config.private, dry_run=config.dry_run, as_json=config.json)


def _model(args: Sequence[str]) -> int:
    from cxrhf.cli.flags import parse

    config = parse(PushModelConfig, args, verb="push model", about=MODEL)
    from cxrhf.hub.model import model_artefact

    return send(
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
        return send([(made, str(config.to))], private=not config.public, dry_run=config.dry_run, as_json=config.json)


def send(pairs: Sequence[tuple[Artefact, str]], *, private: bool, dry_run: bool, as_json: bool = False) -> int:
    """Look through everything, show it, and publish one after the other; what failed is said at the end."""
    from cxrhf.hub.connection import connect
    from cxrhf.hub.listing import as_mapping, listing
    from cxrhf.hub.scan import check
    from cxrhf.hub.upload import push

    hub = None if dry_run else connect()  # a missing token is said before gigabytes are looked through
    for artefact, _ in pairs:
        check(artefact)
    told = [as_mapping(artefact, repo, private=private) for artefact, repo in pairs]
    if not as_json:
        for artefact, repo in pairs:
            print("\n".join(listing(artefact, repo, private=private)), end="\n\n")
    if hub is None:
        print(_json(told) if as_json else "Dry run: every file was looked through, nothing was sent.")
        return 0
    done: list[str] = []
    for (artefact, repo), about in zip(pairs, told, strict=True):
        try:
            result = push(hub, artefact, repo, private=private, said=_aside)
        except BaseException:  # also Ctrl-C: what is there and what is not
            if len(pairs) > 1:
                left = [each for _, each in pairs if each not in done]
                _aside(f"published: {', '.join(done) or 'none'}; not published: {', '.join(left)}")
            raise
        done.append(repo)
        about |= {each: getattr(result, each) for each in ("url", "changed", "commit", "sent", "removed")}
        if as_json:
            continue
        if result.changed:
            removed = f", {len(result.removed)} removed" if result.removed else ""
            print(f"{result.url}: published, {len(result.sent)} files sent{removed}, commit {result.commit[:12]}")
        else:
            print(f"{result.url}: nothing has changed, nothing was sent")
    if as_json:
        print(_json(told))
    return 0


def _json(told: list[dict[str, Any]]) -> str:
    import json

    return json.dumps(told, indent=1)


def _aside(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
