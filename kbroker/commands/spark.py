"""`kbroker spark submit SCRIPT`, `kbroker spark shell`, `kbroker spark jars`: PySpark with the connector.

Everything after `submit` or `shell` goes to Spark's own `spark-submit` or `pyspark`, with the connector, the
Python and the driver's addresses filled in (`kbroker.spark`). Spark replaces this process, so signals and the
exit status are its own. What these options say of repositories holds for the connector, too; `jars` takes
them for that alone.
"""

from __future__ import annotations

import argparse
import os
import sys

PROGRAMS = {"submit": "spark-submit", "shell": "pyspark"}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "spark",
        help="run PySpark with the Kafka connector",
        description="Run PySpark with the Kafka connector, which is fetched once.",
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    # With a prefix that nobody types, options are arguments like all others.
    submit = verbs.add_parser("submit", help="run a script", add_help=False, prefix_chars="\0")
    shell = verbs.add_parser("shell", help="start a PySpark shell", add_help=False, prefix_chars="\0")
    jars = verbs.add_parser(
        "jars",
        help="print where the connector's jars are, separated by commas",
        add_help=False,
        prefix_chars="\0",
    )
    for verb in (submit, shell, jars):
        verb.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    submit.set_defaults(run=run, program=PROGRAMS["submit"])
    shell.set_defaults(run=run, program=PROGRAMS["shell"])
    jars.set_defaults(run=print_jars)


def run(options: argparse.Namespace) -> int:
    from kbroker import spark

    try:
        jars = spark.connector_jars(arguments=options.arguments)
        command = spark.submit_command(options.program, options.arguments, jars)
        environment = spark.environment()
    except spark.SparkMissing as error:
        return missing(error)
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def print_jars(options: argparse.Namespace) -> int:
    from kbroker import spark

    try:
        print(",".join(map(str, spark.connector_jars(arguments=options.arguments))))
    except spark.SparkMissing as error:
        return missing(error)
    return 0


def missing(error: Exception) -> int:
    print(f"kbroker: {error}", file=sys.stderr)
    return 1
