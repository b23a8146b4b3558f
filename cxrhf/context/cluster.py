"""The address of a Dask scheduler -> joblib fits classifiers there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cxrhf.errors import ConfigError

PATIENCE = 20  # seconds


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Within it joblib's work goes to the cluster; without an address to whatever the caller has set."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
        from joblib import parallel_config
    except ImportError:
        raise ConfigError(
            "--dask requires the packages dask and distributed", next_step="pip install 'cxrhf[cluster]'"
        ) from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--dask: no scheduler answers at {address} ({type(error).__name__})",
            next_step="start one with `dask scheduler`, then `dask worker ADDRESS` on each machine",
        ) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()
        raise ConfigError(
            f"--dask: the scheduler at {address} has no workers", next_step=f"start some with `dask worker {address}`"
        ) from None
    with client, parallel_config(backend="dask"):
        yield
