"""Language-model backbones and the layers round one call. `stack.py` says the order of the layers and why."""
