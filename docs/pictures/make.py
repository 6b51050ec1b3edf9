#!/usr/bin/env python3
"""Makes the pictures of the README from a real run of the demo.

    cargo build --release --workspace
    python3 docs/pictures/make.py [PROGRAM]

Needs Python 3.11 and tmux, nothing else. It opens `windlass demo` in a terminal of tmux, talks with
the model for a little more than a minute, and writes what the screens show then as overview.svg and chat.svg
beside this file. Frames and bars are drawn as shapes and every text is held to its columns, so that
the pictures look alike with any monospaced font.
"""

import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

COLUMNS, ROWS = 120, 34
# Seconds until something that is waited for must have come. The first time a model is downloaded.
PATIENCE = 600

# Seconds of talk before the overview is pictured, while an answer comes.
TALK = 75

# An answer is stopped after this many tokens: a small model may not find its end.
MOST_TOKENS = 160

# Asked in turn. The chat is pictured in the answer to the first.
QUESTIONS = [
    "How does it differ from a winch?",
    "Who turned the windlass of a sailing ship?",
    "What is a capstan?",
    "Tell me more about anchors.",
]

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 8.4, 18.0, 14
MARGIN = 14
BACKGROUND, FOREGROUND = "#11151c", "#d7dde6"
# The sixteen colours of a terminal.
COLOURS = [
    "#2a313c", "#f47067", "#6bc46d", "#daaa3f", "#6cb6ff", "#dcbdfb", "#56d4dd", "#d7dde6",
    "#768390", "#ff938a", "#8ddb8c", "#eac55f", "#96d0ff", "#eedcff", "#b3f0ff", "#ffffff",
]
FONTS = "ui-monospace, 'SF Mono', Menlo, 'DejaVu Sans Mono', Consolas, 'Liberation Mono', monospace"

# Which sides of its cell a frame's character reaches: left, right, up, down.
FRAMES = {
    "─": "lr", "│": "ud", "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu",
    "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud",
}


class Style(NamedTuple):
    """How a character is drawn."""

    colour: str | None = None
    bold: bool = False
    faint: bool = False
    turned: bool = False


class Cell(NamedTuple):
    """A character, the columns it takes, and its style."""

    text: str
    width: int
    style: Style


