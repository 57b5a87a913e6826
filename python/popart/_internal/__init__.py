"""Names below popart that programs import; see ir.py."""
