"""The ops listener: a small HTTP server and its pages."""