class Terminal:
    """A program in a terminal of tmux."""

    def __init__(self, command: list[str]):
        self.server = f"pictures-{os.getpid()}"
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        environment = ["-e", "COLORTERM=", "-e", "NO_COLOR="]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "run", *size, *environment, *command)

    def tmux(self, *arguments: str) -> str:
        """Has tmux do something."""
        command = ["tmux", "-u", "-L", self.server, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def screen(self, styled: bool = False) -> str:
        """What is on the screen; with the codes of its styles when asked."""
        return self.tmux("capture-pane", "-p", "-t", "run", *(["-e"] if styled else []))

    def keys(self, *names: str) -> None:
        """Presses keys."""
        self.tmux("send-keys", "-t", "run", *names)

    def types(self, text: str) -> None:
        """Types a line."""
        self.tmux("send-keys", "-t", "run", "-l", text)
        self.keys("Enter")

    def until(self, what: str, wanted: Callable[[str], object]) -> None:
        """Waits until the screen is as wanted."""
        if not self.comes(wanted, PATIENCE):
            sys.exit(f"no {what} on the screen:\n{self.screen()}")

    def comes(self, wanted: Callable[[str], object], seconds: float) -> bool:
        """Waits so long for a screen; whether it came."""
        end = time.monotonic() + seconds
        while not wanted(self.screen()):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def close(self) -> None:
        """Hangs up; the demo ends its workers by itself."""
        subprocess.run(["tmux", "-L", self.server, "kill-server"], check=False, capture_output=True)


def cells(line: str) -> list[Cell]:
    """A captured line as cells. Of control sequences tmux only writes styles."""
    style, row = Style(), []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b["):
            style = restyled(style, [int(code or 0) for code in part[2:-1].split(";")])
            continue
        for character in part:
            if unicodedata.combining(character) and row:
                row[-1] = row[-1]._replace(text=row[-1].text + character)
                continue
            wide = unicodedata.east_asian_width(character) in "WF"
            row.append(Cell(character, 2 if wide else 1, style))
    return row


def restyled(style: Style, codes: list[int]) -> Style:
    """A style after the numbers of one sequence."""
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = Style()
        elif code == 1:
            style = style._replace(bold=True)
        elif code == 2:
            style = style._replace(faint=True)
        elif code == 7:
            style = style._replace(turned=True)
        elif code in (38, 48) and codes[:1] == [5] and len(codes) > 1:
            number = codes[1]
            del codes[:2]
            if code == 38 and number < 16:
                style = style._replace(colour=COLOURS[number])
        elif 30 <= code <= 37:
            style = style._replace(colour=COLOURS[code - 30])
        elif 90 <= code <= 97:
            style = style._replace(colour=COLOURS[code - 82])
        elif code == 39:
            style = style._replace(colour=None)
    return style


def is_shape(character: str) -> bool:
    """Whether a character is drawn as a shape: frames and blocks."""
    return character in FRAMES or "▁" <= character <= "▏"


def shape(character: str, x: float, y: float, width: float, paint: str) -> str:
    """A frame's or a bar's character in this width, filling it as far as it does."""
    if character in FRAMES:
        middle, centre = y + CELL_HEIGHT / 2, x + width / 2
        ends = {
            "l": (x, middle), "r": (x + width, middle),
            "u": (centre, y), "d": (centre, y + CELL_HEIGHT),
        }
        sides = [ends[side] for side in FRAMES[character]]
        if character in "╭╮╰╯":
            (ax, ay), (bx, by) = sides
            way = f"M{ax:.1f} {ay:.1f}Q{centre:.1f} {middle:.1f} {bx:.1f} {by:.1f}"
        else:
            way = "".join(f"M{centre:.1f} {middle:.1f}L{ax:.1f} {ay:.1f}" for ax, ay in sides)
        return f'<path d="{way}" stroke="{paint}" fill="none"/>'
    # ▁ to █ grow from the bottom by eighths, ▉ to ▏ shrink to the left.
    eighths = ord(character) - 0x2580
    if eighths <= 8:
        height = CELL_HEIGHT * eighths / 8
    else:
        width, height = width * (16 - eighths) / 8, CELL_HEIGHT
    top = y + CELL_HEIGHT - height
    return rectangle(x, top, width, height, paint)


def rectangle(x: float, y: float, width: float, height: float, paint: str) -> str:
    """A filled rectangle whose neighbours leave no seam."""
    return (
        f'<rect x="{x:.1f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'fill="{paint}" shape-rendering="crispEdges"/>'
    )


def runs(row: list[Cell]) -> list[tuple[int, int, str, Style]]:
    """Column, columns, text and style of what is drawn in one piece. What is no plain letter stands
    alone: fonts do not agree on its width."""
    pieces: list[tuple[int, int, str, Style]] = []
    column, before = 0, None
    for cell in row:
        plain = cell.width == 1 and ord(cell.text[0]) < 0x250
        kind = "letters" if plain else cell.text if cell.text in "─█" else None
        if kind and kind == before and pieces[-1][3] == cell.style:
            start, width, text, style = pieces[-1]
            pieces[-1] = (start, width + 1, text + cell.text, style)
        else:
            pieces.append((column, cell.width, cell.text, cell.style))
        before = kind
        column += cell.width
    return pieces


def drawn(column: int, width: int, text: str, style: Style, y: float) -> list[str]:
    """One piece of a row as elements."""
    x = MARGIN + column * CELL_WIDTH
    ink, elements = style.colour or FOREGROUND, []
    if style.turned:
        elements.append(rectangle(x, y, width * CELL_WIDTH, CELL_HEIGHT, ink))
        ink = BACKGROUND
    if is_shape(text[0]):
        return [*elements, shape(text[0], x, y, width * CELL_WIDTH, ink)]
    # Blanks at both ends need no drawing, and readers of SVG do not agree on them.
    start = len(text) - len(text.lstrip())
    word = text.strip()
    if not word:
        return elements
    x += start * CELL_WIDTH
    length = (len(word) if width == len(text) else width) * CELL_WIDTH
    more = ' font-weight="bold"' if style.bold else ""
    more += ' opacity="0.62"' if style.faint else ""
    elements.append(
        f'<text x="{x:.1f}" y="{y + CELL_HEIGHT * 0.74:.1f}" textLength="{length:.1f}" '
        f'lengthAdjust="spacingAndGlyphs" fill="{ink}"{more}>{escape(word)}</text>'
    )
    return elements


def svg(screen: str, title: str) -> str:
    """A captured screen as a picture."""
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = ROWS * CELL_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}" '
        f'font-family="{FONTS}" font-size="{FONT_SIZE}" xml:space="preserve">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="10" fill="{BACKGROUND}"/>',
    ]
    for number, line in enumerate(screen.split("\n")[:ROWS]):
        y = MARGIN + number * CELL_HEIGHT
        for piece in runs(cells(line)):
            parts += drawn(*piece, y)
    return "\n".join([*parts, "</svg>", ""])


