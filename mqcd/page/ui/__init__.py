"""The page for people: HTML made here, no script or style inside it, nothing loaded from elsewhere."""

from mqcd.page.ui.routes import nothing_here, routes

__all__ = ["nothing_here", "routes"]
