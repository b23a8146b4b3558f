"""Images and report sections of ReXGradient-160K, with sex, age and view, as a `datasets` builder.

`cxrhf build rexgradient` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import Rexgradient

__all__ = ["Rexgradient"]
