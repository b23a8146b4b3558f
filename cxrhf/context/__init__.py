"""Prior notes -> what was known before the image: mentions of findings and a pre-test probability.

phrases and mentions (does a note name the finding), words, ridge and bow (the pre-test probability), note_files (notes
of a file), prior (which notes are earlier than which image), join (onto PREDICTION rows).
"""
