"""Id of the Hugging Face Hub -> the folder of the Hub's cache that holds the model, fetched if it must be.

What is on this machine is used without asking the network. Only config, tokenizer and weights are fetched, never code;
.bin weights only if they may be read and there are no others. Without network the answer comes at once, not after a
minute of retries.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cxrhf.encode.files import (
    BIN,
    CONFIG,
    PRESETS,
    SAFE,
    SENTENCES,
    TOKENIZER,
    Files,
    Place,
    locate,
    may_read_bin,
    model_files,
)
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import CxrhfError, did_you_mean

PROBE_SECONDS = 5.0


def hub_folder(place: Place, *, allow_bin: bool = False) -> Path:
    """The folder of a model of the Hub on this machine."""
    from transformers.utils.hub import cached_files

    hub_id = str(place.hub_id)
    here = kept_folder(hub_id)
    if here is not None and _complete(here, allow_bin):
        return here
    if why := explain_no_hub():
        if here is not None:
            return here  # model_files says what is missing of it
        raise _not_here(place, why)
    said: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}
    try:
        found = cached_files(hub_id, [CONFIG, SENTENCES, *TOKENIZER, *SAFE], **said) or []
        names = {Path(each).name for each in found}
        if not names & set(SAFE) and allow_bin:
            names |= {Path(each).name for each in cached_files(hub_id, list(BIN), **said) or []}
        here = kept_folder(hub_id)
        for index in sorted({SAFE[1], BIN[1]} & names):
            if here is not None:
                cached_files(hub_id, _parts(here / index), **said)
    except Exception as error:  # of the Hub's client, of its web client, of the disk
        raise _refused(place, error) from None
    here = kept_folder(hub_id)
    if here is None:
        raise CxrhfError(f"encoder {_display_name(place)} has no {CONFIG} on the Hub", next_step="check its id")
    if not any((here / each).is_file() for each in (*SAFE, *BIN)) and not allow_bin:
        raise CxrhfError(
            f"encoder {_display_name(place)} has no safetensors weights on the Hub",
            next_step="pass --allow-bin to read .bin weights with torch's restricted reader, which runs no code",
        )
    return here


def check_kept(settings: EncodeConfig) -> None:
    """Refuse an encoder that would have to be fetched: somebody else's run names it, and the user has not agreed."""
    place = locate(settings.encoder)
    if place.hub_id is None:
        return
    here = kept_folder(place.hub_id)
    if here is not None and (
        _complete(here, may_read_bin(place, settings)) or any((here / each).is_file() for each in BIN)
    ):
        return  # model_files says that .bin weights need a flag of their own
    raise CxrhfError(
        f"encoder {_display_name(place)}, which the run requires to read notes, is not on this machine",
        next_step="if you trust whoever made the run, pass --fetch (Python: fetch=True) to get it from the Hub",
    )


def explain_no_hub() -> str | None:
    """Why nothing can be fetched from the Hub, or None: the user does not wish it, or nobody answers."""
    from transformers.utils.hub import is_offline_mode

    if is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    given = os.environ.get("HF_ENDPOINT")
    if reachable(given or "https://huggingface.co"):
        return None
    return "the Hub cannot be reached" + (f" at {given} (set by HF_ENDPOINT)" if given else "")


def reachable(address: str) -> bool:
    """Does anybody answer at an address, or at the proxy that leads to it?"""
    parts = urlsplit(address)
    proxy = getproxies().get(parts.scheme)
    if proxy and parts.hostname and not proxy_bypass(parts.hostname):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), timeout=PROBE_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def kept_folder(hub_id: str) -> Path | None:
    """The folder of the Hub's cache, if the model's config is there."""
    from transformers.utils.hub import cached_file

    try:
        config = cached_file(hub_id, CONFIG, local_files_only=True)
    except OSError:
        return None
    return None if config is None else Path(config).parent


def _complete(folder: Path, allow_bin: bool) -> bool:
    try:
        model_files(folder, "", allow_bin=allow_bin)
    except CxrhfError:
        return False
    return True


def _parts(index: Path) -> list[str]:
    # A list of one would be asked for by another route, which takes a missing file for an error.
    return [*sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())), CONFIG]


