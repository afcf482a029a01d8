"""TLS options of `relay`, `publish` and `play`: trusted certificates and the key log."""

from __future__ import annotations

import argparse
import ssl

from rtmp_spark.codec.errors import UserError


def add_keylog_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keylog", metavar="FILE", help="append the TLS secrets to FILE, to decrypt a capture later")


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TLS (rtmps://)")
    group.add_argument("--tls-ca", metavar="FILE", help="trust the certificates in this PEM file")
    group.add_argument("--tls-insecure", action="store_true", help="do not check the server's certificate")
    add_keylog_output(parser)


def client_context(args: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=args.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"{args.tls_ca} does not hold valid certificates ({error}).", "Give a PEM file.") from None
    if args.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    log_secrets(context, args.keylog)
    return context


def log_secrets(context: ssl.SSLContext, path: str | None) -> None:
    if path is None:
        return
    try:
        context.keylog_filename = path
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}).", "Choose another file for --keylog.") from None
