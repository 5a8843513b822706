"""Mail out: where a recipient goes, when its turn comes, and what the next hop said.

Decisions are pure (`routing`, `scheduling`, `dialogue`, `replies`, `stuffing`); agents perform them
(`router`, `session`, `settling`, `deliverer`). A remote refusal is a value that ends in a verdict.
"""
