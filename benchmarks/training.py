"""Training against a bare PyTorch loop: speed of a step, augmentation, what the loader delivers, memory at its peak.

Both train the same network on the same pictures in memory, with AdamW, on the CPU, its weights laid out alike (colours
last, as our training lays them; else its gain would hide what the loop costs; a row of its own shows the gain). Without
augmentation they see the same batches, and must lose the same. Steps are measured in turn (turns.py), so that making
networks and starting workers is not in them. (Whole trainings one after the other gave ratios between .93 and 1.0.)
Ours carries its share of a checkpoint as well, one in 500 steps as trainings write them; the bare loop writes none and
keeps no history. Beside augmentation, workers of one side read ahead while the other has its turn. The bare side
imports nothing of ours: it is also run alone, in a process of its own, for its memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.rows import Row, row
from benchmarks.turns import FIRST, Training, in_turn, middle, steps_of

# A step this short is the worst case for what a loop does around it: networks of use take ten times as long.
BACKBONE, SIDE, BATCH, LABELS = "resnet18", 64, 64, 14
STEPS = 65  # losses are looked at every 20 steps; the last step ends with a checkpoint and is not timed
SHORT_STEPS, LOOP_STEPS = 40, 800
ROUNDS = 5  # of the loaders
MEMORY_STEPS = 6
SAVE_EVERY = 500  # steps between checkpoints, the default of a training
RATE, DECAY = 1e-3, 0.01
FLIP, ROTATION, SCALE = 0.5, 15.0, 0.1
PICTURES, COPIES = 4, 64  # stored pictures, and how often each stands in the shards
READ_AT, READ_BATCHES = 224, 10
TARGET, LARGEST = 0.95, 1.15

Data = tuple[torch.Tensor, torch.Tensor]
_CHILD = "from benchmarks.training import memory_of; memory_of({!r})"


def drawn(steps: int) -> Data:
    """Grey levels, and labels of which every fifth is unknown (-1): whole batches for so many steps."""
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (steps * BATCH, 1, SIDE, SIDE), dtype=np.uint8)
    target = rng.choice(np.array([-1, 0, 1], dtype=np.int8), (steps * BATCH, LABELS), p=[0.2, 0.6, 0.2])
    return torch.from_numpy(grey), torch.from_numpy(target)


def bare_loop(model: torch.nn.Module, batches: Iterable[Data], *, plain: bool = False) -> list[torch.Tensor]:
    """The peer: what one writes first; but for `plain`, with weights laid out as ours. Its losses."""
    if not plain:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    model.train()
    losses = []
    for grey, target in batches:
        pixels = grey.float().mul_(1 / 127.5).sub_(1)
        known = target >= 0
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            model(pixels), target.clamp(min=0).float(), reduction="none"
        )
        loss = (each * known).sum() / known.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


class Turned(Dataset[Data]):
    """Pictures of the peer, each through torchvision's transforms when it is asked for."""

    def __init__(self, data: Data) -> None:
        from torchvision.transforms import InterpolationMode, v2

        self.grey, self.target = data
        self.steps = v2.Compose(
            [
                v2.RandomHorizontalFlip(FLIP),
                v2.RandomAffine(ROTATION, scale=(1 - SCALE, 1 + SCALE), interpolation=InterpolationMode.BILINEAR),
            ]
        )

    def __len__(self) -> int:
        return len(self.grey)

    def __getitem__(self, row: int) -> Data:
        return self.steps(self.grey[row]), self.target[row]


def ours(model: torch.nn.Module, data: Data, folder: Path, **settings: Any) -> None:
    """A training of one epoch into a folder."""
    from cxrhf.models.data import Task
    from cxrhf.models.processes import make_accelerator
    from cxrhf.models.settings import TrainConfig
    from cxrhf.models.train import Material, fit

    grey, target = data
    config = TrainConfig(
        "build", backbone=BACKBONE, weights="random", channels=1, pixels="half", size=SIDE, batch_size=BATCH, epochs=1,
        optimizer="adamw", learning_rate=RATE, weight_decay=DECAY, device="cpu", save_every=10**6, **settings,
    )  # fmt: skip
    task = Task("findings", "labels", tuple(f"finding_{number}" for number in range(LABELS)))
    fit(
        model, Material(ids_of(grey), squares_of(grey), target.numpy(), [task]), config, seed=0,
        accelerator=make_accelerator(device="cpu"), folder=folder / "checkpoints", history=folder / "history.jsonl",
        key="benchmark", progress=lambda _: None,
    )  # fmt: skip


