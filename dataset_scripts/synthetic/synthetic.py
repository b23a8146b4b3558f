"""A made-up MIMIC with drawn films, notes that predict labels and known answers, as a `datasets` builder.

`cxrhf build synthetic` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.hf import builder_base


class Synthetic(builder_base()):
    """Synthetic twin. Settings are those of the command: root, labels, views, split, seed and so on."""

    DATASET = "synthetic"
