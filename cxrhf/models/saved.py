"""A trained network <-> a folder that transformers, timm and we can read: the same logits, bit for bit, and no pickle.

`AutoModelForImageClassification.from_pretrained(folder)`, `timm.create_model("local-dir:" + folder, pretrained=True)`
and `load_saved(folder)` give the network; `AutoImageProcessor.from_pretrained(folder)` the numbers that we make of a
picture, within rounding.

config.json and model.safetensors are for all; cxrhf.json says what else there is to know, with the sha256 of the
weights. A folder is written beside its place and then renamed: it is there whole or not at all.

Known gap: `AutoImageProcessor` wants pictures with the network's channels (`convert("L")`, `convert("RGB")`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cxrhf.errors import ConfigError, CxrhfError, RunError
from cxrhf.models.backbone import last_layer, make_model, timm_args, timm_facts
from cxrhf.models.data import from_json, look_facts, look_from_facts
from cxrhf.models.data import names as task_names
from cxrhf.run import wrong_field
from cxrhf.tables.files import read_object
from cxrhf.tables.folders import replace_folder

FORMAT = 1
CONFIG, WEIGHTS, ABOUT = "config.json", "model.safetensors", "cxrhf.json"
AGAIN = "copy the whole folder again from where it was made, or train again: cxrhf train BUILD"
SMALLEST, LARGEST = 16, 4096  # sides of a picture, as config_train has them
_REQUIRED_FIELDS = ("format", "backbone", "outputs", "look", "sha256", "versions")
_LOOK = ("size", "fit", "channels", "mean", "std")


def save_model(
    folder: Path,
    model: nn.Module,
    *,
    backbone: str,
    outputs: Sequence[str],
    look_facts: Mapping[str, Any],
    about: Mapping[str, Any],
) -> None:
    """Write a network that `make_model` made. What was in the folder is replaced when the new one is whole.

    `outputs`: a name for each output, in order. `look_facts`: what `pictures.look_facts` gives. `about`: plain values.
    """
    folder = Path(folder)
    names, look = list(outputs), dict(look_facts)
    _check_given(model, names, look, about)
    config = _config(model, backbone, names, look)
    tensors = dict(model.state_dict())
    _check_config(config, tensors)
    with replace_folder(folder, ABOUT, "saved network") as fresh:
        mark = write_tensors(fresh / WEIGHTS, tensors)
        own = {
            "format": FORMAT, "backbone": backbone, "outputs": names, "look": look, "sha256": mark,
            "versions": {each: version(each) for each in ("torch", "timm", "transformers")},
        }  # fmt: skip
        _write_json(fresh / CONFIG, config)
        _write_json(fresh / ABOUT, {**own, **about})


def load_saved(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
    """The network in eval mode, on the CPU, and what cxrhf.json says. Damage is a RunError that says what to do."""
    folder = Path(folder)
    about = read_about(folder)
    weights = check_weights(folder, about)
    config = read_json(folder / CONFIG)
    names, look = about["outputs"], about["look"]
    said = config.get("architecture"), config.get("num_classes"), config.get("label_names")
    args = config.get("model_args")
    size = args.get("img_size") if isinstance(args, dict) else args
    if said != (about["backbone"], len(names), names) or not isinstance(args, dict) or size not in (None, look["size"]):
        raise RunError(
            f"{folder}: {CONFIG} does not match {ABOUT}",
            got=f"{said[0]} with {said[1]} outputs",
            allowed=f"{about['backbone']} with the outputs {', '.join(names)}",
            next_step=AGAIN,
        )
    try:
        # Without numbers first: what the file does not hold is never allocated, whatever cxrhf.json says.
        blank = make_model(about["backbone"], len(names), channels=look["channels"], size=size, device="meta")
        check_fit(blank.state_dict(), read_shapes(weights, AGAIN), str(folder), AGAIN)
        model = make_model(about["backbone"], len(names), channels=look["channels"], size=size)
    except ConfigError as error:
        written = about["versions"].get("timm", "?")
        raise RunError(
            f"{folder}: the installed version of timm cannot create the network ({error.got or error.what})",
            next_step=f"pip install timm=={written}",
        ) from None
    model.load_state_dict(read_tensors(weights, AGAIN))
    return model.eval(), about


def read_about(folder: Path) -> dict[str, Any]:
    """What cxrhf.json says of a saved network; the weights are not read."""
    folder = Path(folder)
    if not (folder / ABOUT).is_file():
        raise RunError(
            f"{folder} is not a network saved by cxrhf: it has no {ABOUT}",
            next_step="name a folder such as RUN/models/seed-0, or train a network: cxrhf train BUILD",
        )
    about = read_json(folder / ABOUT)
    number = about.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise RunError(
            f"{folder} was written by a newer cxrhf",
            got=f"format {number}", allowed=f"format {FORMAT} or older", next_step="pip install --upgrade cxrhf",
        )  # fmt: skip
    if number != FORMAT or (wrong := _wrong_field(about)):
        raise RunError(
            f"{folder / ABOUT} is damaged: bad {'format' if number != FORMAT else wrong}", next_step=AGAIN,
        )  # fmt: skip
    return about


def _wrong_field(about: Mapping[str, Any]) -> str | None:
    """The first field that is not what `save_model` and `cxrhf train` write; those of training may be absent."""
    if (wrong := wrong_field(about)) is not None:
        return wrong
    if missing := [name for name in ("backbone", "outputs", "look", "sha256", "versions") if name not in about]:
        return missing[0]
    outputs, tasks = about["outputs"], about.get("tasks")
    if not outputs or len(set(outputs)) != len(outputs):
        return "outputs"
    if not _is_look(about.get("look")):
        return f"look (images have {SMALLEST} to {LARGEST} pixels a side)"
    if "tasks" in about and not (isinstance(tasks, list) and all(_is_task(each) for each in tasks)
                                 and task_names(from_json(tasks)) == outputs):  # fmt: skip
        return "tasks"
    return None


def _is_task(task: Any) -> bool:
    outputs = task.get("outputs") if isinstance(task, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(each, str) for each in outputs):
        return False
    return isinstance(task.get("name"), str) and task.get("kind") in ("labels", "classes")


def _is_look(look: Any) -> bool:
    """A look of our own kinds, as large as `cxrhf train` allows: squares of it are allocated for every batch."""
    if not isinstance(look, dict) or any(type(look.get(each)) is not int for each in ("size", "channels")):
        return False
    try:
        return SMALLEST <= look["size"] <= LARGEST and look_facts(look_from_facts(look)) == look
    except (ConfigError, KeyError):
        return False


def check_weights(folder: Path, about: Mapping[str, Any]) -> Path:
    """The file of the weights, if it is what was written."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise RunError(f"{folder} has no {WEIGHTS}", next_step=AGAIN)
    if sha256(path) != about["sha256"]:
        raise RunError(f"{path} was changed after it was written", next_step=AGAIN)
    return path