def squares_of(grey: torch.Tensor) -> Any:
    """Pictures as a training holds them that has read them all."""
    from cxrhf.models.data import Look, Squares

    return Squares(grey.numpy()[:, 0], Look(SIDE, "crop", "half", 1), kept=grey)


def ids_of(grey: torch.Tensor) -> list[str]:
    return [f"image-{row}" for row in range(len(grey))]


def both(data: Data, folder: Path, peer: Iterable[Data], **settings: Any) -> dict[str, Training]:
    """Our training and the bare loop, ready to be run."""

    def trained(network: torch.nn.Module) -> list[float]:
        with tempfile.TemporaryDirectory(dir=folder) as out:
            ours(network, data, Path(out), **settings)
            return _losses(Path(out) / "history.jsonl")

    return {"ours": trained, "bare": lambda network: [float(each) for each in bare_loop(network, peer)]}


class Ordered:
    """Our batches, for the peer: the same rows at the same step."""

    def __init__(self, data: Data) -> None:
        from cxrhf.models.data import Plan

        plan = Plan(ids_of(data[0]), 0, BATCH)
        self.grey, self.target = data
        self.order = [torch.from_numpy(step.rows) for step in plan.steps(1, plan.steps_per_epoch)]

    def __iter__(self) -> Iterator[Data]:
        return ((self.grey[rows], self.target[rows]) for rows in self.order)


def new_network() -> torch.nn.Module:
    import timm

    model: torch.nn.Module = timm.create_model(BACKBONE, in_chans=1, num_classes=LABELS)
    return model


def run() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="cxrhf-training-") as name:
        folder = Path(name)
        found, step = _steps(folder)
        yield from found
        yield _loop(folder, step)
        yield _augmented(folder, step)
        yield _memory()


def _steps(folder: Path) -> tuple[list[Row], float]:
    """Steps of both loops with the loader between them; and the seconds of a step of ours."""
    data = drawn(STEPS)
    kept, shards, about = _loaders(data, folder)
    order = Ordered(data)

    def plain(network: torch.nn.Module) -> list[float]:
        return [float(each) for each in bare_loop(network, order, plain=True)]

    found = in_turn(new_network(), {**both(data, folder, order), "plain": plain})
    _same(found["ours"].losses, found["bare"].losses)
    (step, bare, usual), said = steps_of(found, "ours", "bare", "plain")
    checkpoint = found["ours"].after
    whole = step + checkpoint / SAVE_EVERY
    share = 100 * checkpoint / SAVE_EVERY / step
    from_memory, from_shards = (middle(read() for _ in range(ROUNDS)) for read in (kept, shards))
    needed = f"the step above needs {BATCH / step:.0f}"
    return [
        row(f"training, {BACKBONE} at {SIDE} px, batch {BATCH}: a step", whole, bare,
            f"{BATCH / whole:.0f} images/s, bare PyTorch {BATCH / bare:.0f}, {torch.get_num_threads()} threads; "
            f"{said}; ours with 1/{SAVE_EVERY} of its checkpoint of {checkpoint:.2f} s ({share:.1f}%), peer without",
            target=TARGET),
        row("the same, peer's weights laid out as torch does", whole, usual,
            f"bare PyTorch {BATCH / usual:.0f} images/s; {BATCH / bare:.0f} with colours last, as above and as ours"),
        row("loader, images in memory: delivered over needed", from_memory, step,
            f"a batch of {BATCH}: {BATCH / from_memory:,.0f} images/s, {needed}", target=1.0),
        row("loader, images from shards: delivered over needed", from_shards, step,
            f"a batch of {BATCH}: {BATCH / from_shards:,.0f} images/s, {needed}; {about}", target=1.0),
    ], step  # fmt: skip


def _loop(folder: Path, plain: float) -> Row:
    """What the loop costs around a step, seen where there is next to no network."""
    layer = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIDE * SIDE, LABELS))
    data = drawn(LOOP_STEPS)
    found = in_turn(layer, both(data, folder, Ordered(data)))
    (step, bare), said = steps_of(found, "ours", "bare")
    more = step - bare
    return row("the loop alone, around one linear layer: a step", step, bare,
               f"{1000 * more:.2f} ms more than the bare loop, {100 * more / plain:.1f}% of a step of {BACKBONE}; "
               f"without checkpoints; {said}")  # fmt: skip


