"""Environments inside other evaluators: `vpo_envs.adapters.inspect` and `vpo_envs.adapters.verifiers`.

Nothing is imported here, because each adapter needs the package of its evaluator.
"""
