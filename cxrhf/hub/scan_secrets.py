"""Text -> the tokens, keys and passwords in it, by their forms, and this computer's own token, compared exactly.

A pattern runs only where one of its fixed letters stands in the text; all of those are looked for in one pass. Hashes
(sha256, git) have no such forms and pass. What looks like a place to fill in (`<token>`, `hf_xxx`, `$HF_TOKEN`,
`os.environ[...]`) is no secret. A message shows the form (`hf_...`), never a character of the secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from cxrhf.hub.scan_words import Anchors

_SHORTEST_TOKEN = 8


class Found(NamedTuple):
    """Something in a text: its first byte, the byte after it, what it is, and why it may not leave."""

    start: int
    end: int
    what: str
    why: str


class _Form(NamedTuple):
    what: str
    anchors: tuple[bytes, ...]  # one of them is in every match
    pattern: re.Pattern[bytes]
    folded: bool = False  # matched against the text in lower case: many times faster than ignoring case


def _form(what: str, anchors: str, pattern: bytes, folded: bool = False) -> _Form:
    return _Form(what, tuple(anchors.encode().split()), re.compile(pattern), folded)


_END = rb"(?![A-Za-z0-9])"


def begin(letters: bytes) -> bytes:
    """Letters with which a word begins. The letters come first in the pattern: they are found by memory search."""
    return letters + rb"(?<![A-Za-z0-9]" + letters + rb")"


_FORMS = (
    _form("a Hugging Face token (hf_...)", "hf_", begin(b"hf_") + rb"[A-Za-z0-9]{16,}" + _END),
    _form("a Hugging Face token (api_org_...)", "api_org_", begin(b"api_org_") + rb"[A-Za-z0-9]{16,}" + _END),
    *(
        _form("a GitHub token", f"gh{kind}_", begin(b"gh" + kind.encode() + b"_") + rb"[A-Za-z0-9]{30,}")
        for kind in "pousr"
    ),
    _form("a GitHub token", "github_pat_", rb"github_pat_[A-Za-z0-9_]{20,}"),
    *(_form("a GitLab token", kind, begin(kind.encode()) + rb"[A-Za-z0-9_-]{16,}") for kind in ("glpat-", "gldt-")),
    _form("a Slack token", "xox", begin(b"xox") + rb"[abeprs]-[A-Za-z0-9-]{10,}"),
    _form("a Slack token", "xapp-", begin(b"xapp-") + rb"[A-Za-z0-9-]{10,}"),
    _form("a Slack web hook", "hooks.slack.com", rb"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}"),
    _form("an API key (sk-...)", "sk-", begin(b"sk-") + rb"(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"),
    *(
        _form(
            "a Stripe key",
            f"k_{kind}_",
            rb"k_" + kind.encode() + rb"_(?<=[srp]k_" + kind.encode() + rb"_)[A-Za-z0-9]{16,}",
        )
        for kind in ("live", "test")
    ),
    *(_form("an AWS key", kind, begin(kind.encode()) + rb"[A-Z0-9]{16}" + _END) for kind in ("AKIA", "ASIA")),
    _form("a Google key", "AIza", begin(b"AIza") + rb"[A-Za-z0-9_-]{35}"),
    _form("a Google token", "ya29.", rb"ya29\.[A-Za-z0-9_-]{20,}"),
    _form("a Google service account", "service_account", rb"service_account\"(?<=[:\s]\"service_account\")"),
    _form("an Azure key", "AccountKey=", rb"AccountKey=[A-Za-z0-9+/]{40,}={0,2}"),
    _form("an Azure signature", "sig=", rb"sig=(?<=[?&]sig=)[A-Za-z0-9%+/]{30,}"),
    _form("a PyPI token", "pypi-AgE", rb"pypi-AgE[A-Za-z0-9_-]{30,}"),
    _form("an npm token", "npm_", begin(b"npm_") + rb"[A-Za-z0-9]{30,}" + _END),
    _form("a Databricks token", "dapi", begin(b"dapi") + rb"[0-9a-f]{32}" + _END),
    _form("a DigitalOcean token", "dop_v1_", rb"dop_v1_[0-9a-f]{32,}"),
    _form("a SendGrid key", "SG.", rb"SG\.(?<![A-Za-z0-9]SG\.)[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _form("a Replicate token", "r8_", begin(b"r8_") + rb"[A-Za-z0-9]{30,}" + _END),
    _form("a JSON web token", "eyJ", begin(b"eyJ") + rb"[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    _form("a private key", "PRIVATE", rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    _form("a private key", "PuTTY-User-Key-File", rb"PuTTY-User-Key-File-\d"),
    _form("a private key", "AGE-SECRET-KEY-", rb"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _form("an SSH key", "ssh-", rb"ssh-(?:rsa|dss|ed25519) AAAA[A-Za-z0-9+/]{20,}"),
    _form("an SSH key", "ecdsa-sha2", rb"ecdsa-sha2-nistp\d+ AAAA[A-Za-z0-9+/]{20,}"),
    _form(
        "a login in a netrc line", "machine", rb"machine\s{1,9}\S+\s{1,9}login\s{1,9}\S+\s{1,9}password\s{1,9}\S+", True
    ),
    _form("a Kaggle key", '"key"', rb"\"key\"\s{0,3}:\s{0,3}\"[0-9a-f]{32}\""),
)
# Forms whose last group is the secret: it must look like one.
_NAMED = (
    _form(
        "a password", "password passwd passphrase pwd",
        rb"(?<![a-z])(?:password|passwd|passphrase|pwd)[\"']?\s*(?:[:=]|\bis\b)\s*(?P<quote>[\"']?)"
        rb"(?P<secret>[^\s\"',;)}\]]{6,})", True,
    ),
    _form("a password", "--pass", rb"--(?:http-)?pass(?:word|wd)?[ =](?P<quote>[\"']?)(?P<secret>[^\s\"']{4,})", True),
    _form(
        "a login of PhysioNet", "physionet",
        rb"--user(?:name)?[ =](?P<quote>[\"']?)(?P<secret>[^\s\"'<$-][^\s\"']{2,})(?=[^\n]{0,200}physionet)", True,
    ),
    _form(
        "a secret", "key secret token",
        rb"(?:api|access|auth|account|client|app|aws|secret|private|hf|hub|wandb|bearer|refresh|session|encryption)"
        rb"[_-]?(?:access[_-]?)?(?:key|token|secret)[\"']?\s*[:=]\s*(?P<quote>[\"']?)(?P<secret>[a-z0-9_+/.~=-]{16,})",
        True,
    ),
    _form(
        "a secret", "authorization bearer x-api-key",
        rb"(?:authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+|\bbearer\s+|x-api-key[\"']?\s*[:=]\s*[\"']?)"
        rb"(?P<quote>)(?P<secret>[a-z0-9_+/.~=-]{12,})", True,
    ),
    _form(
        "a login in an address", "://",
        rb"://(?P<quote>)(?<=[a-z0-9]://)[^\s:@/\"'<>{}$]{1,64}:(?P<secret>[^\s@/\"'<>{}$]{3,128})@[\w.-]+", True,
    ),
)  # fmt: skip
_PLACEHOLDER = re.compile(
    rb"^[<$%{(\[]|^\*+$|^x+$|^\.+$|xxx|\.\.\.|\*\*\*|^(?:your|my|the|some|example|placeholder|changeme|redacted|hidden)"
    rb"[_-]?|^(?:none|null|true|false|str|string|optional|required|bytes|secret|password|token|key|value)\b"
    rb"|environ|getenv|getpass|get_token|^(?:self|args|config|settings|options)\.",
    re.IGNORECASE,
)


_ANCHORS = Anchors(anchor for form in _FORMS if not form.folded for anchor in form.anchors)
_FOLDED_ANCHORS = Anchors(anchor for form in (*_FORMS, *_NAMED) if form.folded for anchor in form.anchors)


def secrets(data: bytes, bare: bool = False) -> Iterator[Found]:
    """Every secret in a text, by its form; `bare`: in bytes that are no text, where short forms occur by chance."""
    folded = b"" if bare else data.lower()
    there = _ANCHORS.present(data) | _FOLDED_ANCHORS.present(folded)
    for form in _FORMS:
        for match in _matches(form, data, folded, there):
            if not _same_letter(match[0]):
                yield _found(form, match.span())
    for form in () if bare else _NAMED:
        for match in _matches(form, data, folded, there):
            secret, quoted = data[slice(*match.span("secret"))], bool(match["quote"])
            if not _PLACEHOLDER.search(secret) and _looks_secret(form, secret, quoted):
                yield _found(form, match.span("secret"))
    for token in own_tokens():
        at = data.find(token)
        if at >= 0:
            yield Found(at, at + len(token), "the token you are logged in with", _WHY)


_WHY = "anyone who reads it can act as its owner"


def _found(form: _Form, span: tuple[int, int]) -> Found:
    return Found(*span, form.what, _WHY)


def _matches(form: _Form, data: bytes, folded: bytes, there: frozenset[bytes]) -> Iterator[re.Match[bytes]]:
    if not there.isdisjoint(form.anchors):
        yield from form.pattern.finditer(folded if form.folded else data)


def _same_letter(secret: bytes) -> bool:
    """hf_xxxxxxxx: a place to fill in."""
    body = secret.rsplit(b"_", 1)[-1].rsplit(b"-", 1)[-1]
    return len(set(body.lower())) <= 1 and body[:1].lower() in (b"x", b".", b"*", b"0")


def _looks_secret(form: _Form, secret: bytes, quoted: bool) -> bool:
    """A value that a person or a machine made up: letters and digits, or a word in quotes; not a name in code."""
    digit, letter = re.search(rb"\d", secret), re.search(rb"[A-Za-z]", secret)
    if form.what in {"a login in an address", "a login of PhysioNet"}:
        return True
    if not quoted and re.fullmatch(rb"[a-z_]+\d?[a-z_]*(?:\(.*)?", secret):  # a name or a call in code
        return form.what == "a password" and b"_" not in secret and b"(" not in secret and bool(digit)
    if form.what == "a password":
        sign = re.search(rb"[^\w.()\[\]-]", secret)
        return bool(quoted or (digit and letter) or sign or secret.isdigit())
    # Long names in code have underscores and no digits; hashes of files are named otherwise.
    return bool(digit and letter and len(set(secret)) >= 8)


def own_tokens() -> tuple[bytes, ...]:
    """The tokens that this computer would log in with; looked for, never shown or kept anywhere else."""
    found = {os.environ.get(name) for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")}
    try:
        from huggingface_hub import get_token

        found.add(get_token())
    except ImportError:
        pass
    return tuple(sorted(token.strip().encode() for token in found if token and len(token.strip()) >= _SHORTEST_TOKEN))
