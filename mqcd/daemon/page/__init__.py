"""The page's process: started and watched by the server, or run by hand.

It imports mqcd.page, which it is the composition root of, and nothing of the mail server's parts.
"""
