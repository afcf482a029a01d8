"""`rtmp-spark completion bash|zsh`: a script for the shell, made from the parsers themselves.

The script holds every word, so that completing starts no Python. zsh reads the bash one.
"""

from __future__ import annotations

import argparse

from rtmp_spark.codec.errors import ViolationCode

# Options whose value is a rule id; `--fault` has those that a sender can cause.
_TAKES_CODE = ("--ignore",)
_SHELLS = ("bash", "zsh")

_SCRIPT = """# Completion of rtmp-spark; made by `rtmp-spark completion`.
_rtmp_spark() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$word"))
        return
    fi
    case ${COMP_WORDS[1]}:$before in
@VALUES@
    esac
    if [ -z "$words" ]; then
        case ${COMP_WORDS[1]} in
@OPTIONS@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _rtmp_spark rtmp-spark
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS)


def run(args: argparse.Namespace) -> int:
    if args.shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(script(), end="")
    return 0


def script() -> str:
    from rtmp_relay import faults
    from rtmp_spark.cli import command_parser, installed_commands
    from rtmp_spark.commands.inspect import table_names

    names = installed_commands()
    values = [f"        explain:explain) words='{' '.join(ViolationCode.__members__)}' ;;"]
    options = []
    for name in names:
        own: list[str] = []
        for action in command_parser(name)._actions:
            longest = [option for option in action.option_strings if option.startswith("--")]
            own += longest
            choices = list(map(str, action.choices or ()))
            if "--fault" in longest:
                choices = ["help", *(code.value for code in faults.CATALOGUE)]
            elif set(longest) & set(_TAKES_CODE):
                choices = list(ViolationCode.__members__)
            elif "--table" in longest:
                choices = list(table_names())
            if choices:
                after = longest or [name]
                values += [f"        {name}:{word}) words='{' '.join(choices)}' ;;" for word in after]
        options.append(f"            {name}) words='{' '.join(own)}' ;;")
    text = _SCRIPT.replace("@COMMANDS@", " ".join(names))
    return text.replace("@VALUES@", "\n".join(values)).replace("@OPTIONS@", "\n".join(options))
