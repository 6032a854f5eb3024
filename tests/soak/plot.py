"""Draws measurements over time as an SVG that a page can show. One line and two axes need no library."""

from __future__ import annotations

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 36
TICKS = 6


def draw(points: list[tuple[float, float]], unit: str = "MB") -> str:
    """Draw minutes to the right and the measurement upwards from zero, so that a small wobble looks small."""
    last_minute = max(points[-1][0], 1.0)
    top = 1.2 * max(value for _, value in points)

    def place(minute: float, value: float) -> tuple[float, float]:
        x = LEFT + minute / last_minute * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    line = " ".join(f"{x},{y}" for x, y in (place(*point) for point in points))
    marks = []
    for step in range(TICKS + 1):
        x, y = place(last_minute * step / TICKS, 0)
        marks.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{last_minute * step / TICKS:.0f}</text>')
        x, y = place(0, top * step / TICKS)
        marks.append(
            f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="#8884" fill="none"/><text x="{x - 6}" y="{y + 4}" text-anchor="end">{top * step / TICKS:.0f}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11" fill="#888">\n'
        + "\n".join(marks)
        + f'\n<polyline points="{line}" fill="none" stroke="#2a7" stroke-width="1.5"/>\n'
        + f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">minutes</text><text x="4" y="{TOP + 2}">{unit}</text>\n</svg>\n'
    )
