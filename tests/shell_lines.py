"""Shell lines of the pages: which there are, and what they print."""

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from cagp_dist.cli import app

DOCS = Path(__file__).parents[1] / "docs"
PROGRAMS = "cagp|docker|dask|python|pip|make|systemctl|journalctl|install|sbatch|scontrol|qsub|kubectl"
"""What a piece of code in a sentence begins with if it is a command."""


@dataclass(frozen=True)
class ShellLine:
    """A command of a page; what it prints and its exit code, where the page says these."""

    section: str
    command: str
    printed: str | None = None
    exit_code: int = 0

    def matches(self, output: str) -> bool:
        """Whether an output is that of the page, in which ``...`` stands for anything, wrapped or not."""
        wanted, found = (" ".join(text.split()) for text in (self.printed or "", output))
        return re.fullmatch(re.escape(wanted).replace(r"\.\.\.", ".*"), found) is not None


def lines_of(page: Path) -> list[ShellLine]:
    """Commands of blocks ``sh``, and those of blocks ``text`` that are begun by ``$``, with what follows."""
    found, section = [], ""
    for heading, language, block in re.findall(
        r"^#+ ([^\n]+)$|^```(\S*)[^\n]*\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL
    ):
        section = heading or section
        if language == "sh":
            found += [ShellLine(section, without_comment(line)) for line in block.splitlines()]
        for command, printed in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
            text, _, code = printed.partition("exit code ")
            found.append(ShellLine(section, command, text, int(code or 0)))
    return found


def inline_commands(page: Path) -> set[str]:
    """Commands within sentences: those with at least one argument."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    code = (" ".join(each.split()) for each in re.findall(r"`([^`]+)`", text))
    return {each for each in code if re.match(rf"(?:[A-Z_]+=\S+ )*(?:{PROGRAMS}) ", each)}


def without_comment(line: str) -> str:
    """Give a line of shell without what follows its comment sign."""
    return re.sub(r"\s+#(?![^']*').*$", "", line).strip()


def run_line(command: str) -> tuple[int, str]:
    """Run a line in the working folder: `cagp` in this process, all else by the shell.

    Returns
    -------
    code : int
        The exit code.
    printed : str
        Standard output, and the error with which the command ended.
    """
    words = shlex.split(command)
    if words[0] == "cagp" and not {"&&", ";", "|", ">"} & set(words):
        result = CliRunner().invoke(app, words[1:])
        return result.exit_code, result.stdout + result.stderr[result.stderr.find("Error: ") :] * (
            "Error: " in result.stderr
        )
    done = subprocess.run(
        ["sh", "-c", command], cwd=os.getcwd(), capture_output=True, text=True, check=False, timeout=600
    )
    return done.returncode, done.stdout + done.stderr
