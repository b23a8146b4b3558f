"""Picture files of every make -> the stored JPEG: same picture, same bytes every time, or a named reason."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from cxrhf.data import images
from cxrhf.data.images import BadImage, decode_picture, stored
from tests.real_data import real_data

SIZE = 128


def chest(height: int = 700, width: int = 560, seed: int = 0) -> np.ndarray:
    """Smooth structure, a sharp corner mark and noise, 8 bits."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray((255 * rng.random((14, 11))).astype(np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(float)
    smooth[20:60, 20:120] = 250
    return np.clip(smooth + rng.normal(0, 3, smooth.shape), 0, 255).astype(np.uint8)


def straight(values: np.ndarray, size: int = SIZE) -> np.ndarray:
    """The same picture without any shortcut: full size in floats, then one exact resize."""
    height, width = values.shape
    scale = size / max(height, width)
    exact = Image.fromarray(values.astype(np.float32)).resize(
        (round(width * scale), round(height * scale)), Image.Resampling.LANCZOS
    )
    return np.clip(np.asarray(exact), 0, 255)


def shown(data: bytes) -> np.ndarray:
    picture = Image.open(io.BytesIO(data))
    assert picture.format == "JPEG"
    assert picture.mode == "L"
    return np.asarray(picture).astype(float)


def save(path: Path, picture: Image.Image | np.ndarray, **options: Any) -> Path:
    picture = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    picture.save(path, **options)
    return path


def reason(path: Path, size: int = SIZE) -> BadImage:
    with pytest.raises(BadImage) as caught:
        stored(path, size)
    assert caught.value.kind in images.KINDS
    assert str(path.parent) not in str(caught.value)
    return caught.value


def test_jpeg_at_reduced_scale_is_the_exact_resize(tmp_path: Path) -> None:
    for height, width in ((700, 560), (701, 563), (1500, 333), (531, 2041)):
        values = chest(height, width)
        path = save(tmp_path / "a.jpg", values, quality=95)
        result = shown(stored(path, SIZE))
        exact = straight(np.asarray(Image.open(path)))
        assert result.shape == exact.shape
        assert np.abs(result - exact).mean() < 0.8, (height, width)


COLOURS: dict[str, Callable[[np.ndarray], Image.Image]] = {
    "rgb.png": lambda values: Image.fromarray(values).convert("RGB"),
    "rgba.png": lambda values: Image.fromarray(np.dstack([values] * 3 + [np.full_like(values, 255)])),
    "la.png": lambda values: Image.fromarray(values).convert("LA"),
    "grey.png": Image.fromarray,
    "palette.png": lambda values: Image.fromarray(values).quantize(256),
    "rgb.jpg": lambda values: Image.fromarray(values).convert("RGB"),
    "cmyk.jpg": lambda values: Image.fromarray(values).convert("RGB").convert("CMYK"),
}


@pytest.mark.parametrize("name", COLOURS)
def test_every_mode_becomes_the_same_grey(name: str, tmp_path: Path) -> None:
    path = save(tmp_path / name, COLOURS[name](chest()), **({"quality": 95} if name.endswith("jpg") else {}))
    assert np.abs(shown(stored(path, SIZE)) - straight(chest())).mean() < 1.5


def test_luma_of_real_colour(tmp_path: Path) -> None:
    colour = np.dstack([chest(seed=seed) for seed in range(3)])
    luma = colour @ np.array([0.299, 0.587, 0.114])
    for name, options in (("a.png", {}), ("a.jpg", {"quality": 95, "subsampling": 0})):
        result = shown(stored(save(tmp_path / name, colour, **options), SIZE))
        assert np.abs(result - straight(luma)).mean() < 1.5


@pytest.mark.parametrize(("low", "high"), [(0, 4095), (200, 3900), (0, 65535), (30_000, 30_100)])
def test_16_bits_are_scaled_by_their_own_range(low: int, high: int, tmp_path: Path) -> None:
    values = low + chest().astype(float) / 255 * (high - low)
    values = np.rint(values).astype(np.uint16)
    values.flat[:2] = low, high
    result = shown(stored(save(tmp_path / "a.png", values), SIZE))
    assert np.abs(result - straight((values - float(low)) / (high - low) * 255)).mean() < 1.0


def test_16_bits_of_one_value_and_1_bit(tmp_path: Path) -> None:
    flat = save(tmp_path / "flat.png", np.full((40, 30), 777, np.uint16))
    assert shown(stored(flat, SIZE)).max() == 0
    values = chest() > 128
    result = shown(stored(save(tmp_path / "bits.png", Image.fromarray(values)), SIZE))
    assert np.abs(result - straight(255 * values)).mean() < 2.5  # JPEG of hard edges
    assert {*np.unique(decode_picture(stored(save(tmp_path / "b.png", Image.new("1", (9, 9), 1)), SIZE)))} == {255}


def test_never_enlarged_and_small_grey_jpegs_are_kept(tmp_path: Path) -> None:
    small = chest(100, 80)
    kept = save(tmp_path / "a.jpg", small, quality=70)
    assert stored(kept, SIZE) == kept.read_bytes()
    assert stored(kept, 100) == kept.read_bytes()
    assert stored(kept, 99) != kept.read_bytes()
    for name, options in (("p.jpg", {"progressive": True}), ("g.png", {})):
        path = save(tmp_path / name, small, **options)
        data = stored(path, SIZE)
        assert data != path.read_bytes()
        assert shown(data).shape == (100, 80)
        assert np.abs(shown(data) - np.asarray(Image.open(path)).astype(float)).mean() < 1.5
    coloured = save(tmp_path / "c.jpg", Image.fromarray(small).convert("RGB"))
    assert shown(stored(coloured, SIZE)).shape == (100, 80)


