"""The functions of cxrhf.metrics -> whether every example in their docstrings gives what is written there."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

from cxrhf.selfchecking.check import Check


def check(seed: int = 0) -> list[Check]:
    """Worked examples travel with the package, their answers beside them."""
    from cxrhf import metrics

    wrong, tried = list[str](), 0
    for each in pkgutil.iter_modules(metrics.__path__):
        module = importlib.import_module(f"cxrhf.metrics.{each.name}")
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner = doctest.DocTestRunner(verbose=False)
            runner.run(test, out=lambda _: None)
            tried += runner.tries
            wrong += [test.name.removeprefix("cxrhf.metrics.")] * bool(runner.failures)
    if not tried:  # python -OO
        return [Check("examples in docstrings", "as written", "no docstrings (python -OO)", False)]
    said = f"differs in {', '.join(wrong[:5])}" if wrong else "as written"
    return [Check(f"{tried} examples in docstrings", "as written", said, not wrong)]
