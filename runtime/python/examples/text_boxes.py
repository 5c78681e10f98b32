"""Boxes around lines of text, for `read_text.py`: from a detector's probability of each pixel to pictures of the lines."""

from __future__ import annotations

import numpy as np
from PIL import Image

#: Minimum probability of a pixel of text, minimum mean of a region, and minimum side of a region in pixels.
PIXEL, REGION, SIDE = 0.3, 0.5, 3
#: Area of the margin around a region, relative to the region. The detector was trained to mark less than the whole letters.
MARGIN = 1.6


def find_boxes(probability: np.ndarray) -> list[np.ndarray]:
    """Returns the boxes of text in reading order. A box is an array of four corners (x, y), clockwise from the top left."""
    boxes = []
    for y, start, end in regions(probability > PIXEL):
        region = np.concatenate([probability[row, a:b] for row, a, b in zip(y, start, end)])
        corners = box(np.array([[*start, *end, *start, *end], [*y, *y, *(y + 1), *(y + 1)]]))
        if corners is not None and region.mean() >= REGION:
            boxes.append(corners)
    return in_reading_order(boxes)


def regions(mask: np.ndarray) -> list[np.ndarray]:
    """Returns the connected regions of a mask. The rows of a region are y, start and end of its horizontal runs."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    y, start = np.nonzero(edges == 1)
    end = np.nonzero(edges == -1)[1]
    parent = list(range(len(y)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = run = parent[parent[run]]
        return run

    # A run belongs to the regions of the runs that touch it from the row above.
    above = np.searchsorted(y, y - 1)
    first = np.searchsorted(y, y)
    for run in range(len(y)):
        touches = (start[above[run] : first[run]] <= end[run]) & (end[above[run] : first[run]] >= start[run])
        for other in above[run] + np.flatnonzero(touches):
            parent[root(other)] = root(run)
    roots = np.array([root(run) for run in range(len(y))])
    return [np.stack([y, start, end])[:, roots == index] for index in np.unique(roots)]


def box(points: np.ndarray) -> np.ndarray | None:
    """Returns the corners of the smallest rectangle around points, plus a margin. Returns None for specks."""
    angles = np.radians(np.arange(-45, 45, 0.25))
    cos, sin = np.cos(angles), np.sin(angles)
    axes = np.array([[cos, sin], [-sin, cos]]).transpose(2, 0, 1)
    places = axes @ points
    low, high = places.min(axis=2), places.max(axis=2)
    best = (high - low).prod(axis=1).argmin()
    width, height = high[best] - low[best]
    if min(width, height) < SIDE:
        return None
    margin = MARGIN * width * height / (2 * (width + height))
    (left, top), (right, bottom) = low[best] - margin, high[best] + margin
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)]) @ axes[best]


def in_reading_order(boxes: list[np.ndarray]) -> list[np.ndarray]:
    """Sorts boxes from top to bottom, and boxes at the same height from left to right. A photograph may be skew, so the top edges
    of the boxes give the directions."""
    if not boxes:
        return []
    x, y = np.mean([corners[1] - corners[0] for corners in boxes], axis=0)
    right, down = np.array([x, y]) / np.hypot(x, y), np.array([-y, x]) / np.hypot(x, y)
    rows: list[list[np.ndarray]] = []
    for corners in sorted(boxes, key=lambda corners: corners.mean(axis=0) @ down):
        height = np.linalg.norm(corners[0] - corners[3])
        if rows and (corners - rows[-1][0]).mean(axis=0) @ down < height / 2:
            rows[-1].append(corners)
        else:
            rows.append([corners])
    return [corners for row in rows for corners in sorted(row, key=lambda corners: corners.mean(axis=0) @ right)]


def crop(photo: Image.Image, corners: np.ndarray) -> Image.Image:
    """Cuts a box out of a photograph and turns it upright. A box that is taller than wide has text from bottom to top."""
    width, height = (max(1, round(float(np.linalg.norm(corners[0] - corners[other])))) for other in (1, 3))
    quad = corners[[0, 3, 2, 1]].ravel().tolist()
    line = photo.transform((width, height), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)
    return line.transpose(Image.Transpose.ROTATE_90) if height >= 1.5 * width else line
