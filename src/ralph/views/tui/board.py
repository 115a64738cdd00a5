"""Swimlanes: cards in lanes by status. An empty lane is only as wide as its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ralph.views.lines import one_line
from ralph.views.tui.colours import STATES, ground
from ralph.views.tui.feed import Card
from ralph.views.tui.strips import Piece, fitted, strip_of

_LEAST, _MOST = 17, 44
"""Minimum and maximum width of a lane with cards, in columns."""

_ROOMY = 36
"""Screen height from which a card takes two lines and a blank one; on lower screens it takes one."""


class BoardView(Widget, can_focus=True):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "lane(-1)", "Lane left", show=False),
        Binding("right,l", "lane(1)", "Lane right", show=False),
        Binding("up,k", "card(-1)", "Up", show=False),
        Binding("down,j", "card(1)", "Down", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """A card was opened."""

        board: BoardView
        id: str

        @property
        def control(self) -> BoardView:
            return self.board

    def __init__(self, lanes: Sequence[str], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lanes: dict[str, list[Card]] = {lane: [] for lane in lanes}
        self._lane = 0
        self._at = 0

    # ---- cards ----

    def set_cards(self, cards: Sequence[Card]) -> None:
        lanes: dict[str, list[Card]] = {lane: [] for lane in self._lanes}
        for card in cards:
            lanes.setdefault(card.lane, []).append(card)
        if lanes == self._lanes:
            return
        chosen = self.card
        self._lanes = lanes
        self._find(chosen)
        self.refresh()

    def _find(self, chosen: Card | None) -> None:
        """Keep the cursor on its card, even if the card has moved to another lane."""
        for number, cards in enumerate(self._lanes.values()):
            for at, card in enumerate(cards):
                if chosen is not None and card.id == chosen.id:
                    self._lane, self._at = number, at
                    return
        if not self._cards:
            self._lane = next((n for n, cards in enumerate(self._lanes.values()) if cards), 0)
        self._at = max(0, min(self._at, len(self._cards) - 1))

    @property
    def _cards(self) -> list[Card]:
        return list(self._lanes.values())[self._lane]

    @property
    def card(self) -> Card | None:
        """The card under the cursor."""
        return self._cards[self._at] if self._at < len(self._cards) else None

    # ---- moving ----

    def action_lane(self, by: int) -> None:
        filled = [number for number, cards in enumerate(self._lanes.values()) if cards]
        beyond = [number for number in filled if (number - self._lane) * by > 0]
        if beyond:
            self._lane = beyond[0] if by > 0 else beyond[-1]
            self._at = min(self._at, len(self._cards) - 1)
            self.refresh()

    def action_card(self, by: int) -> None:
        self._at = max(0, min(self._at + by, len(self._cards) - 1))
        self.refresh()

    def action_choose(self) -> None:
        if self.card is not None:
            self.post_message(self.Chosen(self, self.card.id))

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if place is None:
            return
        left = 0
        for lane, width in self._shown():
            if left <= place.x < left + width:
                number, at = list(self._lanes).index(lane), self._top(lane) + (place.y - 1) // self._height
                if place.y > 0 and at < len(self._lanes[lane]):
                    is_again = (number, at) == (self._lane, self._at)
                    self._lane, self._at = number, at
                    self.refresh()
                    if is_again or event.chain > 1:
                        self.action_choose()
            left += width

    # ---- drawing ----

    @property
    def _height(self) -> int:
        """Lines per card."""
        return 3 if self.screen.size.height >= _ROOMY else 1

    @property
    def lines_needed(self) -> int:
        """Lines needed to show every card."""
        return 1 + self._height * max(len(cards) for cards in self._lanes.values())

    def _widths(self) -> dict[str, int]:
        """Width of each lane: lanes with cards share the columns that empty lanes leave."""
        empty = {lane: len(lane) + 2 for lane, cards in self._lanes.items() if not cards}
        filled = [lane for lane, cards in self._lanes.items() if cards]
        room = self.size.width - sum(empty.values())
        if filled and room // len(filled) < _LEAST:  # too narrow: drop the empty lanes
            empty, room = {}, self.size.width
        each = max(_LEAST, min(_MOST, room // len(filled))) if filled else 0
        return {lane: empty.get(lane, each if lane in filled else 0) for lane in self._lanes}

    def _shown(self) -> list[tuple[str, int]]:
        """The lanes that fit on the screen in full, always including the one with the cursor."""
        widths = [(lane, width) for lane, width in self._widths().items() if width]
        on = list(self._lanes)[self._lane]
        while widths and sum(width for _, width in widths) > self.size.width:
            widths.pop(0 if on not in [lane for lane, _ in widths[: self._fitting(widths)]] else -1)
        return widths

    def _fitting(self, widths: Sequence[tuple[str, int]]) -> int:
        """Number of leading lanes that fit."""
        used = 0
        for number, (_, width) in enumerate(widths):
            used += width
            if used > self.size.width:
                return number
        return len(widths)

    def _top(self, lane: str) -> int:
        """Index of the first visible card of a lane."""
        room = max(1, (self.size.height - 1) // self._height)
        is_here = list(self._lanes).index(lane) == self._lane
        return max(0, self._at - room + 1) if is_here else 0

    def render_line(self, y: int) -> Strip:
        shown, width = self._shown(), self.size.width
        strips = [self._lane_line(lane, columns, y) for lane, columns in shown]
        line = (Strip.join(strips) if strips else Strip.blank(0)).adjust_cell_length(width, self.rich_style)
        if y == 0 and (beyond := self._beyond(shown)):
            mark = strip_of(self, [(beyond, "busy")], len(beyond), self.rich_style)
            line = Strip.join([line.crop(0, width - len(beyond)), mark])
        return line.crop(0, width)

    def _beyond(self, shown: Sequence[tuple[str, int]]) -> str:
        """Arrows towards lanes that are off the screen."""
        lanes, filled = [lane for lane, _ in shown], [lane for lane, cards in self._lanes.items() if cards]
        if not lanes or not filled:
            return ""
        before = "‹" if filled[0] not in lanes else ""
        return before + ("›" if filled[-1] not in lanes else "")

    def _lane_line(self, lane: str, width: int, y: int) -> Strip:
        cards, base = self._lanes[lane], self.rich_style
        if y == 0:
            words = (
                (f" {lane}", STATES.get(lane, "") if cards else "dim"),
                (f" {len(cards)}" if cards else "", "dim"),
            )
            return strip_of(self, words, width, base)
        number, line = divmod(y - 1, self._height)
        number += self._top(lane)
        if number >= len(cards):
            return Strip.blank(width, base)
        card = cards[number]
        is_last = y > self.size.height - 1 - self._height and number < len(cards) - 1
        is_cursor = list(self._lanes).index(lane) == self._lane and number == self._at
        if is_last and not is_cursor:
            text = f" … {len(cards) - number} more" if line == 0 else ""
            return strip_of(self, [(fitted(text, width), "dim")], width, base)
        if is_cursor and line < 2:
            base = base + ground(self, "cursor" if self.has_focus else "cursor-idle")
        return Strip.join(
            [
                strip_of(self, self._card_line(card, width - 1, line), width - 1, base),
                Strip.blank(1, self.rich_style),
            ]
        )

    def _card_line(self, card: Card, width: int, line: int) -> Iterator[Piece]:
        count, id, title = (
            " ".join(filter(None, [card.note, card.count])),
            one_line(card.id),
            one_line(card.title),
        )
        if line == 2:
            return
        yield (" ", "")
        room = width - 2
        if self._height == 1:
            head = f"{id} {title}"
            count = count if len(count) < room - 12 else card.count
            yield (fitted(head, room - len(count) - bool(count)), "")
        elif line == 0:
            count = count if len(count) + len(id) < room else card.count
            yield (fitted(id, room - len(count) - bool(count)), "bold")
        else:
            yield (fitted(title, room), "dim")
            return
        if count:
            yield (f" {count}", "accent")
