"""Images and labels of NIH ChestX-ray14, with chest drain annotations where they are there, as a `datasets` builder.

`cxrhf build nih_chestxray14` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.hf import builder_base


class NihChestxray14(builder_base()):
    """NIH ChestX-ray14. Settings are those of the command: root, labels, views, split, seed and so on."""

    DATASET = "nih_chestxray14"
