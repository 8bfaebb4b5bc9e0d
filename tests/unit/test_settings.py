"""Settings from the environment are checked; errors say what to do and never contain a secret."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.clock import SystemClock, seconds
from ringback.domain.roles import ALL_ROLES, Role
from ringback.domain.upstreams import DisconnectAction
from ringback.domain.validation import is_loopback
from ringback.settings import SettingsError, find_misspelt_variables, load_settings
from ringback.settings.values import KEPT_SECONDS_MAX

SECRET = "k1:c2VjcmV0IHRoYXQgbm9ib2R5IG11c3Qgc2VlIQ=="


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a .env."""
    monkeypatch.chdir(tmp_path)


def test_the_defaults_are_those_of_a_service_for_this_machine_with_keys() -> None:
    settings = load_settings()

    assert (settings.host, settings.port, settings.auth) == ("127.0.0.1", 8090, "keys")
    assert settings.callback_private_cidrs == ()
    assert not settings.callback_http


def test_the_command_line_goes_over_the_environment_and_that_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("RINGBACK_PORT=1\nRINGBACK_HOST=127.0.0.2\nRINGBACK_LOG_LEVEL=error\n", "utf-8")
    monkeypatch.setenv("RINGBACK_PORT", "2")
    monkeypatch.setenv("RINGBACK_HOST", "127.0.0.3")

    settings = load_settings(port=3, host=None)

    assert (settings.port, settings.host, settings.log_level) == (3, "127.0.0.3", "error")


def test_a_bad_line_of_the_file_is_named_once_with_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / ".env").write_text("RINGBACK_PORT=1\nno assignment here\n", "utf-8")

    load_settings()
    find_misspelt_variables()

    assert caplog.messages == [f"{tmp_path / '.env'}: line 2 is no NAME=VALUE, and is ignored."]


def test_a_variable_that_almost_has_the_name_of_a_setting_is_found_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("RINGBACK_API_KEY", "RINGBACK_URL", "RINGBACK_CALL_ID", "RINGBACK_CALLBACK_URL", "RINGBACK_GITHUB_TOKEN")
    for name in (*others, "RINGBACK_PORT", "RINGBACK_CALLBACK_PRIVATE_CIDR"):
        monkeypatch.setenv(name, "1")
    (tmp_path / ".env").write_text("RINGBACK_DATABASEURL=sqlite:///a.db\nRINGBACK_HOST=127.0.0.2\n", "utf-8")

    assert find_misspelt_variables() == {
        "RINGBACK_CALLBACK_PRIVATE_CIDR": "RINGBACK_CALLBACK_PRIVATE_CIDRS",
        "RINGBACK_DATABASEURL": "RINGBACK_DATABASE_URL",
    }


def test_lists_are_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_CALLBACK_PRIVATE_CIDRS", "127.0.0.0/8, ::1/128,")
    monkeypatch.setenv("RINGBACK_ALLOWED_HOSTS", "a.example,b.example")
    monkeypatch.setenv("RINGBACK_ALLOWED_ORIGINS", "")

    settings = load_settings()

    assert settings.callback_private_cidrs == (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.allowed_origins == ()


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PUBLIC_URL", "SECRET_KEYS", "CONFIG", "OIDC_ISSUER"):
        monkeypatch.setenv(f"RINGBACK_{name}", "")

    settings = load_settings()

    assert (settings.public_url, settings.secret_keys, settings.config) == (None, None, None)
    assert settings.oidc_issuer is None


def test_white_space_around_a_value_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PUBLIC_URL": "https://ringback.example\n",
        "OIDC_ISSUER": "https://issuer.example\n",
        "DATABASE_URL": " sqlite:///calls.db\r\n",
        "SECRET_KEYS": f"{SECRET}\n",
        "CONFIG": "\n",
    }.items():
        monkeypatch.setenv(f"RINGBACK_{name}", value)

    settings = load_settings(host="127.0.0.1\n")

    assert (settings.base_url, settings.host) == ("https://ringback.example", "127.0.0.1")
    assert (settings.oidc_issuer, settings.database_url) == ("https://issuer.example", "sqlite:///calls.db")
    assert settings.secret_keys is not None
    assert (settings.secret_keys.get_secret_value(), settings.config) == (SECRET, None)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:8090"),
        ({"host": "::1", "port": 1}, "http://[::1]:1"),
        ({"public_url": "https://ringback.example/"}, "https://ringback.example"),
        ({"public_url": "https://example.org/ringback/"}, "https://example.org/ringback"),
    ],
)
def test_callbacks_name_the_public_url_or_where_the_service_listens(settings: dict[str, Any], url: str) -> None:
    assert load_settings(**settings).base_url == url


