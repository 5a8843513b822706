"""Mail back: a bounce becomes one RFC 3464 report; a report that fails becomes nothing."""
