"""The bytes of a DICOM file -> grey levels as a viewer shows them, 8 bits, bone white.

In the standard's order: stored value, modality lookup table or rescale, VOI lookup table (taken before a window, the
first of several) or window (LINEAR, LINEAR_EXACT, SIGMOID), then MONOCHROME1 inverted. Each is a function of the
stored value alone, so it is worked out once for every value that occurs and the picture is looked up in it; pydicom's
own functions do the same arithmetic pixel by pixel in 64 bits. Pixels of the padding value are black and left out of
every range. Without window or table, up to 8 bits keep their levels; above, the picture's lowest and highest value
become black and white, because many files with 16 bits stored use 12.
Known limits: one frame; grey or 8-bit RGB; presentation states and overlays are not applied.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cxrhf.data.images import BadImage, check_sides, explained

_Floats = NDArray[np.float64]


def grey(data: bytes) -> NDArray[np.uint8]:
    """Rows x columns of grey levels, or BadImage."""
    with explained():
        dataset = _read(data)
        values = _values(dataset)
        if values.ndim == 3:
            from PIL import Image

            return np.asarray(Image.fromarray(values).convert("L"))
        return _shown(dataset, values)


def _read(data: bytes) -> Any:
    import pydicom
    from pydicom.errors import InvalidDicomError

    try:
        dataset = pydicom.dcmread(io.BytesIO(data))
    except InvalidDicomError:
        raise BadImage("not an image", "the name ends in .dcm, but the content is not DICOM") from None
    if "TransferSyntaxUID" not in dataset.file_meta:
        raise BadImage("truncated", "the DICOM file ends inside its header")
    if "Rows" not in dataset or "Columns" not in dataset:
        raise BadImage("not an image", "the DICOM file has no pixels, or ends before them")
    if "PixelData" not in dataset:
        raise BadImage("truncated", "the DICOM file ends before its pixels")
    check_sides(int(dataset.Columns), int(dataset.Rows))
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames > 1:
        raise BadImage("unreadable", f"{frames} frames; a radiograph has one")
    return dataset


def _values(dataset: Any) -> NDArray[Any]:
    """The stored values as integers, or 8-bit RGB; a compression that nothing here decodes says what to install."""
    from pydicom.pixels import get_decoder

    syntax = dataset.file_meta.TransferSyntaxUID
    kind, bits = str(dataset.PhotometricInterpretation), int(dataset.BitsAllocated)
    colour = kind == "RGB" or kind.startswith("YBR")
    if not colour and kind not in {"MONOCHROME1", "MONOCHROME2"}:
        raise BadImage("unreadable", f"photometric interpretation {kind}; cxrhf reads grey and RGB")
    if bits not in ({8} if colour else {8, 16}):
        raise BadImage("unreadable", f"{bits} bits allocated; cxrhf reads 8 and 16, and 8 in colour")
    remedy = f"Install a decoder: pip install {_packages(syntax.name)}"
    try:
        if not get_decoder(syntax).is_available:
            raise BadImage("unreadable", f"{syntax.name}: no installed package decodes it. {remedy}")
    except NotImplementedError:
        raise BadImage("unreadable", f"{syntax.name}: pydicom has no decoder for it") from None
    try:
        return np.asarray(dataset.pixel_array)
    except (RuntimeError, NotImplementedError) as error:
        if not syntax.is_encapsulated:
            raise
        said = " ".join(str(error).split())
        raise BadImage(
            "unreadable", f"{syntax.name}: damaged, or not supported by the decoder ({said}). {remedy}"
        ) from None


def _packages(syntax: str) -> str:
    if "JPEG-LS" in syntax:
        return "pyjpegls"
    kind = "rle" if "RLE" in syntax else "openjpeg" if "2000" in syntax else "libjpeg"
    return f"pylibjpeg pylibjpeg-{kind}"


def _shown(dataset: Any, values: NDArray[Any]) -> NDArray[np.uint8]:
    padding = _padding(dataset, values)
    seen = values if padding is None else values[~padding]
    if not seen.size:
        return np.zeros(values.shape, np.uint8)
    low, high = int(seen.min()), int(seen.max())
    brightness = _brightness(dataset, np.arange(low, high + 1))
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        brightness = 1 - brightness
    levels = np.rint(255 * brightness).astype(np.uint8)
    index = values.astype(np.int32)
    if padding is None:
        return levels[index - low]
    return np.where(padding, np.uint8(0), levels[np.clip(index, low, high) - low])


def _padding(dataset: Any, values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Pixels outside the picture proper: one value, or a range of them."""
    first = dataset.get("PixelPaddingValue")
    if first is None:
        return None
    last = dataset.get("PixelPaddingRangeLimit")
    ends = sorted((int(first), int(first if last is None else last)))
    mask = (values >= ends[0]) & (values <= ends[1])
    return mask if mask.any() else None


