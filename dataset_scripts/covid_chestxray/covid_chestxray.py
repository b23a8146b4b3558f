"""An open set with images, days and clinical notes: prior notes without credentials, as a `datasets` builder.

`cxrhf build covid_chestxray` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import CovidChestxray

__all__ = ["CovidChestxray"]
