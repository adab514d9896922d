"""Check the English of README, pages and messages: spelling, long sentences, words that have a better one.

``python docs/prose.py`` lists what it finds and exits with 1 if there is anything; ``make docs`` runs it. The
words are in ``docs/words.txt`` (known words) and ``docs/prose.toml`` (words to replace, longest sentence).
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RULES = tomllib.loads((DOCS / "prose.toml").read_text(encoding="utf-8"))
REPLACED = {re.compile(rf"\b(?:{old})\b", re.IGNORECASE): new for old, new in RULES["instead"].items()}

_NO_PROSE = re.compile(
    r"\A---\n.*?\n---\n"  # front matter
    r"|^(?P<fence>`{3,}|:{3,}).*?^(?P=fence)\s*$"
    r"|<!--.*?-->|\$\$.*?\$\$|^\([\w-]+\)=$|^!\[[^\]]*\]\([^)]*\)$",
    re.DOTALL | re.MULTILINE,
)
_CODE = re.compile(r"`[^`]*`|\$[^$]*\$|\{[^{}]*\}|https?://\S+|<[^<>\n]*>")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"(?<![\w.@/-])[A-Za-z][a-z]+(?:'[a-z]+)?(?![\w.]*[\w/@(])")
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )|\|")
_SENTENCE = re.compile(r"(?<=[.!?:;])[*)\"]*\s+")


def prose_of(page: str) -> str:
    """Markdown without code, formulas, addresses and directives; as many lines as before."""
    blank = _NO_PROSE.sub(lambda part: "\n" * part.group().count("\n"), page)
    return _CODE.sub(lambda part: "N" + "\n" * part.group().count("\n"), _LINK.sub(r"\1", blank))


def texts() -> Iterator[tuple[str, str]]:
    """Name and prose of every page, and of every message of the package."""
    pages = [path for path in DOCS.rglob("*.md") if not {"_build", "generated"} & set(path.parts)]
    for path in [ROOT / "README.md", *sorted(pages)]:
        yield str(path.relative_to(ROOT)), prose_of(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "cagp_dist").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name not in RULES["stored"]:
            yield name, "\n\n".join(messages(path.read_text(encoding="utf-8")))


def messages(source: str) -> Iterator[str]:
    """Sentences that a module shows: its strings of three words or more, without docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    no_message = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            no_message |= {id(part) for part in node.values}
    for node in nodes:
        if id(node) in no_message:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if len(text.split()) > 2:
            yield _CODE.sub("N", text)


def faults(name: str, text: str, known: set[str]) -> Iterator[str]:
    """What is wrong with a text; spelling and length of pages alone."""
    for old, new in REPLACED.items():
        for found in old.finditer(text):
            line = f":{text[: found.start()].count(chr(10)) + 1}" if name.endswith(".md") else ""
            yield f'{name}{line}: write "{new}", not "{found.group()}"'
    if not name.endswith(".md") or name in RULES["unchecked"]:
        return
    for word in sorted({word.lower().removesuffix("'s") for word in _WORD.findall(text)} - known):
        yield f"{name}: {word!r} is in no list of words; correct it, or add it to docs/words.txt"
    for paragraph in _PARAGRAPH.split(text):
        for sentence in _SENTENCE.split(paragraph):
            if len(sentence.split()) > RULES["longest_sentence"] and name not in RULES["may_be_long"]:
                yield f"{name}: {len(sentence.split())} words: {' '.join(sentence.split())[:70]} ..."


def main() -> int:
    """Print all faults."""
    from spellchecker import SpellChecker

    found = list(texts())
    ours = set((DOCS / "words.txt").read_text(encoding="utf-8").split())
    known = ours | set(SpellChecker(language="en").word_frequency.words())
    lines = [line for name, text in found for line in faults(name, text, known)]
    print(*lines, f"{len(lines)} faults in the English of {len(found)} files", sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
