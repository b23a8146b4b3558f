"""HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE -> a client of the Hub, calls that are tried again, errors in one sentence.

The token is read where huggingface_hub keeps it (HF_TOKEN, else `hf auth login`); it is never printed and never stored
by us. huggingface_hub repeats most of its requests by itself, up to six times; `again` does it for the others, and
never on top of that.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from cxrhf.errors import CxrhfError, shorten

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Notify = Callable[[str], None]
T = TypeVar("T")
PASSING = (429, 500, 502, 503, 504)  # may be gone the next time
CHANGED = (409, 412)  # somebody else was faster
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
LONGEST = 300  # seconds that a server may tell us to wait


class HubError(CxrhfError):
    """Something could not be published, or must not be."""


class Hub(NamedTuple):
    """A client, where it speaks to, and how long it waits before each new attempt."""

    api: HfApi
    endpoint: str  # as it may be shown
    waits: Sequence[float]


def connect(waits: Sequence[float] = WAITS) -> Hub:
    """The client that the environment describes; nothing is sent yet."""
    try:
        from huggingface_hub import HfApi, constants, get_token
    except ModuleNotFoundError:
        raise HubError("huggingface_hub is not installed", next_step="pip install 'cxrhf[hub]'") from None
    endpoint = shown_endpoint(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE:
        raise HubError(
            "HF_HUB_OFFLINE is set, so nothing can be uploaded",
            next_step="unset HF_HUB_OFFLINE, or pass --dry-run to list what would be uploaded",
        )
    token = get_token()
    if not token:
        raise HubError(f"there is no token for {endpoint}", next_step=_token_from(endpoint))
    return Hub(HfApi(token=token, library_name="cxrhf"), endpoint, waits)


def shown_endpoint(endpoint: str) -> str:
    """An address without a name and password that may stand in it.

    >>> shown_endpoint("https://me:secret@hub.example.org/base/")
    'https://hub.example.org/base'
    """
    parts = urlsplit(endpoint)
    host = parts.netloc.rsplit("@", 1)[-1]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def _token_from(endpoint: str) -> str:
    return f"create one with write access at {endpoint}/settings/tokens, then set HF_TOKEN or run hf auth login"


def call_with_retries(hub: Hub, what: str, call: Callable[[], T], said: Notify) -> T:
    """The call's answer; what may pass (429, 5xx, a lost connection) is tried again after a growing wait.

    Not where the client has done so: a server that is down would be asked 36 times.
    """
    waits = list(hub.waits)
    while True:
        try:
            return call()
        except Exception as error:
            status = status_of(error)
            if (
                not (status in PASSING or (status is None and _is_connection_lost(error)))
                or not waits
                or _was_repeated(error)
            ):
                raise
            wait = max(waits.pop(0), _asked_to_wait(error))
            why = "the connection was lost" if status is None else f"the server returned {status}"
            said(f"{what}: {why}; trying again in {wait:.3g} s ({len(waits)} more attempts after that)")
            time.sleep(wait)


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error, looked for also in its causes; None where the server said nothing."""
    for each in _causes(error):
        response = getattr(each, "response", None)
        if response is not None and isinstance(getattr(response, "status_code", None), int):
            return int(response.status_code)
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_connection_lost(error: BaseException) -> bool:
    """Whether the line broke, or a proxy answered with a page instead of JSON.

    By name: huggingface_hub has changed the package it speaks HTTP with before.
    """
    names = {kind.__name__ for each in _causes(error) for kind in type(each).__mro__}
    return "TransportError" in names or any(isinstance(each, JSONDecodeError) for each in _causes(error))


def _was_repeated(error: BaseException) -> bool:
    """Whether the request that failed went through the client's own retries (`http_backoff` and its like)."""
    frames = (frame for each in _causes(error) for frame, _ in traceback.walk_tb(each.__traceback__))
    return any("backoff" in frame.f_code.co_name for frame in frames)


def _asked_to_wait(error: BaseException) -> float:
    for each in _causes(error):
        headers = getattr(getattr(each, "response", None), "headers", None)
        if headers is not None and str(headers.get("Retry-After", "")).isdigit():
            return float(min(int(headers["Retry-After"]), LONGEST))
    return 0.0


@contextmanager
def explain_hub_errors(hub: Hub, repo: str, kept: Callable[[], str]) -> Iterator[None]:
    """Whatever the client raises inside becomes a HubError; `kept` says what of the repository is there now."""
    with _without_queries():
        try:
            yield
        except HubError:
            raise
        except Exception as error:
            if (found := to_hub_error(error, hub, repo, kept())) is None:
                raise
            raise found from None  # the chain of the client holds addresses that are valid for a while


def to_hub_error(error: Exception, hub: Hub, repo: str, kept: str) -> HubError | None:
    """An error of the client as one sentence and what to do; None where it is none of the client's."""
    from huggingface_hub.errors import HFValidationError

    status, said = status_of(error), _server_said(error, hub)
    why = f" ({shorten(said)})" if said else ""
    if isinstance(error, HFValidationError):
        return HubError("--to", got=f"{repo} ({said})", allowed="user/name")
    if status == 401:
        return HubError(f"{hub.endpoint} does not accept this token. {kept}", next_step=_token_from(hub.endpoint))
    if status in (402, 403):
        return HubError(f"this token cannot write to {repo} at {hub.endpoint}{why}. {kept}",
                        next_step="use a token with write access, or another --to")  # fmt: skip
    if status == 404:
        return HubError(f"{repo} was not found at {hub.endpoint}{why}. {kept}",
                        next_step="check --to and HF_ENDPOINT")  # fmt: skip
    if status in CHANGED:
        return HubError(f"someone else changed {repo} during the upload{why}. {kept}",
                        next_step="run the same command again")  # fmt: skip
    if status == 429:
        return HubError(f"{hub.endpoint} received too many requests (429). {kept}",
                        next_step="wait a few minutes, then run the same command again")  # fmt: skip
    if status is not None and status >= 500:
        return HubError(f"{hub.endpoint} keeps failing ({status}). {kept}",
                        next_step="run the same command again later: uploaded files are not sent again")  # fmt: skip
    if status is not None:
        return HubError(f"{hub.endpoint} refused {repo} with status {status}{why}. {kept}")
    if _is_connection_lost(error):
        return HubError(f"the connection to {hub.endpoint} was lost. {kept}",
                        next_step="check the network and HF_ENDPOINT, then run the same command again: uploaded files "
                        "are not sent again")  # fmt: skip
    theirs = type(error).__module__.startswith(("huggingface_hub", "hf_xet"))
    if theirs or isinstance(error, (ValueError, RuntimeError)):
        return HubError(f"{repo} could not be published ({shorten(said or type(error).__name__)}). {kept}")
    return None


def _server_said(error: Exception, hub: Hub) -> str:
    """The message without the token, without addresses' queries, on one line."""
    words = getattr(error, "server_message", None) or str(error)
    token = hub.api.token
    if isinstance(token, str):
        words = words.replace(token, "***")
    return without_query(" ".join(str(words).split()))[:300]


def without_query(text: str) -> str:
    """Addresses of uploads are signed: whoever has the part after `?` may write there for a while."""
    return re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", text)


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = without_query(record.getMessage()), None
        return True


@contextmanager
def _without_queries() -> Iterator[None]:
    """What the client logs of its attempts, without the queries."""
    loggers = [logging.getLogger(f"huggingface_hub{name}") for name in (".utils._http", "._commit_api", ".lfs")]
    inside: Any = _Filter()
    for each in loggers:
        each.addFilter(inside)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(inside)
