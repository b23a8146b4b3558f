"""The pages of docs/ and the README: links, contents, examples, results, and every command, flag, file and name.

One test a check, over all pages; a failure names the page.
"""

from __future__ import annotations

import doctest
import re
import runpy
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import cxrhf.metrics
from cxrhf.cli import VERBS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
EVERY = [*PAGES, README]
FENCE = re.compile(r"^( *)(`{3,})([^\n]*)\n(.*?)^\1\2`* *$", flags=re.MULTILINE | re.DOTALL)
# Flags that stand alone in a text and belong to other programs: accelerate, torchrun, python -m cxrhf.twin.
ELSEWHERE = {"--num_processes", "--models"}
EVERYWHERE = {"--help", "--debug", "--version"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, *languages: str) -> list[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [body for _, _, language, body in found if language.strip() in languages]


def spoken(page: Path) -> list[str]:
    """What stands in backticks in the text, on one line each."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub and the site name them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#{1,3} +(.+?) *$", prose(page), flags=re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return found


def test_links_lead_somewhere():
    """Files and headings; other hosts are not asked. What the site holds is docs/ alone, so its links stay there."""
    broken = []
    for page in EVERY:
        for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", re.sub(r"`[^`]*`", "", prose(page))):
            if re.match(r"https?://", target):
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            found = there.exists() and (page == README or there.is_relative_to(DOCS))
            if not found or (anchor and anchor not in anchors(there)):
                broken.append((name_of(page), target))
    assert not broken


def test_every_page_is_in_the_contents_once():
    listed = []
    for page in PAGES:
        for body in blocks(page, "{toctree}"):
            lines = [line.strip() for line in body.splitlines() if line.strip() and not line.startswith(":")]
            names = [re.sub(r".*<(.+)>$", r"\1", line) for line in lines]
            listed += [(page.parent / f"{name}.md").resolve() for name in names]
    assert Counter(listed) == Counter(page for page in PAGES if page != DOCS / "index.md")


def test_a_task_opens_with_a_command_and_its_result():
    """A heading, what the page lets the reader do, the command, and a figure, table or output before any section."""
    for page in sorted((DOCS / "tasks").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        opening = text.split("\n## ", 1)[0]
        paragraphs = [part.strip() for part in opening.split("\n\n")]
        assert paragraphs[0].startswith("# "), page
        assert paragraphs[1].endswith("."), page
        command = opening.find("```bash")
        assert command > 0, page
        assert re.search(r"!\[|^\||made by make results|^```pycon", opening[command:], flags=re.MULTILINE), page


RESULTS = runpy.run_path(str(DOCS / "results.py"))


def test_results_in_the_pages_are_those_that_make_results_makes():
    """Each stands in one page, with its commands, or in the README, whose commands tests/test_readme.py runs; and what
    it was made from has not changed since."""
    shown = {}
    for page in EVERY:
        text = page.read_text(encoding="utf-8")
        for name, digest, result in RESULTS["RESULT"].findall(text):
            assert name not in shown, name
            assert result.count("\n") >= 2, f"{name_of(page)}: {name} is empty; run make results"
            shown[name] = digest
            step = next(step for step in RESULTS["STEPS"].values() if name in map(RESULTS["key"], step.results))
            typed = " ".join(re.sub(r"#.*|\\\n", "", "\n".join(blocks(page, "bash", "python"))).split())
            for command in step.commands:
                # The README names no run folder; the numbers do not depend on it.
                wanted = re.sub(r" --out \S+$", "", command) if page == README else command
                assert " ".join(wanted.split()) in typed, f"{name_of(page)} lacks: {wanted}"
    assert shown == RESULTS["digests"](), "run make results"


def test_examples_run_and_give_what_they_show(monkeypatch):
    """All `pycon` blocks of a page, one after the other."""
    monkeypatch.chdir(ROOT)
    failed, attempted = [], 0
    for page in PAGES:
        example = doctest.DocTestParser().get_doctest("\n".join(blocks(page, "pycon")), {}, page.name, str(page), 0)
        printed: list[str] = []
        outcome = doctest.DocTestRunner(verbose=False).run(example, out=printed.append)
        attempted += outcome.attempted
        if outcome.failed:
            failed.append("".join(printed))
    assert not failed, "\n".join(failed)
    assert attempted > 100


METHODS = [page for page in PAGES if page.parent.name == "methods" and page.stem != "index"]
PARTS = (
    r"^## (?:Formula|Method|Rule)$",
    r"\$",  # a formula
    r"^## Default",
    r"^\| .*(?:option|rule|choice)",  # the head of their table
    r"^## Where the paper, or its code, goes wrong$",
    r"^## Undefined$",
    r"^## Where it is computed$",
    r"^## Example$",
    r"^Reference: ",
)


def test_a_method_has_its_parts_in_order_and_an_example():
    for page in METHODS:
        text, at = prose(page), 0
        for part in PARTS:
            if part == r"\$" and page.stem == "mentions":  # a list of words
                continue
            found = re.compile(part, flags=re.MULTILINE).search(text, at)
            assert found, (page.name, part)
            at = found.end()
        assert blocks(page, "pycon"), page.name


def test_tests_that_are_named_exist():
    """A figure in the decisions stands with the test that holds it."""
    every = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    files = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"\[`(test_\w+)`\]", " ".join((DOCS / "decisions.md").read_text(encoding="utf-8").split()))
    assert len(named) > 5
    assert not [name for name in named if name not in files and f"def {name}(" not in every]


def test_other_python_is_python():
    for page in PAGES:
        for block in blocks(page, "python"):
            compile(block, page.name, "exec")


def flags_by_verb() -> dict[str, set[str]]:
    """`context fit` -> its flags, as the page of commands has them."""
    made = runpy.run_path(str(DOCS / "extensions" / "commands.py"))
    flags = {}
    for command in made["commands"]():
        each = made["flags"](command.config)
        flags[command.verb] = {word for flag in each for word in (flag.name, *flag.aliases) if word.startswith("-")}
    return flags


FLAGS = flags_by_verb()


def commands_of(page: Path) -> Iterator[str]:
    """What a reader would type after `cxrhf`, from blocks and from the text."""
    lines = [line for body in blocks(page, "bash") for line in body.replace("\\\n", " ").splitlines()]
    for line in [*lines, *spoken(page)]:
        # `accelerate launch -m cxrhf.models.train` is `cxrhf train`.
        found = re.search(r"(?:^|\s-m )cxrhf(?:\.models\.(train|finetune|generate))?(?: ([^#]*)|$)", line.strip())
        if found and (found[1] or found[2]):
            yield " ".join(filter(None, found.groups()))


def unknown(command: str) -> str:
    """What is wrong with a command, or nothing."""
    words = command.split()
    if words[0].startswith("-"):
        return "" if set(words) <= EVERYWHERE else "flag"
    verb = words[0].strip(".,:;{}")
    if verb == "VERB":
        return ""
    if verb not in VERBS:
        return "verb"
    below = [name.split()[1] for name in FLAGS if name.startswith(f"{verb} ")]
    named = [word for word in words[1:2] if word in below]
    if below and not (named or len(words) == 1 or words[1].startswith(("-", "..."))):
        return "second word"
    known = FLAGS[" ".join([verb, *named])] if named or not below else set[str]()
    for word in words[1:]:
        if word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            flag = re.sub(r"[=,.;:)].*", "", word)
            if flag not in known | EVERYWHERE:
                return flag
    for recipe in re.findall(r"--config[ =](\w+)", command):
        if recipe != "YAML" and not (ROOT / f"cxrhf/configs/{recipe}.yaml").is_file():
            return recipe
    return ""


def test_commands_and_flags_exist():
    commands = [(name_of(page), command) for page in EVERY for command in commands_of(page)]
    assert len(commands) > 120
    assert not [(page, command, unknown(command)) for page, command in commands if unknown(command)]


def test_flags_that_stand_alone_exist():
    known = set().union(*FLAGS.values()) | EVERYWHERE | ELSEWHERE
    alone = [(name_of(page), code) for page in EVERY for code in spoken(page) if code.startswith("--")]
    assert not [(page, code) for page, code in alone if not set(re.findall(r"^--[\w-]+|(?<= )--[\w-]+", code)) <= known]


def test_files_extras_and_targets_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    folders = "cxrhf|tests|examples|metrics|benchmarks|dataset_scripts|docs"
    for page in EVERY:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(rf"`((?:{folders})/[\w./]*\w\.\w+)`", text):
            assert (ROOT / path).is_file(), (name_of(page), path)
        for extras in re.findall(r"cxrhf\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), (name_of(page), extras)
        for target in re.findall(r"(?:`|^)make\s+([a-z-]+)", text, flags=re.MULTILINE):
            assert target in targets, (name_of(page), target)


def test_names_of_methods_pages_exist():
    """Functions, `evaluate` modules and audits in the tables "Where it is computed"."""
    from cxrhf.settings import AUDITS

    checked = 0
    for page in (DOCS / "methods").glob("*.md"):
        for kind, cell in re.findall(r"^\| (functions?|modules?|audits?) \| (.+) \|$", prose(page), flags=re.MULTILINE):
            names = re.findall(r"`([a-z_0-9]+)[`(]", cell)
            if kind.startswith("function"):
                assert set(names) <= set(cxrhf.metrics.__all__), (page.name, names)
            elif kind.startswith("module"):
                assert all((ROOT / "metrics" / name).is_dir() for name in names), (page.name, names)
            else:
                assert names[0] in AUDITS, (page.name, names)
            checked += 1
    assert checked > 30


def test_the_columns_of_results_are_those_of_the_schema():
    from cxrhf.schema import RESULT

    page = DOCS / "reference" / "results.md"
    columns = next(code for code in spoken(page) if code.startswith("audit, metric"))
    assert columns.split(", ") == RESULT.names


def test_every_public_metric_is_in_the_reference():
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    shown = re.findall(r"^\.\. autofunction:: (\w+)$", text, flags=re.MULTILINE)
    wanted = {name for name in cxrhf.metrics.__all__ if callable(getattr(cxrhf.metrics, name)) and name[0].islower()}
    assert Counter(shown) == Counter(wanted)
    top = {name for name in cxrhf.__all__ if name.islower() and callable(getattr(cxrhf, name))}
    assert top == set(re.findall(r"^\.\. autofunction:: cxrhf\.(\w+)$", text, flags=re.MULTILINE))


def test_every_formula_becomes_mathml_without_a_word_of_latex():
    """What the converter does not know it prints as it stands: `\\arg`."""
    pytest.importorskip("latex2mathml")
    made = runpy.run_path(str(DOCS / "extensions" / "mathml.py"))["mathml"]
    checked = 0
    for page in PAGES:
        for block, inline in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", prose(page), flags=re.DOTALL):
            assert "\\" not in made(block or inline, "inline"), (page.name, block or inline)
            checked += 1
    assert checked > 100


class Fetched(HTMLParser):
    """What a browser would ask for when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.addresses += [given.get("src", "")]
        elif tag == "link":
            self.addresses += [given.get("href", "")]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    """In a process of its own, which must not load torch for it."""
    pytest.importorskip("sphinx")
    run = (
        "import sys; from sphinx.cmd.build import main; "
        "code = main(sys.argv[1:]); "
        "sys.exit(code or ('torch was imported' if 'torch' in sys.modules else 0))"
    )
    arguments = [
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-d",
        str(tmp_path / "trees"),
        str(DOCS),
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", run, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    for page in site.rglob("*.html"):
        fetched = Fetched()
        fetched.feed(page.read_text(encoding="utf-8"))
        assert not [each for each in fetched.addresses if re.match(r"(https?:)?//", each)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style
