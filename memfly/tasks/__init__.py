"""One file per LLM task: typed input, typed output, prompt text, version."""
