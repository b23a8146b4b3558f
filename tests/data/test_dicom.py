"""DICOM files made here -> grey levels, against pydicom's own functions and against what was planted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.pixels import apply_modality_lut, apply_voi_lut
from pydicom.uid import (
    MPEG2MPML,
    DigitalXRayImageStorageForPresentation,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
    generate_uid,
)

from cxrhf.data.images import BadImage, decode_picture, grey, stored

RAMP = np.arange(64 * 64).reshape(64, 64)  # every 12-bit value once


def dataset(values: np.ndarray, bits: int = 12, syntax: Any = ExplicitVRLittleEndian, **elements: Any) -> Dataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = syntax
    meta.MediaStorageSOPClassUID = DigitalXRayImageStorageForPresentation
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["test"])
    made = Dataset()
    made.file_meta = meta
    made.SOPClassUID, made.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    made.Rows, made.Columns = values.shape[:2]
    made.SamplesPerPixel = 1
    made.PhotometricInterpretation = "MONOCHROME2"
    made.BitsAllocated = 8 if bits <= 8 else 16
    made.BitsStored, made.HighBit = bits, bits - 1
    made.PixelRepresentation = int(values.min() < 0)
    for name, value in elements.items():
        setattr(made, name, value)
    kind = f"{'i' if made.PixelRepresentation else 'u'}{made.BitsAllocated // 8}"
    made.PixelData = values.astype(f"{'>' if syntax == ExplicitVRBigEndian else '<'}{kind}").tobytes()
    made["PixelData"].VR = "OW" if bits > 8 else "OB"
    return made


def saved(made: Dataset) -> bytes:
    out = io.BytesIO()
    made.save_as(out, enforce_file_format=True)
    return out.getvalue()


def table(entries: np.ndarray, first: int = 0, bits: int = 12, words: bool = True, signed: bool = False) -> Dataset:
    item = Dataset()
    item.add_new("LUTDescriptor", "SS" if signed else "US", [len(entries) % 65536, first, bits])
    content = entries.astype("<u2").tobytes() if words else [int(each) for each in entries]
    item.add_new("LUTData", "OW" if words else "US", content)
    return item


def twin(made: Dataset, low: float, high: float) -> np.ndarray:
    """pydicom's own way, pixel by pixel, from the output range `low`..`high` to 8 bits."""
    shown = apply_voi_lut(apply_modality_lut(made.pixel_array, made), made).astype(float)
    return np.clip((shown - low) / (high - low), 0, 1) * 255


def reason(data: bytes) -> BadImage:
    with pytest.raises(BadImage) as caught:
        grey(data)
    return caught.value


@pytest.mark.parametrize("function", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize(("centre", "width"), [(2048, 4096), (1500, 800), (0, 100), (2048, 1), (9000, 20_000)])
def test_windows(function: str | None, centre: float, width: float) -> None:
    more = {} if function is None else {"VOILUTFunction": function}
    made = dataset(RAMP, WindowCenter=centre, WindowWidth=width, **more)
    result = grey(saved(made))
    assert result.dtype == np.uint8
    with np.errstate(over="ignore"):
        assert np.abs(result - twin(made, 0, 4095)).max() <= 0.5 + 1e-9


def test_monochrome1_is_the_inverse() -> None:
    for more in ({}, {"WindowCenter": 1500, "WindowWidth": 800}):
        white = grey(saved(dataset(RAMP, **more))).astype(int)
        black = grey(saved(dataset(RAMP, PhotometricInterpretation="MONOCHROME1", **more))).astype(int)
        assert np.abs(white + black - 255).max() <= 1  # both are rounded


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian, ExplicitVRBigEndian])
@pytest.mark.parametrize("bits", [10, 12, 16])
def test_depths_and_syntaxes(bits: int, syntax: Any) -> None:
    values = RAMP * (2**bits - 1) // RAMP.max()
    made = dataset(values, bits, syntax, WindowCenter=2 ** (bits - 1), WindowWidth=2**bits)
    assert np.abs(grey(saved(made)).astype(int) - 255 * values / (2**bits - 1)).max() <= 0.51


