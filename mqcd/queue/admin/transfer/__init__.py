"""Mail into a queue and out of it: imports of Mailismus and of .eml files, exports."""
