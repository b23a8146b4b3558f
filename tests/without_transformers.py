"""Import this before evaluate, or put its text before a program: transformers cannot be found.

evaluate imports it when it is there, with torch: five seconds a process, for a part of evaluate that no module uses.
"""

from __future__ import annotations

import sys


class Without:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "transformers":
            raise ModuleNotFoundError(name, name=name)


sys.meta_path.insert(0, Without())  # type: ignore[arg-type]
