#!/usr/bin/env python3
"""sentences.py [--seed N] [--count N]: draws sentences for a review of the prose.

A second reader sees only the sentence, without its place, and explains it. What the reader gets wrong is rewritten.
Prints numbered sentences, and their places to the file that --places names."""
import argparse
import random
import re
import subprocess

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--seed", type=int, default=1)
arguments.add_argument("--count", type=int, default=60)
arguments.add_argument("--places")
options = arguments.parse_args()

SKIPPED = ("compiler/src/import/onnx/schema.rs", "targets/measured/", "tests/corpus/", "tests/text/", "tests/language/", "tests/shaders/", "benches/log/")


def comments(lines, marks):
    """Blocks of neighboring comment lines: first line's number, text."""
    start, block = None, []
    for number, line in enumerate(lines + [""], 1):
        text = line.strip()
        mark = next((m for m in marks if text.startswith(m)), None)
        # Markers of loops to unroll are no prose.
        if mark is not None and not text.startswith("// unroll"):
            start = start or number
            block.append(text[len(mark):].strip())
        elif block:
            yield start, " ".join(block)
            start, block = None, []


def paragraphs(lines):
    """Paragraphs, list items and table rows (after their header) of a document, without code blocks."""
    start, block, code, header = None, [], False, None
    for number, line in enumerate(lines + [""], 1):
        text = line.strip()
        if not text.startswith("|"):
            header = None
        elif header is None:
            header = text
            continue
        elif not set(text) <= set("|-: "):
            yield number, f"[{header}] {text}"
            continue
        if text.startswith("```"):
            code = not code
            text = ""
        ends = not text or text.startswith(("- ", "#", "|"))
        if ends and block:
            yield start, " ".join(block)
            start, block = None, []
        if text and not code and not text.startswith("#") and not set(text) <= set("|-: "):
            start = start or number
            block.append(text)


def strings(lines):
    """Messages in string literals of the program, without tests: five words or more."""
    for number, line in enumerate(lines, 1):
        if line.startswith("#[cfg(test)]"):
            return
        if line.strip().startswith("//"):
            continue
        for text in re.findall(r'"((?:[^"\\]|\\.){20,})"', line):
            is_code = re.search(
                r"::|\bfn |\blet |\(\)|@compute|;$|;\\n|\) ==|\{\{|<u32>|<f32>|// |%\d|\[\[|&&|\|\||\.starts_with", text
            )
            words = re.findall(r"[A-Za-z]{2,}", text)
            # A list of operators or devices is no sentence.
            is_list = sum(word[0].islower() for word in words) * 2 < len(words)
            if len(words) >= 5 and not is_code and not is_list:
                yield number, text


def candidates():
    """Kind, place and text of everything that a reader may meet."""
    for path in subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines():
        if path.startswith(SKIPPED):
            continue
        if path.endswith(".md"):
            kinds = [("document", paragraphs)]
        elif path.endswith(".rs"):
            kinds = [("comment", lambda lines: comments(lines, ("///", "//!")))]
            if not path.startswith(("tests/", "benches/")) and "/tests/" not in path and not path.endswith("tests.rs"):
                kinds.append(("message", strings))
        elif path.endswith(".wgsl"):
            kinds = [("comment", lambda lines: comments(lines, ("///", "//")))]
        else:
            continue
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for kind, read in kinds:
            for number, text in read(lines):
                if len(text.split()) >= 4:
                    yield kind, f"{path}:{number}", text


found = sorted(candidates())
chosen = random.Random(options.seed).sample(found, options.count)
for number, (kind, _, text) in enumerate(chosen, 1):
    print(f"{number}. ({kind}) {text}")
if options.places:
    with open(options.places, "w", encoding="utf-8") as out:
        out.writelines(f"{number}. {place}\n" for number, (_, place, _) in enumerate(chosen, 1))