def check_fit(
    wanted: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor], source: str, next_step: str
) -> None:
    """The same names and shapes on both sides; else an error that counts and names what differs."""
    said = []
    for kind, names in (("missing", set(wanted) - set(given)), ("unexpected", set(given) - set(wanted))):
        if names:
            said.append(f"{len(names):,} {kind} ({_few(names)})")
    other = {name for name in set(wanted) & set(given) if wanted[name].shape != given[name].shape}
    if other:
        first = min(other)
        shapes = f"{tuple(given[first].shape)} instead of {tuple(wanted[first].shape)}"
        said.append(f"{len(other):,} with another shape ({_few(other)}: {shapes})")
    if said:
        raise CxrhfError(f"the weights of {source} do not match the network: {'; '.join(said)}", next_step=next_step)


def _few(names: set[str]) -> str:
    shown = sorted(names)[:3]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


def _check_given(model: nn.Module, names: list[str], look: dict[str, Any], about: Mapping[str, Any]) -> None:
    if len(names) != last_layer(model).out_features or len(set(names)) != len(names):
        raise CxrhfError(
            "names of the outputs",
            got=f"{len(set(names))} distinct names for {last_layer(model).out_features} outputs",
            allowed="a distinct name for each output",
        )
    if timm_args(model).get("img_size", look.get("size")) != look.get("size"):
        raise CxrhfError(
            "image size", got=look.get("size"), allowed=f"{timm_args(model)['img_size']}, as the network requires"
        )
    if lacking := [each for each in _LOOK if each not in look]:
        raise CxrhfError(f"image settings of the network are missing: {', '.join(lacking)}")
    if taken := sorted(set(about) & set(_REQUIRED_FIELDS)):
        raise CxrhfError(f"{ABOUT} already has the fields {', '.join(taken)}", next_step="use other names")


