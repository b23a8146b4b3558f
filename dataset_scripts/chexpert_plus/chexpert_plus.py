"""Images, report sections, labels and demographics of CheXpert Plus, as a `datasets` builder.

`cxrhf build chexpert_plus` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.hf import builder_base


class ChexpertPlus(builder_base()):
    """CheXpert Plus. Settings are those of the command: root, labels, views, split, seed and so on."""

    DATASET = "chexpert_plus"
