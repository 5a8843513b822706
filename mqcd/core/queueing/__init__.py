"""The life of a recipient record: its name, its schedule, and what verdicts and actions make of it. Pure."""
