"""Images and labels of NIH ChestX-ray14, with chest drain annotations where they are there, as a `datasets` builder.

`cxrhf build nih_chestxray14` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import NihChestxray14

__all__ = ["NihChestxray14"]
