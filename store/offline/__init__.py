"""Reading a store folder that no broker of ours has open: what it is, what it holds, what ails it.

Nothing here writes, except `store.offline.rebuild`.
"""
