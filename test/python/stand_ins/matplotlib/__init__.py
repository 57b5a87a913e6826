"""Stands in for matplotlib where it is not installed: what the tutorials' scripts draw, as plain pictures."""
