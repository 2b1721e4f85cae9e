"""Environments and estimators inside other trainers: `vpo_agent.adapters.trl` and `.verl`.

Nothing is imported here, because each adapter needs the package of its trainer.
"""
