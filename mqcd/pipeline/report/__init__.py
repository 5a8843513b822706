"""The report for people: one HTML file that needs nothing else, whatever strangers' replies contain.

`gather` asks the tables for figures, a bounded number of rows; `page` makes the file of them and is pure.
"""
