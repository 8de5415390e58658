"""MemFly, and what every method of the bench stands on. Importing it loads nothing heavy."""

VERSION = "0.1.0"

CODE_VERSION = 1
"""Raise it when a code change alters results anywhere below the harness: it is part of every run's and memory's hash."""
