"""Analytics on Spark: what the event log and the queue's files tell, as tables.

Nothing here runs inside the server and nothing of the server imports it; it needs the extra `pipeline`
(`pip install 'mqcd[pipeline]'`) and Java 17 or later. It only reads what the server writes, and writes
below `%DIRVAR%/pipeline`.
"""