def test_a_node_has_every_role_unless_the_operator_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().roles == ALL_ROLES
    monkeypatch.setenv("RINGBACK_ROLES", "")
    assert load_settings().roles == ALL_ROLES
    monkeypatch.setenv("RINGBACK_ROLES", "janitor, api")
    assert load_settings().roles == (Role.JANITOR, Role.API)


def test_an_unknown_role_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"RINGBACK_ROLES: .*'api', 'runner', 'dispatcher' or 'janitor'"):
        load_settings(roles="api,worker")


def test_the_settings_show_no_password_of_the_database() -> None:
    assert "hidden" not in repr(load_settings(database_url="postgresql://ann:hidden@db/ringback"))


# -- errors -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PORT", "eighty", "valid integer"),
        ("PORT", "65536", "less than or equal to 65535"),
        ("AUTH", "maybe", "'keys' or 'off'"),
        ("CALLBACK_PRIVATE_CIDRS", "10.0.0.1/8", "write 10.0.0.0/8"),
        ("CALLBACK_PRIVATE_CIDRS", "home", "home"),
        ("DRAIN_SECONDS", "-1", "greater than or equal to 0"),
        ("DRAIN_SECONDS", "nan", "finite"),
        ("RESULT_RETENTION_SECONDS", "inf", "finite"),
        ("RESULT_RETENTION_SECONDS", "1e12", "less than or equal to 10000000000"),
        ("AUDIT_RETENTION_SECONDS", "99999999999", "less than or equal to 10000000000"),
        ("SUBSCRIPTION_TTL_SECONDS_MAX", "1e15", "less than or equal to 10000000000"),
        ("QUOTA_WEBHOOKS", "99999999999999999999", "less than or equal to 9007199254740992"),
        ("REQUEST_BYTES_MAX", "12", "greater than or equal to 1024"),
        ("LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("PUBLIC_URL", "ringback.example", "https://"),
        ("PUBLIC_URL", "ftp://ringback.example", "https://"),
        ("PUBLIC_URL", "https://ringback.example/?a=1", "https://"),
        ("PUBLIC_URL", "https://", "https://"),
        ("PUBLIC_URL", "https://ringback.example\n/ringback", "https://"),
        ("PUBLIC_URL", "https://ringback .example", "https://"),
        ("PUBLIC_URL", "https://ringback.example:99999", "https://"),
        ("PUBLIC_URL", "https://ann:hidden@ringback.example", "https://"),
        ("PUBLIC_URL", "https://münchen.example", "xn--"),
        ("HOST", "", "an address or a name"),
        ("HOST", " ", "an address or a name"),
        ("HOST", "[::1]", "an address or a name"),
        ("HOST", "http://127.0.0.1", "an address or a name"),
        ("HOST", "127.0.0.1:8090", "an address or a name"),
        ("HOST", "münchen", "an address or a name"),
        ("ON_DISCONNECT", "stop", "'keep' or 'cancel'"),
        ("DISCONNECT", "keep", "RINGBACK_ON_DISCONNECT"),
        ("DISCONNECT", "cancel", "RINGBACK_ON_DISCONNECT"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(f"RINGBACK_{name}", value)

    with pytest.raises(SettingsError) as refused:
        load_settings()

    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"RINGBACK_{name}: ")
    assert reason in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", "0.0"])
def test_a_service_on_all_addresses_needs_a_public_url(host: str) -> None:
    with pytest.raises(SettingsError, match="RINGBACK_PUBLIC_URL is required"):
        load_settings(host=host)


def test_the_longest_retention_leads_to_no_time_outside_the_calendar() -> None:
    kept = seconds(load_settings(audit_retention_seconds=KEPT_SECONDS_MAX).audit_retention_seconds)
    now = SystemClock().now()

    assert now - kept < now < now + kept


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"RINGBACK_PORT=8091\n# caf\xe9\n")

    with pytest.raises(SettingsError, match="UTF-8"):
        load_settings()


