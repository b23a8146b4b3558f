"""Speed claims, each measured against the peer in one run: `make bench`."""
