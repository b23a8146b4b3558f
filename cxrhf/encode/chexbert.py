"""CheXbert's public checkpoint -> a folder that any encoder is read from.

The checkpoint (chexbert.pth) is a torch file whose `model_state_dict` holds a bert-base-uncased under `module.bert.*`
and the 14 heads of the labeler, which are left out. It is read with torch's restricted reader, which runs nothing, and
written once as safetensors into the cache, beside the config and the tokenizer of a local bert-base-uncased folder: the
checkpoint has neither. Any other BERT saved in this layout is read the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrhf.encode.download import kept_folder, unpickle
from cxrhf.encode.encoder import explain_errors, require_packages, silence_transformers
from cxrhf.encode.files import BIN, CONFIG, SAFE, TOKENIZER
from cxrhf.errors import ConfigError, CxrhfError

ENDINGS = (".pth", ".pt", ".ckpt", ".bin")
_BERTS = ("google-bert/bert-base-uncased", "bert-base-uncased")
_PREFIXES = ("module.bert.", "bert.")
_STATES = ("model_state_dict", "state_dict")
_NOT_PARAMETERS = ("embeddings.position_ids",)  # a table that older versions saved


def checkpoint_folder(checkpoint: Path, name: str, tokenizer: str | None, root: Path) -> Path:
    """The folder of a checkpoint as transformers reads it, named `name`; made under `root` if it is not there."""
    with require_packages():
        import torch  # noqa: F401
        import transformers  # noqa: F401
    if not checkpoint.is_file():
        raise CxrhfError(
            f"encoder {name} has no weights: {checkpoint} does not exist",
            next_step=f"download the checkpoint, then pass --encoder {name}=PATH",
        )
    described = _tokenizer_folder(name, tokenizer)
    copied = [described / each for each in (CONFIG, *TOKENIZER) if (described / each).is_file()]
    digest = hashlib.sha256()
    for path in (checkpoint, *copied):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    folder = root / "checkpoints" / digest.hexdigest()[:20] / name
    if not folder.is_dir():
        _write(checkpoint, name, copied, folder)
    return folder


def _tokenizer_folder(name: str, tokenizer: str | None) -> Path:
    """A folder with the config and the tokenizer of bert-base-uncased: the one named, or one of the Hub's cache."""
    if tokenizer is None:
        for each in _BERTS:
            if (found := kept_folder(each)) is not None:
                return found
        raise CxrhfError(
            f"encoder {name} consists of weights only and requires the config and tokenizer of bert-base-uncased",
            next_step=f"--tokenizer FOLDER, or run `hf download {_BERTS[0]}` on a machine with network access",
        )
    folder = Path(tokenizer).expanduser()
    if not folder.is_dir():
        raise ConfigError("--tokenizer", allowed="a folder", got=str(tokenizer))
    if not (folder / CONFIG).is_file() or not any((folder / each).is_file() for each in TOKENIZER):
        lacks = CONFIG if not (folder / CONFIG).is_file() else "tokenizer"
        raise ConfigError(
            "--tokenizer",
            got=f"{tokenizer}, which has no {lacks}",
            allowed=f"a folder with {CONFIG} and tokenizer.json or vocab.txt",
        )
    return folder


def _write(checkpoint: Path, name: str, copied: list[Path], folder: Path) -> None:
    """The folder appears at once, or not at all."""
    from transformers import BertConfig, BertModel

    described = copied[0].parent
    with silence_transformers(), explain_errors(name):
        config = BertConfig.from_pretrained(described, local_files_only=True)
    state = _state(checkpoint, name)
    with silence_transformers(), explain_errors(name):
        model = BertModel(config, add_pooling_layer="pooler.dense.weight" in state)
    _check(state, model.state_dict(), name)
    model.load_state_dict(state)
    folder.parent.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent.parent, folder.parent):
        each.mkdir(mode=0o700, exist_ok=True)
    draft = folder.parent / f".{name}.{uuid.uuid4().hex}"
    try:
        with silence_transformers(), explain_errors(name):
            model.save_pretrained(draft)
        for path in copied:
            if path.name not in (CONFIG, *SAFE, *BIN):
                shutil.copyfile(path, draft / path.name)
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if not folder.is_dir():
        raise CxrhfError(f"encoder {name}: {folder.parent} cannot be written to", next_step="--cache FOLDER")


def _state(checkpoint: Path, name: str) -> dict[str, Any]:
    """The weights of the BERT in a checkpoint, under the names that BertModel gives them."""
    import torch

    with explain_errors(name):
        held = unpickle(checkpoint, name)
    for each in _STATES:
        if isinstance(held, Mapping) and isinstance(held.get(each), Mapping):
            held = held[each]
            break
    found: dict[str, Any] = {}
    for prefix in _PREFIXES if isinstance(held, Mapping) else ():
        found = {
            str(key).removeprefix(prefix): value
            for key, value in held.items()
            if str(key).startswith(prefix) and isinstance(value, torch.Tensor)
        }
        if found:
            break
    if not found:
        raise CxrhfError(
            f"encoder {name}: the checkpoint holds no BERT",
            allowed=f"weights under {' or '.join(f'{each}*' for each in _PREFIXES)}, as in chexbert.pth",
            next_step="download it again, or name a folder in transformers format",
        )
    return {key: value for key, value in found.items() if key not in _NOT_PARAMETERS}


def _check(state: Mapping[str, Any], wanted: Mapping[str, Any], name: str) -> None:
    """The weights are those that the config asks for, all of them and no others."""
    absent = sorted(set(wanted) - set(state))
    strange = sorted(set(state) - set(wanted))
    sizes = sorted(key for key in set(wanted) & set(state) if wanted[key].shape != state[key].shape)
    for keys, what in (
        (absent, "lacks"), (strange, "has, in addition to the config,"), (sizes, "has a different size for")
    ):  # fmt: skip
        if keys:
            raise CxrhfError(
                f"encoder {name}: the checkpoint {what} {len(keys)} parts of the model, for example {keys[0]}",
                next_step="pass the --tokenizer FOLDER of the BERT that it was trained from (bert-base-uncased)",
            )
