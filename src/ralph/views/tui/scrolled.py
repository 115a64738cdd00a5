"""The base of views that scroll."""

from __future__ import annotations

from textual.scroll_view import ScrollView


class Scrolled(ScrollView, can_focus=True):
    """Keeps the scrollbar in step with the text, even if it appears after the text has scrolled."""

    def watch_show_vertical_scrollbar(self, is_shown: bool) -> None:
        if is_shown:  # Textual updates a scrollbar only while it is shown
            self.vertical_scrollbar.position = self.scroll_y
