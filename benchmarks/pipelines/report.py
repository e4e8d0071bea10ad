"""The figures as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMES = {
    "by_hand": "PySpark by hand",
    "by_hand_whole": "PySpark, every column",
    "ours": "velostream",
    "flink": "PyFlink",
    "realtime": "real-time mode",
}


def show(found: dict[str, Any]) -> None:
    """Print what is there."""
    for line in lines(found):
        print(line, flush=True)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report, section by section."""
    sizes = found["sizes"]
    for query, figures in found.get("loads", {}).items():
        yield from _loads(f"{query}: {sizes['rows']:,} records, 2 partitions", figures, sizes["rows"], "ours")
    if "latency" in found:
        yield from _milliseconds(f"produce to readable, {sizes['rate']:,} records/s", found["latency"])
    if "scaling" in found:
        rows = sizes["scaling_rows"]
        title = f"group: {rows:,} records by partitions and strategy"
        yield from _loads(title, found["scaling"], rows, "1 sticky")
    if "recovery" in found:
        title = f"seconds after kill -9, {sizes['recovery_rows']:,} records"
        columns = ("answers", "goes on")
        yield from _table(title, columns, found["recovery"], lambda f: [_seconds(f.get(c)) for c in columns])
    if "copies" in found:
        rows = sizes["copied_rows"]
        figures = {way: taken for way, taken in found["copies"].items() if way != "sink"}
        yield from _loads(f"topic to topic: {rows:,} records", figures, rows, "at least once")
        title = f"the sink from a file, and alone: {sizes['sink_rows']:,} records"
        sink = found["copies"].get("sink", {})
        if "cannot" in sink:
            sink = {"sink": sink}
        yield from _table(
            title, ("records/s", "CPU s"), sink, lambda f: [f"{f['rows/s']:,.0f}", f"{f['cpu']:.2f}"]
        )
    if "copy_latency" in found:
        yield from _milliseconds(f"topic to topic, {sizes['rate']:,} records/s", found["copy_latency"])
    for window, figures in found.get("windows", {}).items():
        rows = sizes["window_rows"]
        title = f"{window} windows: {rows:,} records, 1,000 keys, 2 partitions"
        yield from _loads(title, figures, rows, "ours")
    if "clean_path" in found:
        yield from _pairs("CPU of tumbling windows, no row bad or late", found["clean_path"])
    if "goals" in found:
        yield ""
        yield "what is to hold"
        for goal in found["goals"]:
            value = "not measured" if goal["value"] is None else f"{goal['value']:,.2f}"
            verdict = {True: "holds", False: "FALLS SHORT", None: ""}[goal["holds"]]
            yield f"  {goal['goal']:<44}{goal['wanted']:>28}{value:>16}  {verdict}"


def _loads(title: str, figures: dict[str, Any], rows: int, beside: str) -> Iterator[str]:
    """Speeds, processor time, memory, and how the speeds relate to one of the contenders."""
    base = figures.get(beside, {})

    def cells(taken: dict[str, float]) -> list[str]:
        def times(part: str) -> str:
            return f"{base[part] / taken[part]:.2f}" if part in base else "–"

        return [
            f"{rows / taken['cold']:,.0f}",
            f"{rows / taken['warm']:,.0f}",
            f"{1e6 * taken['cold cpu'] / rows:.2f}",
            f"{1e6 * taken['warm cpu'] / rows:.2f}",
            _seconds(taken.get("start")),
            f"{taken['memory']:,.0f}" if "memory" in taken else "–",
            times("cold"),
            times("warm"),
            times("warm cpu"),
        ]

    head = (
        "cold/s",
        "warm/s",
        "µs CPU cold",
        "µs CPU warm",
        "start s",
        "MB",
        "× cold",
        "× warm",
        "× CPU warm",
    )
    yield from _table(f"{title}; × is the speed beside {NAMES.get(beside, beside)}", head, figures, cells)


def _milliseconds(title: str, figures: dict[str, Any]) -> Iterator[str]:
    def cells(taken: dict[str, float]) -> list[str]:
        used = taken.get("cpu per second")
        return [
            f"{taken['p50']:,.1f}",
            f"{taken['p99']:,.1f}",
            "–" if used is None else f"{used:.2f}",
            f"{taken['memory']:,.0f}" if "memory" in taken else "–",
        ]

    yield from _table(title, ("p50 ms", "p99 ms", "cores", "MB"), figures, cells)


def _pairs(title: str, figures: dict[str, Any]) -> Iterator[str]:
    def cells(taken: dict[str, float]) -> list[str]:
        return [*(f"{taken[name]:.3f}" for name in ("median", "low", "high")), f"{taken['pairs']:.0f}"]

    ratios = {name: taken for name, taken in figures.items() if name != "cpu"}
    yield from _table(title, ("× median", "from", "to (95 %)", "pairs"), ratios, cells)


def _table(title: str, head: Sequence[str], figures: dict[str, Any], cells: Any) -> Iterator[str]:
    yield ""
    yield title
    yield f"  {'':<26}" + "".join(f"{name:>13}" for name in head)
    for name, taken in figures.items():
        shown = (
            f"  cannot: {taken['cannot']}"
            if "cannot" in taken
            else "".join(f"{cell:>13}" for cell in cells(taken))
        )
        yield f"  {NAMES.get(name, name):<26}{shown}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