def test_nothing_but_the_picture_is_stored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a name that must not travel"
    path = save(tmp_path / "a.jpg", chest(), exif=exif, comment=b"neither must this")
    data = stored(path, SIZE)
    assert b"must" not in data
    assert b"Exif" not in data


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_exif_orientation(turn: int, name: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    for shape in ((400, 300), (90, 60)):
        path = save(tmp_path / name, chest(*shape), exif=exif, **({"quality": 95} if name.endswith("jpg") else {}))
        upright = ImageOps.exif_transpose(Image.open(path))
        result = shown(stored(path, SIZE))
        exact = straight(np.asarray(upright), min(SIZE, max(shape)))
        assert result.shape == exact.shape
        assert np.abs(result - exact).mean() < 1.5


def test_same_bytes_every_time(tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", chest(), quality=90)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: stored(path, SIZE), range(12)))) == 1
    noise = np.random.default_rng(0).integers(0, 256, (1200, 1200), dtype=np.uint8)  # the hardest to encode
    assert shown(stored(save(tmp_path / "n.png", noise), 1200)).shape == (1200, 1200)


def test_reasons(tmp_path: Path) -> None:
    assert reason(tmp_path / "none.jpg").kind == "missing"
    (tmp_path / "empty.png").touch()
    assert reason(tmp_path / "empty.png").kind == "empty"
    assert reason(tmp_path / "empty.png" / "below.png").kind == "missing"
    (tmp_path / "page.jpg").write_bytes(b"<html>404</html>" * 20)
    assert reason(tmp_path / "page.jpg").kind == "not an image"
    assert "<html>" in reason(tmp_path / "page.jpg").said
    (tmp_path / "folder.jpg").mkdir()
    assert reason(tmp_path / "folder.jpg").kind == "not an image"
    assert reason(save(tmp_path / "gif.jpg", chest(50, 50), format="GIF")).kind == "not an image"
    whole = save(tmp_path / "a.png", chest()).read_bytes()
    (tmp_path / "b.png").write_bytes(whole[:2000] + b"\0" * 500 + whole[2500:])
    assert reason(tmp_path / "b.png").kind == "unreadable"


@pytest.mark.parametrize("name", ["a.jpg", "small.jpg", "a.png"])
def test_truncated_files_never_pass(name: str, tmp_path: Path) -> None:
    values = chest(100, 80) if name.startswith("small") else chest()
    whole = save(tmp_path / name, values).read_bytes()
    cut = tmp_path / f"cut{Path(name).suffix}"
    for share in (0.05, 0.3, 0.5, 0.9, 0.99):
        cut.write_bytes(whole[: int(share * len(whole))])
        assert reason(cut).kind == "truncated", share
        cut.write_bytes(
            whole[: int(share * len(whole))].ljust(len(whole), b"\0")
        )  # a copy that stopped, space reserved
        assert reason(cut).kind in {"truncated", "unreadable"}, share
    for missing in (1, 2, 8, 12):
        cut.write_bytes(whole[:-missing])
        if not (name.endswith("png") and missing < 8):  # the checksum after the end says nothing
            assert reason(cut).kind == "truncated", missing
    for start in (9, 20, 30):
        cut.write_bytes(whole[:start])
        assert reason(cut).kind in {"truncated", "unreadable"}, start
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_too_large_is_an_error_and_large_no_warning(tmp_path: Path) -> None:
    path = save(tmp_path / "wide.png", Image.new("1", (20_001, 3)))
    assert reason(path).kind == "too large"
    assert "20001 x 3" in reason(path).said
    large = save(tmp_path / "large.png", Image.new("1", (20_000, 4_600), 1))  # above Pillow's own limit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shown(stored(large, SIZE)).shape == (29, 128)


def test_decoded(tmp_path: Path) -> None:
    data = stored(save(tmp_path / "a.jpg", chest()), SIZE)
    assert (decode_picture(data) == shown(data)).all()
    resized = np.asarray(Image.open(io.BytesIO(data)).resize((48, 48), Image.Resampling.BILINEAR))
    assert (decode_picture(data, 48) == resized).all()
    with pytest.raises(BadImage, match="truncated"):
        decode_picture(data[:-200])


def test_the_reason_survives_a_process() -> None:
    again = pickle.loads(pickle.dumps(BadImage("empty", "no bytes")))
    assert (again.kind, again.said, str(again)) == ("empty", "no bytes", "empty: no bytes.")


@pytest.mark.real
def test_real_pictures() -> None:
    folder = real_data("nih/images")
    for path in sorted(folder.iterdir())[:20]:
        assert stored(path, 512) == path.read_bytes()  # grey JPEGs of 512 already
        exact = straight(np.asarray(Image.open(path)))
        assert np.abs(shown(stored(path, SIZE)) - exact).mean() < 1.5


def test_a_kept_picture_carries_nothing_but_itself(tmp_path):
    plain = io.BytesIO()
    picture = Image.fromarray(np.arange(64 * 48, dtype=np.uint8).reshape(64, 48))
    exif = Image.Exif()
    exif[0x010E] = "patient Doe"
    picture.save(plain, "JPEG", quality=90, comment=b"seen by Dr Roe", exif=exif)
    path = tmp_path / "named.jpg"
    path.write_bytes(plain.getvalue() + b"behind the end")
    kept = stored(path, 512)
    assert b"Doe" in path.read_bytes()
    assert all(word not in kept for word in (b"Doe", b"Roe", b"behind"))
    assert np.array_equal(decode_picture(kept), np.asarray(Image.open(io.BytesIO(plain.getvalue()))))
