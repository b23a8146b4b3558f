"""Images and labels of CheXpert, with race and ethnicity where the demographic file is there, as a `datasets` builder.

`cxrhf build chexpert` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import Chexpert

__all__ = ["Chexpert"]