def state(shown: str) -> tuple[str, int]:
    """How far the newest answer in the chat is: its mark, and its tokens so far."""
    told = re.findall(r"(✓|stopped|FAILED|answering|waiting)(?: +(\d+) tokens)?", shown)
    mark, tokens = told[-1] if told else ("", "")
    return mark, int(tokens or 0)


def is_enough(shown: str) -> bool:
    """Whether an answer has ended, or is as long as any should be."""
    mark, tokens = state(shown)
    return mark in ("✓", "stopped") or tokens > MOST_TOKENS


def leave_line(terminal: Terminal) -> None:
    """From typing to the keys of the screen. An escape and a key at once would be another key."""
    terminal.keys("Escape")
    terminal.until("keys of the screen", lambda shown: "enter: " in shown)


def make(program: str, folder: Path) -> None:
    """Runs the demo and writes its pictures."""
    terminal = Terminal([program, "demo"])
    try:
        terminal.until("tokens", lambda shown: re.search(r"generation +[1-9]", shown))
        begin = time.monotonic()
        terminal.keys("5")
        terminal.until("answer", lambda shown: state(shown)[0] == "✓")
        questions = list(QUESTIONS)
        question = questions.pop(0)
        terminal.types(question)
        terminal.until(
            "answer to the question",
            lambda shown: state(shown[shown.find(question):])[1] > 30,
        )
        chat = terminal.screen(styled=True)
        write(folder / "chat.svg", chat, "windlass demo: a chat while the answer comes")
        while True:
            terminal.until("enough of the answer", is_enough)
            leave_line(terminal)
            # Nothing happens when it is whole.
            terminal.keys("s")
            terminal.until("end of the answer", lambda shown: state(shown)[0] in ("✓", "stopped"))
            # Without what was said, answers are short and come soon.
            terminal.keys("n")
            terminal.until("empty chat", lambda shown: "Nothing was said yet" in shown)
            terminal.keys("Enter")
            questions.append(question)
            question = questions.pop(0)
            terminal.types(question)
            terminal.until("answer", lambda shown: state(shown)[1] > 20)
            if time.monotonic() < begin + TALK:
                continue
            leave_line(terminal)
            terminal.keys("1")
            # An answer may have been so short that it is whole by now; then there is the next.
            if terminal.comes(lambda shown: re.search(r"[1-9] running", shown), 3):
                break
            terminal.keys("5")
            terminal.until("chat", lambda shown: " you: " in shown)
        overview = terminal.screen(styled=True)
        write(folder / "overview.svg", overview, "windlass demo: two workers answer a question")
    finally:
        terminal.close()


def write(path: Path, screen: str, title: str) -> None:
    """Writes a picture."""
    path.write_text(svg(screen, title), encoding="utf-8")
    print(path)


def main() -> None:
    """The command line."""
    folder = Path(__file__).resolve().parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", folder.parent.parent / "target"))
    program = sys.argv[1] if len(sys.argv) > 1 else str(target / "release" / "windlass")
    if not Path(program).is_file():
        sys.exit(f"{program} is not there: build it with cargo build --release --workspace")
    make(str(Path(program).resolve()), folder)


if __name__ == "__main__":
    main()
