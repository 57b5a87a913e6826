"""The package's pure-Python surface."""
