"""`core.ports.QueueStore` over documents: one queue for every store that implements `stores.backend.Backend`.

May import `mqcd.stores.backend`, `mqcd.queue.format`, `mqcd.disk`, `mqcd.config` and `mqcd.core`.
"""
