"""The public benchmark: mqcd and other mail servers relay the same load from one source to one sink.

`python -m tests.bench.peers --help` names scenarios, peers and options.
"""
