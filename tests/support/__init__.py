"""Helpers shared by the tests: scripted backends, small conversations."""
