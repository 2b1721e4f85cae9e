"""A Hugging Face causal language model as the policy: loading, attention, packing, decoding."""
