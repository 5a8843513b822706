"""The server as a whole: its parts made, wired, started in order, reloaded and stopped in order.

A composition root: it joins doors, queue, delivery, reports and ops. (Of a program that embeds them,
`embed.assembly` joins queue, delivery and reports.) It imports nothing here: commands use single modules of
it, and shall start soon.
"""
