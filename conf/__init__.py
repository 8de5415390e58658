"""Hydra configuration of the bench: one group per axis, `experiment/` has one file per table row or figure."""
