"""Values of sex, race and view that are no group of their own: who has one of them is in no group."""

NO_VALUE = ("", "unknown", "other", "unable to obtain", "patient declined to answer")  # lower-cased
