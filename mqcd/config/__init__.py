"""From an XML file to frozen settings, or to every error in it at once.

The only package that knows lxml; all others see plain, checked values. Imports core.
"""
