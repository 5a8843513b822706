"""Stores beside the clustered-file queue: the same queue over files, a database or an object store.

`stored_queue` is `core.ports.QueueStore` for all of them; a store itself is one module that implements
`backend.Backend`: it keeps documents. Each module names what it promises. Imports queue.format, disk, config
and core.
"""
