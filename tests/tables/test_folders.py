"""One writer a folder: across processes and threads, released by a kill, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cxrhf.errors import RunError
from cxrhf.tables.folders import one_writer

HOLD = """
import sys, time
from cxrhf.tables.folders import one_writer
with one_writer(sys.argv[1], "train"):
    print("held", flush=True)
    time.sleep(60)
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    process = _holder(tmp_path / "run")
    try:
        with pytest.raises(RunError) as caught, one_writer(tmp_path / "run", "audit"):
            pass
        assert f"cxrhf train, process {process.pid}" in str(caught.value)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with one_writer(tmp_path / "run", "audit"):  # a killed process keeps nothing
        pass
    assert os.listdir(tmp_path) == []


def test_held_again_by_the_same_thread_and_refused_to_another(tmp_path: Path) -> None:
    refused = []

    def other() -> None:
        try:
            with one_writer(tmp_path / "run", "audit"):
                pass
        except RunError as error:
            refused.append(error)

    with one_writer(tmp_path / "run", "audit"), one_writer(tmp_path / "." / "run", "audit"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert os.listdir(tmp_path) == []


def test_two_spellings_of_a_folder_are_one(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    process = _holder(tmp_path / "link")
    try:
        with pytest.raises(RunError), one_writer(tmp_path / "run", "audit"):
            pass
    finally:
        process.kill()
        process.wait()
