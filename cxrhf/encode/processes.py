"""One process or several -> who is the first, what the others must know, and when all are done.

Several processes are those that `torchrun` and `accelerate launch` start. They talk over gloo, also beside GPUs: what
they tell each other is a few bytes, and the vectors go through files.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from cxrhf.errors import CxrhfError, CxrhfWarning, RunError
from cxrhf.tables.folders import one_writer

Progress = bool | Callable[[str], None]


Result = TypeVar("Result")

_PATIENCE = timedelta(days=7)  # the slowest process may need hours more than the others
_GROUP: list[Any] = []  # the one gloo group of this process, made on first use


def n_processes() -> int:
    """Processes that a launcher started; 1 without one. `accelerate launch --cpu` starts one whatever its number."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def missing_processes() -> bool:
    """Whether `accelerate launch` was asked for several processes and started one.

    It names the address of a first process only where there are to be several, and gives each a rank where it starts
    several.
    """
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_ADDR" in os.environ
    return launched and "LOCAL_RANK" not in os.environ


def rank() -> int:
    """Number of this process among them."""
    return int(os.environ.get("RANK", "0")) if n_processes() > 1 else 0


def main_process() -> bool:
    """True in the one process that goes on after encoding, prints and writes. Needs no torch."""
    return rank() == 0


def device_of_process(kind: str) -> str:
    """Each process of a machine takes a GPU of its own."""
    if kind != "cuda" or n_processes() == 1:
        return kind
    import torch

    return f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"


def barrier() -> None:
    """Wait until all processes are here."""
    if n_processes() > 1:
        import torch

        torch.distributed.barrier(group=_group())


def broadcast_bytes(data: bytes) -> bytes:
    """The first process's bytes, in every process."""
    if n_processes() == 1:
        return data
    import numpy as np
    import torch

    group = _group()
    size = torch.tensor([len(data)], dtype=torch.int64)
    torch.distributed.broadcast(size, 0, group=group)
    sent = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).copy()) if main_process() else None
    told = torch.empty(int(size), dtype=torch.uint8) if sent is None else sent
    if len(told):
        torch.distributed.broadcast(told, 0, group=group)
    return told.numpy().tobytes()


def all_agree(data: bytes) -> bool:
    """Do all processes hold the same bytes? Every one hears the same answer."""
    if n_processes() == 1:
        return True
    import torch

    same = torch.tensor([int(broadcast_bytes(data) == data)])
    torch.distributed.all_reduce(same, torch.distributed.ReduceOp.MIN, group=_group())
    return bool(same.item())


def call_first(call: Callable[[], Result]) -> Result:
    """Call in the first process, then in the others: what it fetched, they find. Its error is everybody's."""
    if n_processes() == 1:
        return call()
    said, result, error = "", None, None
    if main_process():
        try:
            result = call()
        except CxrhfError as wrong:
            error, said = wrong, str(wrong)
    said = broadcast_bytes(said.encode()).decode()
    if error is not None:
        raise error
    if said:
        raise CxrhfError(said)
    return result if result is not None else call()


@contextlib.contextmanager
def one_writer_of_all(folder: str | Path, verb: str, join: Callable[[], object] = lambda: None) -> Iterator[None]:
    """`one_writer` for all processes of a launch: the first holds the folder, and what it is refused, all are refused.

    `join` is called where there are several, before they talk: it makes the Accelerator, which decides how they do.
    """
    with contextlib.ExitStack() as held:

        def hold() -> bool:
            if main_process():
                try:
                    held.enter_context(one_writer(folder, verb))
                except OSError as error:  # the others wait for a word, whatever happens
                    raise RunError(
                        f"cannot write {folder} ({error.strerror or error})",
                        next_step="check its permissions and the free disk space",
                    ) from error
            return True

        if n_processes() > 1:
            join()
        call_first(hold)
        yield


def _group() -> Any:
    if not _GROUP:
        import torch
        from accelerate import PartialState

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the number of threads that accelerate chooses
            PartialState(cpu=not torch.cuda.is_available())
        _GROUP.append(torch.distributed.new_group(backend="gloo", timeout=_PATIENCE))
        leave_at_exit()
    return _GROUP[0]


def leave_at_exit() -> None:
    """Take leave of the other processes before Python ends, however it ends.

    Threads of a group that is still open when the interpreter is taken down end the process with an abort, now and
    then, after all work was done and well.
    """
    if n_processes() > 1:
        atexit.unregister(_leave)
        atexit.register(_leave)


def _leave() -> None:
    import torch

    _GROUP.clear()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


# Notes done -> a bar, or a line every few seconds: notes per second and time left.

EVERY = 3.0  # seconds between lines


class Clock:
    """Counts notes and work (characters); time left goes by work, for the longest notes come first."""

    def __init__(self, name: str, notes: int, work: int, progress: Progress, what: str = "notes") -> None:
        self.name, self.notes, self.work, self.what = name, notes, max(work, 1), what
        self.say = progress if callable(progress) and main_process() else None
        self.done_notes = 0
        self.done_work = 0.0
        self.start = self.told = time.monotonic()
        self.bar: Any = None
        if progress is True and main_process():
            from tqdm import tqdm

            form = f"{{desc}}: {{percentage:3.0f}}%|{{bar}}| {{n_fmt}} of {{total_fmt}} {what}{{postfix}}"
            self.bar = tqdm(total=notes, desc=name, bar_format=form)

    def advance(self, work: float, notes: int = 0) -> None:
        """Some characters were read, some notes finished."""
        self.done_work += work
        self.done_notes += notes
        now = time.monotonic()
        if self.bar is not None:
            self.bar.set_postfix_str(self._speed(now), refresh=False)
            self.bar.update(notes)
        if self.say is not None and now - self.told >= EVERY:
            self.told = now
            share = min(self.done_work / self.work, 1.0)
            self.say(f"{self.name}: {share:.0%} of {self.notes:,} {self.what}{_process_suffix()}, {self._speed(now)}")

    def close(self) -> None:
        """The last line: what it took."""
        if self.bar is not None:
            self.bar.close()
        if self.say is not None and self.notes:
            seconds = time.monotonic() - self.start
            speed = self.done_notes / max(seconds, 1e-9)
            took = f"in {_time(seconds)}, {speed:.3g} {self.what}/s"
            self.say(f"{self.name}: {self.done_notes:,} {self.what}{_process_suffix()} {took}")

    def _speed(self, now: float) -> str:
        seconds = max(now - self.start, 1e-9)
        left = seconds * (self.work - self.done_work) / max(self.done_work, 1e-9)
        notes = self.notes * self.done_work / self.work  # finished ones come in blocks
        return f"{notes / seconds:.3g} {self.what}/s, {_time(max(left, 0.0))} left"


def remark(text: str) -> None:
    """What a reader should know and a line of progress would wipe away: a warning, from one process."""
    if main_process():
        warnings.warn(text, CxrhfWarning, stacklevel=3)


def _process_suffix() -> str:
    return f" (process 1 of {n_processes()})" if n_processes() > 1 else ""


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
