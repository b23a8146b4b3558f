"""An open set with images, days and clinical notes: prior notes without credentials, as a `datasets` builder.

`cxrhf build covid_chestxray` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.hf import builder_base


class CovidChestxray(builder_base()):
    """COVID-19 image data collection. Settings are those of the command: root, labels, views, split, seed and so on."""

    DATASET = "covid_chestxray"
