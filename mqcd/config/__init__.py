"""From an XML file to frozen settings, or to every error in it at once.

The only package that knows lxml. Everyone else sees plain, checked values.
"""
