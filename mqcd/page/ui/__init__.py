"""The page for people: HTML made here, no script or style inside it, nothing loaded from elsewhere."""

from mqcd.page.ui.routes import routes

__all__ = ["routes"]