def _augmented(folder: Path, plain: float) -> Row:
    """Flip, rotation and scale on both sides, with as many workers as ours takes."""
    from cxrhf.models.data import Augment, n_workers

    data = drawn(SHORT_STEPS)
    changes = {"flip": FLIP, "rotation": ROTATION, "scale": SCALE}
    workers = n_workers(None, squares_of(data[0]), Augment(**changes), gpu=False, processes=1)
    loader = DataLoader(Turned(data), BATCH, shuffle=True, num_workers=workers)
    found = in_turn(new_network(), both(data, folder, loader, **changes))
    (step, bare), said = steps_of(found, "ours", "bare")
    return row(f"training with flip, rotation {ROTATION:g}, scale {SCALE:g}: a step", step, bare,
               f"peer: torchvision's transforms, one image at a time in a DataLoader; workers on both sides: "
               f"{workers}; {step / plain:.2f} times our step without; {said}")  # fmt: skip


def _memory() -> Row:
    """Peak memory of a process that trains and does nothing else, of each side."""
    seconds, peak = {}, {}
    for side in ("ours", "bare"):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", _CHILD.format(side)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr or f"the separate training of {side} ended with {done.returncode}")
        seconds[side], peak[side] = time.perf_counter() - start, float(done.stdout.split()[-1])
    note = (
        f"the ratio is of memory: ours {peak['ours']:,.0f} MB with a checkpoint, bare PyTorch {peak['bare']:,.0f} MB; "
        f"separate processes, {MEMORY_STEPS} steps, imports included"
    )
    return row(f"training, {BACKBONE}: memory at its peak", seconds["ours"], seconds["bare"], note,
               ratio=peak["ours"] / peak["bare"], target=LARGEST, at_most=True)  # fmt: skip


def memory_of(side: str) -> None:
    """Train in this process and print its peak in MB. Linux keeps the peak, from the start of the program on."""
    data = drawn(MEMORY_STEPS)
    if side == "ours":
        with tempfile.TemporaryDirectory(prefix="cxrhf-training-") as out:
            ours(new_network(), data, Path(out))
    else:
        bare_loop(new_network(), zip(data[0].split(BATCH), data[1].split(BATCH), strict=True))
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024)


def _loaders(data: Data, folder: Path) -> tuple[Callable[[], float], Callable[[], float], str]:
    """Seconds of a batch from memory, and from 512-pixel JPEG in shards, decoded and resized by workers."""
    from PIL import Image

    from benchmarks import images
    from cxrhf.data.images import stored
    from cxrhf.data.shards import open_shards
    from cxrhf.models.data import Augment, Look, Plan, Squares, n_workers, read_batches

    small = []
    for number in range(PICTURES):
        path = folder / f"{number}.jpg"
        Image.fromarray(images.original(number)).save(path, quality=90)
        small.append(folder / f"small{number}.jpg")
        small[-1].write_bytes(stored(path, images.SIZE))
    images.write_pictures(small * COPIES, folder / "shards", 1)
    kept = squares_of(data[0])
    shards = Squares(open_shards(folder / "shards"), Look(READ_AT, "crop", "half", 1))
    workers = n_workers(None, shards, Augment(), gpu=False, processes=1)
    kilobytes = sum(path.stat().st_size for path in small) / PICTURES / 1e3

    def timed(squares: Squares, n: int, steps: int, workers: int) -> float:
        """From the first batch, so that the start of workers is not in it."""
        plan = Plan([str(row) for row in range(n)], 0, BATCH)
        batches = read_batches(plan.asks(1, steps, Augment()), squares, workers=workers)
        next(batches)
        start = time.perf_counter()
        count = sum(1 for _ in batches)
        return (time.perf_counter() - start) / count

    about = f"{kilobytes:.0f} KB JPEG of {images.SIZE} px read at {READ_AT}; workers, as beside a CPU: {workers}"
    return (
        lambda: timed(kept, len(data[0]), 10 * STEPS, 0),
        lambda: timed(shards, PICTURES * COPIES, READ_BATCHES, workers),
        about,
    )


def _losses(history: Path) -> list[float]:
    from cxrhf.models.loop import read_history

    return [line["loss"] for line in read_history(history) if "loss" in line]


def _same(mine: list[float], theirs: list[float]) -> None:
    """The first losses: later ones drift apart by rounding alone."""
    difference = max(abs(one - other) for one, other in zip(mine[:FIRST], theirs[:FIRST], strict=True))
    if difference > 1e-3 or len(mine) != len(theirs):
        raise RuntimeError(
            f"the peer and we train differently (losses by {difference:.2g}); the comparison means nothing"
        )
