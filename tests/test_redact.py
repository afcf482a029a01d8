"""The redactor replaces secrets with hashes and changes nothing else."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from rtmp_spark.analysis.rows.command_rows import CommandRows
from rtmp_spark.codec.shared_arguments import Arguments
from rtmp_spark.conversation.connection_secrets import ConnectionSecrets
from rtmp_spark.conversation.facts import CommandFact
from rtmp_spark.conversation.session import Session
from rtmp_spark.known_secrets import KnownSecrets
from rtmp_spark.redact import KEY_VARIABLE, Redactor, carries_credentials, load_key


def test_the_same_secret_gives_the_same_hash_under_one_key_only() -> None:
    one, same, other = Redactor(b"k1"), Redactor(b"k1"), Redactor(b"k2")
    assert one.token("s3cret") == same.token("s3cret") != other.token("s3cret")
    assert "s3cret" not in one.token("s3cret")
    assert one.token(one.token("s3cret")) == one.token("s3cret")
    assert Redactor(None).token("s3cret") == "s3cret"
    assert one.token("key-of-my-stream") != "key-of-my-stream", "only a real hash is left as it is"


def test_commands_lose_keys_tokens_and_passwords_only() -> None:
    redact, known = Redactor(b"k"), KnownSecrets()
    given = {
        "app": "live?user=bob&authmod=adobe",
        "tcUrl": "rtmp://bob:pw@example.org:1935/live?token=abc",
        "flashVer": "FMLE/3.0",
        "password": "pw",
        "capabilities": 15.0,
    }
    (connect, user) = redact.arguments("connect", [given, "bob"], known)
    assert connect["flashVer"] == "FMLE/3.0" and connect["capabilities"] == 15.0
    assert connect["app"].startswith("live?user=key-") and connect["app"].endswith("&authmod=adobe")
    assert "example.org:1935/live?token=key-" in connect["tcUrl"]
    for secret in ("bob", "pw", "abc"):
        assert secret not in str(connect["tcUrl"]).replace("example.org", "")
    assert connect["password"] == redact.token("pw") and user == redact.token("bob")
    assert given["password"] == "pw", "the given values are left alone"

    publish = redact.arguments("publish", [None, "my key?sig=1", "live"], known)
    assert publish == [None, f"{redact.token('my key')}?sig={redact.token('1')}", "live"]


def test_a_secret_that_is_not_utf8_is_hashed() -> None:
    """Old encoders write Latin-1; the tables show the bytes of such texts."""
    redact, known = Redactor(b"k"), KnownSecrets()

    def latin(text: str) -> dict[str, str]:
        return {"$badstring": text.encode("latin-1").hex()}

    publish = redact.arguments("publish", [None, latin("clé?sig=né"), "live"], known)
    assert publish[0] is None and publish[2] == "live"
    assert publish[1].startswith("key-") and "?sig=key-" in publish[1]
    name = publish[1].partition("?")[0]
    given = {"app": latin("é?token=abc"), "password": latin("né"), "title": latin("Café")}
    connect, user = redact.arguments("connect", [given, latin("né")], known)
    assert user == connect["password"] == publish[1].rpartition("=")[2]
    assert bytes.fromhex(connect["app"]["$badstring"]) == b"\xe9?token=" + redact.token("abc").encode()
    assert connect["title"] == latin("Café"), "no secret"
    for status in (latin("clé is on"), latin("é: live/clé")):
        (answer,) = redact.arguments("onStatus", [{"description": status}], known)
        assert name in str(answer) or name.encode().hex() in str(answer)
        assert "clé".encode("latin-1").hex() not in str(answer)


def test_commands_with_stream_names_may_carry_credentials() -> None:
    talk = "connect publish play FCPublish FCUnpublish releaseStream onStatus onFCPublish onFCUnpublish onPlayStatus"
    assert all(carries_credentials(name) for name in talk.split())
    assert carries_credentials(None), "the name is damaged, so it may be any command"
    assert not any(carries_credentials(name) for name in ("onMetaData", "@setDataFrame", "createStream", "_result"))


def test_a_known_stream_name_is_hashed_in_later_texts() -> None:
    redact, known = Redactor(b"k"), KnownSecrets()
    redact.arguments("publish", [None, "show1", "live"], known)
    status = {"level": "status", "description": "show1 is now published. Stream rtmp/show1 (show1).", "x": "show12"}
    (_, answer) = redact.arguments("onStatus", [None, status], known)
    hashed = redact.token("show1")
    assert answer["description"] == f"{hashed} is now published. Stream rtmp/{hashed} ({hashed})."
    assert answer["x"] == "show12"


def test_a_unit_is_not_a_stream_name() -> None:
    redact = Redactor(b"k")
    known = KnownSecrets()
    known.add(redact.secret("s"))
    assert redact.text("10.0 s after s.", known) == f"10.0 s after {redact.token('s')}."


def test_streams_are_found_by_name_or_hash() -> None:
    redact = Redactor(b"k")
    for wanted in ("show?a=1", "show", redact.token("show"), redact.stream_name("show?a=1")):
        assert redact.matches(wanted, "show?a=1")
    assert not redact.matches("sho", "show?a=1") and not redact.matches("show", None)


def test_the_key_of_a_user_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = load_key()
    assert len(first) == 32 and load_key() == first
    (path,) = tmp_path.rglob("redact.key")
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv(KEY_VARIABLE, "given")
    assert load_key() == b"given"


def test_a_known_name_is_hashed_after_its_application_and_before_punctuation() -> None:
    redactor, known = Redactor(b"key"), KnownSecrets()
    for secret in redactor.secrets_in("play", [None, "secret"]):
        known.add(secret)
    for text in ("Playing live/secret.", "Playing secret.", "live/secret is gone", "secret: gone"):
        assert "secret" not in redactor.text(text, known), text
    assert redactor.text("Playing live/other.", known) == "Playing live/other."
    with_parameters = redactor.text("live/secret?token=abc is on.", known)
    assert "secret" not in with_parameters and "abc" not in with_parameters


def test_shared_arguments_are_redacted_per_connection() -> None:
    words = "show1 is on"
    answer = Arguments([None, {"code": "NetStream.Publish.Start", "description": words}])

    def description(redactor: Redactor, name: str) -> str:
        session, secrets = Session(), ConnectionSecrets(redactor)
        commands = CommandRows(secrets, table_wanted=True)
        for direction, fact in (
            ("c2s", CommandFact(1, 1, 1, 1, 1, 20, "publish", 3.0, 0, [None, name])),
            ("s2c", CommandFact(2, 1, 2, 2, 1, 20, "onStatus", 0.0, 0, answer)),
        ):
            secrets.learn(fact)
            commands.add(session.receive_command(direction, fact))
        (row,) = commands.take()["s2c"]
        assert json.loads(row[8])[1]["description"] == row[13]
        return str(row[13])

    one, other, open_ = Redactor(b"k1"), Redactor(b"k2"), Redactor(None)
    for _ in range(2):
        for redactor in (one, other):
            hashed = f"{redactor.token('show1')} is on"
            assert description(redactor, "show1") == description(redactor, "show1") == hashed
            assert description(redactor, "show2") == words
        assert description(open_, "show1") == words


def test_a_stream_name_in_the_url_is_hashed_before_publish_names_it() -> None:
    redactor, known = Redactor(b"key"), KnownSecrets()
    (shown,) = redactor.arguments("connect", [{"app": "live", "tcUrl": "rtmp://h/live/fwd?x=1"}], known)
    assert shown["app"] == "live" and "fwd" not in shown["tcUrl"] and redactor.token("fwd") in known
    (shown,) = redactor.arguments("connect", [{"app": "live/fwd", "tcUrl": "rtmp://h/live/fwd"}], KnownSecrets())
    assert shown["tcUrl"] == "rtmp://h/live/fwd"  # an application in two parts
    (shown,) = redactor.arguments("connect", [{"app": "live", "tcUrl": "rtmp://h/live/_definst_"}], KnownSecrets())
    assert shown["tcUrl"] == "rtmp://h/live/_definst_"


def test_names_of_many_lengths_are_hidden() -> None:
    redactor, known = Redactor(b"key"), KnownSecrets()
    for length in range(5, 60):
        for name in (f"x{length:0{length}d}", f"a-b_c.{length:0{length}d}"):
            for secret in redactor.secrets_in("play", [None, name]):
                known.add(secret)
            token = redactor.token(name)
            shown = redactor.text(f"Playing live/{name}: 10 s of {name}, {token}.", known)
            assert shown == f"Playing live/{token}: 10 s of {token}, {token}."


def test_values_in_the_query_of_a_name_are_known_without_rows_of_commands() -> None:
    redactor = Redactor(b"key")
    secrets = ConnectionSecrets(redactor)
    secrets.learn(CommandFact(1, 1, 1, 1, 1, 20, "publish", 3.0, 0, [None, "cam?token=abcdefgh12345", "live"]))
    assert secrets.hide("abcdefgh12345 has expired") == f"{redactor.token('abcdefgh12345')} has expired"


def test_the_cache_of_texts_is_bounded_by_the_words_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(most: int) -> int:
        monkeypatch.setattr("rtmp_spark.redact.REDACT_CACHE_HASHES", most)
        redactor, known = Redactor(b"key"), KnownSecrets()
        for length in (3, 7, 11, 15):
            known.add(redactor.secret("x" * length))
        tracemalloc.start()
        for number in range(8):
            text = " ".join(f"{(n * n * 977 + number * 7919) % 1000:03d}" for n in range(250))
            redactor.text(text, known)
            redactor.texts((text,), known)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    assert kept(1000) < kept(1 << 30) / 2


@pytest.mark.parametrize("count", [1, 3, 9, 40])
def test_a_group_of_texts_is_hidden_like_each_of_them(count: int) -> None:
    redactor = Redactor(b"key")
    names = [f"cam{'x' * (number % 20)}{number}" for number in range(count)]
    groups = [("flash", f"live/{name}?token=abc", f"{name} starts", "nothing", "") for name in [*names, "another1"]]
    groups.append(("x " * 600, names[0]))
    for last in range(count):  # the same groups, while more and more secrets become known
        known = KnownSecrets()
        for name in names[: last + 1]:
            known.add(redactor.secret(name))
        for texts in groups:
            assert redactor.texts(texts, known) == tuple(redactor.text(text, known) for text in texts)
    assert Redactor(None).texts(groups[0], known) == groups[0]
