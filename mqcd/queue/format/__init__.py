"""The octets of the queue: record lines, frames, segment headers, verdict notes, file names. Pure.

Decoders raise DecodeError and nothing else. Imports core.
"""