def _config(model: nn.Module, backbone: str, names: list[str], look: dict[str, Any]) -> dict[str, Any]:
    """config.json as timm and transformers read it."""
    size, channels = int(look["size"]), int(look["channels"])
    known = timm_facts(model)
    pictures = {
        "input_size": [channels, size, size],
        "fixed_input_size": bool(known.get("fixed_input_size", False)),
        "interpolation": "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "squash" if look["fit"] == "squash" else "center",
        "mean": list(look["mean"]),
        "std": list(look["std"]),
        "num_classes": len(names),
        "classifier": known.get("classifier"),
    }
    if channels == 3:  # lets timm make a network of other channels from it
        pictures["first_conv"] = known.get("first_conv")
    return {
        "model_type": "timm_wrapper",
        "architectures": ["TimmWrapperForImageClassification"],
        "architecture": backbone,
        "model_args": timm_args(model),
        "num_classes": len(names),
        "num_features": last_layer(model).in_features,
        "label_names": names,
        "id2label": {str(at): name for at, name in enumerate(names)},
        "label2id": {name: at for at, name in enumerate(names)},
        "problem_type": "multi_label_classification",
        "dtype": str(last_layer(model).weight.dtype).removeprefix("torch."),
        "pretrained_cfg": pictures,
    }


def _check_config(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Others make the network from config.json alone: is it this one?"""
    import timm

    with torch.device("meta"):
        made = timm.create_model(config["architecture"], num_classes=config["num_classes"], **config["model_args"])
    check_fit(
        made.state_dict(), tensors, f"this {config['architecture']}", "name the backbone that it was trained from"
    )


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """An object of a JSON file of a folder of a network."""
    return read_object(path, next_step=AGAIN)


# Tensors <-> a safetensors file whose tensors start where torch's own would: at multiples of 64 bytes.
#
# The library's writer starts them anywhere. transformers maps the file into memory and computes from there, and a
# linear layer with few outputs then sums in another order than the network that was saved: the last bit of some
# logits differs. The format allows spaces after the header but no gaps between tensors. So tensors whose size is a
# multiple of 64 bytes come first, then multiples of 32, 16, 8 and so on, largest first: each starts at a multiple of
# the largest such number that divides its size, or of more. That is 64 for the weights of the last layer of nearly
# all networks; biases and counters are used number by number, and do not care.

ALIGNMENT = 64
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write a file; the sha256 of what was written."""
    for name, each in tensors.items():
        if each.dtype not in _NAMES:
            raise CxrhfError(f"dtype of {name}", got=each.dtype, allowed=" or ".join(map(str, _NAMES)))
    order = sorted(tensors, key=lambda name: (-_step(tensors[name]), -tensors[name].nbytes, name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # transformers asks for it
    at = 0
    for name in order:
        each = tensors[name]
        header[name] = {
            "dtype": _NAMES[each.dtype], "shape": list(each.shape), "data_offsets": [at, at + each.nbytes],
        }  # fmt: skip
        at += each.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    digest = hashlib.sha256()
    path.unlink(missing_ok=True)  # a network may still compute from an earlier one
    with path.open("wb") as file:
        for part in chain((len(text).to_bytes(8, "little") + text,), (_bytes(tensors[name]) for name in order)):
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def read_tensors(path: Path, next_step: str) -> dict[str, torch.Tensor]:
    """The tensors of a file; an error that ends with `next_step` if it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        said = str(error).strip().splitlines()
        raise CxrhfError(
            f"{path} cannot be read as safetensors{f' ({said[0]})' if said else ''}", next_step=next_step
        ) from None


def read_shapes(path: Path, next_step: str) -> dict[str, torch.Tensor]:
    """The tensors of a file without their numbers (on the device `meta`): only its header is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CxrhfError(
            f"{path} cannot be read as safetensors ({' '.join(str(error).split())})", next_step=next_step
        ) from None


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _step(tensor: torch.Tensor) -> int:
    """The largest power of two, 64 at most, that divides the size."""
    return min(ALIGNMENT, tensor.nbytes & -tensor.nbytes) if tensor.nbytes else ALIGNMENT


def _bytes(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().to("cpu").contiguous().reshape(-1)
    return bytes(whole.view(torch.uint8).numpy().data)
