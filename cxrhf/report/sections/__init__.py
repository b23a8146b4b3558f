"""Numbers of one subject -> the sections of the page, one file each."""