def test_a_file_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to("/proc/self/mem")  # its first byte can be read by no process, and by no user

    with pytest.raises(SettingsError, match=r"\.env cannot be read: .*\. Run this as the service's user"):
        load_settings()


def test_the_old_name_of_a_setting_is_refused_in_a_file_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RINGBACK_DISCONNECT=keep\n", "utf-8")

    with pytest.raises(SettingsError, match=r"RINGBACK_DISCONNECT: .*RINGBACK_ON_DISCONNECT"):
        load_settings()


def test_a_disconnect_keeps_the_call_by_default() -> None:
    assert load_settings().on_disconnect is DisconnectAction.KEEP


def test_every_wrong_setting_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "eighty")
    monkeypatch.setenv("RINGBACK_LOG_FORMAT", "xml")

    with pytest.raises(SettingsError) as refused:
        load_settings()

    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "RINGBACK_PORT",
        "RINGBACK_LOG_FORMAT",
    ]


def test_a_secret_is_shown_by_no_error_and_by_no_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", SECRET)
    assert SECRET not in repr(load_settings())

    monkeypatch.setenv("RINGBACK_PORT", "eighty")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert SECRET not in str(refused.value)
    assert refused.value.__suppress_context__


@pytest.mark.requirement("R25")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "ringback.example"])
def test_without_keys_the_service_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(SettingsError, match="ringback keys create"):
        load_settings(auth="off", host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_keys_may_be_off(host: str) -> None:
    assert is_loopback(host)
    assert load_settings(auth="off", host=host).auth == "off"


@pytest.mark.parametrize("url", ["https://issuer.example/realms/one/", "http://127.0.0.1:9000", "http://localhost"])
def test_an_issuer_is_kept_character_by_character(url: str) -> None:
    assert load_settings(oidc_issuer=url).oidc_issuer == url


@pytest.mark.parametrize(
    "url",
    ["http://issuer.example", "issuer.example", "https://", "https://issuer.example?x=1", "https://issuer.example#x"],
)
def test_an_invalid_issuer_url_is_rejected(url: str) -> None:
    with pytest.raises(SettingsError, match="RINGBACK_OIDC_ISSUER"):
        load_settings(oidc_issuer=url)


def test_token_scopes_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_OIDC_SCOPES", "calls, read")
    monkeypatch.setenv("RINGBACK_OIDC_AUDIENCE", "ringback-api")
    settings = load_settings()
    monkeypatch.setenv("RINGBACK_OIDC_SCOPES", "everything")

    assert (settings.oidc_scopes, settings.oidc_audience) == (("calls", "read"), ("ringback-api",))
    with pytest.raises(SettingsError, match="RINGBACK_OIDC_SCOPES"):
        load_settings()


def test_log_levels_are_written_by_area_and_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("RINGBACK_LOG_LEVELS", "notifier=debug, upstreams = Warning")

    settings = load_settings()

    assert settings.log_level == "warning"
    assert settings.log_levels == (("notifier", "debug"), ("upstreams", "warning"))


@pytest.mark.parametrize("text", ["notifer=debug", "notifier", "notifier=loud", "mcp=debug"])
def test_a_log_level_of_an_unknown_area_or_kind_is_refused_with_what_is_known(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("RINGBACK_LOG_LEVELS", text)

    with pytest.raises(SettingsError, match=r"RINGBACK_LOG_LEVELS: .*(Areas: .*notifier|'debug', 'info')"):
        load_settings()


def test_a_port_that_kubernetes_has_set_for_a_service_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "tcp://10.0.0.1:8000")

    with pytest.raises(
        SettingsError, match=r"^RINGBACK_PORT: 'tcp://10\.0\.0\.1:8000' is what Kubernetes sets .*enableServiceLinks"
    ):
        load_settings()
