"""Planted secrets, paths, pictures, rows, ids and notes are found in every kind of file; their clean twins pass."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf.hub import scan as scan_paths
from cxrhf.hub.artefact import Artefact, Kind, Known, Piece
from cxrhf.hub.metric import metric_artefact
from cxrhf.hub.scan import ScanError, check, scan
from cxrhf.hub.scan_notes import passages
from cxrhf.hub.scan_people import ID, NOTE, ROWS, known_of
from cxrhf.hub.scan_text import ARCHIVE, PICTURE, UNREADABLE, Structure
from cxrhf.hub.scan_weights import skops_views
from tests.real_data import real_data
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = frozenset({"ids", "text", "pixels", "labels", "rows"})
RECIPE = frozenset({"ids", "rows"})
TOKEN, PATH = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL", "/home/" + "alice/runs/mimic"
REPORT = (
    "There is a small left pleural effusion with adjacent atelectasis. The cardiac silhouette is mildly enlarged. "
    "No pneumothorax is seen."
)
STAY = (
    "67 year old woman with a history of heart failure, admitted with shortness of breath and treated with furosemide "
    "40 mg daily."
)
# Known, and like no report: only the data behind an artefact can tell.
SMALL_TALK = (
    "Plays the trumpet in a village band, keeps nine goats, and walked over the hills to the coast last spring."
)
KNOWN = Known(
    frozenset({"10025275", "10025275-DS-5", "img-7c0a91", "12"}), (SMALL_TALK, "Keeps bees near the harbour.")
)
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 2
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
CLEAN = "# A card\n\nThe AUROC of pleural effusion is .91 with support devices, on 1,144 films of 197 patients.\n"
PLANTS = {
    "a token": (TOKEN, "a Hugging Face token (hf_...)"),
    "a path": (PATH, scan_paths.WHAT),
    "an id": ("p10025275", ID),
    "a known id": ("img-7c0a91", ID),
    "a report": (REPORT, NOTE),
    "a stay": (STAY, NOTE),
    "a known note": (SMALL_TALK, NOTE),
}


@pytest.mark.parametrize("line", ["as seen in patient 18884321 of ours", "18884321", "# 18884321", "x = '18884321'"])
def test_a_number_of_a_patient(line: str) -> None:
    """After its noun, alone on a line, in quotes; a number that counts is left alone."""
    assert found("README.md", f"{CLEAN}\n{line}\n", known=Known()) == [ID]
    assert found("README.md", f"{CLEAN}\n18884321 images, patients: 188843, size 18884321 bytes\n", known=Known()) == []


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def artefact(
    *pieces: Piece, kind: Kind = "model", may_hold: frozenset[str] = frozenset(), known: Known = KNOWN
) -> Artefact:
    return Artefact(kind, "x", pieces, may_hold=may_hold, known=known)


def found(path: str, content: bytes | str, *, drawn: bool = False, **options: object) -> list[str]:
    data = content.encode() if isinstance(content, str) else content
    return [leak.what for leak in scan(artefact(Piece(path, data, drawn), **options))]  # type: ignore[arg-type]


# --- files with something planted ----------------------------------------------------------------------------------


def safetensors(metadata: dict[str, str], **tensors: np.ndarray) -> bytes:
    names = {"float32": "F32", "int64": "I64", "uint8": "U8"}
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, array in tensors.items():
        end = at + array.nbytes
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    said = json.dumps(header).encode()
    return struct.pack("<Q", len(said)) + said + b"".join(array.tobytes() for array in tensors.values())


WEIGHTS = {"layer.weight": np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)}


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def results(note: str) -> list[dict[str, object]]:
    row = {"audit": "overview", "metric": "auroc", "model": "m", "finding": "edema", "slice": "all", "value": 0.8123}
    return [{**row, "n": 1144, "n_patients": 197, "note": None}, {**row, "n": 90, "n_patients": 12, "note": note}]


def skops(note: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("schema.json", json.dumps({"__class__": "LinearSVC", "content": {"note": note}}))
        array = io.BytesIO()
        np.save(array, np.zeros(3))
        packed.writestr("1.npy", array.getvalue())
    return out.getvalue()


def test_a_skops_file_that_lies_about_its_sizes_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrhf.hub.scan_weights._SKOPS_GROWTH", 1 << 20)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("zeros.npy", bytes(1 << 26))
    data = bytearray(out.getvalue())
    for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):  # the size, in the directory and before the file
        start = data.index(mark)
        data[start + at : start + at + 4] = (10).to_bytes(4, "little")
    tracemalloc.start()
    try:
        found = list(skops_views(Piece("model.skops", bytes(data))))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert any(isinstance(each, Structure) for each in found)


def chunk(kind: bytes, body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")


def drawing(*more: bytes) -> bytes:
    pixels = chunk(b"IDAT", zlib.compress(b"\0\0"))
    return (
        PNG[:8]
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
        + b"".join(more)
        + pixels
        + chunk(b"IEND", b"")
    )


def wrapped(text: str) -> str:
    return "\n".join(f"    # {text[at : at + 60]}" for at in range(0, len(text), 60)) if len(text) > 60 else f"# {text}"


FILES = {
    "README.md": lambda text: f"{CLEAN}\n> {text}\n\nMore text.\n",
    "front/README.md": lambda text: f"---\nlicense: mit\ntitle: {json.dumps(text)}\n---\n{CLEAN}",
    "module.py": lambda text: f'"""A module.\n\n{text}\n"""\n\nx = 1\n',
    "comment.py": lambda text: f"x = 1\n# {text}\n",
    "config.json": lambda text: json.dumps({"name": "x", "labels": ["edema"], "prompt": text}),
    "deep.json": lambda text: json.dumps([[[{"a": {"b": [1, [text]]}}]]]),
    "key.json": lambda text: json.dumps({text: 1}),
    "results.json": lambda text: json.dumps({"results": results(text)}, indent=1),
    "rows.jsonl": lambda text: "\n".join(json.dumps(row) for row in results(text)),
    "settings.yaml": lambda text: f"name: x\nprompt: {json.dumps(text)}\nlist: [1, 2]\n",
    "block.yaml": lambda text: f"name: x\nprompt: >\n  {text}\n",
    "table.csv": lambda text: f'metric,value,note\nauroc,.9,\nauroc,.8,"{text}"\n',
    "figure.svg": lambda text: f'<svg xmlns="http://www.w3.org/2000/svg"><g><text x="1">{text}</text></g></svg>',
    "split.svg": lambda text: f"<svg>{''.join(f'<tspan>{part} </tspan>' for part in text.split(' '))}</svg>",
    "page.html": lambda text: f"<html><body><p>{text}</p></body></html>",
    "template.jinja": lambda text: f"{{%- for m in messages -%}}{text}{{%- endfor -%}}",
    "utf16.txt": lambda text: f"{CLEAN}{text}".encode("utf-16"),
    "hidden.txt": lambda text: f"data = {base64.b64encode((text + ' ' * 30).encode()).decode()}\n",
    "hexadecimal.json": lambda text: json.dumps({"x": (text + " " * 40).encode().hex()}),
    "model.safetensors": lambda text: safetensors({"format": "pt", "note": text}, **WEIGHTS),
    "pasted.safetensors": lambda text: safetensors(
        {}, **WEIGHTS, b=np.frombuffer((text + " " * (200 - len(text) % 4)).encode().ljust(400)[:400], np.float32)
    ),
    "table.parquet": lambda text: parquet(pa.table({"metric": ["auroc"] * 3, "note": [None, "fine", text]})),
    "inner.parquet": lambda text: parquet(pa.table({"a": [{"b": ["x", text], "c": 1}]})),
    "binary.parquet": lambda text: parquet(pa.table({"a": [text.encode()]})),
    "words.parquet": lambda text: parquet(pa.table({"a": pa.array(["x", text]).dictionary_encode()})),
    "said.parquet": lambda text: parquet(pa.table({"a": [1]}).replace_schema_metadata({"note": text})),
    "model.skops": skops,
    "model.ubj": lambda text: b"{L\x00\x00\x00\x01" + text.encode() + b"\x00\x01}",
    "LICENSE": lambda text: f"Licence\n\n{text}\n",
}  # fmt: skip
# Words in tags of their own, one by one, read like nothing; only known ones are put together again.
ONE_BY_ONE = {"split.svg"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("plant", PLANTS)
def test_planted(name: str, plant: str) -> None:
    text, what = PLANTS[plant]
    if name in ONE_BY_ONE and plant in {"a report", "a stay"}:
        pytest.skip("words one by one read like nothing")
    content = FILES[name](text)
    leaks = scan(artefact(Piece(name, content if isinstance(content, bytes) else content.encode())))
    assert what in {leak.what for leak in leaks}
    said = " ".join(map(str, leaks))
    assert text[:12] not in said
    assert TOKEN[3:] not in said


@pytest.mark.parametrize("name", FILES)
def test_clean_twin(name: str) -> None:
    assert found(name, FILES[name]("The AUROC of pleural effusion is lower with a chest drain.")) == []


@pytest.mark.parametrize("plant", ["a token", "an id", "a known id", "a path"])
def test_names_of_files(plant: str) -> None:
    text, what = PLANTS[plant]
    leaks = scan(artefact(Piece(f"figures/{text}/a.md" if plant != "a path" else f"{text}/a.md", b"clean")))
    assert {leak.what for leak in leaks} == {what}
    assert {leak.where for leak in leaks} == {"file name"}
    assert text not in " ".join(map(str, leaks))
    assert "***" in leaks[0].path


def test_the_error_lists_them_and_says_what_next() -> None:
    pieces = [Piece(f"{at}.md", TOKEN.encode()) for at in range(12)]
    with refused(ScanError, "12 places", "and 2 more", fix="revoke") as refusal:
        check(artefact(*pieces))
    assert str(refusal.error).count("a Hugging Face token") == 10
    assert isinstance(refusal.error, ScanError)
    assert len(refusal.error.leaks) == 12
    assert TOKEN[3:] not in str(refusal.error)
    check(artefact(Piece("a.md", CLEAN.encode())))


def test_a_place_does_not_show_what_is_in_its_own_name() -> None:
    for text in (REPORT, SMALL_TALK, "p10025275"):
        leaks = scan(artefact(Piece("a.json", json.dumps({text: {"x": {"y": TOKEN}}}).encode())))
        assert {"a Hugging Face token (hf_...)"} < {leak.what for leak in leaks}
        assert not any(text[:12] in str(leak) for leak in leaks)


# --- secrets and paths ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "api_org_" + "abcdefghijklmnopqrstuv", "ghp_" + "a1" * 18, "github_pat_" + "11ABCDEFG0abcdefghij_k",
        "glpat-" + "abcdefghij0123456789", "xoxb-" + "123456789012-abcdef", "sk-ant-" + "api03-abcDEF123456789012345",
        "sk-" + "abcd1234abcd1234abcd1234", "AKIA" + "IOSFODNN7EXAMPLE", "AIza" + "b" * 30 + "01234",
        "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYKEY", "AccountKey=" + "Ab1+" * 12 + "==",
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0.abcdefghijkl", "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
        "password=" + "hunter2", '"password": ' + '"correcthorse"', "Authorization: Bearer " + "abcdef1234567890",
        "https://alice:" + "s3cret@physionet.org/files", "machine physionet.org login bob " + "password pw1234",
        "wget -r --user bobby --ask-password https://physionet.org/files", "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI",
        "WANDB_API_KEY=" + "0123456789abcdef0123456789abcdef01234567",
    ],
)  # fmt: skip
def test_secrets(text: str) -> None:
    assert found("a.py", f"x = 1\n{text}\n")


@pytest.mark.parametrize(
    "text",
    [
        "hf_" + "x" * 34, "token=os.environ['HF_TOKEN']", "password: <your password>", "password = None",
        "api_key=YOUR_API_KEY", "sha256: 4496e667a45238b8e24a853d7c4c22b113f509cf4bcb9ee25f3fa46a5bf9fa01",
        '"pad_token": "<|endoftext|>"', "commit 8fd404db40b0f01c02a7b063fd0e37ed890a2fbe", "Bearer $HF_TOKEN",
        "https://huggingface.co/user/name/resolve/main/model.safetensors", "hf_hub_download_with_progress_bar",
        "skip-this-sk-learn-thing", "token: str | None = None", "the secret is the picture",
    ],
)  # fmt: skip
def test_no_secrets(text: str) -> None:
    assert found("a.py", f"x = 1\n{text}\n") == []


def test_the_token_of_this_login(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("a.md", "letmein-please") == []
    monkeypatch.setenv("HF_TOKEN", "letmein-please")
    assert found("a.md", "xletmein-pleasex") == ["the token you are logged in with"]
    assert found("a.safetensors", safetensors({"x": "letmein-please"}, **WEIGHTS)) == [
        "the token you are logged in with"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "/Users/" + "bob/x", '"path": "/data/' + 'mimic"', "root: /mnt/" + "disk1/x", "--root=/data/" + "mimic",
        "/root/" + ".cache", "/tmp/" + "demo/x", "C:\\Users\\" + "bob\\x", "\\\\server\\" + "share\\x",
        "file:///" + "srv/x", "~alice/" + "data",
        "/scratch2/" + "users/al/x", "cd /gs/" + "hs0/tga/x", "D:\\mimic\\" + "files\\x",
    ],
)  # fmt: skip
def test_paths(text: str) -> None:
    assert found("a.py", f"x = 1\n{text}\n") == [scan_paths.WHAT]
    assert found("a.json", json.dumps({"x": text})) == [scan_paths.WHAT]


@pytest.mark.parametrize(
    "text",
    [
        "#!/usr/bin/env python", "https://host/home/x/y", "and/or", "12/05/2020", "~/.cache/huggingface", "/path/to/f",
        "{HF_ENDPOINT}/spaces/user/name/resolve/main/name.py", r"re.compile(r'\d\d:\d\d')", "images/train-*.parquet",
        "/dev/null", "class A:\\n    pass", "a</g></svg>", "mg/dL",
    ],
)  # fmt: skip
def test_no_paths(text: str) -> None:
    assert found("a.py", f"x = 1\n{text}\n") == []


def test_this_user_and_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/vandenberg"))
    monkeypatch.setattr("socket.gethostname", lambda: "radiology-gpu7.hospital.org")
    scan_paths.own_names.cache_clear()
    assert found("a.md", "results/vandenberg/run")
    assert found("a.md", "made on radiology-gpu7")
    assert found("a.md", "by van den Berg, of Vandenberg and others") == []
    scan_paths.own_names.cache_clear()


# --- pictures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.png", PNG, PICTURE),
        ("a.txt", JPEG, PICTURE),
        ("a.dcm", b"\0" * 128 + b"DICM" + b"\0" * 90, PICTURE),
        ("a.bin", b"II*\0" + b"\0" * 90, PICTURE),
        ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", PICTURE),
        ("a.nii", b"\x5c\x01\0\0" + b"\0" * 400, PICTURE),
        ("a.npy", b"\x93NUMPY\x01\0", PICTURE),
        ("a.zip", b"PK\x03\x04" + b"\0" * 90, ARCHIVE),
        ("a.gz", b"\x1f\x8b\x08\0", ARCHIVE),
        ("a.pkl", b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94.", ARCHIVE),
        ("a.bin", bytes(range(256)) * 4, UNREADABLE),
        ("a.md", f"![x](data:image/png;base64,{base64.b64encode(PNG).decode()})".encode(), PICTURE),
        ("a.json", json.dumps({"x": base64.b64encode(JPEG).decode()}).encode(), PICTURE),
        ("a.json", json.dumps({"x": JPEG.hex()}).encode(), PICTURE),
        ("a.yaml", b"x: |\n  " + base64.encodebytes(JPEG).replace(b"\n", b"\n  "), PICTURE),
        ("a.py", f"x = {PNG!r}".encode(), PICTURE),
        ("a.json", json.dumps({"x": [[7] * 32] * 32}).encode(), PICTURE),
        ("a.svg", b'<svg><image href="a.png"/></svg>', PICTURE),
        ("a.safetensors", safetensors({"x": base64.b64encode(PNG).decode()}, **WEIGHTS), PICTURE),
        ("a.safetensors", safetensors({}, x=np.zeros((16, 16), np.uint8)), PICTURE),
        ("a.safetensors", safetensors({}, pixel_values=np.zeros((4, 16, 16), np.float32)), PICTURE),
        ("a.safetensors", safetensors({}, **WEIGHTS) + b"more", UNREADABLE),
        ("a.safetensors", b"\x10\0\0\0\0\0\0\0not json at all!", UNREADABLE),
        ("a.parquet", parquet(pa.table({"image": [{"bytes": JPEG, "path": "x"}]})), PICTURE),
        ("a.parquet", parquet(pa.table({"x": [[7] * 900]}, pa.schema([("x", pa.list_(pa.uint8()))]))), PICTURE),
        ("a.parquet", parquet(pa.table({"x": [bytes(range(256))]})), UNREADABLE),
        ("a.parquet", b"PAR1 broken", UNREADABLE),
    ],
)
def test_pictures(name: str, content: bytes, what: str) -> None:
    assert what in found(name, content)


def test_drawings_of_numbers() -> None:
    assert found("a.png", drawing(), drawn=True) == []
    assert found("a.png", drawing()) == [PICTURE]
    assert found("a.png", drawing(chunk(b"tEXt", b"Software\0resvg")), drawn=True) == []
    assert NOTE in found("a.png", drawing(chunk(b"tEXt", b"Comment\0" + REPORT.encode())), drawn=True)
    packed = b"Comment\0\0" + zlib.compress(SMALL_TALK.encode())
    assert NOTE in found("a.png", drawing(chunk(b"zTXt", packed)), drawn=True)
    assert found("a.png", drawing(chunk(b"noTe", b"x")), drawn=True) == [PICTURE]
    assert found("a.png", drawing() + b"more", drawn=True) == [PICTURE]
    assert found("a.svg", "<svg><text>AUROC</text></svg>", drawn=True) == []
    assert found("a.svg", '<svg><image href="x"/></svg>', drawn=True) == [PICTURE]
    assert found("a.jpg", JPEG, drawn=True) == [PICTURE]


# --- rows and ids --------------------------------------------------------------------------------------------------

ROW = {"Patient ID": "17", "prob": 0.3}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps([ROW, ROW])),
        ("a.json", json.dumps({"data": {"subject_id": [1, 2], "prob": [0.1, 0.2]}})),
        ("a.json", json.dumps([["image_id", "prob"], ["a1", 0.3]])),
        ("a.json", json.dumps([{"age": 61, "sex": "F", "label": 1}, {"age": 70, "sex": "M", "label": 0}])),
        ("a.jsonl", "\n".join([json.dumps(ROW)] * 3)),
        ("a.csv", "DICOM_ID,prob\na,.3\n"),
        ("a.csv", "age;sex;label\n61;F;1\n"),
        ("a.tsv", "mrn\tprob\n1\t.3\n"),
        ("a.txt", "study_id,prob\n17,.3\n"),
        ("a.md", "| image_id | prob |\n|---|---|\n| a1 | .3 |\n"),
        ("a.yaml", "rows:\n- hadm_id: 17\n  y: 1\n"),
        ("a.parquet", parquet(pa.table({"note_id": ["a"], "y": [1]}))),
        ("a.parquet", parquet(pa.table({"x": [{"accession_number": "a"}]}))),
        ("a.safetensors", safetensors({}, patient_id=np.arange(9))),
    ],
)
def test_rows(name: str, content: str | bytes) -> None:
    assert ROWS in found(name, content, known=Known())


def test_arrow_files() -> None:
    out = io.BytesIO()
    with pa.ipc.new_file(out, pa.schema([("patient_id", pa.string())])) as writer:
        writer.write_table(pa.table({"patient_id": ["a"]}))
    assert found("a.arrow", out.getvalue()) == [ROWS]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps({"results": results("few patients")})),
        ("a.json", json.dumps({"features": {"patient_id": {"dtype": "string"}, "image_id": "string"}})),
        ("a.json", json.dumps({"columns": {"patient_id": "subject_id"}, "patients": 395, "n_patients": 12345})),
        ("a.json", json.dumps([{"sex": "F", "age": "60-80", "n": 40, "auroc": 0.8}] * 2)),
        ("a.csv", "step,images,patients\nall,6922,1200\n"),
        ("a.md", "| column | type |\n|---|---|\n| image_id | text |\n| patient_id | text |\n"),
        ("a.parquet", parquet(pa.table({"audit": ["a"], "metric": ["auroc"], "n_patients": [10025275]}))),
    ],
)
def test_no_rows(name: str, content: str | bytes) -> None:
    assert found(name, content, known=Known()) == []


@pytest.mark.parametrize(
    "text",
    [
        "files/p10/p10000032/s50414267/x", "02aa804e-bde0afdd-112c0b34-7bc16630-4e384014", "10000032-DS-21",
        "train/patient00011/study1", "00000013_005.png", "GRDN" + "ABCD1234EFGH", "CXR1_1_IM-0001",
        "1.2.840.113619.2.5.1762583153.215519.978957063.78", "MRN: 1234567", '"patient_id": "10012345"',
        "**Patient ID**: PT-789012", "accession number 12345678", "Date of Birth: 1978-05-15",
    ],
)  # fmt: skip
def test_ids_by_their_form(text: str) -> None:
    assert found("a.md", f"see {text} there", known=Known())


@pytest.mark.parametrize(
    "text",
    [
        "1.2.840.10008.1.2.4.70", "doi 10.1001/jama.2020.12345", "numpy 2.4.6", "PMID: 12345678", "arXiv:2104.12345",
        "n_patients: 12345", "patient_id: string", "2026-11-17T18:48:48", "study of 12345 patients",
        "0.10025275", '"size": 10025275', "10025275.5", "12 of 12", "10,025,275",
    ],
)  # fmt: skip
def test_no_ids(text: str) -> None:
    assert found("a.md", f"see {text} there") == []


@pytest.mark.parametrize("text", ["10025275", "s/10025275/x", "patient_10025275", "10025275 DS 5", "IMG_7C0A91"])
def test_known_ids_in_any_spelling(text: str) -> None:
    assert ID in found("a.md", f"see {text} there")
    assert ID in found("a.json", json.dumps({"x": [text]}))
    assert ID in found("a.parquet", parquet(pa.table({"x": [text]})))


def test_known_ids_as_numbers() -> None:
    assert ID in found("a.parquet", parquet(pa.table({"x": [1, 10025275]})))
    assert ID in found("a.safetensors", safetensors({}, x=np.array([1, 10025275])))
    assert ID in found("a.json", json.dumps({"x": [3, 10025275]}))


# --- notes ---------------------------------------------------------------------------------------------------------


def test_a_short_known_text_that_stands_alone() -> None:
    assert NOTE in found("a.json", json.dumps({"x": "keeps bees near the Harbour"}))
    assert NOTE in found("a.md", "# x\n\n- Keeps bees near the harbour.\n")
    assert found("a.md", "The town keeps bees near the harbour of all places.\n") == []


@pytest.mark.parametrize(
    "dressed",
    [
        SMALL_TALK.upper(),
        SMALL_TALK.replace(" ", "\n# "),
        SMALL_TALK.replace(" ", "  **"),
        json.dumps(SMALL_TALK.replace(" ", "\n")),
        json.dumps({"x": SMALL_TALK.split()}),
        "".join(f"&#{ord(letter)};" for letter in SMALL_TALK),
        SMALL_TALK.replace(" ", "%20"),
        SMALL_TALK.translate({ord(letter): ord(letter) + 0xFEE0 for letter in "abcdefghijklmnopqrstuvwxyz"}),
        SMALL_TALK.replace("a", "\u200ba"),
        SMALL_TALK[20:75],
    ],
)
def test_a_known_note_in_any_dress(dressed: str) -> None:
    assert NOTE in found("a.md", f"# Card\n\n{dressed}\n")


_words = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz \n.,|*#-_\"'`"), max_size=200)


@settings(max_examples=60, deadline=None)
@given(before=_words, after=_words, at=st.integers(0, 10), length=st.integers(8, 19))
def test_a_known_note_anywhere(before: str, after: str, at: int, length: int) -> None:
    words = SMALL_TALK.split()
    part = " ".join(words[min(at, len(words) - length) :][:length])
    assert NOTE in found("a.txt", f"{before} {part} {after}")


def test_what_is_known_comes_from_the_tables_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "data"
    folder.mkdir(parents=True)
    notes = pa.table({"note_id": ["n-000017"], "patient_id": [10025275], "text": [SMALL_TALK]})
    pq.write_table(notes, folder / "notes.parquet")
    images = pa.table({"image_id": ["i-000001", None], "prior_note_ids": [["n-000018"], None], "findings": ["a", None]})
    pq.write_table(images, folder / "images.parquet")
    pq.write_table(
        pa.table({"metric": ["auroc"], "note": ["made from nine rows"]}), tmp_path / "run" / "results.parquet"
    )
    known = known_of([tmp_path / "run", tmp_path / "nowhere"])
    assert known.ids == {"n-000017", "10025275", "i-000001", "n-000018"}
    assert sorted(known.texts) == sorted(["a", SMALL_TALK])
    assert len(known.texts) == 2
    assert known.texts[0] in {"a", SMALL_TALK}
    assert NOTE in found("a.md", SMALL_TALK, known=known)
    assert ID in found("a.md", "see n-000018", known=known)
    assert found("a.md", "made from nine rows", known=known) == []


def test_our_metrics_pass() -> None:
    """The files that copies of metrics are made of; staging all ten would take longer than the scan."""
    files = [
        *ROOT.glob("metrics/*/*.*"),
        *ROOT.glob("cxrhf/metrics/*.py"),
        *ROOT.glob("cxrhf/hub/widget*.py"),
        ROOT / "LICENSE",
    ]
    pieces = [Piece(str(path.relative_to(ROOT)), path) for path in files]
    assert [str(leak) for leak in scan(artefact(*pieces, kind="metric", known=Known()))] == []
    assert scan(metric_artefact("cad", "user")) == []


@pytest.mark.parametrize("text", [REPORT, TOKEN, "p10025275"])
def test_planted_in_a_metric(text: str) -> None:
    made = metric_artefact("lexical_diversity", "user")  # full of example sentences
    planted = tuple(Piece(piece.path, piece.read() + f"\n# {text}\n".encode()) for piece in made.pieces)
    assert {leak.path for leak in scan(Artefact("metric", "x", planted))} == {piece.path for piece in planted}


@pytest.mark.parametrize("folder", ["docs", "dataset_scripts", "model_cards"])
def test_our_texts_pass(folder: str) -> None:
    # docs/tasks/zeroshot.md shows prompts, which read like reports; it is not published.
    files = [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".md", ".yaml"}]
    pieces = [Piece(path.name, path) for path in files if path.name != "zeroshot.md"]
    assert [str(leak) for leak in scan(artefact(*pieces, known=Known()))] == []


def test_vocabularies_and_findings_pass() -> None:
    words = [
        "effusion",
        "pneumothorax",
        "mastectomy",
        "pacemaker",
        "cardiac silhouette",
        "chest pain",
        "furosemide",
    ] * 50
    assert (
        found("vocabulary.json", json.dumps({"words": words, "ids": {word: at for at, word in enumerate(words)}})) == []
    )
    assert found("vocab.txt", "\n".join(words)) == []
    listed = "Few patients: Enlarged cardiomediastinum, Lung lesion, Edema, Consolidation, Pneumonia and Pleural other."
    assert found("README.md", f"{listed}\nOmitted words: mastectomy, breast, scoliosis, pacemaker, sternotomy.\n") == []


@pytest.mark.real
def test_recall_on_real_reports() -> None:
    """Reports that no run knows: not fewer are found than when the lists were made.

    First sentences are plainer than others: two of them are found less often than the docstring of scan_notes says of
    two from anywhere. Measured: Indiana .818, .984, .988; written .862, .983, 1; covid notes .675, .857, .878.
    """

    def rows(name: str) -> list[dict[str, str]]:
        path = real_data(name)
        with gzip.open(path, "rt") if name.endswith(".gz") else path.open() as file:
            return list(csv.DictReader(file))

    reports = [f"{row['findings']} {row['impression']}".strip() for row in rows("iu/reports.csv.gz")[1::3]]
    written = [row["generated"] for row in rows("iu/generated.csv.gz")[1::2]]
    notes = sorted({row["clinical_notes"] for row in rows("covid/metadata.csv")})
    for texts, least in ((reports, (0.8, 0.97, 0.98)), (written, (0.84, 0.97, 0.99)), (notes, (0.65, 0.84, 0.86))):
        for count, wanted in zip((2, 3, None), least, strict=True):
            assert recall(texts, count) >= wanted


def recall(texts: list[str], count: int | None) -> float:
    """The share of texts, each cut to its first sentences, that read like a report."""
    cut = [re.split(r"(?<=[.!?])\s+(?=[A-Za-z0-9])", text.strip()) for text in texts if text.strip()]
    pieces = [" ".join(sentences[:count]) for sentences in cut if count is None or len(sentences) >= count]
    data = "\x1f\n".join(pieces).encode()
    return len({data.count(b"\x1f", 0, passage.start) for passage in passages(data)}) / len(pieces)


# --- what a dataset may hold ---------------------------------------------------------------------------------------

IMAGES = pa.table(
    {
        "image": [{"bytes": JPEG, "path": "p10025275/a.jpg"}],
        "image_id": ["02aa804e-bde0afdd-112c0b34-7bc16630-4e384014"],
        "patient_id": ["10025275"],
        "findings": [REPORT],
        "edema": pa.array([1], pa.int8()),
    }
)
IDS = pa.table(
    {"image_id": ["i-000001"], "study_id": ["s"], "patient_id": ["10025275"], "dataset": ["m"], "split": ["test"]}
)


def test_an_open_dataset_holds_its_own() -> None:
    shard = Piece("images/train-0.parquet", parquet(IMAGES))
    assert scan(artefact(shard, kind="dataset", may_hold=EVERYTHING)) == []
    assert {ROWS, ID, NOTE, PICTURE} <= {leak.what for leak in scan(artefact(shard, kind="dataset"))}
    assert {ROWS, ID, NOTE, PICTURE} <= {leak.what for leak in scan(artefact(shard, may_hold=EVERYTHING))}  # a model
    for content in (REPORT, "p10025275", SMALL_TALK):  # never in its card
        assert found("README.md", content, kind="dataset", may_hold=EVERYTHING)


@pytest.mark.parametrize("text", [TOKEN, PATH])
def test_secrets_and_paths_are_looked_for_in_open_datasets_too(text: str) -> None:
    for table in (
        pa.table({"text": ["fine", f"{REPORT} {text}"]}),
        pa.table({"image": [{"bytes": JPEG + f"comment {text} ".encode(), "path": "x"}]}),
        pa.table({"x": [1]}).replace_schema_metadata({"made": text}),
    ):
        assert len(found("a.parquet", parquet(table), kind="dataset", may_hold=EVERYTHING)) == 1
    packed = pa.table({"image": [{"bytes": b"PK\x03\x04" + b"\0" * 50, "path": "x"}]})
    assert found("a.parquet", parquet(packed), kind="dataset", may_hold=EVERYTHING) == [ARCHIVE]


def test_a_recipe_is_ids_and_splits_alone() -> None:
    def recipe(path: str, content: bytes | str) -> list[str]:
        return found(path, content, kind="dataset", may_hold=RECIPE)

    assert recipe("ids/test.parquet", parquet(IDS)) == []
    assert recipe("ids/test.csv", "image_id,patient_id,split\ni-000001,10025275,test\n") == []
    assert recipe("attrition.parquet", parquet(pa.table({"step": ["all"], "images": [3], "note": ["x"]}))) == []
    assert recipe("recipe.json", json.dumps({"dataset": "m", "ids": ["i-000001"]})) == []
    labelled = IDS.append_column("edema", pa.array([1], pa.int8()))
    assert recipe("ids/test.parquet", parquet(labelled)) == ["more than a recipe holds"]
    assert recipe("labels.parquet", parquet(pa.table({"edema": [1]}))) == ["more than a recipe holds"]
    assert recipe("ids/test.csv", "image_id,edema\ni-000001,1\n") == ["more than a recipe holds"]
    assert recipe("labels.csv", "edema,fracture\n1,0\n") == ["more than a recipe holds"]
    assert recipe("a.jsonl", json.dumps({"image_id": "i-000001", "edema": 1})) == ["more than a recipe holds"]
    assert recipe("ids/test.parquet", parquet(IDS.set_column(1, "study_id", pa.array([SMALL_TALK])))) == [NOTE]
    assert recipe("ids/test.parquet", parquet(IDS.set_column(1, "study_id", pa.array([REPORT])))) == [NOTE]
    assert PICTURE in recipe("ids/test.parquet", parquet(IMAGES))
    assert ID in recipe("README.md", "see 10025275")
    assert NOTE in recipe("recipe.json", json.dumps({"x": STAY}))


def test_few_leaks_of_a_kind_are_told_of_one_file() -> None:
    table = pa.table({"text": [f"{REPORT} {at}" for at in range(3_000)]})
    assert found("a.parquet", parquet(table)) == [NOTE] * 3


def test_a_key_that_hides_another() -> None:
    assert found("a.json", f'{{"x": {json.dumps(SMALL_TALK)}, "x": "fine"}}', known=Known()) == [UNREADABLE]


def test_files_nested_without_end() -> None:
    assert TOKEN not in json.dumps(found("a.json", "[" * 100_000 + json.dumps(TOKEN) + "]" * 100_000))
    assert found("a.json", "[" * 100_000 + json.dumps(TOKEN) + "]" * 100_000)
    assert found("a.json", "[" * 500 + "]" * 500) in ([], [UNREADABLE])
