"""What is longer than its place on the screen."""

from __future__ import annotations

from textual.scroll_view import ScrollView


class Scrolled(ScrollView, can_focus=True):
    """Its scrollbar stands where the text does, also when it appears after the text has moved."""

    def watch_show_vertical_scrollbar(self, is_shown: bool) -> None:
        if is_shown:  # Textual tells a scrollbar only of moves that it is there for
            self.vertical_scrollbar.position = self.scroll_y