def _display_name(place: Place) -> str:
    return place.name if place.name == place.hub_id else f"{place.name} ({place.hub_id})"


def _not_here(place: Place, why: str) -> CxrhfError:
    meant = did_you_mean(place.name, PRESETS) if "/" not in place.name and place.name not in PRESETS else None
    fetch = f"run `hf download {place.hub_id}` on a machine with network access, or pass --encoders minilm"
    return CxrhfError(
        f"encoder {_display_name(place)} is not on this machine, and {why}",
        next_step=f"{meant} Otherwise, {fetch}" if meant else fetch,
    )


def _refused(place: Place, error: Exception) -> CxrhfError:
    cause = type(error.__cause__).__name__ if error.__cause__ is not None else ""
    if cause == "GatedRepoError" or "gated" in str(error):
        return CxrhfError(
            f"the owners of encoder {_display_name(place)} require you to accept their conditions",
            next_step=f"accept them at huggingface.co/{place.hub_id} and run `hf auth login`, or pass --encoders "
            "minilm, which requires no network",
        )
    if cause == "RepositoryNotFoundError":
        return CxrhfError(
            f"the Hub has no model {place.hub_id}",
            next_step=did_you_mean(place.name, PRESETS) or "check the id; a private model requires `hf auth login`",
        )
    first = str(error).strip().splitlines()
    reason = first[0] if first else type(error).__name__
    return CxrhfError(
        f"encoder {_display_name(place)} could not be downloaded from the Hub ({reason})",
        next_step=f"try again, or run `hf download {place.hub_id}`; --encoders minilm requires no network",
    )


# Files of .bin weights -> their tensors, without running anything that is in them.
#
# A .bin file is a pickle, a format that can hold programs. The paper names three models whose authors published no
# other weights, so these files are read, in this way only:
#
# - The files may be twice as large as the model that the config describes (heads and other number types need room), so
#   that no file fills the memory. For a zip archive the sizes after unpacking count.
# - torch's restricted unpickler (`weights_only=True`) makes tensors and plain containers and refuses all else.
# - What comes out must be a flat table of names and dense tensors, none larger than the bytes stored for it.
#
# `load_model` then compares names and shapes with the model. Known gap: the unpickler is as safe as the installed
# torch.

_ROOM = 64 << 20  # bytes beside twice the model: small models with large heads
_ZIP = b"PK\x03\x04"  # how torch knows its archives; files of torch before 1.6 are bare pickles
_INSTEAD = "convert it to model.safetensors, or use another encoder"


def read_bin(files: Files, model: Any, name: str) -> dict[str, Any]:
    """Names and tensors of all .bin files of a model; a CxrhfError for whatever is not weights of this model's size.

    `model` gives the size: it needs no numbers (device "meta").
    """
    limit = 2 * 4 * sum(each.numel() for each in model.parameters()) + _ROOM
    size = sum(map(_unpacked_size, files.weights))
    if size > limit:
        raise CxrhfError(
            f"encoder {name}: the weights are larger than the model in its config.json",
            got=f"{size:,} bytes",
            allowed=f"up to {limit:,} bytes",
            next_step="download it again, or use another encoder",
        )
    found: dict[str, Any] = {}
    for path in files.weights:
        held = unpickle(path, name)
        if not isinstance(held, dict) or not all(isinstance(key, str) and _is_dense(held[key]) for key in held):
            raise CxrhfError(
                f"encoder {name}: {path.name} holds something other than weights",
                allowed="a flat table of names and tensors",
                next_step=_INSTEAD,
            )
        found |= held
    return found


def unpickle(path: Path, name: str) -> Any:
    """What torch's restricted unpickler makes of a file; a CxrhfError if there is more in it than tensors."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # its text recommends to load the file without restrictions
        raise CxrhfError(
            f"encoder {name}: {path.name} is damaged, or holds something other than weights",
            next_step=_INSTEAD,
        ) from None


def _is_dense(value: Any) -> bool:
    """A tensor whose every number is stored: sparse and expanded ones are small in the file and large in memory."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )


def _unpacked_size(path: Path) -> int:
    with path.open("rb") as file:
        packed = file.read(len(_ZIP)) == _ZIP
    if not packed:
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(each.file_size for each in archive.infolist())
