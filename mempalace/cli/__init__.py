"""The command line. A thin face: parse options, call one function, show the result.

Only the command that is asked for is imported, so that `mempalace --help` starts fast.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from mempalace.errors import EXIT_INTERRUPTED, EXIT_USAGE, MempalaceError, UsageError

# Most commands end before there is much to collect: to look for it ten times more rarely saves a tenth of a search.
_OBJECTS_BEFORE_COLLECTING = 7_000

_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
_set_here: list[str] = []

# Each name is a module here with a click command (or group) of the name `command`.
_COMMANDS = {
    "mine": "Read conversations into the palace.",
    "search": "Find an exchange again.",
    "show": "Show one session, whole.",
    "export": "Write a session for another tool, as a page, or as the log that it was.",
    "resume": "Take a session up again, in its own tool or in another one.",
    "status": "What the palace holds.",
    "demo": "Mine what this machine has, or bundled examples, and show a search.",
    "sessions": "The sessions that the tools keep on this machine: no palace needed.",
    "formats": "Which tools can be read, and where they keep their logs.",
    "refine": "Make searches faster: keep what the sentence encoder says.",
    "rebuild": "Make the indexes again from the catalog.",
}


class _Text(click.types.StringParamType):
    """A text is UTF-8: bytes that are none are replaced, unless they name a file that is there."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text: str = super().convert(value, param, ctx)
        if text.isprintable() or os.path.lexists(text.partition("::")[0]):
            return text
        return "".join("\ufffd" if "\ud800" <= sign <= "\udfff" else sign for sign in text)


class LazyGroup(click.Group):
    """A group that imports a command when it is used: `modules` gives the help of each, by its module in `package`."""

    def __init__(self, *args: Any, package: str, modules: dict[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._package = package
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._modules:
            return None
        command: click.Command = import_module(f"{self._package}.{name}").command
        for parameter in command.params:
            if parameter.type is click.STRING:
                parameter.type = _Text()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._modules.items()))


@click.command(
    cls=LazyGroup,
    package=__name__,
    modules=_COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "MEMPALACE",
        "max_content_width": 100,
    },
    epilog='Start with:  mempalace mine --mode convos   then:  mempalace search "why did we move to GraphQL"',
)
@click.version_option(package_name="mempalace")
@click.pass_context
def group(ctx: click.Context) -> None:
    """A local memory of every conversation with AI tools: kept word for word, found in milliseconds."""
    from mempalace.cli.config import defaults

    ctx.default_map = defaults(ctx)


def main() -> None:
    """The console script: runs a command and ends the process with its exit code (see mempalace.errors)."""
    from mempalace.cli import failures
    from mempalace.cli.output import prepare_streams

    prepare_streams()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)
    set_environment()
    wants_json = "--json" in sys.argv
    code: Any = 0
    try:
        code = _run(wants_json)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted: what was read so far is kept; run the same command again to go on", err=True)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing left to say, also not at exit.
        sys.stderr.close()
        code = 0
    except (OSError, UnicodeError, RuntimeError) as error:
        if os.environ.get(failures.DEBUG):
            raise
        code = failures.tell(error, wants_json)
    sys.exit(code if isinstance(code, int) else 0)


def _run(wants_json: bool) -> Any:
    """Run the command; its exit code, or that of the error which it ends with."""
    from mempalace.cli.output import report

    try:
        return group.main(standalone_mode=False)
    except MempalaceError as error:
        return report(error, wants_json)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except click.UsageError as error:
        if wants_json:
            return report(UsageError(error.format_message()), wants_json)
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code


def set_environment() -> None:
    """Numpy's threads that wait for work cost a third of a search's CPU time, and its matrices are small."""
    for name, value in _ENVIRONMENT.items():
        if name not in os.environ:
            os.environ[name] = value
            _set_here.append(name)


def restore_environment() -> None:
    """Take away what is ours before another program is started from this one."""
    while _set_here:
        os.environ.pop(_set_here.pop(), None)
