"""What an operator does to a queue as a whole: check it, mend it, take mail out of it and into it.

Checking and taking out read under a pin, with or without a running server. Mending and taking in need the
queue for themselves (`ownership`), and change it by one MANIFEST edit, as an evacuation does.
"""
