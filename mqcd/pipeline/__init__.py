"""Analytics on Spark: tables of event log and queue.

Nothing here runs inside the server and nothing of the server imports it; it needs the extra `pipeline`
(`pip install 'mqcd[pipeline]'`) and Java 17 or later. It only reads what the server writes, and writes
below `%DIRVAR%/pipeline`.
"""
