"""Logins on a listener that asks for none, and credentials of SCRAM. Logins on listeners that ask are in `logins.py`."""

from . import case


@case
def login_where_nobody_asks(case):
    for version in (0, 1):
        case.ask("SaslHandshake", version, {"mechanism": "PLAIN"})
    for version in (0, 1, 2):
        case.ask("SaslAuthenticate", version, {"auth_bytes": b"\0alice\0wonder"})
    case.note(then=case.connection.alive())


@case
def credentials_without_a_login(case):
    nobody = case.unique("user")
    case.ask("DescribeUserScramCredentials", 0, {"users": [{"name": nobody}]})
    case.ask("AlterUserScramCredentials", 0, {"deletions": [{"name": nobody, "mechanism": 1}], "upsertions": []})
    case.note(then=case.connection.alive())
