"""The demo's last step: what would be published of all that it made, without sending anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.errors import CxrhfError

if TYPE_CHECKING:
    from cxrhf.hub.artefact import Artefact

OWNER = "USER"
LISTING = "push.txt"


def dry_runs(run: Path, show: Callable[[str], None]) -> list[str]:
    """Stage every push of the demo, look through every file, write the lists to push.txt; what to show."""
    from cxrhf.hub.listing import listing
    from cxrhf.hub.scan import check
    from cxrhf.tables.files import write_atomically
    from cxrhf.tables.temporary import temporary_folder

    lines, lists = list[str](), list[str]()
    with temporary_folder("demo-push") as work:
        for command, to, private, make in _pushes(run, work):
            show(f"checking what would be published: {command}")
            lines += ["", command]
            try:
                made = make()
            except CxrhfError as error:
                lines.append(f"  cannot be published: {error}")
                continue
            for artefact in made:
                check(artefact)
                found = listing(artefact, to or f"{OWNER}/{artefact.name}", private=private)
                lists += [*found, ""]
                # Their files, a hundred and more, would push everything else off the screen.
                lines += [f"  {line}" for line in found[:1]]
                lines += [f"    note: {note}" for note in artefact.notes if len(made) == 1]
    text = "\n".join(lists)
    write_atomically(run / LISTING, lambda file: file.write(text.encode()))
    return lines


Push = tuple[str, str, bool, Callable[[], "list[Artefact]"]]


def _pushes(run: Path, work: Path) -> list[Push]:
    """Command, repository ("" for one each), whether it would be private, and what makes it."""
    from cxrhf.config_push import PushModelConfig
    from cxrhf.hub.dataset import dataset_artefact
    from cxrhf.hub.metric import chosen, metric_artefact
    from cxrhf.hub.model import model_artefact

    def model(folder: Path, name: str) -> Push:
        to = f"{OWNER}/{name}"
        config = PushModelConfig(str(folder), to=to)
        return f"cxrhf push model {folder} --to {to}", to, True, lambda: [model_artefact(config)]

    found: list[Push] = [
        (f"cxrhf push metric --all --to {OWNER}", "", False,
         lambda: [metric_artefact(name, OWNER) for name in chosen((), every=True)]),
    ]  # fmt: skip
    for part, name in (("network", "demo-network"), ("writer/model", "demo-writer"), ("context", "demo-context")):
        if (run / part).is_dir():
            found.append(model(run / part, name))
    to = f"{OWNER}/demo-twin"
    found.append((f"cxrhf push dataset {run / 'data'} --to {to}", to, True,
                  lambda: [dataset_artefact(run / "data", to, work=work)]))  # fmt: skip
    return found
