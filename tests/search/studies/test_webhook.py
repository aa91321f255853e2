import pytest
from pydantic import ValidationError

from search.studies.spec import StudySpec


def spec(url: object) -> StudySpec:
    return StudySpec.model_validate({"task": {"kind": "digits"}, "webhook": {"url": url}})


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/hook?token=a%20b",
        "http://example.org:8080",
        "https://[2606:4700::1111]/",
        "https://xn--bcher-kva.example/",
    ],
)
def test_a_webhook_stays_as_it_was_written(url: str) -> None:
    webhook = spec(url).webhook
    assert webhook is not None
    assert webhook.url == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://example.org/", "is not http:// or https:// and a host"),
        ("example.org/hook", "is not http:// or https:// and a host"),
        ("https:///hook", "is not http:// or https:// and a host"),
        ("https://example.org:99999/", "no URL"),
        ("https://[::1/", "no URL"),
        ("https://[v1.example.net]/hook", "no URL"),
        ("https://[1.2.3.4]/hook", "no URL"),
        ("https://[2606:4700::1111]example.org/hook", "no URL: 'example.org' follows the address"),
        ("https://example.org/#top", "fragment"),
        ("https://exa\nmple.org/", "printable ASCII"),
        ("https://example.org\\@elsewhere/", "printable ASCII"),
        ("https://bücher.example/", "punycode"),
        (f"https://example.org/{'a' * 2000}", "at most 2000 characters"),
        (7, "valid string"),
    ],
)
def test_what_is_no_plain_url_is_refused(url: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said) as refused:
        spec(url)
    assert [error["loc"] for error in refused.value.errors()] == [("webhook", "url")]


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValidationError) as refused:
        spec("https://user:topsecret@example.org/")
    (error,) = refused.value.errors()
    assert "names a user or a password" in error["msg"]
    assert "topsecret" not in error["msg"]


def test_other_keys_are_refused() -> None:
    document = {"task": {"kind": "digits"}, "webhook": {"url": "https://a.org", "secret": "x"}}
    with pytest.raises(ValidationError, match="secret"):
        StudySpec.model_validate(document)


def test_no_webhook_is_the_default() -> None:
    assert StudySpec.model_validate({"task": {"kind": "digits"}}).webhook is None
