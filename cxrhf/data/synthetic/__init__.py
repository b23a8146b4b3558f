"""Layout and size -> the files of a published dataset with invented patients, and what is planted in them."""
