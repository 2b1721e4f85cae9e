"""Environments and estimators inside other trainers: `vpo_agent.adapters.trl`, `.verl` and `.prime_rl`.

Nothing is imported here, because each adapter needs the package of its trainer.
"""
