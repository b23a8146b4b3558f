"""A build and settings -> models that write reports, their GENERATION rows, and SCORE rows of single reports."""
