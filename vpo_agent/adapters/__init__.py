"""The environments and estimators inside other trainers: `vpo_agent.adapters.trl` and `vpo_agent.adapters.verl`.

Nothing is imported here, since each needs its trainer's own package.
"""
