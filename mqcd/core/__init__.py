"""What mail is and what may happen to it: model, statuses, replies, schedule, errors, ports.

Pure: values in, values out. Nothing here performs IO, runs a loop or reads a clock. Imports nothing of mqcd.
"""
