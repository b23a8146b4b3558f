"""Images, report sections, labels and demographics of CheXpert Plus, as a `datasets` builder.

`cxrhf build chexpert_plus` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import ChexpertPlus

__all__ = ["ChexpertPlus"]