def test_without_a_window() -> None:
    assert np.abs(grey(saved(dataset(RAMP, 16))) - 255 * RAMP / 4095).max() <= 0.5  # 16 bits stored, 12 used
    signed = dataset(RAMP - 1000, 16)
    assert (grey(saved(signed)) == grey(saved(dataset(RAMP, 16)))).all()
    eight = (RAMP % 100 + 50).astype(np.uint8)
    assert (grey(saved(dataset(eight, 8))) == eight).all()  # levels are kept, as in an 8-bit PNG
    assert (grey(saved(dataset(np.full((4, 4), 900)))) == 0).all()


def test_rescale_and_signed() -> None:
    made = dataset(RAMP - 1024, 16, RescaleSlope=2, RescaleIntercept=-100, WindowCenter=1000, WindowWidth=3000)
    assert np.abs(grey(saved(made)) - twin(made, -65536 - 100, 65534 - 100)).max() <= 0.5 + 1e-9
    falling = dataset(RAMP, 16, RescaleSlope=-1, RescaleIntercept=4095)
    assert (grey(saved(falling)) == grey(saved(dataset(RAMP[::-1, ::-1], 16)))).all()


@pytest.mark.parametrize("words", [True, False])
def test_tables(words: bool) -> None:
    curve = np.rint(4095 * (np.arange(4096) / 4095) ** 2)
    made = dataset(RAMP, VOILUTSequence=[table(curve, words=words)])
    assert np.abs(grey(saved(made)) - twin(made, 0, 4095)).max() <= 0.5 + 1e-9
    short = dataset(RAMP, VOILUTSequence=[table(curve[:1000], first=500, words=words)])  # ends are repeated
    assert np.abs(grey(saved(short)) - 255 * curve[np.clip(RAMP - 500, 0, 999)] / 255).max() <= 0.5
    claims = dataset(RAMP, VOILUTSequence=[table(curve, bits=16, words=words)])  # 16 bits said, 12 held
    assert (grey(saved(claims)) == grey(saved(made))).all()
    both = dataset(RAMP, VOILUTSequence=[table(curve, words=words)], WindowCenter=1, WindowWidth=2)
    assert (grey(saved(both)) == grey(saved(made))).all()
    signed = dataset(RAMP - 1000, 16, VOILUTSequence=[table(curve, first=-1000, words=words, signed=True)])
    assert (grey(saved(signed)) == grey(saved(made))).all()
    modality = dataset(RAMP, ModalityLUTSequence=[table(curve, words=words)], WindowCenter=2048, WindowWidth=4096)
    assert np.abs(grey(saved(modality)) - 255 * curve[RAMP] / 4095).max() <= 0.51


def test_padding_is_black_and_in_no_range() -> None:
    values = RAMP // 4 + 1000
    values[:8] = 0
    values[-8:] = 4000
    for kind in ("MONOCHROME1", "MONOCHROME2"):
        one = grey(saved(dataset(values[:-8], PixelPaddingValue=0, PhotometricInterpretation=kind)))
        assert (one[:8] == 0).all()
        assert (one[8:].min(), one[8:].max()) == (0, 255)
    ranged = dataset(values, PixelPaddingValue=3500, PixelPaddingRangeLimit=4095)
    assert (grey(saved(ranged))[-8:] == 0).all()
    signed = dataset(np.where(values == 0, -2000, values), 16, PixelPaddingValue=-2000)
    signed["PixelPaddingValue"].VR = "SS"
    assert (grey(saved(signed))[:8] == 0).all()
    assert (grey(saved(dataset(np.zeros((4, 4)), PixelPaddingValue=0))) == 0).all()


