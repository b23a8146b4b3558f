"""Images, labels and prior discharge notes of MIMIC-CXR-JPG, MIMIC-IV and MIMIC-IV-Note, as a `datasets` builder.

`cxrhf build mimic_cxr_context` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.hf import builder_base


class MimicCxrContext(builder_base()):
    """MIMIC-CXR with prior notes. Settings are those of the command: root, labels, views, split, seed and so on."""

    DATASET = "mimic_cxr_context"
