"""Thin entry points: each parses its arguments, calls the packages, prints, and returns an exit code."""
