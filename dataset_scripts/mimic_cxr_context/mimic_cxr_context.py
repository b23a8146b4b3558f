"""Images, labels and prior discharge notes of MIMIC-CXR-JPG, MIMIC-IV and MIMIC-IV-Note, as a `datasets` builder.

`cxrhf build mimic_cxr_context` runs the same functions. README.md beside this file says which files are needed.
"""

from cxrhf.data.builders import MimicCxrContext

__all__ = ["MimicCxrContext"]
