"""How quickly the live map answers, over HTTP, at 100,000 positions.

    python -m benchmarks.explore [--positions 100000]

One head of width 64, random queries and keys. The server runs in a process of its own, with an
empty cache, and is asked by a client that keeps its connection, as a browser does.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

WIDTH = 64


def serve(positions: int, cache: str, answers: Connection) -> None:
    """Serve a map; tell the address, and at the end the peak of the memory."""
    os.environ["XDG_CACHE_HOME"] = cache
    import torch

    from heedmap import AttentionMap
    from heedmap.explore.explorer import Explorer
    from heedmap.explore.opening import scene_of_map
    from heedmap.explore.running import Running

    torch.manual_seed(0)
    weights = AttentionMap.from_factors(*torch.randn(2, 1, positions, WIDTH))
    imported = resident()
    began = time.perf_counter()
    with Running(Explorer(scene_of_map(weights))) as running:
        answers.send((running.url, began, imported))
        answers.recv()
        answers.send(peak())


def resident() -> float:
    """Return the memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak() -> float:
    """Return the most memory that this process has had, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1e3


class Client:
    """Asks as a browser would."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.connection = http.client.HTTPConnection(address.netloc, timeout=300)
        self.connection.request("GET", f"{address.path}?{address.query}")
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]

    def get(self, path: str) -> bytes:
        self.connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[:200])
        return body

    def seconds(self, path: str) -> float:
        began = time.perf_counter()
        self.get(path)
        return time.perf_counter() - began


def report(client: Client, began: float, positions: int, tiles: int) -> None:
    """Print what a person would wait for."""
    tile = client.get("/tiles/0/0/mean/0/0/0")
    print(f"start to first picture: {time.perf_counter() - began:.2f} s, exact: {bool(tile[5])}")
    asked = time.perf_counter()
    while not json.loads(client.get("/progress/0/0"))["exact"]:
        time.sleep(0.05)
    print(f"exact pyramid, from the first question for it: {time.perf_counter() - asked:.1f} s")
    print(f"exact zoom 0 after that: {1000 * client.seconds('/tiles/0/0/max/0/0/0'):.0f} ms")
    turns = random.Random(0)
    zooms = json.loads(client.get("/description"))["layers"][0]["zooms"]
    print(f"\n{'zoom':>4}  {'cold p50':>9}  {'cold p95':>9}  {'warm p50':>9}  {'warm p95':>9}   ms")
    for zoom in range(max(0, zooms - 4), zooms + 1):
        side = -(-positions // (256 * 2 ** (zooms - zoom)))
        paths = [
            f"/tiles/0/0/mean/{zoom}/{turns.randrange(side)}/{turns.randrange(side)}"
            for _ in range(tiles)
        ]
        columns = []
        for _ in ("cold", "warm"):
            times = sorted(client.seconds(path) for path in paths)
            columns += [statistics.median(times), times[int(0.95 * (len(times) - 1))]]
        print(f"{zoom:>4}  " + "  ".join(f"{1000 * column:9.1f}" for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=100_000)
    parser.add_argument("--tiles", type=int, default=60, help="tiles to ask for at each zoom")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as cache:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(options.positions, cache, there))
        process.start()
        url, began, imported = here.recv()
        client = Client(url)
        report(client, began, options.positions, options.tiles)
        here.send("end")
        print(f"\nresident before the server began {imported:.0f} MB, at most {here.recv():.0f} MB")
        process.join()


if __name__ == "__main__":
    main()
