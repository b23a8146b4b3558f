"""Images and report sections of ReXGradient-160K, with sex, age and view, as a `datasets` builder.

`cxrhf build rexgradient` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.hf import builder_base


class Rexgradient(builder_base()):
    """ReXGradient-160K. Settings are those of the command: root, labels, views, split, seed and so on."""

    DATASET = "rexgradient"