def _brightness(dataset: Any, stored: NDArray[np.int64]) -> _Floats:
    """0 (the lowest) to 1 for each stored value, before MONOCHROME1."""
    values = _modality(dataset, stored)
    shown = _value_of_interest(dataset, values)
    if shown is not None:
        return shown
    ends = values
    bits = int(dataset.BitsStored)
    if bits <= 8:
        start = -(2 ** (bits - 1)) if dataset.PixelRepresentation else 0
        ends = _modality(dataset, np.array([start, start + 2**bits - 1]))
    low, high = float(ends.min()), float(ends.max())
    return np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values)


def _modality(dataset: Any, stored: NDArray[np.int64]) -> _Floats:
    if dataset.get("ModalityLUTSequence"):
        return _looked_up(dataset, dataset.ModalityLUTSequence[0], stored.astype(np.float64))[0]
    slope, intercept = dataset.get("RescaleSlope"), dataset.get("RescaleIntercept")
    if slope is None or intercept is None:
        return stored.astype(np.float64)
    return stored.astype(np.float64) * float(slope) + float(intercept)


def _value_of_interest(dataset: Any, values: _Floats) -> _Floats | None:
    if dataset.get("VOILUTSequence"):
        shown, bits = _looked_up(dataset, dataset.VOILUTSequence[0], values)
        return shown / (2**bits - 1)
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is None or width is None:
        return None
    function = str(dataset.get("VOILUTFunction") or "LINEAR").upper()
    if width <= 0 or (function == "LINEAR" and width < 1):
        raise BadImage("unreadable", f"the window has width {width:g}")
    if function == "SIGMOID":
        return np.asarray(expit(4 * (values - centre) / width))
    if function == "LINEAR":  # the standard's half pixel: a window of width 1 is a threshold
        centre, width = centre - 0.5, width - 1
    elif function != "LINEAR_EXACT":
        raise BadImage("unreadable", f"VOI LUT function {function}; cxrhf reads LINEAR, LINEAR_EXACT and SIGMOID")
    if width == 0:
        return (values > centre).astype(np.float64)
    return np.clip((values - centre) / width + 0.5, 0, 1)


def _first(value: Any) -> float | None:
    """The number itself, or the first of several; an empty element has none."""
    from pydicom.multival import MultiValue

    if isinstance(value, MultiValue):
        value = value[0] if len(value) else None
    return None if value is None or value == "" else float(value)


def _looked_up(dataset: Any, item: Any, values: _Floats) -> tuple[_Floats, int]:
    """Values sent through a lookup table, ends repeated; and its bits, as the entries need them.

    Tables are common that claim 16 bits and hold 12, or claim fewer than they hold; the entries are believed.
    """
    entries, first, _ = (int(each) for each in item.LUTDescriptor)
    entries = entries or 2**16
    content = item.LUTData
    if isinstance(content, bytes):
        order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
        content = np.frombuffer(content, f"{order}u2" if len(content) >= 2 * entries else "u1")
    table = np.asarray(content, dtype=np.int64)[:entries]
    index = np.clip(np.rint(values).astype(np.int64) - first, 0, len(table) - 1)
    return table[index].astype(np.float64), max(1, int(table.max()).bit_length())
