"""What lies beside the predictions of a run (vectors, attributes, pictures) -> what audits of representations need.

material.py reads the tables, sheets.py writes labelling sheets and reads them back, terms.py says what of the patients
may stand in a page, gallery.py makes thumbnails where it may.
"""