def test_compressed() -> None:
    made = dataset(RAMP, WindowCenter=2048, WindowWidth=4096)
    plain = grey(saved(made))
    made.compress(RLELossless)
    assert (grey(saved(made)) == plain).all()

    def with_frame(frame: bytes, syntax: Any, values: np.ndarray, bits: int) -> bytes:
        held = dataset(values, bits)
        held.file_meta.TransferSyntaxUID = syntax
        held.PixelData = encapsulate([frame])
        held["PixelData"].is_undefined_length = True
        return saved(held)

    eight, out = (RAMP // 16).astype(np.uint8), io.BytesIO()
    Image.fromarray(eight).save(out, "JPEG", quality=95)
    assert np.abs(grey(with_frame(out.getvalue(), JPEGBaseline8Bit, eight, 8)).astype(int) - eight).mean() < 2
    values, out = RAMP.astype(np.uint16) * 16, io.BytesIO()
    Image.fromarray(values).save(out, "JPEG2000", no_jp2=True, irreversible=False)
    assert (grey(with_frame(out.getvalue(), JPEG2000Lossless, values, 16)) == grey(saved(dataset(values, 16)))).all()
    for syntax, package in ((JPEGLosslessSV1, "pylibjpeg-libjpeg"), (JPEGLSLossless, "pyjpegls")):
        said = reason(with_frame(b"\xff\xd8....", syntax, RAMP, 12))
        assert said.kind == "unreadable"
        assert syntax.name in said.said
        assert f"pip install {package}" in said.said or f"pip install pylibjpeg {package}" in said.said
    damaged = reason(with_frame(b"\xff\x4f....", JPEG2000Lossless, RAMP, 12))
    assert damaged.kind == "unreadable"
    assert "pylibjpeg-openjpeg" in damaged.said
    assert "no decoder" in reason(with_frame(b"....", MPEG2MPML, RAMP, 12)).said


def test_colour() -> None:
    colour = np.dstack([RAMP % 256, RAMP // 16, (RAMP * 3) % 256]).astype(np.uint8)
    made = dataset(colour, 8, SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0)
    assert np.abs(grey(saved(made)) - colour @ np.array([0.299, 0.587, 0.114])).max() <= 1
    other = np.asarray(Image.fromarray(colour).convert("YCbCr"))
    made = dataset(other, 8, SamplesPerPixel=3, PhotometricInterpretation="YBR_FULL", PlanarConfiguration=0)
    assert np.abs(grey(saved(made)).astype(int) - other[..., 0]).mean() <= 1.5  # back and forth in whole numbers


@pytest.mark.filterwarnings("ignore")
def test_reasons() -> None:
    whole = saved(dataset(RAMP))
    for keep in (len(whole) - 1, len(whole) // 2, 700, 200, 140):
        assert reason(whole[:keep]).kind == "truncated", keep
    assert "ends before" in reason(whole[:400]).said
    assert reason(b"x" * 500).kind == "not an image"
    report = dataset(RAMP)
    del report.Rows, report.PixelData
    assert reason(saved(report)).kind == "not an image"
    assert "2 frames" in reason(saved(dataset(np.vstack([RAMP, RAMP]), Rows=64, NumberOfFrames=2))).said
    assert reason(saved(dataset(np.zeros((1, 20_001))))).kind == "too large"
    for said, elements in {
        "PALETTE COLOR": {"PhotometricInterpretation": "PALETTE COLOR"},
        "width 0": {"WindowCenter": 10, "WindowWidth": 0},
        "CUBIC": {"WindowCenter": 10, "WindowWidth": 9, "VOILUTFunction": "CUBIC"},
        "32 bits": {"BitsAllocated": 32},
    }.items():
        bad = reason(saved(dataset(RAMP, **elements)))
        assert bad.kind == "unreadable"
        assert said in bad.said


def test_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    path.write_bytes(saved(dataset(RAMP, WindowCenter=2048, WindowWidth=4096)))
    assert decode_picture(stored(path, 32)).shape == (32, 32)
    assert np.abs(decode_picture(stored(path, 512)) - RAMP / 4095 * 255).mean() < 1.5
    bare = tmp_path / "without_ending"
    bare.write_bytes(path.read_bytes())
    assert stored(bare, 32) == stored(path, 32)
