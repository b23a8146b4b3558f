"""A made-up MIMIC with drawn films, notes that predict labels and known answers, as a `datasets` builder.

`cxrhf build synthetic` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import Synthetic

__all__ = ["Synthetic"]
