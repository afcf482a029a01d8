"""Completion in a real shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from rtmp_spark import cli
from rtmp_spark.codec.errors import ViolationCode
from rtmp_spark.commands import completion
from rtmp_spark.schema import TABLES

ASK = """
source /dev/stdin <<'SCRIPT'
@SCRIPT@
SCRIPT
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_rtmp_spark
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    command = [bash, "-c", ASK.replace("@SCRIPT@", completion.script()), "bash", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("rtmp-spark", "expl"), ["explain"]),
        (("rtmp-spark", "check", "--fail"), ["--fail-on"]),
        (("rtmp-spark", "check", "--fail-on", ""), ["error", "warning", "info"]),
        (("rtmp-spark", "completion", ""), ["bash", "zsh"]),
        (("rtmp-spark", "publish", "--fault", "CHUNK_SIZE_N"), ["CHUNK_SIZE_NOT_APPLIED"]),
        (("rtmp-spark", "inspect", "--table", "conn"), ["connections"]),
        (("rtmp-spark", "no-such-command", ""), []),
    ],
)
def test_completed_words(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_every_command_and_every_rule_is_offered() -> None:
    assert set(cli.installed_commands()) <= set(completed("rtmp-spark", ""))
    assert completed("rtmp-spark", "explain", "") == list(ViolationCode.__members__)


def test_every_table_of_a_capture_is_offered() -> None:
    offered = completed("rtmp-spark", "inspect", "--table", "")
    assert sorted(offered) == sorted(TABLES.keys() - {"open_flows"})  # exists only in a lake


def test_zsh_uses_the_bash_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")
