"""Queue stores besides the clustered files, behind the same port and the same contract suite.

Imports core.
"""
