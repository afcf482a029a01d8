"""Commands as jobs: arguments from files, exit codes, one line of JSON; and the example for Airflow."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rtmp_spark import cli
from rtmp_spark.codec.errors import UserError
from rtmp_spark.jobs.command_job import expanded, run_job

ROOT = Path(__file__).parents[2]


def test_arguments_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "args"
    file.write_text("# of the night\ncaptures of today/\n\n--lake\n  lake\n@not a file\n")
    given = ["--quiet", f"@{file}", "@@home.pcap"]
    expected = ["--quiet", "captures of today/", "--lake", "lake", "@not a file", "@home.pcap"]
    assert list(expanded(given)) == expected
    with pytest.raises(UserError, match=r"The arguments in 'no' cannot be read: No such file or directory\."):
        list(expanded(["@no"]))


def test_a_job_that_fails_prints_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job("ingest", [str(tmp_path / "no.pcap"), "--lake", str(tmp_path / "lake")]) == 2
    shown = capsys.readouterr()
    (line,) = shown.out.splitlines()
    assert json.loads(line) == {
        "exit_code": 2,
        "error": f"'{tmp_path / 'no.pcap'}' does not exist. Check the path.",
    }
    assert shown.err == f"rtmp-spark: '{tmp_path / 'no.pcap'}' does not exist. Check the path.\n"
    for arguments in (["@no"], ["a.pcap"], ["a.pcap", "--lake", "lake", "--nonsense"]):
        assert run_job("ingest", arguments) == 2
        assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize("module", ["check", "optimize"])
def test_as_a_module_and_as_a_script(module: str, tmp_path: Path) -> None:
    (tmp_path / "args").write_text("--vectors\n" if module == "check" else "--lake\nno lake\n")
    expected = {"check": 0, "optimize": 2}[module]
    for command in (["-m", f"rtmp_spark.jobs.{module}"], [str(ROOT / "jobs" / f"{module}.py")]):
        done = subprocess.run([sys.executable, *command, "@args"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == expected, done.stderr
        assert "Traceback" not in done.stderr


def test_the_airflow_example_parses() -> None:
    """Airflow is not installed here: its commands are read from the source, and our parsers accept them."""
    tree = ast.parse((ROOT / "jobs" / "airflow_dag.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "BashOperator"]
    found = {}
    for call in calls:
        values = {
            word.arg: eval(ast.unparse(word.value), {"LAKE": "lake", "timedelta": dict}) for word in call.keywords
        }
        command = re.sub(r"\{\{.*?\}\}", "2026/01/31/12", values["bash_command"])
        python, option, module, *arguments = shlex.split(command)
        assert (python, option) == ("python", "-m")
        found[values["task_id"]] = module, arguments
    module, arguments = found["ingest"]
    assert module == "rtmp_spark.jobs.ingest"
    args = cli.command_parser("ingest").parse_args(arguments)
    assert (args.paths, args.lake) == (["s3://captures/2026/01/31/12/"], "lake")
    assert found["optimize"] == ("rtmp_spark.jobs.optimize", ["--lake", "lake"])
