"""Operations on a whole queue: check, repair, export, import.

Checking and taking out read under a pin, with or without a running server. Mending and taking in need the
queue for themselves (`ownership`), and change it by one MANIFEST edit, as an evacuation does.
"""
